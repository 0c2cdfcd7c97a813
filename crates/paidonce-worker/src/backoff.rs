//! When a failed delivery is tried again, and when it is given up (P7).

/// Pauses between tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Before the second, third, .. try; after the last pause and one more failure the effect is dead.
    pub pauses_ms: Vec<i64>,
    /// Each pause is lengthened by up to this much, so that a receiver that comes back is not hit by all at once.
    pub jitter_percent: u8,
}

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again after so long.
    RetryAfterMs(i64),
    /// No pause is left.
    GiveUp,
}

impl Default for Schedule {
    /// 1, 5 and 30 minutes.
    fn default() -> Self {
        Self { pauses_ms: vec![60_000, 300_000, 1_800_000], jitter_percent: 10 }
    }
}

impl Schedule {
    /// After `tries` tries, this one included. `roll` is where in the jitter's span to land, evenly drawn.
    #[must_use]
    pub fn next(&self, tries: usize, roll: u16) -> Next {
        let Some(pause_ms) = tries.checked_sub(1).and_then(|index| self.pauses_ms.get(index)) else {
            return Next::GiveUp;
        };
        let span_ms = pause_ms.saturating_mul(i64::from(self.jitter_percent)) / 100;
        let extra_ms = span_ms.saturating_mul(i64::from(roll)) / i64::from(u16::MAX);
        Next::RetryAfterMs(pause_ms.saturating_add(extra_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_retries_after_one_five_and_thirty_minutes_and_then_no_more() {
        let schedule = Schedule::default();
        assert_eq!(schedule.next(1, 0), Next::RetryAfterMs(60_000));
        assert_eq!(schedule.next(2, 0), Next::RetryAfterMs(300_000));
        assert_eq!(schedule.next(3, 0), Next::RetryAfterMs(1_800_000));
        assert_eq!(schedule.next(4, 0), Next::GiveUp);
    }

    #[test]
    fn jitter_only_lengthens_and_never_by_more_than_its_share() {
        let schedule = Schedule::default();
        assert_eq!(schedule.next(1, u16::MAX), Next::RetryAfterMs(66_000));
        assert_eq!(schedule.next(1, u16::MAX / 2), Next::RetryAfterMs(62_999));
        let without = Schedule { jitter_percent: 0, ..Schedule::default() };
        assert_eq!(without.next(3, u16::MAX), Next::RetryAfterMs(1_800_000));
    }
}
