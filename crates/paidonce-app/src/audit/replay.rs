//! Replay: the log is folded again, from its first event, by the same pure functions as the writer's, and what it gives is
//! compared with the live tables, row by row (promise P4).
//!
//! | step | what | memory |
//! |---|---|---|
//! | heads | captured first: what is committed later belongs to the next replay | 64 rows |
//! | each shard, in position order | pages in short reads; a missing position stops everything | a page |
//! | fold | an order is kept until its events reach the version of its live row, then compared and let go | at most as many orders as [`WalkLimits`] says; beyond, they are compared at once and read again when they come up |
//! | rows without events | each table by primary key | a page |
//!
//! Beside a running server: an order that has moved past the captured head is read up to its live row before it is compared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use paidonce_order::ids::{OrderNo, shard_of};
use paidonce_store::audit::{AuditSource, IDS_MAX, LiveTable, Range};
use paidonce_store::rebuild::Folded;
use paidonce_store::store::{EventRow, Head};
use serde::Serialize;

use super::as_of::AsOf;
use super::compare::{self, LiveOrder};
use super::report::{AuditError, Difference, OnProgress, Progress, Total};
use super::totals::{Days, Totals};
use super::walk::{Walk, WalkLimits, ids_of};

/// Differences that are kept; all are counted.
pub const DIFFERENCES_MAX: usize = 1_000;
/// Shards that are replayed at once: one decodes while another waits for the database.
pub const SHARDS_AT_ONCE: usize = 4;

/// What to replay.
#[derive(Debug, Clone, Default)]
pub struct ReplayPlan {
    /// Up to where.
    pub as_of: AsOf,
    /// Which days are summed.
    pub days: Days,
    /// Only this order.
    pub order: Option<OrderNo>,
    /// What is held in memory.
    pub limits: WalkLimits,
}

/// What a replay found. Guarantees: `is_equal` and `is_complete` both true only if every event up to the bounds was read,
/// without a hole, and every live row is what they make.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayReport {
    /// Up to where, in words.
    pub as_of: String,
    /// Events that the bounds say there are.
    pub events_expected: u64,
    /// Events that were read.
    pub events: u64,
    /// Orders that begin among them.
    pub orders: u64,
    /// Strays that begin among them.
    pub strays: u64,
    /// Rows of `t_order_flow` that they make.
    pub flows: u64,
    /// Rows of `t_idempotent` that they make.
    pub keys: u64,
    /// Whether `t_order` was compared: not for a moment of the past, whose rows have been overwritten.
    pub orders_compared: bool,
    /// Money by day, account and kind.
    pub totals: Vec<Total>,
    /// At most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// All of them.
    pub differences_total: u64,
    /// No difference.
    pub is_equal: bool,
    /// Every event was read.
    pub is_complete: bool,
}

impl ReplayReport {
    /// The only good end.
    #[must_use]
    pub const fn is_proof(&self) -> bool {
        self.is_equal && self.is_complete
    }
}

/// Replays. Errors: [`AuditError`]; then nothing is proven.
pub async fn replay(
    source: Arc<dyn AuditSource>,
    plan: &ReplayPlan,
    on_progress: OnProgress,
) -> Result<ReplayReport, AuditError> {
    let heads = source.heads().await?;
    let bounds = plan.as_of.bounds(source.as_ref(), &heads).await?;
    let live = if plan.as_of.is_head() { Live::Current } else { Live::Past };
    if let Some(order_no) = &plan.order {
        return one_order(source, plan, (order_no, &bounds), live).await;
    }
    let total: u64 = bounds.iter().map(|bound| u64::try_from(bound.position).unwrap_or(0)).sum();
    let seen = Arc::new(AtomicU64::new(0));
    let tasks = bounds.iter().filter(|bound| bound.position > 0).map(|bound| {
        let walk = Walk::new(Arc::clone(&source), (bound.shard, bound.position), plan.limits);
        let shard = ShardReplay { walk, live, days: plan.days, tally: Tally::default() };
        let (seen, on_progress) = (Arc::clone(&seen), Arc::clone(&on_progress));
        let tell = move |events: u64| {
            let events = seen.fetch_add(events, Ordering::Relaxed).saturating_add(events);
            on_progress(Progress { events, total });
        };
        // A task of its own, so that shards use more than one processor.
        async move {
            tokio::spawn(shard.run(tell)).await.unwrap_or_else(|error| Err(AuditError::Internal(error.to_string())))
        }
    });
    let mut tallies = futures_util::stream::iter(tasks).buffer_unordered(SHARDS_AT_ONCE);
    let mut tally = Tally::default();
    while let Some(of_shard) = tallies.next().await {
        tally.merge(of_shard?);
    }
    if live == Live::Current {
        find_strangers(source.as_ref(), &mut tally).await?;
    }
    Ok(tally.report(plan, total, live))
}

