//! What the writer needs of a database: a session that can lock heads, load, append and commit. The writer knows no SQL and
//! the sessions know no rules.
//!
//! | step | PostgreSQL | SQLite |
//! |---|---|---|
//! | [`Session::begin`] | BEGIN + lock of the heads, one round trip | BEGIN IMMEDIATE + heads |
//! | [`Session::load`], only for orders that are not in memory | one query | one query |
//! | [`Session::append`] | one statement for all tables | one statement per table |
//! | [`Session::commit`] | COMMIT | COMMIT |
//!
//! Every step ends: with its result, or with an error after its own timeout.

use std::sync::Arc;

use async_trait::async_trait;
use paidonce_order::ids::Digest;
use paidonce_order::order::{Order, Status};
use paidonce_order::project::{Aggregate, FlowRow, OrderRow};
use paidonce_order::stray::Stray;
use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use crate::store::{EventRow, EvidenceRow, StoreError, Subscriber};

/// `Order` in `events.aggregate_type`.
pub const ORDER: &str = Order::TYPE_NAME;
/// `Stray` in `events.aggregate_type`.
pub const STRAY: &str = Stray::TYPE_NAME;

/// A database that the writer can open sessions on.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// A fresh session. Errors: [`DbError::Away`].
    async fn open(&self) -> Result<Box<dyn Session>, DbError>;
}

/// One connection of one writer.
///
/// Guarantees: dropping it without [`Session::commit`] leaves nothing behind.
#[async_trait]
pub trait Session: Send {
    /// Begins a tx and locks the heads of `shards` (sorted, no repeats) until its end.
    async fn begin(&mut self, shards: &[u16]) -> Result<Opening, DbError>;

    /// All events of these aggregates, by aggregate and sequence, as they stand under the locks.
    async fn load(&mut self, aggregates: &[AggregateKey]) -> Result<Vec<EventRow>, DbError>;

    /// Events of one shard from a position on, in position order, at most `limit`.
    async fn load_from(&mut self, shard: u16, position: i64, limit: i64) -> Result<Vec<EventRow>, DbError>;

    /// Those of `keys` that are in `t_idempotent`, of whatever shard.
    async fn find_keys(&mut self, keys: &[String]) -> Result<Vec<StoredKey>, DbError>;

    /// All subscribers.
    async fn subscribers(&mut self) -> Result<Vec<Subscriber>, DbError>;

    /// Writes all rows. Returns the order numbers whose `t_order` row was not as expected and the shards whose head was not:
    /// when there is any, the caller must roll back.
    async fn append(&mut self, append: &Append) -> Result<Lost, DbError>;

    /// Makes the tx durable. Errors: after any error the outcome is unknown and the session must be dropped.
    async fn commit(&mut self) -> Result<(), DbError>;

    /// Ends the tx without a trace.
    async fn rollback(&mut self) -> Result<(), DbError>;

    /// Notes an aggregate that can't be written, in a tx of its own: an open item of kind `quarantined`.
    async fn quarantine(&mut self, item: &Quarantine) -> Result<(), DbError>;
}

/// Why a step failed; each variant is another reaction of the writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DbError {
    /// A unique constraint says that somebody was there before.
    #[error("{constraint} is violated: {detail}")]
    Taken {
        /// Name of the constraint.
        constraint: String,
        /// The database's words.
        detail: String,
    },
    /// The database refuses these rows (another constraint, a value out of range, a trigger).
    #[error("the database refuses the rows: {0}")]
    Refused(String),
    /// A lock was not to be had in time, a deadlock, a serialization failure: the same again may work.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// The connection is gone or must not be used again, or the database refuses to write at all.
    #[error("the database is away: {0}")]
    Away(String),
    /// A stored row can't be read as what it should be.
    #[error("a stored row is unreadable: {0}")]
    Unreadable(String),
}

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(text) => Self::Away(text),
            StoreError::Corrupt(text) | StoreError::Invalid(text) => Self::Unreadable(text),
        }
    }
}

/// Names an aggregate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregateKey {
    /// [`ORDER`] or [`STRAY`].
    pub aggregate_type: &'static str,
    /// order_no or stray id.
    pub aggregate_id: String,
}

impl AggregateKey {
    /// The state before the first event.
    #[must_use]
    pub fn empty(&self) -> Aggregate {
        if self.aggregate_type == STRAY { Aggregate::Stray(Box::default()) } else { Aggregate::Order(Box::default()) }
    }
}

/// What `begin` sees under the locks.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The database's clock, without any offset.
    pub now: Timestamp,
    /// One for each shard asked for.
    pub heads: Vec<LockedHead>,
}

/// A locked row of `t_log_head`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedHead {
    /// 0..64.
    pub shard: u16,
    /// Last position, 0 when empty.
    pub position: i64,
    /// Chain value there.
    pub hash: Digest,
    /// Of the last event.
    pub recorded_at: Timestamp,
    /// See [`crate::postgres`]' subscribers: changes when `t_subscriber` does.
    pub subscribers_version: i64,
}

/// A row of `t_idempotent`, as far as an API key needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Key.
    pub idem_key: String,
    /// Whose.
    pub order_no: String,
    /// Set for API keys.
    pub request_hash: Option<Digest>,
}

