//! The seals of a ledger, as `verify` holds them against the log.

use std::collections::BTreeMap;

use paidonce_order::ids::Digest;
use paidonce_store::audit::{AuditSource, SealRow};
use paidonce_store::hash_chain::GENESIS;
use paidonce_store::store::{EventRow, Head};
use serde::Serialize;

use super::merkle::Tree;
use super::report::{AuditError, Problem};
use super::seal::{OutsideSeal, PublicKey, RangeTally, SealBody, digest_of, open};

/// Seals in a page.
const PAGE: u32 = 100;

/// What was found of seals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SealCounts {
    /// Whose signature, place, root, count and sums are right.
    pub verified: u64,
    /// Right, but for the signature: no key was given to check it with.
    pub no_key: u64,
    /// Kept outside, and the same here.
    pub outside: u64,
    /// See the problems.
    pub failed: u64,
}

/// All seals, in their order, with what is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Seals {
    bodies: Vec<SealBody>,
    pub(super) counts: SealCounts,
    pub(super) problems: Vec<Problem>,
    has_key: bool,
}

/// Where a seal says that a shard ends.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) position: i64,
    pub(super) hash: Digest,
    /// For people: `seal 7`.
    pub(super) name: String,
    pub(super) kept: Kept,
}

/// Where a seal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// In the ledger: a range of the log ends where it says.
    Inside,
    /// Outside of it.
    Outside,
}

fn of_seal(name: &str, problem: impl std::fmt::Display) -> Problem {
    Problem { shard: 0, position: 0, aggregate_id: name.to_owned(), problem: problem.to_string() }
}

impl Seals {
    /// Reads the ledger's seals and checks what can be checked without the log: signatures, and that each names the one before.
    /// Errors: the database.
    pub(super) async fn load(source: &dyn AuditSource, key: Option<&PublicKey>) -> Result<Self, AuditError> {
        let mut seals = Self { has_key: key.is_some(), ..Self::default() };
        let (mut previous, mut expected) = (GENESIS, 1_i64);
        loop {
            let page = source.seals(expected.saturating_sub(1), PAGE).await?;
            if page.is_empty() {
                return Ok(seals);
            }
            for row in page {
                match check(&row, (expected, previous), key) {
                    Ok(body) => seals.bodies.push(body),
                    Err(problem) => {
                        seals.counts.failed = seals.counts.failed.saturating_add(1);
                        seals.problems.push(of_seal(&format!("seal {}", row.seal_no), problem));
                    }
                }
                previous = digest_of(&row.body);
                expected = row.seal_no.saturating_add(1);
            }
        }
    }

    /// Holds seals that were kept outside against those of the ledger. Gives their marks: the log must still go through them.
    pub(super) fn compare(&mut self, outside: &[OutsideSeal], key: Option<&PublicKey>) -> Vec<(u16, Mark)> {
        let mut marks = Vec::new();
        for seal in outside {
            let opened = match key {
                Some(key) => seal.open(key),
                None => Err("there is no public key to check its signature with".to_owned()),
            };
            match opened {
                Ok(body) => {
                    let name = format!("outside seal {}", body.seal_no);
                    if self.bodies.contains(&body) {
                        self.counts.outside = self.counts.outside.saturating_add(1);
                    } else {
                        let problem = "the ledger has no such seal: it was rewritten, cut, or is another ledger";
                        self.problems.push(of_seal(&name, problem));
                    }
                    marks.extend(body.heads.iter().map(|head| (head.shard, Mark::of(head, &name, Kept::Outside))));
                }
                Err(problem) => self.problems.push(of_seal("outside seal", problem)),
            }
        }
        marks
    }

    /// Where each seal says that this shard ends, behind the seals whose heads are `after`.
    pub(super) fn marks(&self, shard: u16) -> Vec<Mark> {
        let of = |body: &SealBody| {
            let head = body.heads.iter().find(|head| head.shard == shard)?;
            Some(Mark::of(head, &format!("seal {}", body.seal_no), Kept::Inside))
        };
        self.bodies.iter().filter_map(of).collect()
    }

    /// Holds roots, counts and sums against what the shards gave: for each, one range a seal.
    pub(super) fn judge(&mut self, shards: &BTreeMap<u16, Vec<ShardRange>>) {
        for (index, body) in self.bodies.iter().enumerate() {
            let ranges: Option<Vec<&ShardRange>> =
                body.heads.iter().map(|head| shards.get(&head.shard).and_then(|ranges| ranges.get(index))).collect();
            // A shard that broke before has a problem of its own.
            let Some(ranges) = ranges else {
                self.counts.failed = self.counts.failed.saturating_add(1);
                continue;
            };
            let mut tally = RangeTally::default();
            ranges.iter().for_each(|range| tally.merge(range.tally.clone()));
            let roots: Vec<Digest> = ranges.iter().map(|range| range.root).collect();
            let wrong = [
                ("Merkle root", Tree::root_of(&roots) != body.root),
                ("number of events", tally.events != body.events),
                ("sums", tally.sums() != body.sums),
            ];
            match wrong.iter().find(|(_, is_wrong)| *is_wrong) {
                Some((what, _)) => {
                    self.counts.failed = self.counts.failed.saturating_add(1);
                    self.problems
                        .push(of_seal(&format!("seal {}", body.seal_no), format!("its {what} is not the log's")));
                }
                None if self.has_key => self.counts.verified = self.counts.verified.saturating_add(1),
                None => self.counts.no_key = self.counts.no_key.saturating_add(1),
            }
        }
    }
}

impl Mark {
    fn of(head: &Head, name: &str, kept: Kept) -> Self {
        Self { position: head.position, hash: head.hash, name: name.to_owned(), kept }
    }
}

fn check(row: &SealRow, (expected, previous): (i64, Digest), key: Option<&PublicKey>) -> Result<SealBody, String> {
    let body: SealBody = match key {
        Some(key) => open(&row.body, &row.signature, key)?,
        None => serde_json::from_str(&row.body).map_err(|error| format!("it can't be read: {error}"))?,
    };
    if row.seal_no != expected || body.seal_no != expected {
        return Err(format!("seal {expected} is missing before it"));
    }
    if body.previous != previous {
        return Err("it does not follow from the seal before".to_owned());
    }
    Ok(body)
}

/// The events of one shard between two seals.
#[derive(Debug, Clone)]
pub(super) struct ShardRange {
    root: Digest,
    tally: RangeTally,
}

/// Follows the ranges of one shard.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    tree: Tree,
    tally: RangeTally,
    pub(super) done: Vec<ShardRange>,
}

impl Ranges {
    /// The next event.
    pub(super) fn add(&mut self, event: &EventRow) {
        self.tree.push(&event.hash);
        self.tally.add(event);
    }

    /// A seal ends here.
    pub(super) fn end(&mut self) {
        let (tree, tally) = (std::mem::take(&mut self.tree), std::mem::take(&mut self.tally));
        self.done.push(ShardRange { root: tree.root(), tally });
    }
}