async fn one_order(
    source: Arc<dyn AuditSource>,
    plan: &ReplayPlan,
    (order_no, bounds): (&OrderNo, &[Head]),
    live: Live,
) -> Result<ReplayReport, AuditError> {
    let shard = shard_of(order_no.as_str());
    let to = bounds.iter().find(|bound| bound.shard == shard).map_or(0, |bound| bound.position);
    let walk = Walk::new(source, (shard, to), plan.limits);
    let mut of_shard = ShardReplay { walk, live, days: plan.days, tally: Tally::default() };
    let ids = [order_no.to_string()];
    let events = of_shard.walk.source.events_of(shard, &ids, Range { after: 0, to }).await?;
    if events.is_empty() {
        return Err(AuditError::Invalid(format!("order {order_no} has no event up to {}", plan.as_of)));
    }
    let expected = u64::try_from(events.len()).unwrap_or(u64::MAX);
    for event in &events {
        of_shard.fold(event)?;
    }
    of_shard.compare_all(to).await?;
    Ok(of_shard.tally.report(plan, expected, live))
}

/// Rows whose order has no event at all.
async fn find_strangers(source: &dyn AuditSource, tally: &mut Tally) -> Result<(), AuditError> {
    for table in LiveTable::ALL {
        let mut after = String::new();
        while let Some(page) = source.strangers(table, &after).await? {
            for (key, order_no) in page.strangers {
                let live = Some("a row that no event made".to_owned());
                let column = "row".to_owned();
                tally.add_difference(Difference { order_no, table, key, column, live, derived: None });
            }
            after = page.last;
        }
    }
    Ok(())
}

/// Which live rows there are to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    /// All of them.
    Current,
    /// Only those that are never overwritten.
    Past,
}

#[derive(Debug, Default)]
struct Tally {
    events: u64,
    orders: u64,
    strays: u64,
    flows: u64,
    keys: u64,
    totals: Totals,
    differences: BTreeSet<Difference>,
    differences_beyond: u64,
}

impl Tally {
    fn merge(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.events, other.events),
            (&mut self.orders, other.orders),
            (&mut self.strays, other.strays),
            (&mut self.flows, other.flows),
            (&mut self.keys, other.keys),
            (&mut self.differences_beyond, other.differences_beyond),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.totals.merge(other.totals);
        other.differences.into_iter().for_each(|difference| self.add_difference(difference));
    }

    fn count(&mut self, event: &EventRow, folded: &Folded, ((flows, keys), days): ((usize, usize), Days)) {
        self.events = self.events.saturating_add(1);
        if event.sequence == 1 {
            let begun = if folded.order.is_some() { &mut self.orders } else { &mut self.strays };
            *begun = begun.saturating_add(1);
        }
        for flow in folded.flows.iter().skip(flows) {
            self.flows = self.flows.saturating_add(1);
            self.totals.add(&flow.row, days);
        }
        let more = u64::try_from(folded.keys.len().saturating_sub(keys)).unwrap_or(0);
        self.keys = self.keys.saturating_add(more);
    }

    fn add_difference(&mut self, difference: Difference) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.insert(difference);
        } else if !self.differences.contains(&difference) {
            self.differences_beyond = self.differences_beyond.saturating_add(1);
        }
    }

    fn report(self, plan: &ReplayPlan, expected: u64, live: Live) -> ReplayReport {
        let kept = u64::try_from(self.differences.len()).unwrap_or(u64::MAX);
        let differences_total = kept.saturating_add(self.differences_beyond);
        ReplayReport {
            as_of: plan.as_of.to_string(),
            events_expected: expected,
            events: self.events,
            orders: self.orders,
            strays: self.strays,
            flows: self.flows,
            keys: self.keys,
            orders_compared: live == Live::Current,
            totals: self.totals.list(),
            differences: self.differences.into_iter().collect(),
            differences_total,
            is_equal: differences_total == 0,
            is_complete: self.events == expected,
        }
    }
}

