//! Refused traffic in the log: anybody can send it, so it may not fill the disk.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use paidonce_order::timestamp::Timestamp;

/// Lines per code and minute.
const LINES_PER_MINUTE_MAX: u32 = 10;

const MICROS_PER_MINUTE: i64 = 60_000_000;

/// Counts lines by refusal code. Codes are ours, so their number is small.
#[derive(Default)]
pub(crate) struct RefusalLog {
    minutes: Mutex<BTreeMap<&'static str, Minute>>,
}

#[derive(Clone, Copy, Default)]
struct Minute {
    minute: i64,
    lines: u32,
    suppressed: u64,
}

/// Whether to write a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Yes, and say how many were left out before it.
    Write {
        /// Left out in the last minute that had too many.
        suppressed: u64,
    },
    /// No.
    Skip,
}

impl RefusalLog {
    pub(crate) fn line(&self, code: &'static str, now: Timestamp) -> Line {
        let minute = now.as_micros().div_euclid(MICROS_PER_MINUTE);
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = minutes.entry(code).or_default();
        if known.minute != minute {
            let suppressed = known.suppressed;
            *known = Minute { minute, lines: 1, suppressed: 0 };
            return Line::Write { suppressed };
        }
        if known.lines < LINES_PER_MINUTE_MAX {
            known.lines = known.lines.saturating_add(1);
            return Line::Write { suppressed: 0 };
        }
        known.suppressed = known.suppressed.saturating_add(1);
        Line::Skip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_writes_ten_lines_a_minute_and_then_says_how_many_were_left_out() {
        let log = RefusalLog::default();
        let at = Timestamp::from_micros(0);
        let written = (0..100).filter(|_| log.line("bad_signature", at) != Line::Skip).count();
        assert_eq!(written, 10);
        assert_eq!(log.line("stale", at), Line::Write { suppressed: 0 }, "another code has its own lines");
        let later = at.plus_micros(MICROS_PER_MINUTE);
        assert_eq!(log.line("bad_signature", later), Line::Write { suppressed: 90 });
    }
}
