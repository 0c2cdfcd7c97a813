//! Verify: the hash chain of every shard, from its first event or from a seal, and the evidence of all money (promises P5, P8).
//!
//! | what | a problem when |
//! |---|---|
//! | contiguity | a position is missing below the head |
//! | chain | an event's hash does not follow from its content and the hash before |
//! | head | the last event is not the one that the head names |
//! | evidence | the signed bytes do not verify, or say something else than the event |
//!
//! Two verdicts: integrity (nothing was changed) and completeness (everything could be looked at).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use paidonce_channel::OurAccounts;
use paidonce_store::audit::{AuditSource, Range};
use paidonce_store::codec::{evidence_of, metadata_of};
use paidonce_store::hash_chain::{GENESIS, link};
use paidonce_store::store::{EventRow, Head};
use serde::Serialize;

use super::evidence::{Checked, Depth, EvidenceCheck, EvidenceCounts};
use super::replay::SHARDS_AT_ONCE;
use super::report::{AuditError, OnProgress, Problem, Progress};

/// Events in a page.
const PAGE: u32 = 4_096;
/// Problems that are kept; all are counted.
pub const PROBLEMS_MAX: usize = 1_000;

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct VerifyPlan {
    /// Behind which events: the heads of a seal that is trusted. Empty: from the first.
    pub from: Vec<Head>,
    /// How far evidence is looked at.
    pub depth: Depth,
    /// Whose keys verify it.
    pub accounts: OurAccounts,
}

/// What was found. Guarantees: `has_integrity` only if every event up to the captured heads was read and followed from the one
/// before; what could not be looked at makes `is_complete` false.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Events that the heads say there are, behind where it began.
    pub events_expected: u64,
    /// Events that were verified.
    pub events: u64,
    /// Shards that have events.
    pub shards: u64,
    /// Events that move money, by what their evidence proves.
    pub evidence: EvidenceCounts,
    /// At most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
    /// All of them.
    pub problems_total: u64,
    /// Nothing was changed, nothing is missing.
    pub has_integrity: bool,
    /// Every event and all its evidence could be looked at.
    pub is_complete: bool,
    /// The captured heads.
    #[serde(skip)]
    pub heads: Vec<Head>,
}

impl VerifyReport {
    /// The only good end.
    #[must_use]
    pub const fn is_proof(&self) -> bool {
        self.has_integrity && self.is_complete
    }

    /// Adds a problem that was found elsewhere, for example in a seal.
    pub fn add_problem(&mut self, problem: Problem) {
        self.problems_total = self.problems_total.saturating_add(1);
        self.has_integrity = false;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Verifies. Errors: [`AuditError`]; then nothing is proven.
pub async fn verify(
    source: Arc<dyn AuditSource>,
    plan: &VerifyPlan,
    on_progress: OnProgress,
) -> Result<VerifyReport, AuditError> {
    let heads = source.heads().await?;
    let begin = |shard: u16| plan.from.iter().find(|head| head.shard == shard);
    let mut found = Found::default();
    let (mut tasks, mut total) = (Vec::new(), 0_u64);
    for head in &heads {
        let (after, previous) = begin(head.shard).map_or((0, GENESIS), |begin| (begin.position, begin.hash));
        if after > head.position {
            let problem = format!("the seal ends here, but the log ends at {}: events are lost", head.position);
            found.add(Problem { shard: head.shard, position: after, aggregate_id: String::new(), problem });
            continue;
        }
        total = total.saturating_add(u64::try_from(head.position.saturating_sub(after)).unwrap_or(0));
        let evidence = EvidenceCheck {
            source: Arc::clone(&source),
            accounts: plan.accounts.clone(),
            depth: plan.depth,
            to: head.position,
        };
        tasks.push(ShardVerify { head: head.clone(), after, previous, evidence, found: Found::default() });
    }
    let shards = heads.iter().filter(|head| head.position > 0).count();
    let seen = Arc::new(AtomicU64::new(0));
    let tasks = tasks.into_iter().map(|task| {
        let (seen, on_progress) = (Arc::clone(&seen), Arc::clone(&on_progress));
        let tell = move |events: u64| {
            let events = seen.fetch_add(events, Ordering::Relaxed).saturating_add(events);
            on_progress(Progress { events, total });
        };
        async move {
            tokio::spawn(task.run(tell)).await.unwrap_or_else(|error| Err(AuditError::Internal(error.to_string())))
        }
    });
    let mut running = futures_util::stream::iter(tasks).buffer_unordered(SHARDS_AT_ONCE);
    while let Some(of_shard) = running.next().await {
        found.merge(of_shard?);
    }
    drop(running);
    Ok(found.report(total, u64::try_from(shards).unwrap_or(0), heads))
}

#[derive(Debug, Default)]
struct Found {
    events: u64,
    evidence: EvidenceCounts,
    problems: BTreeSet<Problem>,
    beyond: u64,
}

impl Found {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.insert(problem);
        } else {
            self.beyond = self.beyond.saturating_add(1);
        }
    }