struct ShardReplay {
    walk: Walk,
    live: Live,
    days: Days,
    tally: Tally,
}

impl ShardReplay {
    async fn run(mut self, tell: impl Fn(u64)) -> Result<Tally, AuditError> {
        while let Some(page) = self.walk.next().await? {
            for event in &page {
                self.fold(event)?;
            }
            if self.live == Live::Current {
                self.compare_finished(&ids_of(&page)).await?;
            }
            if self.walk.is_full() {
                self.compare_all(self.walk.after).await?;
            }
            tell(u64::try_from(page.len()).unwrap_or(0));
        }
        self.compare_all(self.walk.to).await?;
        Ok(self.tally)
    }

    fn fold(&mut self, event: &EventRow) -> Result<(), AuditError> {
        let known = self.walk.get(&event.aggregate_id).map_or((0, 0), |it| (it.flows.len(), it.keys.len()));
        let folded = self.walk.fold(event)?;
        self.tally.count(event, folded, (known, self.days));
        Ok(())
    }

    /// Compares and lets go of the orders whose live row has no later version than what was folded.
    async fn compare_finished(&mut self, touched: &BTreeSet<String>) -> Result<(), AuditError> {
        let ids: Vec<String> = touched.iter().cloned().collect();
        for ids in ids.chunks(IDS_MAX) {
            let mut live = compare::by_order(self.walk.source.live(self.walk.shard, ids).await?);
            for id in ids {
                let live = live.remove(id).unwrap_or_default();
                let is_later =
                    |folded: &Folded| live.order.as_ref().is_some_and(|it| it.row.version > folded.version());
                if self.walk.get(id).is_some_and(|folded| !is_later(folded))
                    && let Some(folded) = self.walk.take(id)
                {
                    self.compare(id, &live, &folded, i64::MAX);
                }
            }
        }
        Ok(())
    }

    /// Compares and lets go of all orders that are kept. An order that has moved on is read as far as its live row.
    async fn compare_all(&mut self, at: i64) -> Result<(), AuditError> {
        let mut states = self.walk.take_all();
        let ids: Vec<String> = states.keys().cloned().collect();
        for ids in ids.chunks(IDS_MAX) {
            let mut live = compare::by_order(self.walk.source.live(self.walk.shard, ids).await?);
            if self.live == Live::Current {
                let later = self.walk.source.events_of(self.walk.shard, ids, Range { after: at, to: i64::MAX }).await?;
                for event in &later {
                    let row = live.get(&event.aggregate_id).and_then(|it| it.order.as_ref());
                    let wanted = row.is_some_and(|row| event.sequence <= row.row.version);
                    if let Some(folded) = states.get_mut(&event.aggregate_id).filter(|_| wanted) {
                        folded.fold(event).map_err(|error| self.walk.broken(event.position, error.to_string()))?;
                    }
                }
            }
            for id in ids {
                let Some(folded) = states.remove(id) else { continue };
                let to = if self.live == Live::Current { i64::MAX } else { at };
                self.compare(id, &live.remove(id).unwrap_or_default(), &folded, to);
            }
        }
        Ok(())
    }

    fn compare(&mut self, id: &str, live: &LiveOrder, folded: &Folded, to: i64) {
        let mut found = Vec::new();
        // A stray's rows may be ahead of what was folded of it: it has no row that says how far it is.
        let to = if folded.order.is_none() { to.min(folded.position) } else { to };
        if self.live == Live::Current {
            compare::order(id, live.order.as_ref(), folded, &mut found);
        }
        compare::flows_and_keys(id, live, folded, to, &mut found);
        found.into_iter().for_each(|difference| self.tally.add_difference(difference));
    }
}