/// Everything one batch writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Append {
    /// By shard and position.
    pub events: Vec<EventRow>,
    /// `t_idempotent`.
    pub keys: Vec<KeyWrite>,
    /// `t_order` rows that are new: the state after the batch.
    pub orders_new: Vec<OrderWrite>,
    /// `t_order` rows that move: the state after the batch.
    pub orders_moved: Vec<OrderMove>,
    /// `t_order_flow`.
    pub flows: Vec<FlowWrite>,
    /// `t_item` rows that are new.
    pub items_opened: Vec<ItemWrite>,
    /// `t_item` rows that close.
    pub items_closed: Vec<ItemClose>,
    /// `t_evidence`, one per (shard, digest).
    pub evidence: Vec<(u16, Arc<EvidenceRow>)>,
    /// `t_effect`.
    pub effects: Vec<EffectWrite>,
    /// `t_event_version` rows that this session has not seen.
    pub versions: Vec<VersionWrite>,
    /// Heads, by shard.
    pub heads: Vec<HeadWrite>,
}

/// A row of `t_event_version`, unless it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionWrite {
    /// `PaymentConfirmed`, ...
    pub event_type: &'static str,
    /// `1`.
    pub event_version: &'static str,
    /// recorded_at of the event.
    pub first_seen_at: Timestamp,
}

/// A new row of `t_idempotent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrite {
    /// Key.
    pub idem_key: String,
    /// Whose.
    pub order_no: String,
    /// recorded_at of the event.
    pub create_time: Timestamp,
    /// Of the event.
    pub shard: u16,
    /// Of the event.
    pub position: i64,
    /// API keys only.
    pub request_hash: Option<Digest>,
}

/// A new row of `t_order`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderWrite {
    /// The row.
    pub row: OrderRow,
    /// 0..64.
    pub shard: u16,
    /// recorded_at of the first event.
    pub create_time: Timestamp,
    /// recorded_at of the last event.
    pub update_time: Timestamp,
}

/// A change of a row of `t_order`, from exactly this state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderMove {
    /// The row after the batch.
    pub row: OrderRow,
    /// 0..64.
    pub shard: u16,
    /// recorded_at of the last event.
    pub update_time: Timestamp,
    /// Status before the batch.
    pub expected_status: Status,
    /// Version before the batch.
    pub expected_version: i64,
}

/// A new row of `t_order_flow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowWrite {
    /// The row.
    pub row: FlowRow,
    /// recorded_at of the event.
    pub create_time: Timestamp,
    /// Of the event.
    pub shard: u16,
    /// Of the event.
    pub position: i64,
}

/// A new row of `t_item`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemWrite {
    /// Key.
    pub item_no: String,
    /// `parked`, ...
    pub kind: &'static str,
    /// For items of orders.
    pub order_no: Option<String>,
    /// For items of strays.
    pub stray_id: Option<String>,
    /// One sentence.
    pub detail: String,
    /// `channel:account:channel_trade_no`.
    pub payment: Option<String>,
    /// `open`, or what closed it in the same batch.
    pub state: String,
    /// recorded_at of the opening event.
    pub opened_at: Timestamp,
    /// recorded_at of the closing event.
    pub closed_at: Option<Timestamp>,
    /// 0..64.
    pub shard: u16,
}

/// The end of an open item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemClose {
    /// Key.
    pub item_no: String,
    /// What closed it.
    pub state: String,
    /// recorded_at of the closing event.
    pub closed_at: Timestamp,
    /// 0..64.
    pub shard: u16,
}

/// A new row of `t_effect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectWrite {
    /// Key, UUIDv7.
    pub effect_id: Uuid,
    /// Of the event.
    pub shard: u16,
    /// Of the event.
    pub position: i64,
    /// Lane, first half.
    pub order_no: String,
    /// Lane, second half.
    pub subscriber: String,
    /// `deliver`, `query_payment`, ...
    pub kind: &'static str,
    /// The event.
    pub event_id: Uuid,
    /// JSON, for channel calls.
    pub call: Option<String>,
    /// recorded_at of the event.
    pub created_at: Timestamp,
    /// First try: at once, unless the kind has a first due time.
    pub due_at: Timestamp,
}

/// A move of a head, from exactly this position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadWrite {
    /// 0..64.
    pub shard: u16,
    /// Position before the batch.
    pub expected_position: i64,
    /// Position after it.
    pub position: i64,
    /// Chain value there.
    pub hash: Digest,
    /// Of the last event.
    pub recorded_at: Timestamp,
}

/// What a batch ran into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Orders whose `t_order` row was not as expected.
    pub orders: Vec<String>,
    /// Shards whose head had moved.
    pub shards: Vec<u16>,
}

impl Lost {
    /// Nothing was lost: the tx may commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.shards.is_empty()
    }
}

/// An item outside of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// Key.
    pub item_no: String,
    /// Whose.
    pub aggregate: AggregateKey,
    /// 0..64.
    pub shard: u16,
    /// One sentence.
    pub detail: String,
    /// Added to the database's clock, microseconds.
    pub offset_micros: i64,
}
