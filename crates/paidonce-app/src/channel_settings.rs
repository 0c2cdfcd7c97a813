//! How the platforms are asked: one struct that the configuration fills.

use std::time::Duration;

use paidonce_order::policy::SurplusPolicy;

/// Settings of all use cases that ask a platform.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// A platform's answer about a payment is given to whoever asks the same again within this time.
    pub fresh: Duration,
    /// Pauses of the poll of an unpaid order: the first after the order was opened, then between questions; the last one
    /// repeats. The first is also the store's `FirstDue::poll_ms`. Never empty.
    pub poll_seconds: Vec<u64>,
    /// Pauses between the questions about anything else that is not final (refunds, shares, closes); the last one repeats.
    /// Never empty.
    pub refund_follow_seconds: Vec<u64>,
    /// What becomes of payments that settle nothing.
    pub surplus: SurplusSettings,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(3),
            poll_seconds: vec![15, 30, 60, 300, 1_800, 3_600],
            refund_follow_seconds: vec![10, 30, 60, 300, 1_800, 3_600],
            surplus: SurplusSettings::default(),
        }
    }
}

/// What becomes of payments that settle nothing.
#[derive(Debug, Clone)]
pub struct SurplusSettings {
    /// The action for each reason.
    pub policy: SurplusPolicy,
    /// How long a surplus payment waits before it is decided: time for a person. Also the store's `FirstDue::surplus_ms`.
    pub delay: Duration,
    /// When automatic refunds stop.
    pub breaker: Breaker,
}

impl Default for SurplusSettings {
    fn default() -> Self {
        Self { policy: SurplusPolicy::default(), delay: Duration::from_secs(600), breaker: Breaker::default() }
    }
}

/// Most automatic refunds of an account within an hour; above it surplus payments are held and a person is told.
#[derive(Debug, Clone, Copy)]
pub struct Breaker {
    /// How many.
    pub refunds_per_hour_max: u32,
    /// Their sum. Units: minor units, whatever the currency.
    pub minor_per_hour_max: i64,
}

impl Default for Breaker {
    /// 50 refunds or 10,000.00: a mistake in the configuration may cost that much in an hour, not more.
    fn default() -> Self {
        Self { refunds_per_hour_max: 50, minor_per_hour_max: 1_000_000 }
    }
}

/// The pause after the `tries`-th try, `pauses` being counted from the first; the last one repeats.
pub(crate) fn pause_after(pauses: &[u64], tries: i32) -> Duration {
    let index = usize::try_from(tries.max(1)).unwrap_or(usize::MAX).saturating_sub(1);
    let seconds = pauses.get(index).or_else(|| pauses.last()).copied().unwrap_or(3_600);
    Duration::from_secs(seconds)
}
