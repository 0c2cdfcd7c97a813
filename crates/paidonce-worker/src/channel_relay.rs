//! The relay of calls to the platforms: polls, queries, refunds, closes. The steps stand in [`crate::claiming`]; what a try
//! is, the use cases decide ([`ChannelEffects`]).
//!
//! It runs beside the relay of deliveries with its own places, so that neither a slow platform nor a slow subscriber holds
//! the other up. Its effects are never given up: each ends on a final answer, or waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::ports::{ChannelEffects, EffectStep, RelayDriver, RelayReport};
use paidonce_store::fault::Faults;
use paidonce_store::store::{CHANNEL_KINDS, ClaimedEffect, Store, StoreError, TryResult};
use tokio::sync::watch;

use crate::claiming::{ClaimLoop, Handler, Pace, millis, roll};
use crate::relay::Relay;

/// Spread of a pause at most: enough to keep orders that were opened together apart, and an expiry is at most this late.
const JITTER_MAX: Duration = Duration::from_secs(30);

/// A try that found no end is cut and begun again after this: what it asked last is unknown, so the next one asks first.
const CUT_PAUSE: Duration = Duration::from_secs(60);
/// Never busy, whatever a use case asks for.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Limits of the relay.
#[derive(Debug, Clone)]
pub struct ChannelRelaySettings {
    /// Effects under way at once. At 20 calls a second and account, more would only wait for their turn.
    pub concurrency_max: u32,
    /// One try may be several calls of up to 10 s each, one after the other; then it is cut.
    pub try_timeout: Duration,
    /// What a lease is longer than a try, for the report to arrive.
    pub lease_margin: Duration,
    /// Longest sleep: finds effects whose commit or whose relay was another process.
    pub poll: Duration,
    /// How long a commit may wait to be looked at: most make no call that is due at once.
    pub commit_pause: Duration,
    /// Pauses are lengthened by up to this much, so that orders opened together are not asked together for ever.
    pub jitter_percent: u8,
    /// Where a test build can make it stumble.
    pub faults: Faults,
}

impl Default for ChannelRelaySettings {
    fn default() -> Self {
        Self {
            concurrency_max: 32,
            try_timeout: Duration::from_secs(90),
            lease_margin: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            commit_pause: Duration::from_millis(200),
            jitter_percent: 10,
            faults: Faults::default(),
        }
    }
}

/// Carries out what is due. Any number may run on one ledger, in one process or many; clones are the same relay.
#[derive(Clone)]
pub struct ChannelRelay(ClaimLoop<Calls>);

/// What a try of a channel-call effect is.
struct Calls {
    effects: Arc<dyn ChannelEffects>,
    try_timeout: Duration,
    lease_margin: Duration,
    jitter_percent: u8,
    done: AtomicU64,
    again: AtomicU64,
}

impl ChannelRelay {
    /// Wires a relay. `commits` wakes it after commits of this process.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        effects: Arc<dyn ChannelEffects>,
        settings: ChannelRelaySettings,
        commits: watch::Receiver<()>,
    ) -> Self {
        let ChannelRelaySettings {
            concurrency_max,
            try_timeout,
            lease_margin,
            poll,
            commit_pause,
            jitter_percent,
            faults,
        } = settings;
        let (done, again) = (AtomicU64::new(0), AtomicU64::new(0));
        let calls = Calls { effects, try_timeout, lease_margin, jitter_percent, done, again };
        Self(ClaimLoop::new(store, calls, Pace { concurrency_max, poll, commit_pause, faults }, commits))
    }

    /// Runs until `stop` turns true (or its sender is gone), then finishes what is under way.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        self.0.run(stop).await;
    }
}

#[async_trait]
impl Handler for Calls {
    type Round = ();

    fn kinds(&self) -> &'static [&'static str] {
        CHANNEL_KINDS
    }

    fn lease(&self) -> Duration {
        self.try_timeout.saturating_add(self.lease_margin)
    }

    async fn begin_round(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn attempt(&self, _round: &(), claimed: &ClaimedEffect) -> TryResult {
        let step = tokio::time::timeout(self.try_timeout, self.effects.run_channel_effect(claimed)).await;
        let step = step.unwrap_or_else(|_| {
            let why = format!("the calls took longer than {} s: asked again", self.try_timeout.as_secs());
            EffectStep::Again { after: CUT_PAUSE, why }
        });
        match step {
            EffectStep::Done => TryResult::Delivered,
            EffectStep::Again { after, why } => TryResult::RetryAfter { delay_ms: self.delay_ms(after), error: why },
        }
    }

    async fn tell(&self, claimed: &ClaimedEffect, result: &TryResult) {
        let effect = &claimed.effect;
        let (effect_id, order_no, kind) = (effect.effect_id, &effect.order_no, &effect.kind);
        match result {
            TryResult::Delivered => {
                self.done.fetch_add(1, Ordering::SeqCst);
                tracing::debug!(%effect_id, order_no, kind, "channel call done");
            }
            TryResult::RetryAfter { delay_ms, error } => {
                self.again.fetch_add(1, Ordering::SeqCst);
                tracing::debug!(%effect_id, order_no, kind, delay_ms, why = error, "channel call comes again later");
            }
            TryResult::Dead { error } => {
                tracing::error!(%effect_id, order_no, kind, error, "a channel call was given up: report this as a bug");
            }
        }
    }
}

impl Calls {
    fn delay_ms(&self, after: Duration) -> i64 {
        let plain_ms = millis(after.max(PAUSE_MIN));
        let span_ms = (plain_ms.saturating_mul(i64::from(self.jitter_percent)) / 100).min(millis(JITTER_MAX));
        plain_ms.saturating_add(span_ms.saturating_mul(i64::from(roll())) / i64::from(u16::MAX))
    }

    fn report(&self) -> RelayReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        RelayReport { calls_done: load(&self.done), calls_again: load(&self.again), ..RelayReport::default() }
    }
}

/// Drives by hand beside, or instead of, the loop. The report has everything that this relay did meanwhile.
#[async_trait]
impl RelayDriver for ChannelRelay {
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String> {
        let before = self.0.handler().report();
        self.0.run_until_idle(rounds_max).await?;
        Ok(self.0.handler().report().since(before))
    }
}

/// Both relays of a node.
#[derive(Clone)]
pub struct Relays {
    /// What subscribers are told.
    pub deliveries: Relay,
    /// What platforms are asked.
    pub calls: ChannelRelay,
}

impl Relays {
    /// Runs both until `stop` turns true (or its sender is gone), then finishes what is under way.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        // Each in a task of its own: a panic of one must not end the other.
        let deliveries = tokio::spawn(self.deliveries.run(stop.clone()));
        let calls = tokio::spawn(self.calls.run(stop));
        for ended in [deliveries.await, calls.await] {
            if let Err(error) = ended {
                tracing::error!(%error, "a relay ended in a panic; what it had claimed is tried again after its lease");
            }
        }
    }
}

/// Both, in turn, until neither finds anything due: a call's answer makes deliveries, and an event makes calls.
#[async_trait]
impl RelayDriver for Relays {
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String> {
        let mut report = RelayReport::default();
        for _ in 0..rounds_max {
            let calls = self.calls.run_until_idle(rounds_max).await?;
            let deliveries = self.deliveries.run_until_idle(rounds_max).await?;
            report = report.and(calls).and(deliveries);
            if calls == RelayReport::default() {
                break;
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests;
