//! The loop of a relay: claims due effects of its kinds, works on them outside of any tx, reports what came of it.
//!
//! | step | what | a crash right after it |
//! |---|---|---|
//! | 1 | claim due lane heads with a lease | the lease ends, another relay claims |
//! | 2 | point `effect_before_send` | the same |
//! | 3 | the handler's try | the lease ends, it is tried again |
//! | 4 | point `effect_after_send` | the same |
//! | 5 | report with the lease token | done; a report after the lease was lost changes nothing |
//!
//! Lanes (order, subscriber) go in order, since only lane heads are claimed; lanes among themselves run side by side.
//! Nothing is busy: the loop sleeps until a commit, the next due time, or [`Pace::poll`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use paidonce_store::fault::Faults;
use paidonce_store::store::{ClaimedEffect, Store, StoreError, TryResult};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// Claiming failed: the database is away. Long enough not to hammer it, short enough to be back with it.
const AWAY_PAUSE: Duration = Duration::from_secs(2);
/// Something is due, but nothing could be claimed (another relay has it): not to be asked again at once.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// What is done with claimed effects.
#[async_trait]
pub(crate) trait Handler: Send + Sync + 'static {
    /// What effects that were claimed together share.
    type Round: Send + Sync + 'static;

    /// Which effects it takes.
    fn kinds(&self) -> &'static [&'static str];

    /// Longer than any try takes.
    fn lease(&self) -> Duration;

    /// Read once for everything that was claimed together.
    async fn begin_round(&self) -> Result<Self::Round, StoreError>;

    /// One try.
    async fn attempt(&self, round: &Self::Round, claimed: &ClaimedEffect) -> TryResult;

    /// The result is kept: counts it and tells people.
    async fn tell(&self, claimed: &ClaimedEffect, result: &TryResult);
}

/// How fast the loop goes.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Tries under way at once.
    pub(crate) concurrency_max: u32,
    /// Longest sleep: finds effects whose commit or whose relay was another process.
    pub(crate) poll: Duration,
    /// How long a commit may wait to be looked at, so that a busy ledger is not asked after each.
    pub(crate) commit_pause: Duration,
    /// Where a test build can make it stumble.
    pub(crate) faults: Faults,
}

/// Any number may run on one ledger, in one process or many; clones are the same loop.
pub(crate) struct ClaimLoop<H>(Arc<Parts<H>>);

struct Parts<H> {
    store: Arc<dyn Store>,
    handler: H,
    pace: Pace,
    commits: watch::Receiver<()>,
    in_flight: watch::Sender<usize>,
}

impl<H> Clone for ClaimLoop<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H: Handler> ClaimLoop<H> {
    /// `commits` changes with commits of this process.
    pub(crate) fn new(store: Arc<dyn Store>, handler: H, pace: Pace, commits: watch::Receiver<()>) -> Self {
        Self(Arc::new(Parts { store, handler, pace, commits, in_flight: watch::Sender::new(0) }))
    }

    pub(crate) fn handler(&self) -> &H {
        &self.0.handler
    }

