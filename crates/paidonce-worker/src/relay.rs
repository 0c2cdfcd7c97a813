//! The relay of deliveries: what subscribers are told. The steps stand in [`crate::claiming`]; here is what a try is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::ports::{RelayDriver, RelayReport};
use paidonce_store::fault::Faults;
use paidonce_store::store::{ClaimedEffect, Store, StoreError, Subscriber, TryResult};
use tokio::sync::watch;

use crate::backoff::{Next, Schedule};
use crate::claiming::{ClaimLoop, Handler, Pace, millis, roll};
use crate::deliver::{Deliverer, Tried};

/// The one kind of effect that this relay takes; channel calls have their own worker.
const KINDS: &[&str] = &["deliver"];
/// Deliveries of one lane that are counted for the alarm of a dead one.
const LANE_COUNT_MAX: u32 = 1000;
/// Finished rows deleted in one step, so that no step is long.
const PRUNE_ROWS_MAX: u32 = 1000;

/// Limits of the relay.
#[derive(Debug, Clone)]
pub struct RelaySettings {
    /// When a failed delivery is tried again.
    pub schedule: Schedule,
    /// Deliveries under way at once.
    pub concurrency_max: u32,
    /// What a lease is longer than the timeout of a request, for the report to arrive.
    pub lease_margin: Duration,
    /// Longest sleep: finds effects whose commit or whose relay was another process.
    pub poll: Duration,
    /// Age at which delivered and discarded rows are deleted.
    pub keep_done: Duration,
    /// How often that is looked for.
    pub prune_every: Duration,
    /// Where a test build can make it stumble.
    pub faults: Faults,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            concurrency_max: 64,
            lease_margin: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            keep_done: Duration::from_secs(30 * 24 * 3600),
            prune_every: Duration::from_secs(600),
            faults: Faults::default(),
        }
    }
}

/// Counted since the start; never reset.
#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
}

impl Counters {
    fn read(&self) -> RelayReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        RelayReport {
            delivered: load(&self.delivered),
            retried: load(&self.retried),
            dead: load(&self.dead),
            ..RelayReport::default()
        }
    }
}

/// Sends what is due. Any number may run on one ledger, in one process or many; clones are the same relay.
#[derive(Clone)]
pub struct Relay {
    claiming: ClaimLoop<Deliveries>,
    store: Arc<dyn Store>,
    keep_done: Duration,
    prune_every: Duration,
}

/// What a try of a delivery is.
struct Deliveries {
    store: Arc<dyn Store>,
    deliverer: Deliverer,
    schedule: Schedule,
    lease_margin: Duration,
    counters: Counters,
}

impl Relay {
    /// Wires a relay. `commits` wakes it after commits of this process.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        deliverer: Deliverer,
        settings: RelaySettings,
        commits: watch::Receiver<()>,
    ) -> Self {
        let RelaySettings { schedule, concurrency_max, lease_margin, poll, keep_done, prune_every, faults } = settings;
        let counters = Counters::default();
        let deliveries = Deliveries { store: Arc::clone(&store), deliverer, schedule, lease_margin, counters };
        // Subscribers are told at once.
        let pace = Pace { concurrency_max, poll, commit_pause: Duration::ZERO, faults };
        let claiming = ClaimLoop::new(Arc::clone(&store), deliveries, pace, commits);
        Self { claiming, store, keep_done, prune_every }
    }

    /// Runs until `stop` turns true (or its sender is gone), then finishes what is under way.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.claiming.clone().run(stop) => {}
            () = self.prune_for_ever() => {}
        }
    }

    /// Beside the sending, so that many old rows don't hold up a new one.
    async fn prune_for_ever(&self) {
        let mut due = tokio::time::interval(self.prune_every);
        loop {
            due.tick().await;
            while self.prune().await >= u64::from(PRUNE_ROWS_MAX) {}
        }
    }

    /// One step; how many rows it deleted.
    async fn prune(&self) -> u64 {
        match self.store.prune_effects(millis(self.keep_done), PRUNE_ROWS_MAX).await {
            Ok(rows) => {
                tracing::debug!(rows, "old finished effects deleted");
                rows
            }
            Err(error) => {
                tracing::warn!(%error, "old finished effects can't be deleted: tried again later");
                0
            }
        }
    }
}

#[async_trait]
impl Handler for Deliveries {
    type Round = Vec<Subscriber>;

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn lease(&self) -> Duration {
        self.deliverer.timeout().saturating_add(self.lease_margin)
    }

    async fn begin_round(&self) -> Result<Vec<Subscriber>, StoreError> {
        self.store.list_subscribers().await
    }

    async fn attempt(&self, subscribers: &Vec<Subscriber>, claimed: &ClaimedEffect) -> TryResult {
        let subscriber = subscribers.iter().find(|found| found.name == claimed.effect.subscriber);
        let tried = match subscriber {
            Some(subscriber) => self.deliverer.deliver(claimed, subscriber).await,
            None => Tried::Hopeless("the subscriber was removed".to_owned()),
        };
        self.judge(claimed, tried)
    }

    async fn tell(&self, claimed: &ClaimedEffect, result: &TryResult) {
        let effect = &claimed.effect;
        let (effect_id, order_no, subscriber) = (effect.effect_id, &effect.order_no, &effect.subscriber);
        match result {
            TryResult::Delivered => {
                self.counters.delivered.fetch_add(1, Ordering::SeqCst);
                tracing::debug!(%effect_id, order_no, subscriber, "delivered");
            }
            TryResult::RetryAfter { delay_ms, error } => {
                self.counters.retried.fetch_add(1, Ordering::SeqCst);
                tracing::warn!(%effect_id, order_no, subscriber, delay_ms, error, "not delivered, tried again later");
            }
            TryResult::Dead { error } => {
                self.counters.dead.fetch_add(1, Ordering::SeqCst);
                let waiting = self.count_waiting(order_no, subscriber).await;
                tracing::error!(
                    %effect_id, order_no, subscriber, error, waiting,
                    "delivery given up: repair the receiver, then `paidonce effects requeue {effect_id}` sends it again \
                     (`discard` drops it); `waiting` later deliveries of this order wait behind it"
                );
            }
        }
    }
}

impl Deliveries {
    fn judge(&self, claimed: &ClaimedEffect, tried: Tried) -> TryResult {
        match tried {
            Tried::Delivered => TryResult::Delivered,
            Tried::Hopeless(error) => TryResult::Dead { error },
            Tried::Failed(error) => {
                // The claim has counted this try already, so that a try that ended in a crash counts too.
                let tries = usize::try_from(claimed.effect.attempts).unwrap_or(usize::MAX);
                match self.schedule.next(tries, roll()) {
                    Next::RetryAfterMs(delay_ms) => TryResult::RetryAfter { delay_ms, error },
                    Next::GiveUp => TryResult::Dead { error },
                }
            }
        }
    }

    /// How many deliveries of the lane wait behind a dead one.
    async fn count_waiting(&self, order_no: &str, subscriber: &str) -> usize {
        let pending = self.store.list_effects(Some("pending"), Some(order_no), None, LANE_COUNT_MAX).await;
        pending.map_or(0, |effects| effects.iter().filter(|effect| effect.subscriber == subscriber).count())
    }
}

/// Drives by hand beside, or instead of, the loop. The report has everything that this relay did meanwhile.
#[async_trait]
impl RelayDriver for Relay {
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String> {
        let counters = &self.claiming.handler().counters;
        let before = counters.read();
        self.claiming.run_until_idle(rounds_max).await?;
        Ok(counters.read().since(before))
    }
}

#[cfg(test)]
mod tests;
