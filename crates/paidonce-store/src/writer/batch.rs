//! One writer's loop: take what queued, write it as one tx, answer.
//!
//! | step | what | round trips on PostgreSQL |
//! |---|---|---|
//! | 1 | take what queued while the last batch was written, at most [`BATCH_JOBS_MAX`] jobs | 0 |
//! | 2 | BEGIN and lock the heads of the touched shards, compare them with the cache | 1 |
//! | 3 | read others' events, cold aggregates, API keys, subscribers: only what is needed | 0 to 4 |
//! | 4 | decide every job in memory ([`super::plan`]) | 0 |
//! | 5 | write all rows | 1 |
//! | 6 | COMMIT, remember, answer | 1 |
//!
//! No timer and no linger: while one batch is written the next one queues. Whatever goes wrong before COMMIT was sent has
//! written nothing; after that the outcome is looked up, never guessed ([`Shard::find_outcome`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use paidonce_order::event::DecodeError;
use paidonce_order::ids::shard_of;
use paidonce_order::project::Aggregate;
use tokio::sync::{mpsc, watch};

use super::cache::{Cache, HeadCheck};
use super::plan::{self, Basis, Plan, Verdict, key_of, plan};
use super::{Job, StopReason};
use crate::backend::{
    AggregateKey, Backend, DbError, HeadWrite, LockedHead, Lost, ORDER, Opening, Quarantine, STRAY, Session,
};
use crate::clock::ClockOffset;
use crate::codec::decode;
use crate::fault::Faults;
use crate::options::FirstDue;
use crate::store::{EventRow, SubmitError};

/// Jobs in one batch.
pub(super) const BATCH_JOBS_MAX: usize = 512;
/// Bytes of evidence and overhead in one batch.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rough size of a job without its evidence.
const JOB_BYTES: usize = 1024;
/// Events of other nodes that are read to keep a shard's cache; with more, the cache is dropped instead.
const CATCH_UP_EVENTS_MAX: i64 = 1_000;
/// Times a group of jobs is decided again because somebody was faster, before the jobs are suspected.
const ROUNDS_MAX: u32 = 2;
/// The same when it was a pure race for a position, which no job is guilty of.
const RACE_ROUNDS_MAX: u32 = 16;
/// How long the outcome of a COMMIT is looked for before the callers are told `unknown`.
const FIND_OUTCOME_MAX: Duration = Duration::from_secs(10);
/// Wait between two tries to reach the database while looking for an outcome.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Why a group of jobs was not written. Nothing of it is in the log.
#[derive(Debug)]
enum Trouble {
    /// Somebody was there before.
    Lost(Lost),
    /// The database said no.
    Db(DbError),
    /// The log has an event that this version can't decode.
    TooOld(String),
    /// COMMIT was sent; it could not be found out what became of it.
    Unknown,
}

impl From<DbError> for Trouble {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// Jobs that are written together, and how often that was tried.
struct Group {
    jobs: Vec<Job>,
    rounds: u32,
}

/// One writer.
pub(super) struct Shard {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) cache: Cache,
    pub(super) clock: ClockOffset,
    pub(super) faults: Faults,
    pub(super) first_due: FirstDue,
    pub(super) stop_reason: Arc<StopReason>,
    pub(super) session: Option<Box<dyn Session>>,
}