    /// Runs until `stop` turns true (or its sender is gone), then finishes what is under way.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut commits = self.0.commits.clone();
        let mut tasks = JoinSet::new();
        while !*stop.borrow() {
            let pause = self.fill(&mut tasks).await;
            tokio::select! {
                _ = stop.changed() => {}
                Some(done) = tasks.join_next() => { note_panic(done); }
                () = self.next_commit(&mut commits) => {}
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

    /// Dropped in the middle, it loses nothing: whoever wakes the loop instead makes it claim as well.
    async fn next_commit(&self, commits: &mut watch::Receiver<()>) {
        if commits.changed().await.is_err() {
            // Nobody commits any more; the poll goes on.
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.0.pace.commit_pause).await;
    }

    /// Claims as many as there is room for and starts them; how long to sleep when nothing else happens.
    async fn fill(&self, tasks: &mut JoinSet<()>) -> Duration {
        let under_way = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let room = self.0.pace.concurrency_max.saturating_sub(under_way);
        if room == 0 {
            return self.0.pace.poll;
        }
        match self.claim(room).await {
            Ok(claims) if claims.is_empty() => self.pause().await.max(IDLE_PAUSE),
            Ok(claims) => {
                claims.into_iter().for_each(|claim| drop(tasks.spawn(self.clone().attempt(claim))));
                self.pause().await
            }
            Err(error) => {
                let kinds = self.0.handler.kinds().join(",");
                tracing::warn!(kinds, %error, "the relay can't claim effects: it tries again");
                AWAY_PAUSE
            }
        }
    }

    async fn pause(&self) -> Duration {
        let poll = self.0.pace.poll;
        match self.0.store.next_effect_due_ms(self.0.handler.kinds()).await {
            Ok(Some(due_ms)) => Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)).min(poll),
            Ok(None) => poll,
            Err(_) => AWAY_PAUSE,
        }
    }

    async fn claim(&self, limit: u32) -> Result<Vec<Claim<H::Round>>, StoreError> {
        let handler = &self.0.handler;
        let claimed = self.0.store.claim_effects(handler.kinds(), millis(handler.lease()), limit).await?;
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let round = Arc::new(handler.begin_round().await?);
        let claim = |effect| {
            let counted = InFlight::enter(&self.0.in_flight);
            Claim { effect, round: Arc::clone(&round), _counted: counted }
        };
        Ok(claimed.into_iter().map(claim).collect())
    }

    /// Steps 2 to 5 for one claimed effect.
    async fn attempt(self, claim: Claim<H::Round>) {
        // An injected error is a relay that died here: nothing is reported, the lease has to end.
        if self.0.pace.faults.point("effect_before_send").await.is_err() {
            return;
        }
        let result = self.0.handler.attempt(&claim.round, &claim.effect).await;
        if self.0.pace.faults.point("effect_after_send").await.is_err() {
            return;
        }
        self.report(&claim.effect, &result).await;
    }

    async fn report(&self, claimed: &ClaimedEffect, result: &TryResult) {
        let effect = &claimed.effect;
        let (effect_id, subscriber) = (effect.effect_id, effect.subscriber.as_str());
        let Some(lease_token) = effect.lease_token else {
            tracing::error!(%effect_id, "a claimed effect has no lease token: the ledger is inconsistent");
            return;
        };
        match self.0.store.complete_effect(effect_id, lease_token, result).await {
            Ok(true) => self.0.handler.tell(claimed, result).await,
            Ok(false) => {
                tracing::warn!(%effect_id, subscriber, "the lease ended before the result was there: it is tried again");
            }
            Err(error) => {
                tracing::warn!(%effect_id, subscriber, %error, "the result can't be kept: it is tried again after its lease");
            }
        }
    }

    /// Claims and works until nothing is due, at most `rounds_max` times, beside or instead of [`ClaimLoop::run`].
    pub(crate) async fn run_until_idle(&self, rounds_max: u32) -> Result<(), String> {
        let mut in_flight = self.0.in_flight.subscribe();
        for _ in 0..rounds_max {
            let claims = self.claim(self.0.pace.concurrency_max).await.map_err(|error| error.to_string())?;
            let idle = claims.is_empty();
            let mut tasks = JoinSet::new();
            claims.into_iter().for_each(|claim| drop(tasks.spawn(self.clone().attempt(claim))));
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
        Ok(())
    }
}

/// An effect leased by this loop.
struct Claim<R> {
    effect: ClaimedEffect,
    round: Arc<R>,
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

fn note_panic(done: Result<(), JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "an effect ended in a panic: it is tried again after its lease; report this as a bug");
    }
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Where in a jitter's span to land. A system without randomness gives zero: the plain schedule.
pub(crate) fn roll() -> u16 {
    let mut bytes = [0_u8; 2];
    aws_lc_rs::rand::fill(&mut bytes).map_or(0, |()| u16::from_le_bytes(bytes))
}
