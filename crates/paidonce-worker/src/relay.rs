//! The relay: claims due deliveries, sends them outside of any tx, reports what came of it.
//!
//! | step | what | a crash right after it |
//! |---|---|---|
//! | 1 | claim due lane heads with a lease | the lease ends, another relay claims |
//! | 2 | point `effect_before_send` | the same |
//! | 3 | send | the lease ends, it is sent again with the same `webhook-id` |
//! | 4 | point `effect_after_send` | the same |
//! | 5 | report with the lease token | done; a report after the lease was lost changes nothing |
//!
//! Lanes (order, subscriber) go in order, since only lane heads are claimed; lanes among themselves run side by side.
//! Nothing is busy: the loop sleeps until a commit, the next due time, or [`RelaySettings::poll`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::ports::{RelayDriver, RelayReport};
use paidonce_store::fault::Faults;
use paidonce_store::store::{ClaimedEffect, Store, StoreError, Subscriber, TryResult};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::backoff::{Next, Schedule};
use crate::deliver::{Deliverer, Tried};

/// The one kind of effect that this relay takes; channel calls have their own worker.
const KINDS: &[&str] = &["deliver"];
/// Deliveries of one lane that are counted for the alarm of a dead one.
const LANE_COUNT_MAX: u32 = 1000;
/// Finished rows deleted in one step, so that no step is long.
const PRUNE_ROWS_MAX: u32 = 1000;
/// Claiming failed: the database is away. Long enough not to hammer it, short enough to be back with it.
const AWAY_PAUSE: Duration = Duration::from_secs(2);

/// Something is due, but nothing could be claimed (another relay has it): not to be asked again at once.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

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
        RelayReport { delivered: load(&self.delivered), retried: load(&self.retried), dead: load(&self.dead) }
    }
}

/// Sends what is due. Any number may run on one ledger, in one process or many; clones are the same relay.
#[derive(Clone)]
pub struct Relay(Arc<Parts>);

struct Parts {
    store: Arc<dyn Store>,
    deliverer: Deliverer,
    settings: RelaySettings,
    committed: Arc<Notify>,
    counters: Counters,
    in_flight: watch::Sender<usize>,
}

