//! The ledger on PostgreSQL.
//!
//! `migrate`, `roles` and `grants` make it, `connect` and `rights` open it, `append` and `load` are the writer's side, the others
//! are reads, effects and subscribers.

mod append;
mod attempts;
pub(crate) mod audit;
mod connect;
mod effects;
mod feed;
mod grants;
mod items;
mod load;
mod migrate;
mod queries;
mod rights;
mod roles;
mod subscribers;

use async_trait::async_trait;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order};
use paidonce_order::project::{FlowRow, OrderRow};
use paidonce_order::timestamp::Timestamp;
use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::ClockOffset;
use crate::options::StoreOptions;
use crate::rights::SessionRights;
use crate::store::{
    Attempt, Backfill, ClaimedEffect, EffectRow, EventRow, FeedPage, Gauges, ItemRow, OnlyOpen, OrderFilter, Outcome,
    RowCounts, Store, StoreError, SubmitError, Subscriber, TryResult, Work,
};
use crate::writer::Writer;

pub(crate) use connect::service_connection;
pub use grants::{APPEND_ONLY, GRANTS, READER, TableGrants, WRITER};
pub use migrate::{Migrated, migrate};

/// Every statement of the writer, for the test that prepares them on PostgreSQL. `{}` takes a list of shards.
#[cfg(feature = "conformance")]
pub const WRITER_STATEMENTS: &[&str] = append::STATEMENTS;

/// A ledger on PostgreSQL. Nodes are stateless: any number may be connected.
#[derive(Debug)]
pub struct PostgresStore {
    /// For reads and effects; never used by the writer, so that a slow report can't hold up a commit.
    pub(crate) pool: PgPool,
    pub(crate) clock: ClockOffset,
    rights: SessionRights,
    pub(crate) writer: Writer,
    attempts: attempts::Attempts,
}

impl PostgresStore {
    /// Connects, checks the server's settings, the schema and that every event of the log can be decoded, and starts the
    /// writers.
    ///
    /// Errors: [`StoreError::Unavailable`] when the server can't be reached, [`StoreError::Invalid`] when it must not be used
    /// as it is (fsync off, migrations missing, the login lacks a right), [`StoreError::Corrupt`] when the log has an event that this version can't decode.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        connect::connect(url, options).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn submit(&self, work: Work) -> Result<Outcome, SubmitError> {
        self.writer.submit(work).await
    }

    async fn find_order(&self, order_no: &OrderNo) -> Result<Option<Order>, StoreError> {
        queries::find_order(self, order_no).await
    }
    async fn find_order_row(&self, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
        queries::find_order_row(self, order_no).await
    }
    async fn list_order_events(&self, order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError> {
        queries::list_order_events(self, order_no).await
    }
    async fn list_order_flows(&self, order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError> {
        queries::list_order_flows(self, order_no).await
    }
    async fn list_surplus_refunds(
        &self,
        account: &AccountRef,
        since: Timestamp,
    ) -> Result<Option<Vec<Money>>, StoreError> {
        queries::list_surplus_refunds(self, account, since).await
    }
    async fn count_rows(&self, order_no: &OrderNo) -> Result<RowCounts, StoreError> {
        queries::count_rows(self, order_no).await
    }
    async fn list_orders(&self, filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError> {
        queries::list_orders(self, filter).await
    }
    async fn find_order_by_trade_no(
        &self,
        account: &AccountRef,
        channel_trade_no: &ChannelTradeNo,
    ) -> Result<Option<OrderNo>, StoreError> {
        queries::find_order_by_trade_no(self, account, channel_trade_no).await
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
        items::list_items(self, kind, open_only, after, limit).await
    }
    async fn find_item(&self, item_no: &str) -> Result<Option<ItemRow>, StoreError> {
        items::find_item(self, item_no).await
    }
    async fn resolve_quarantined(&self, item_no: &str, by: &str) -> Result<(), StoreError> {
        items::resolve_quarantined(self, item_no, by).await
    }
    async fn list_subscribers(&self) -> Result<Vec<Subscriber>, StoreError> {
        subscribers::list_subscribers(self).await
    }
    async fn put_subscriber(&self, subscriber: &Subscriber, backfill: Backfill) -> Result<u64, StoreError> {
        subscribers::put_subscriber(self, subscriber, backfill).await
    }
    async fn delete_subscriber(&self, name: &str) -> Result<(), StoreError> {
        subscribers::delete_subscriber(self, name).await
    }
    async fn claim_effects(&self, kinds: &[&str], lease_ms: i64, limit: u32) -> Result<Vec<ClaimedEffect>, StoreError> {
        effects::claim_effects(self, kinds, lease_ms, limit).await
    }
    async fn complete_effect(
        &self,
        effect_id: Uuid,
        lease_token: Uuid,
        result: &TryResult,
    ) -> Result<bool, StoreError> {
        effects::complete_effect(self, effect_id, lease_token, result).await
    }
    async fn list_effects(
        &self,
        state: Option<&str>,
        order_no: Option<&str>,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<EffectRow>, StoreError> {
        effects::list_effects(self, state, order_no, after, limit).await
    }
    async fn requeue_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
        effects::requeue_effect(self, effect_id, by).await
    }
    async fn discard_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
        effects::discard_effect(self, effect_id, by).await
    }
    async fn next_effect_due_ms(&self, kinds: &[&str]) -> Result<Option<i64>, StoreError> {
        effects::next_effect_due_ms(self, kinds).await
    }
    async fn prune_effects(&self, older_than_ms: i64, limit: u32) -> Result<u64, StoreError> {
        effects::prune_effects(self, older_than_ms, limit).await
    }

    fn session_rights(&self) -> Option<&SessionRights> {
        Some(&self.rights)
    }
    fn note_attempt(&self, attempt: Attempt) {
        self.attempts.note(attempt);
    }
    async fn list_attempts(&self, order_no: &OrderNo, limit: u32) -> Result<Vec<Attempt>, StoreError> {
        attempts::list_attempts(self, order_no, limit).await
    }
    async fn gauges(&self) -> Result<Gauges, StoreError> {
        let gauges = queries::gauges(self).await?;
        Ok(Gauges { queue_depth: self.writer.queue_depth(), attempts_dropped: self.attempts.dropped(), ..gauges })
    }
    async fn check_ready(&self) -> Result<(), StoreError> {
        self.writer.check_ready()?;
        connect::ping(self).await
    }
    async fn shutdown(&self) {
        self.writer.shutdown().await;
        self.attempts.shutdown().await;
        connect::close(self).await;
    }
}