impl Shard {
    /// Serves the queue until it is closed and empty.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Job>, mut stopping: watch::Receiver<Stopping>) {
        let mut jobs = Vec::with_capacity(BATCH_JOBS_MAX);
        loop {
            tokio::select! {
                biased;
                taken = queue.recv_many(&mut jobs, BATCH_JOBS_MAX) => if taken == 0 { return },
                _ = stopping.changed() => { queue.close(); continue }
            }
            while !jobs.is_empty() {
                let batch = jobs.drain(..within_bytes(&jobs)).collect();
                self.write(batch).await;
            }
        }
    }

    /// Writes a batch; every job is answered when this returns.
    async fn write(&mut self, jobs: Vec<Job>) {
        let mut groups = vec![Group { jobs, rounds: 0 }];
        while let Some(group) = groups.pop() {
            if let Some(reason) = self.stop_reason.get() {
                answer_all(group.jobs, &SubmitError::TooOld(reason));
                continue;
            }
            match self.attempt(&group.jobs).await {
                Ok(verdicts) => self.answer(group.jobs, verdicts).await,
                Err(trouble) => self.react(trouble, group, &mut groups).await,
            }
            self.end_tx().await;
        }
    }

    /// One try: from BEGIN to COMMIT.
    async fn attempt(&mut self, jobs: &[Job]) -> Result<Vec<Verdict>, Trouble> {
        let opening = self.begin(jobs).await?;
        let basis = self.basis(opening, jobs).await?;
        let plan = plan(basis, &self.faults, jobs.iter().map(|job| &job.work));
        if plan.append.events.is_empty() {
            return Ok(plan.verdicts);
        }
        self.faults.point("before_append").await.map_err(|fault| DbError::Away(fault.to_string()))?;
        let lost = self.session()?.append(&plan.append).await?;
        if !lost.is_empty() {
            return Err(Trouble::Lost(lost));
        }
        self.commit(&plan).await?;
        self.remember(plan)
    }

    fn session(&mut self) -> Result<&mut Box<dyn Session>, DbError> {
        self.session.as_mut().ok_or_else(|| DbError::Away("no session".to_owned()))
    }

    /// Begins the tx, locks the heads and brings the cache up to them.
    async fn begin(&mut self, jobs: &[Job]) -> Result<Opening, Trouble> {
        if self.session.is_none() {
            self.session = Some(self.backend.open().await?);
        }
        let mut shards: Vec<u16> = jobs.iter().map(|job| shard_of(&key_of(&job.work).aggregate_id)).collect();
        shards.sort_unstable();
        shards.dedup();
        let opening = self.session()?.begin(&shards).await?;
        for head in &opening.heads {
            match self.cache.check_head(head) {
                HeadCheck::Current => {}
                HeadCheck::First => self.cache.set_head(head.shard, head.position, head.hash),
                HeadCheck::Behind { position, hash } => {
                    let rows = self.session()?.load_from(head.shard, position.max(1), CATCH_UP_EVENTS_MAX + 1).await?;
                    self.catch_up(head, (position, hash), &rows)?;
                }
                HeadCheck::Different => self.other_database(head),
            }
        }
        Ok(opening)
    }

    /// Applies what other nodes wrote. `rows` begin at our position, so that our hash can be compared there.
    fn catch_up(
        &mut self,
        head: &LockedHead,
        (position, hash): (i64, paidonce_order::ids::Digest),
        rows: &[EventRow],
    ) -> Result<(), Trouble> {
        let news = match rows.split_first() {
            Some((ours, news)) if position > 0 => {
                if ours.position != position || ours.hash != hash {
                    self.other_database(head);
                    return Ok(());
                }
                news
            }
            _ => rows,
        };
        let count = i64::try_from(news.len()).unwrap_or(i64::MAX);
        if count != head.position.saturating_sub(position) {
            tracing::info!(shard = head.shard, "too much was written by others: starting this shard's memory afresh");
            self.cache.forget_shard(head.shard);
        } else {
            for row in news {
                self.apply_foreign(row)?;
            }
        }
        self.cache.set_head(head.shard, head.position, head.hash);
        Ok(())
    }

    fn apply_foreign(&mut self, row: &EventRow) -> Result<(), Trouble> {
        let event = match decode(row) {
            Ok(event) => event,
            Err(error @ DecodeError::UnknownEvent { .. }) => return Err(Trouble::TooOld(error.to_string())),
            Err(error) => {
                tracing::error!(shard = row.shard, position = row.position, %error, "a stored event is unreadable");
                return Ok(());
            }
        };
        let aggregate_type = event.aggregate_type();
        let key = AggregateKey { aggregate_type, aggregate_id: row.aggregate_id.clone() };
        let Some(mut state) = self.cache.get(&key) else { return Ok(()) };
        if state.version().saturating_add(1) == row.sequence {
            Arc::make_mut(&mut state).apply(&event);
            self.cache.put(key, state);
        } else {
            self.cache.forget(&key);
        }
        Ok(())
    }

    fn other_database(&mut self, head: &LockedHead) {
        tracing::error!(
            shard = head.shard,
            position = head.position,
            "the log is not the one that this node wrote (restored from a backup?): forgetting everything remembered"
        );
        self.cache.forget_all();
        self.cache.set_head(head.shard, head.position, head.hash);
    }

    /// Collects what the jobs are decided on, reading only what is not remembered.
    async fn basis(&mut self, opening: Opening, jobs: &[Job]) -> Result<Basis, Trouble> {
        let mut states: HashMap<AggregateKey, Result<Arc<Aggregate>, String>> = HashMap::with_capacity(jobs.len());
        let mut cold = Vec::new();
        for job in jobs {
            let key = key_of(&job.work);
            if states.contains_key(&key) {
                continue;
            }
            let state = self.cache.get(&key).unwrap_or_else(|| {
                cold.push(key.clone());
                Arc::new(key.empty())
            });
            states.insert(key, Ok(state));
        }
        if !cold.is_empty() {
            let rows = self.session()?.load(&cold).await?;
            fold(&mut states, &rows)?;
        }
        let keys: Vec<String> = jobs
            .iter()
            .filter_map(|job| job.work.context.api_key.as_ref())
            .map(|key| key.idem_key.as_str().to_owned())
            .collect();
        let found = if keys.is_empty() { Vec::new() } else { self.session()?.find_keys(&keys).await? };
        let now = opening.now.plus_micros(self.clock.micros());
        self.read_subscribers(&opening).await?;
        Ok(Basis {
            now,
            states,
            keys: found.into_iter().map(|key| (key.idem_key.clone(), key)).collect(),
            subscribers: self.cache.subscribers.as_ref().map(|(_, list)| Arc::clone(list)).unwrap_or_default(),
            first_due: self.first_due,
            versions: self.cache.versions.clone(),
            heads: opening.heads,
        })
    }

    /// Reads the subscribers when the locked heads say that they changed.
    async fn read_subscribers(&mut self, opening: &Opening) -> Result<(), DbError> {
        let version = opening.heads.iter().map(|head| head.subscribers_version).max().unwrap_or(0);
        if self.cache.subscribers.as_ref().is_none_or(|(known, _)| *known != version) {
            let subscribers = self.session()?.subscribers().await?;
            self.cache.subscribers = Some((version, Arc::new(subscribers)));
        }
        Ok(())
    }

    /// Sends COMMIT. `Ok`: it is durable. Errors: it is known not to have happened, or [`Trouble::Unknown`].
    async fn commit(&mut self, plan: &Plan) -> Result<(), Trouble> {
        let sent = match self.faults.point("db_commit").await {
            Ok(()) => self.session()?.commit().await,
            Err(fault) => Err(DbError::Away(fault.to_string())),
        };
        let outcome = match sent {
            Ok(()) => self.faults.point("after_commit").await.map_err(|fault| DbError::Away(fault.to_string())),
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return Ok(()) };
        tracing::warn!(%error, "the outcome of a commit is unknown: looking it up");
        // This connection is never asked again; a commit that it still has under way holds the head locks until it ends.
        self.session = None;
        let Some(head) = plan.append.heads.first() else { return Err(Trouble::Unknown) };
        match tokio::time::timeout(FIND_OUTCOME_MAX, self.find_outcome(head)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Trouble::Db(DbError::Away(error.to_string()))),
            Err(_) => Err(Trouble::Unknown),
        }
    }

    /// Asks the log, under the head's lock, whether our event stands at its position. All heads moved in one tx, so one is
    /// enough.
    async fn find_outcome(&mut self, ours: &HeadWrite) -> bool {
        loop {
            match self.look_for(ours).await {
                Ok(found) => return found,
                Err(error) => {
                    tracing::warn!(%error, "the outcome of a commit is still unknown");
                    self.session = None;
                    tokio::time::sleep(RECONNECT_PAUSE).await;
                }
            }
        }
    }

    async fn look_for(&mut self, ours: &HeadWrite) -> Result<bool, DbError> {
        let mut session = self.backend.open().await?;
        let opening = session.begin(&[ours.shard]).await?;
        let head = opening.heads.first();
        let found = match head {
            Some(head) if head.position < ours.position => false,
            Some(head) if head.position == ours.position => head.hash == ours.hash,
            _ => {
                session.load_from(ours.shard, ours.position, 1).await?.first().is_some_and(|row| row.hash == ours.hash)
            }
        };
        session.rollback().await?;
        self.session = Some(session);
        Ok(found)
    }

    /// Takes over what was committed.
    fn remember(&mut self, plan: Plan) -> Result<Vec<Verdict>, Trouble> {
        for head in &plan.append.heads {
            self.cache.set_head(head.shard, head.position, head.hash);
        }
        for (key, state) in plan.moved {
            self.cache.put(key, state);
        }
        self.cache.versions.extend(plan.append.versions.iter().map(|row| (row.event_type, row.event_version)));
        Ok(plan.verdicts)
    }

    /// Ends a tx that was not committed. Comes after the answers: nobody has to wait for it.
    async fn end_tx(&mut self) {
        if let Some(session) = &mut self.session
            && let Err(error) = session.rollback().await
        {
            tracing::warn!(%error, "closing the writer's connection");
            self.session = None;
        }
    }

    async fn answer(&mut self, jobs: Vec<Job>, verdicts: Vec<Verdict>) {
        let mut poisoned = Vec::new();
        for (job, verdict) in jobs.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Answer(outcome) => job.answer(Ok(outcome)),
                Verdict::Poisoned(problem) => poisoned.push((job, problem)),
            }
        }
        for (job, problem) in poisoned {
            self.quarantine(job, &problem).await;
        }
    }

    /// Decides what happens to a group that was not written.
    async fn react(&mut self, trouble: Trouble, mut group: Group, groups: &mut Vec<Group>) {
        self.end_tx().await;
        self.forget_group(&group.jobs);
        group.rounds = group.rounds.saturating_add(1);
        match trouble {
            Trouble::Unknown => answer_all(group.jobs, &SubmitError::Unknown),
            Trouble::TooOld(reason) => {
                tracing::error!(reason, "this node stops writing: upgrade it");
                self.stop_reason.set(&reason);
                answer_all(group.jobs, &SubmitError::TooOld(reason));
            }
            Trouble::Lost(lost) if !lost.shards.is_empty() => self.raced(group, groups, "a head had moved").await,
            Trouble::Lost(_) if group.rounds < ROUNDS_MAX => groups.push(group),
            Trouble::Lost(lost) => self.set_aside(group, &lost.orders, groups).await,
            Trouble::Db(DbError::Taken { constraint, .. }) if is_race(&constraint) => {
                self.raced(group, groups, &constraint).await;
            }
            Trouble::Db(error @ (DbError::Taken { .. } | DbError::Refused(_) | DbError::Unreadable(_))) => {
                if group.rounds < ROUNDS_MAX {
                    groups.push(group)
                } else {
                    self.bisect(group, groups, &error.to_string()).await
                }
            }
            Trouble::Db(error @ (DbError::Busy(_) | DbError::Away(_))) => {
                if matches!(error, DbError::Away(_)) {
                    self.session = None;
                }
                if group.rounds < ROUNDS_MAX {
                    groups.push(group);
                } else {
                    tracing::warn!(%error, jobs = group.jobs.len(), "nothing was written");
                    answer_all(group.jobs, &SubmitError::Unavailable(error.to_string()));
                }
            }
        }
    }

    /// Somebody else wrote the same positions: no job is guilty, so they are decided again on what is there now.
    async fn raced(&mut self, group: Group, groups: &mut Vec<Group>, what: &str) {
        if group.rounds < RACE_ROUNDS_MAX {
            groups.push(group);
        } else {
            self.bisect(group, groups, what).await;
        }
    }

    /// Halves a group to find the job that the database refuses; alone, a job is set aside.
    async fn bisect(&mut self, mut group: Group, groups: &mut Vec<Group>, problem: &str) {
        if group.jobs.len() > 1 {
            let later = group.jobs.split_off(group.jobs.len() / 2);
            // The stack serves the earlier half first: an order's jobs keep their order. One more failure halves again.
            groups.push(Group { jobs: later, rounds: ROUNDS_MAX - 1 });
            groups.push(Group { jobs: group.jobs, rounds: ROUNDS_MAX - 1 });
        } else if let Some(job) = group.jobs.pop() {
            self.quarantine(job, problem).await;
        }
    }

    /// Sets the jobs of drifted orders aside; the others go on.
    async fn set_aside(&mut self, group: Group, orders: &[String], groups: &mut Vec<Group>) {
        let orders: HashSet<&str> = orders.iter().map(String::as_str).collect();
        let (guilty, jobs): (Vec<Job>, Vec<Job>) =
            group.jobs.into_iter().partition(|job| orders.contains(key_of(&job.work).aggregate_id.as_str()));
        for job in guilty {
            self.quarantine(job, "its t_order row is not what its events say").await;
        }
        if !jobs.is_empty() {
            groups.push(Group { jobs, rounds: 0 });
        }
    }

    /// Alarms, leaves an item for a person where the database lets us, and answers 503: whoever is told finds the item.
    async fn quarantine(&mut self, job: Job, problem: &str) {
        let aggregate = key_of(&job.work);
        tracing::error!(aggregate_id = aggregate.aggregate_id, problem, "set aside: this needs a person");
        self.keep_item(aggregate, problem).await;
        job.answer(Err(plan::quarantined(problem)));
    }

    async fn keep_item(&mut self, aggregate: AggregateKey, problem: &str) {
        self.end_tx().await;
        let item = Quarantine {
            item_no: format!("QUARANTINED:{}", aggregate.aggregate_id),
            shard: shard_of(&aggregate.aggregate_id),
            aggregate,
            detail: format!("the writer could not write it: {problem}"),
            offset_micros: self.clock.micros(),
        };
        let Some(session) = &mut self.session else { return };
        if let Err(error) = session.quarantine(&item).await {
            tracing::error!(%error, item_no = item.item_no, "the item could not be kept");
            self.session = None;
        }
    }

    fn forget_group(&mut self, jobs: &[Job]) {
        for job in jobs {
            self.cache.forget(&key_of(&job.work));
        }
    }
}

