//! Verify: the hash chain of every shard, the seals, and the evidence of all money (promises P5, P8).
//!
//! | what | a problem when |
//! |---|---|
//! | contiguity | a position is missing below the head |
//! | chain | an event's hash does not follow from its content and the hash before |
//! | head | the last event is not the one that the head names |
//! | seals | the signature is not of the key, a root, count or sum is another, the log does not go through the heads |
//! | evidence | the signed bytes do not verify, or say something else than the event |
//!
//! Two verdicts: integrity (nothing was changed) and completeness (everything could be looked at).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use super::seal::{OutsideSeal, PublicKey};
use super::sealed::{Kept, Mark, Ranges, SealCounts, Seals, ShardRange};

/// Events in a page.
const PAGE: u32 = 4_096;
/// Problems that are kept; all are counted.
pub const PROBLEMS_MAX: usize = 1_000;

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct VerifyPlan {
    /// Who signs the seals. `None`: their signatures can't be checked, and the verdict is not complete when there are any.
    pub seal_key: Option<PublicKey>,
    /// Seals that were kept outside.
    pub outside: Vec<OutsideSeal>,
    /// How far evidence is looked at.
    pub depth: Depth,
    /// Whose keys verify it.
    pub accounts: OurAccounts,
}

/// What was found. Guarantees: `has_integrity` only if every event up to the captured heads was read and followed from the one
/// before; what could not be looked at makes `is_complete` false.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Events that the heads say there are.
    pub events_expected: u64,
    /// Events that were verified.
    pub events: u64,
    /// Shards that have events.
    pub shards: u64,
    /// Events that move money, by what their evidence proves.
    pub evidence: EvidenceCounts,
    /// Signed statements of where the log ended.
    pub seals: SealCounts,
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
}

/// Verifies. Errors: [`AuditError`]; then nothing is proven.
pub async fn verify(
    source: Arc<dyn AuditSource>,
    plan: &VerifyPlan,
    on_progress: OnProgress,
) -> Result<VerifyReport, AuditError> {
    let heads = source.heads().await?;
    let mut seals = Seals::load(source.as_ref(), plan.seal_key.as_ref()).await?;
    let outside = seals.compare(&plan.outside, plan.seal_key.as_ref());
    let (mut tasks, mut total) = (Vec::new(), 0_u64);
    for head in &heads {
        total = total.saturating_add(u64::try_from(head.position).unwrap_or(0));
        let of_shard = outside.iter().filter(|(shard, _)| *shard == head.shard).map(|(_, mark)| mark.clone());
        let mut marks: Vec<Mark> = seals.marks(head.shard).into_iter().chain(of_shard).collect();
        marks.sort_by_key(|mark| mark.position);
        let evidence = EvidenceCheck {
            source: Arc::clone(&source),
            accounts: plan.accounts.clone(),
            depth: plan.depth,
            to: head.position,
        };
        let (head, ranges) = (head.clone(), Ranges::default());
        let marks = marks.into();
        tasks.push(ShardVerify { head, after: 0, previous: GENESIS, evidence, marks, ranges, found: Found::default() });
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
    let (mut found, mut ranges) = (Found::default(), BTreeMap::new());
    while let Some(of_shard) = running.next().await {
        let (shard, of_shard, done) = of_shard?;
        found.merge(of_shard);
        ranges.insert(shard, done);
    }
    drop(running);
    seals.judge(&ranges);
    std::mem::take(&mut seals.problems).into_iter().for_each(|problem| found.add(problem));
    let shards = u64::try_from(shards).unwrap_or(0);
    Ok(found.report(total, (shards, seals.counts), heads))
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

    fn report(self, expected: u64, (shards, seals): (u64, SealCounts), heads: Vec<Head>) -> VerifyReport {
        let kept = u64::try_from(self.problems.len()).unwrap_or(u64::MAX);
        let problems_total = kept.saturating_add(self.beyond);
        VerifyReport {
            events_expected: expected,
            events: self.events,
            shards,
            evidence: self.evidence,
            seals,
            problems: self.problems.into_iter().collect(),
            problems_total,
            has_integrity: problems_total == 0 && self.events == expected,
            is_complete: self.events == expected && self.evidence.is_complete() && seals.no_key == 0,
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
    /// Where seals say that the shard ended, in the order of positions.
    marks: VecDeque<Mark>,
    ranges: Ranges,
    found: Found,
}

impl ShardVerify {
    async fn run(mut self, tell: impl Fn(u64)) -> Result<(u16, Found, Vec<ShardRange>), AuditError> {
        let (shard, to) = (self.head.shard, self.head.position);
        self.pass_marks();
        while self.after < to {
            let page = self.evidence.source.page(shard, Range { after: self.after, to }, PAGE).await?;
            let good = self.follow(&page);
            let Checked { counts, problems } = self.evidence.check(shard, page.get(..good).unwrap_or_default()).await?;
            self.found.evidence.merge(counts);
            problems.into_iter().for_each(|problem| self.found.add(problem));
            tell(u64::try_from(good).unwrap_or(0));
            if good < page.len() || page.is_empty() {
                return Ok((shard, self.found, self.ranges.done));
            }
        }
        if self.previous != self.head.hash {
            let problem = "is not the event that the head names: the head or the event was changed".to_owned();
            let aggregate_id = String::new();
            self.found.add(Problem { shard, position: to, aggregate_id, problem });
        }
        for mark in std::mem::take(&mut self.marks) {
            let problem = format!("{} ends here, but the log ends at {to}: events are lost", mark.name);
            self.found.add(Problem { shard, position: mark.position, aggregate_id: String::new(), problem });
        }
        Ok((shard, self.found, self.ranges.done))
    }

    /// The log must be where the seals said that it was.
    fn pass_marks(&mut self) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.position <= self.after) {
            if mark.hash != self.previous {
                let problem = format!("is not the event that {} names: the log was rewritten", mark.name);
                let (shard, position) = (self.head.shard, mark.position);
                self.found.add(Problem { shard, position, aggregate_id: String::new(), problem });
            }
            if mark.kept == Kept::Inside {
                self.ranges.end();
            }
        }
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
            self.ranges.add(event);
            self.pass_marks();
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