impl Relay {
    /// Wires a relay. `committed` wakes it after commits of this process.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, deliverer: Deliverer, settings: RelaySettings, committed: Arc<Notify>) -> Self {
        let (counters, in_flight) = (Counters::default(), watch::Sender::new(0));
        Self(Arc::new(Parts { store, deliverer, settings, committed, counters, in_flight }))
    }

    /// Runs until `stop` turns true (or its sender is gone), then finishes what is under way.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.clone().send_all(stop) => {}
            () = self.prune_for_ever() => {}
        }
    }

    async fn send_all(self, mut stop: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        while !*stop.borrow() {
            let pause = self.fill(&mut tasks).await;
            tokio::select! {
                _ = stop.changed() => {}
                Some(done) = tasks.join_next() => { note_panic(done); }
                () = self.0.committed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            // Whatever else ended meanwhile frees its place too: one claim then fills several.
            while let Some(done) = tasks.try_join_next() {
                note_panic(done);
            }
            if stop.has_changed().is_err() {
                break;
            }
        }
        while let Some(done) = tasks.join_next().await {
            note_panic(done);
        }
    }

    /// Claims as many as there is room for and starts them; how long to sleep when nothing else happens.
    async fn fill(&self, tasks: &mut JoinSet<()>) -> Duration {
        let under_way = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let room = self.0.settings.concurrency_max.saturating_sub(under_way);
        if room == 0 {
            return self.0.settings.poll;
        }
        match self.claim(room).await {
            Ok(round) if round.is_empty() => self.pause().await.max(IDLE_PAUSE),
            Ok(round) => {
                round.into_iter().for_each(|claim| drop(tasks.spawn(self.clone().attempt(claim))));
                self.pause().await
            }
            Err(error) => {
                tracing::warn!(%error, "the relay can't claim deliveries: it tries again");
                AWAY_PAUSE
            }
        }
    }

    async fn pause(&self) -> Duration {
        let poll = self.0.settings.poll;
        match self.0.store.next_effect_due_ms(KINDS).await {
            Ok(Some(due_ms)) => Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)).min(poll),
            Ok(None) => poll,
            Err(_) => AWAY_PAUSE,
        }
    }

    async fn claim(&self, limit: u32) -> Result<Vec<Claim>, StoreError> {
        let lease = self.0.deliverer.timeout().saturating_add(self.0.settings.lease_margin);
        let claimed = self.0.store.claim_effects(KINDS, millis(lease), limit).await?;
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let subscribers = self.0.store.list_subscribers().await?;
        let claim = |effect: ClaimedEffect| {
            let subscriber = subscribers.iter().find(|found| found.name == effect.effect.subscriber).cloned();
            Claim { effect, subscriber, _counted: InFlight::enter(&self.0.in_flight) }
        };
        Ok(claimed.into_iter().map(claim).collect())
    }

    /// Steps 2 to 5 for one claimed effect.
    async fn attempt(self, claim: Claim) {
        // An injected error is a relay that died here: nothing is reported, the lease has to end.
        if self.0.settings.faults.point("effect_before_send").await.is_err() {
            return;
        }
        let tried = match &claim.subscriber {
            Some(subscriber) => self.0.deliverer.deliver(&claim.effect, subscriber).await,
            None => Tried::Hopeless("the subscriber was removed".to_owned()),
        };
        if self.0.settings.faults.point("effect_after_send").await.is_err() {
            return;
        }
        let result = self.judge(&claim, tried);
        self.report(&claim, &result).await;
    }

    fn judge(&self, claim: &Claim, tried: Tried) -> TryResult {
        match tried {
            Tried::Delivered => TryResult::Delivered,
            Tried::Hopeless(error) => TryResult::Dead { error },
            Tried::Failed(error) => {
                // The claim has counted this try already, so that a try that ended in a crash counts too.
                let tries = usize::try_from(claim.effect.effect.attempts).unwrap_or(usize::MAX);
                match self.0.settings.schedule.next(tries, roll()) {
                    Next::RetryAfterMs(delay_ms) => TryResult::RetryAfter { delay_ms, error },
                    Next::GiveUp => TryResult::Dead { error },
                }
            }
        }
    }

    async fn report(&self, claim: &Claim, result: &TryResult) {
        let effect = &claim.effect.effect;
        let (effect_id, subscriber) = (effect.effect_id, effect.subscriber.as_str());
        let Some(lease_token) = effect.lease_token else {
            tracing::error!(%effect_id, "a claimed delivery has no lease token: the ledger is inconsistent");
            return;
        };
        match self.0.store.complete_effect(effect_id, lease_token, result).await {
            Ok(true) => self.tell(claim, result).await,
            Ok(false) => {
                tracing::warn!(%effect_id, subscriber, "the lease ended before the result was there: it is sent again");
            }
            Err(error) => {
                tracing::warn!(%effect_id, subscriber, %error, "the result can't be kept: it is sent again after its lease");
            }
        }
    }

    async fn tell(&self, claim: &Claim, result: &TryResult) {
        let effect = &claim.effect.effect;
        let (effect_id, order_no, subscriber) = (effect.effect_id, &effect.order_no, &effect.subscriber);
        match result {
            TryResult::Delivered => {
                self.0.counters.delivered.fetch_add(1, Ordering::SeqCst);
                tracing::debug!(%effect_id, order_no, subscriber, "delivered");
            }
            TryResult::RetryAfter { delay_ms, error } => {
                self.0.counters.retried.fetch_add(1, Ordering::SeqCst);
                tracing::warn!(%effect_id, order_no, subscriber, delay_ms, error, "not delivered, tried again later");
            }
            TryResult::Dead { error } => {
                self.0.counters.dead.fetch_add(1, Ordering::SeqCst);
                let waiting = self.count_waiting(order_no, subscriber).await;
                tracing::error!(
                    %effect_id, order_no, subscriber, error, waiting,
                    "delivery given up: repair the receiver, then `paidonce effects requeue {effect_id}` sends it again \
                     (`discard` drops it); `waiting` later deliveries of this order wait behind it"
                );
            }
        }
    }

    /// How many deliveries of the lane wait behind a dead one.
    async fn count_waiting(&self, order_no: &str, subscriber: &str) -> usize {
        let pending = self.0.store.list_effects(Some("pending"), Some(order_no), None, LANE_COUNT_MAX).await;
        pending.map_or(0, |effects| effects.iter().filter(|effect| effect.subscriber == subscriber).count())
    }

    /// Beside the sending, so that many old rows don't hold up a new one.
    async fn prune_for_ever(&self) {
        let mut due = tokio::time::interval(self.0.settings.prune_every);
        loop {
            due.tick().await;
            while self.prune().await >= u64::from(PRUNE_ROWS_MAX) {}
        }
    }

    /// One step; how many rows it deleted.
    async fn prune(&self) -> u64 {
        match self.0.store.prune_effects(millis(self.0.settings.keep_done), PRUNE_ROWS_MAX).await {
            Ok(rows) => {
                tracing::debug!(rows, "old finished deliveries deleted");
                rows
            }
            Err(error) => {
                tracing::warn!(%error, "old finished deliveries can't be deleted: tried again later");
                0
            }
        }
    }
}

/// Drives by hand beside, or instead of, the loop. The report has everything that this relay did meanwhile.
#[async_trait]
impl RelayDriver for Relay {
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String> {
        let before = self.0.counters.read();
        let mut in_flight = self.0.in_flight.subscribe();
        for _ in 0..rounds_max {
            let round = self.claim(self.0.settings.concurrency_max).await.map_err(|error| error.to_string())?;
            let idle = round.is_empty();
            let mut tasks = JoinSet::new();
            round.into_iter().for_each(|claim| drop(tasks.spawn(self.clone().attempt(claim))));
            while let Some(done) = tasks.join_next().await {
                note_panic(done);
            }
            // What the loop has claimed counts as not idle: its result may make the next of its lane due.
            let others = *in_flight.borrow_and_update();
            if idle && others == 0 {
                break;
            }
            if idle {
                in_flight.wait_for(|count| *count < others).await.map_err(|error| error.to_string())?;
            }
        }
        let after = self.0.counters.read();
        Ok(RelayReport {
            delivered: after.delivered.saturating_sub(before.delivered),
            retried: after.retried.saturating_sub(before.retried),
            dead: after.dead.saturating_sub(before.dead),
        })
    }
}

/// An effect leased by this relay.
struct Claim {
    effect: ClaimedEffect,
    subscriber: Option<Subscriber>,
    _counted: InFlight,
}

/// Counts as under way until it is dropped, even by a panic.
struct InFlight(watch::Sender<usize>);

impl InFlight {
    fn enter(counter: &watch::Sender<usize>) -> Self {
        counter.send_modify(|count| *count = count.saturating_add(1));
        Self(counter.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

fn note_panic(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "a delivery ended in a panic: it is sent again after its lease; report this as a bug");
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Where in the jitter's span to land. A system without randomness gives zero: the plain schedule.
fn roll() -> u16 {
    let mut bytes = [0_u8; 2];
    aws_lc_rs::rand::fill(&mut bytes).map_or(0, |()| u16::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