/// Told to writers when the store stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// Not yet.
    No,
    /// Finish what was accepted.
    Yes,
}

/// Positions and sequences are only contended for by another writer.
fn is_race(constraint: &str) -> bool {
    matches!(constraint, "events_position_key" | "events_stream_key")
}

/// Folds loaded events into the states. An unknown event stops the node; an unreadable one only its aggregate.
fn fold(states: &mut HashMap<AggregateKey, Result<Arc<Aggregate>, String>>, rows: &[EventRow]) -> Result<(), Trouble> {
    for row in rows {
        let aggregate_type = if row.aggregate_type == STRAY { STRAY } else { ORDER };
        let key = AggregateKey { aggregate_type, aggregate_id: row.aggregate_id.clone() };
        let Some(slot) = states.get_mut(&key) else { continue };
        let Ok(state) = slot else { continue };
        match decode(row) {
            Ok(event) => Arc::make_mut(state).apply(&event),
            Err(error @ DecodeError::UnknownEvent { .. }) => return Err(Trouble::TooOld(error.to_string())),
            Err(error) => *slot = Err(format!("event {} is unreadable: {error}", row.event_id)),
        }
    }
    Ok(())
}

/// How many of the first jobs fit into one batch; at least one.
fn within_bytes(jobs: &[Job]) -> usize {
    let mut bytes = 0_usize;
    let fitting = jobs.iter().take_while(|job| {
        let evidence = job.work.context.evidence.as_ref().map_or(0, |evidence| evidence.body.len());
        bytes = bytes.saturating_add(JOB_BYTES).saturating_add(evidence);
        bytes <= BATCH_BYTES_MAX
    });
    fitting.count().max(1)
}

fn answer_all(jobs: Vec<Job>, error: &SubmitError) {
    for job in jobs {
        job.answer(Err(error.clone()));
    }
}
