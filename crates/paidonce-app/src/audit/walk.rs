//! One shard of the log, page by page, with every order folded as far as it was read: what replay and export walk on.
//!
//! Memory: a page, and the orders that are kept. Whoever walks lets go of orders; one that comes up again is read again from its
//! first event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paidonce_order::ids::shard_of;
use paidonce_store::audit::{AuditSource, IDS_MAX, Range};
use paidonce_store::rebuild::{Folded, RebuildError};
use paidonce_store::store::EventRow;

use super::report::AuditError;

/// Events in a page.
const PAGE: u32 = 4_096;
/// Orders of a shard that are kept at once.
const STATES_MAX: usize = 10_000;

/// What a walk holds in memory.
#[derive(Debug, Clone, Copy)]
pub struct WalkLimits {
    /// Events in a page.
    pub page: u32,
    /// Orders that are kept.
    pub states: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { page: PAGE, states: STATES_MAX }
    }
}

/// A walk through a shard.
pub(super) struct Walk {
    pub(super) source: Arc<dyn AuditSource>,
    pub(super) shard: u16,
    /// The last position that was read.
    pub(super) after: i64,
    /// The bound.
    pub(super) to: i64,
    limits: WalkLimits,
    /// By aggregate id.
    states: BTreeMap<String, Folded>,
}

impl Walk {
    /// From the first event to the bound.
    pub(super) fn new(source: Arc<dyn AuditSource>, (shard, to): (u16, i64), limits: WalkLimits) -> Self {
        Self { source, shard, after: 0, to, limits, states: BTreeMap::new() }
    }

    /// The next events, without a hole; `None` at the bound. Orders among them that began before are loaded.
    ///
    /// Errors: a position is missing, or time runs backwards.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<EventRow>>, AuditError> {
        if self.after >= self.to {
            return Ok(None);
        }
        let range = Range { after: self.after, to: self.to };
        let page = self.source.page(self.shard, range, self.limits.page).await?;
        self.check_gapless(&page)?;
        self.load_begun(&page).await?;
        self.after = page.last().map_or(self.after, |event| event.position);
        Ok(Some(page))
    }

    pub(super) fn broken(&self, position: i64, problem: impl Into<String>) -> AuditError {
        AuditError::Broken { shard: self.shard, position, problem: problem.into() }
    }

    fn check_gapless(&self, page: &[EventRow]) -> Result<(), AuditError> {
        let missing = |position| self.broken(position, format!("is missing below the head at {}", self.to));
        let mut last: Option<&EventRow> = None;
        for (event, expected) in page.iter().zip(self.after.saturating_add(1)..) {
            if event.position != expected {
                return Err(missing(expected));
            }
            if last.is_some_and(|last| last.recorded_at > event.recorded_at) {
                return Err(self.broken(expected, "was recorded before the one before it"));
            }
            last = Some(event);
        }
        if page.is_empty() { Err(missing(self.after.saturating_add(1))) } else { Ok(()) }
    }

    /// Orders that began before this page and were let go.
    async fn load_begun(&mut self, page: &[EventRow]) -> Result<(), AuditError> {
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for event in page {
            first.entry(event.aggregate_id.as_str()).or_insert(event.sequence);
        }
        let begun = first.into_iter().filter(|(id, sequence)| *sequence > 1 && !self.states.contains_key(*id));
        let ids: Vec<String> = begun.map(|(id, _)| id.to_owned()).collect();
        for ids in ids.chunks(IDS_MAX) {
            let range = Range { after: 0, to: self.after };
            for event in self.source.events_of(self.shard, ids, range).await? {
                self.fold(&event)?;
            }
        }
        Ok(())
    }

    /// Folds the next event of an order; gives the order. Errors: it is not the next, or can't be decoded.
    pub(super) fn fold(&mut self, event: &EventRow) -> Result<&Folded, AuditError> {
        if shard_of(&event.aggregate_id) != self.shard {
            return Err(self.broken(event.position, format!("{} belongs to another shard", event.aggregate_id)));
        }
        if !self.states.contains_key(&event.aggregate_id) {
            let empty = Folded::empty(&event.aggregate_type);
            let no_type = || self.broken(event.position, format!("there is no type {:?}", event.aggregate_type));
            let empty = empty.ok_or_else(no_type)?;
            self.states.insert(event.aggregate_id.clone(), empty);
        }
        let broken = |error: RebuildError| {
            let (shard, position) = (self.shard, event.position);
            AuditError::Broken { shard, position, problem: error.to_string() }
        };
        match self.states.get_mut(&event.aggregate_id) {
            Some(folded) => {
                folded.fold(event).map_err(broken)?;
                Ok(folded)
            }
            None => Err(AuditError::Internal("an order vanished from memory".to_owned())),
        }
    }

    /// Whether more orders are kept than should be.
    pub(super) fn is_full(&self) -> bool {
        self.states.len() > self.limits.states
    }

    /// An order that is kept.
    pub(super) fn get(&self, id: &str) -> Option<&Folded> {
        self.states.get(id)
    }

    /// Lets go of an order.
    pub(super) fn take(&mut self, id: &str) -> Option<Folded> {
        self.states.remove(id)
    }

    /// Lets go of all.
    pub(super) fn take_all(&mut self) -> BTreeMap<String, Folded> {
        std::mem::take(&mut self.states)
    }
}

/// The orders that these events are of.
pub(super) fn ids_of(page: &[EventRow]) -> BTreeSet<String> {
    page.iter().map(|event| event.aggregate_id.clone()).collect()
}
