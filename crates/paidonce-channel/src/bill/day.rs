//! The day of a bill: a calendar day in Beijing, whatever the zone of this host (gotcha 60).

use std::fmt;

use paidonce_order::timestamp::Timestamp;
use time::macros::offset;
use time::{Date, OffsetDateTime, Time, UtcOffset};

/// China has had one zone without daylight saving since 1991, so no zone database is needed.
const BEIJING: UtcOffset = offset!(+8);

/// A calendar day in Beijing. Shape: `2026-01-14`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BillDay(Date);

/// A text that is no day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a day such as 2026-01-14")]
pub struct BillDayError {
    text: String,
}

impl BillDay {
    /// Reads `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Result<Self, BillDayError> {
        let bad = || BillDayError { text: text.chars().take(20).collect() };
        let shape = text.len() == 10
            && text.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !shape {
            return Err(bad());
        }
        let at = Timestamp::parse(&format!("{text}T00:00:00+08:00")).map_err(|_| bad())?;
        Ok(Self::at(at))
    }

    /// The day of this moment.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self(at.to_datetime().to_offset(BEIJING).date())
    }

    /// Its first moment.
    #[must_use]
    pub fn start(self) -> Timestamp {
        Timestamp::from_datetime(OffsetDateTime::new_in_offset(self.0, Time::MIDNIGHT, BEIJING))
    }

    /// The first moment after it.
    #[must_use]
    pub fn end(self) -> Timestamp {
        self.start().plus_micros(86_400_000_000)
    }

    /// The day after; the last day of the calendar stays.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.next_day().unwrap_or(self.0))
    }

    /// The day before; the first day of the calendar stays.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.previous_day().unwrap_or(self.0))
    }

    /// Whether the moment is in it: from 00:00:00 on, before the next 00:00:00.
    #[must_use]
    pub fn contains(self, at: Timestamp) -> bool {
        Self::at(at) == self
    }
}

impl fmt::Display for BillDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.0.year(), u8::from(self.0.month()), self.0.day())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_and_ends_at_midnight_in_beijing() {
        let day = BillDay::parse("2026-01-14").unwrap();
        assert_eq!(day.start().to_string(), "2026-01-13T16:00:00Z");
        assert_eq!(day.end(), day.next().start());
        assert!(day.contains(Timestamp::parse("2026-01-14T23:59:59+08:00").unwrap()));
        assert!(!day.contains(Timestamp::parse("2026-01-15T00:00:00+08:00").unwrap()));
        assert!(day.contains(Timestamp::parse("2026-01-13T16:00:00Z").unwrap()));
        assert_eq!(day.previous().to_string(), "2026-01-13");
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in ["2026-1-14", "2026-02-30", "20260114", "2026-01-14T", "", "２026-01-1"] {
            assert!(BillDay::parse(text).is_err(), "{text}");
        }
    }
}