    fn merge(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.evidence.merge(other.evidence);
        self.beyond = self.beyond.saturating_add(other.beyond);
        other.problems.into_iter().for_each(|problem| self.add(problem));
    }

    fn report(self, expected: u64, shards: u64, heads: Vec<Head>) -> VerifyReport {
        let kept = u64::try_from(self.problems.len()).unwrap_or(u64::MAX);
        let problems_total = kept.saturating_add(self.beyond);
        VerifyReport {
            events_expected: expected,
            events: self.events,
            shards,
            evidence: self.evidence,
            problems: self.problems.into_iter().collect(),
            problems_total,
            has_integrity: problems_total == 0 && self.events == expected,
            is_complete: self.events == expected && self.evidence.is_complete(),
            heads,
        }
    }
}

struct ShardVerify {
    head: Head,
    /// The last position that was verified.
    after: i64,
    /// The hash there.
    previous: paidonce_order::ids::Digest,
    evidence: EvidenceCheck,
    found: Found,
}

impl ShardVerify {
    async fn run(mut self, tell: impl Fn(u64)) -> Result<Found, AuditError> {
        let (shard, to) = (self.head.shard, self.head.position);
        while self.after < to {
            let page = self.evidence.source.page(shard, Range { after: self.after, to }, PAGE).await?;
            let good = self.follow(&page);
            let Checked { counts, problems } = self.evidence.check(shard, page.get(..good).unwrap_or_default()).await?;
            self.found.evidence.merge(counts);
            problems.into_iter().for_each(|problem| self.found.add(problem));
            tell(u64::try_from(good).unwrap_or(0));
            if good < page.len() || page.is_empty() {
                return Ok(self.found);
            }
        }
        if self.previous != self.head.hash {
            let problem = "is not the event that the head names: the head or the event was changed".to_owned();
            let aggregate_id = String::new();
            self.found.add(Problem { shard, position: to, aggregate_id, problem });
        }
        Ok(self.found)
    }

    /// Follows the chain; how many events of the page it holds for. Behind a break nothing can be said.
    fn follow(&mut self, page: &[EventRow]) -> usize {
        for (index, event) in page.iter().enumerate() {
            let expected = self.after.saturating_add(1);
            if event.position != expected {
                self.missing(expected);
                return index;
            }
            let evidence = metadata_of(event).ok().as_ref().and_then(evidence_of);
            if link(&self.previous, event, evidence.as_ref()) != event.hash {
                let problem =
                    "its hash does not follow from its content and the event before: one of the two was changed";
                self.found.add(Problem::at(event, problem));
                return index;
            }
            self.previous = event.hash;
            self.after = event.position;
            self.found.events = self.found.events.saturating_add(1);
        }
        if page.is_empty() {
            self.missing(self.after.saturating_add(1));
        }
        page.len()
    }

    fn missing(&mut self, position: i64) {
        let problem = format!("is missing below the head at {}", self.head.position);
        self.found.add(Problem { shard: self.head.shard, position, aggregate_id: String::new(), problem });
    }
}
