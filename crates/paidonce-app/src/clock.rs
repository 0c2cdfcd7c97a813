//! Our clock: what the verifiers call `now`. Business times in the log come from the database instead.

use paidonce_order::timestamp::Timestamp;
use paidonce_store::clock::ClockOffset;
use time::OffsetDateTime;

/// System time plus an offset that only test builds can move.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offset: ClockOffset,
}

impl Clock {
    /// Over the offset that the store was given too, so that both move together.
    #[must_use]
    pub const fn new(offset: ClockOffset) -> Self {
        Self { offset }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.system_now().plus_micros(self.offset.micros())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one clock that everybody else takes `now` from")]
    fn system_now(&self) -> Timestamp {
        Timestamp::from_datetime(OffsetDateTime::now_utc())
    }
}
