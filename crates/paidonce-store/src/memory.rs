//! The ledger in memory: a model that the conformance suite holds equal to the databases. For tests and demos only: nothing
//! survives the process.
//!
//! `tables` holds the rows and the keys; the writer's session stages a batch and applies it at COMMIT; reads, effects and
//! subscribers are what the SQL of the databases says, in plain loops.

mod effects;
mod session;
mod tables;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order};
use paidonce_order::project::{FlowRow, OrderRow};
use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use self::session::{MemoryBackend, SystemClock};
use self::tables::Tables;
use crate::backend::{Backend, ORDER};
use crate::cursor::Behind;
use crate::effect_rules::check_subscriber;
use crate::feed::{self, FeedSource};
use crate::options::StoreOptions;
use crate::store::{
    Attempt, Backfill, ClaimedEffect, EffectRow, EventRow, FeedPage, Gauges, Head, ItemRow, OnlyOpen, OrderFilter,
    Outcome, RowCounts, SURPLUS_REFUNDS_MAX, Store, StoreError, SubmitError, Subscriber, TryResult, Work,
};
use crate::writer::Writer;
use crate::{fold, search};

/// A ledger in memory. Clones are the same ledger.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Shared,
    clock: SystemClock,
    writer: Writer,
}

/// The tables, and the lock that a writer or a change of subscribers holds for its tx.
#[derive(Debug, Clone, Default)]
struct Shared {
    tables: Arc<Mutex<Tables>>,
    tx: Arc<tokio::sync::Mutex<()>>,
}

