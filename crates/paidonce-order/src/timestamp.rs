//! A point in time with microseconds, always UTC inside, RFC 3339 outside.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// Units: microseconds since 1970-01-01T00:00:00Z. Shape: RFC 3339 in UTC (`2025-01-08T12:34:56.789Z`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Timestamp(i64);

/// A text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an RFC 3339 time such as 2025-01-08T12:34:56+08:00")]
pub struct TimestampError {
    text: String,
}

impl Timestamp {
    /// From microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Later (or, negative, earlier) by so many microseconds; saturates.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// From a `time` value; digits below a microsecond are cut.
    #[must_use]
    pub fn from_datetime(at: OffsetDateTime) -> Self {
        Self(i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000)).unwrap_or(i64::MAX))
    }

    /// As a `time` value in UTC.
    #[must_use]
    pub fn to_datetime(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0).saturating_mul(1_000))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Reads RFC 3339 with any offset and an optional fraction.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        OffsetDateTime::parse(text, &Rfc3339)
            .map(Self::from_datetime)
            .map_err(|_| TimestampError { text: text.to_owned() })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_datetime().to_offset(UtcOffset::UTC).format(&Rfc3339).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampError;
    fn try_from(text: String) -> Result<Self, TimestampError> {
        Self::parse(&text)
    }
}

impl From<Timestamp> for String {
    fn from(at: Timestamp) -> Self {
        at.to_string()
    }
}
