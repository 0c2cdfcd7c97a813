//! The platforms' time: a value that is passed in, and the ways in which both platforms write it. Always Beijing time.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::{format_description, offset};

const RFC3339: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]+08:00");
const TEXT: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
const MILLIS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]");
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
const COMPACT_DAY: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]");

const MICROS: i64 = 1_000_000;

/// An instant in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// From microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// From seconds since 1970.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS))
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(MICROS)
    }

    /// Later by this much.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// Earlier by this much.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// What passed since then; nothing when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `2026-01-01T12:00:00+08:00`, as WeChat Pay writes times.
    #[must_use]
    pub fn rfc3339(self) -> String {
        self.write(RFC3339)
    }

    /// `2026-01-01 12:00:00`, as Alipay writes times.
    #[must_use]
    pub fn text(self) -> String {
        self.write(TEXT)
    }

    /// `2026-01-01 12:00:00.143`: Alipay's gmt_refund.
    #[must_use]
    pub fn text_millis(self) -> String {
        self.write(MILLIS)
    }

    /// `2026-01-01`: the Beijing day.
    #[must_use]
    pub fn day(self) -> String {
        self.write(DAY)
    }

    /// `20260101`, the beginning of the platforms' numbers.
    #[must_use]
    pub fn compact_day(self) -> String {
        self.write(COMPACT_DAY)
    }

    /// Reads `2026-01-01 12:00:00` (Beijing).
    #[must_use]
    pub fn parse_text(text: &str) -> Option<Self> {
        let written = time::PrimitiveDateTime::parse(text, TEXT).ok()?;
        Some(Self::from_seconds(written.assume_offset(offset!(+8)).unix_timestamp()))
    }

    /// The first moment of a Beijing day `2026-01-01`.
    #[must_use]
    pub fn parse_day(text: &str) -> Option<Self> {
        Self::parse_text(&format!("{text} 00:00:00"))
    }

    fn write(self, format: &[BorrowedFormatItem<'_>]) -> String {
        let nanos = i128::from(self.0).saturating_mul(1_000);
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        at.to_offset(offset!(+8)).format(format).unwrap_or_default()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_each_platform_writes_them() {
        let at = Moment::from_micros(1_767_240_000_143_000);
        assert_eq!(at.rfc3339(), "2026-01-01T12:00:00+08:00");
        assert_eq!(at.text(), "2026-01-01 12:00:00");
        assert_eq!(at.text_millis(), "2026-01-01 12:00:00.143");
        assert_eq!(at.compact_day(), "20260101");
        assert_eq!(Moment::parse_text("2026-01-01 12:00:00").unwrap().seconds(), at.seconds());
    }

    #[test]
    fn a_bill_day_begins_at_midnight_in_beijing() {
        let begin = Moment::parse_day("2026-01-01").unwrap();
        assert_eq!(begin.minus(Duration::from_secs(1)).day(), "2025-12-31");
        assert_eq!(begin.day(), "2026-01-01");
    }
}