impl Shared {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty ledger. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(options: &StoreOptions) -> Self {
        let shared = Shared::default();
        let clock = SystemClock(options.clock.clone());
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new(shared.clone()));
        Self { shared, clock, writer: Writer::start(&backend, options) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn submit(&self, work: Work) -> Result<Outcome, SubmitError> {
        self.writer.submit(work).await
    }

    async fn find_order(&self, order_no: &OrderNo) -> Result<Option<Order>, StoreError> {
        fold::order(&self.list_order_events(order_no).await?)
    }

    async fn find_order_row(&self, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
        Ok(self.shared.tables().orders.get(order_no.as_str()).map(|order| order.row.clone()))
    }

    async fn list_order_events(&self, order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError> {
        Ok(self.shared.tables().stream(ORDER, order_no.as_str()))
    }

    async fn list_order_flows(&self, order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError> {
        let tables = self.shared.tables();
        let mut flows: Vec<_> = tables.flows.values().filter(|flow| flow.row.order_no == *order_no).collect();
        flows.sort_by(|a, b| (a.position, &a.row.idem_key).cmp(&(b.position, &b.row.idem_key)));
        Ok(flows.into_iter().map(|flow| flow.row.clone()).collect())
    }

    async fn list_surplus_refunds(
        &self,
        account: &AccountRef,
        since: Timestamp,
    ) -> Result<Option<Vec<Money>>, StoreError> {
        let tables = self.shared.tables();
        let wanted = |row: &&EventRow| row.event_type == "RefundRequested" && row.recorded_at >= since;
        let mut rows: Vec<EventRow> = tables.all_events().filter(wanted).cloned().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.recorded_at));
        rows.truncate(usize::try_from(SURPLUS_REFUNDS_MAX).unwrap_or(usize::MAX));
        fold::surplus_refunds(&rows, account)
    }

    async fn count_rows(&self, order_no: &OrderNo) -> Result<RowCounts, StoreError> {
        Ok(self.shared.tables().counts(order_no.as_str()))
    }

    async fn list_orders(&self, filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError> {
        let tables = self.shared.tables();
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let wanted = tables.orders.values().filter(|order| tables.matches(filter, order));
        Ok(wanted.take(limit).map(|order| order.row.clone()).collect())
    }

    async fn find_order_by_trade_no(
        &self,
        account: &AccountRef,
        channel_trade_no: &ChannelTradeNo,
    ) -> Result<Option<OrderNo>, StoreError> {
        self.shared.tables().order_of_payment(account, channel_trade_no)
    }

    async fn read_feed(&self, cursor: &str, limit: u32) -> Result<FeedPage, StoreError> {
        feed::read_feed(self, cursor, limit).await
    }

    async fn list_items(
        &self,
        kind: Option<ItemKind>,
        open_only: OnlyOpen,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemRow>, StoreError> {
        self.shared.tables().list_items(kind, open_only, after, limit)
    }

    async fn find_item(&self, item_no: &str) -> Result<Option<ItemRow>, StoreError> {
        Ok(self.shared.tables().items.get(item_no).map(|(item, _)| item.clone()))
    }

    async fn resolve_quarantined(&self, item_no: &str, by: &str) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.shared.tables().resolve_quarantined(item_no, by, now)
    }

    async fn list_subscribers(&self) -> Result<Vec<Subscriber>, StoreError> {
        Ok(self.shared.tables().subscribers.values().cloned().collect())
    }

    async fn put_subscriber(&self, subscriber: &Subscriber, backfill: Backfill) -> Result<u64, StoreError> {
        check_subscriber(subscriber)?;
        let _tx = self.shared.tx.lock().await;
        let now = self.clock.now();
        let mut tables = self.shared.tables();
        tables.put_subscriber(subscriber);
        Ok(match backfill {
            Backfill::No => 0,
            Backfill::All => tables.backfill(subscriber, now),
        })
    }

    async fn delete_subscriber(&self, name: &str) -> Result<(), StoreError> {
        let _tx = self.shared.tx.lock().await;
        let now = self.clock.now();
        self.shared.tables().delete_subscriber(name, now)
    }

    async fn claim_effects(&self, kinds: &[&str], lease_ms: i64, limit: u32) -> Result<Vec<ClaimedEffect>, StoreError> {
        let now = self.clock.now();
        self.shared.tables().claim(kinds, now, lease_ms, limit)
    }

    async fn complete_effect(
        &self,
        effect_id: Uuid,
        lease_token: Uuid,
        result: &TryResult,
    ) -> Result<bool, StoreError> {
        let now = self.clock.now();
        Ok(self.shared.tables().complete(effect_id, lease_token, result, now))
    }

    async fn list_effects(
        &self,
        state: Option<&str>,
        order_no: Option<&str>,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<EffectRow>, StoreError> {
        let tables = self.shared.tables();
        let wanted = tables.effects.values().map(|effect| &effect.row).filter(|row| {
            state.is_none_or(|state| row.state == state)
                && order_no.is_none_or(|no| row.order_no == no)
                && after.is_none_or(|after| row.effect_id > after)
        });
        Ok(wanted.take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect())
    }

    async fn requeue_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
        let now = self.clock.now();
        Ok(self.shared.tables().requeue(effect_id, by, now))
    }

    async fn discard_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
        let now = self.clock.now();
        Ok(self.shared.tables().discard(effect_id, by, now))
    }

    async fn next_effect_due_ms(&self, kinds: &[&str]) -> Result<Option<i64>, StoreError> {
        let now = self.clock.now();
        Ok(self.shared.tables().next_due_ms(kinds, now))
    }

    async fn prune_effects(&self, older_than_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let before = self.clock.now().plus_micros(older_than_ms.saturating_mul(-1_000));
        Ok(self.shared.tables().prune(before, limit))
    }

    fn note_attempt(&self, attempt: Attempt) {
        self.shared.tables().note_attempt(attempt);
    }

    async fn list_attempts(&self, order_no: &OrderNo, limit: u32) -> Result<Vec<Attempt>, StoreError> {
        Ok(self.shared.tables().attempts_of(order_no, limit))
    }

    async fn gauges(&self) -> Result<Gauges, StoreError> {
        let counts = self.shared.tables().gauge_counts();
        Ok(Gauges { queue_depth: self.writer.queue_depth(), ..search::gauges(&counts) })
    }

    async fn check_ready(&self) -> Result<(), StoreError> {
        self.writer.check_ready()
    }

    async fn shutdown(&self) {
        self.writer.shutdown().await;
    }
}

#[async_trait]
impl FeedSource for MemoryStore {
    async fn heads(&self) -> Result<Vec<Head>, StoreError> {
        Ok(self.shared.tables().heads())
    }

    async fn ranges(&self, ranges: &[Behind], rows_max: i64) -> Result<Vec<EventRow>, StoreError> {
        let tables = self.shared.tables();
        let rows_max = usize::try_from(rows_max).unwrap_or(usize::MAX);
        let rows = ranges.iter().flat_map(|range| {
            tables
                .shard(range.shard)
                .iter()
                .filter(|row| row.position > range.after && row.position <= range.head)
                .take(rows_max)
        });
        Ok(rows.cloned().collect())
    }
}
