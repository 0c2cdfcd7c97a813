//! What the rest of the program may ask of a ledger. Every caller goes through [`Store`]; nothing else changes a row.

use std::sync::Arc;

use async_trait::async_trait;
use paidonce_order::command::{OrderCommand, StrayCommand};
use paidonce_order::error::OrderError;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order, Status};
use paidonce_order::project::{ApiKey, FlowRow, OrderRow};
use paidonce_order::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use crate::rights::SessionRights;

/// One job for the shard writer.
#[derive(Debug, Clone)]
pub struct Work {
    /// Whose state decides.
    pub target: Target,
    /// Who asks and why we believe it.
    pub context: CommandContext,
}

/// An aggregate and the command for it.
#[derive(Debug, Clone)]
pub enum Target {
    /// An order.
    Order {
        /// aggregate_id.
        order_no: OrderNo,
        /// What is asked.
        command: OrderCommand,
    },
    /// A stray.
    Stray {
        /// aggregate_id, `channel:account:<digest>`.
        stray_id: String,
        /// What is asked.
        command: StrayCommand,
    },
}

/// Goes into the metadata of every event that the command causes.
#[derive(Debug, Clone, Default)]
pub struct CommandContext {
    /// `callback`, `query`, `bill`, `operator`, `api`.
    pub source: String,
    /// Token name or operator, when a person or service asked.
    pub actor: Option<String>,
    /// Id of the HTTP request, for the log.
    pub request_id: Option<String>,
    /// Caller's idempotency key with the hash of its request.
    pub api_key: Option<ApiKey>,
    /// The signed bytes; stored once per (shard, digest) when an event results.
    pub evidence: Option<Arc<EvidenceRow>>,
}

/// A row of `t_evidence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceRow {
    /// SHA-256, key together with the shard.
    pub digest: Digest,
    /// Where it came in.
    pub account: AccountRef,
    /// `callback`, `query`, `bill`.
    pub source: String,
    /// Signature headers.
    pub headers: Vec<(String, String)>,
    /// Exact bytes.
    pub body: Vec<u8>,
    /// Serial or id of the key that verified it.
    pub key_id: String,
    /// Receipt.
    pub received_at: Timestamp,
}

/// What became of a job. All of these are durable facts.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Events were appended.
    Committed(Receipt),
    /// Nothing new: the fact, or the same API request, is already in the log.
    Duplicate(Receipt),
    /// The rules say no; nothing was written. Never from unvalidated cache.
    Rejected(OrderError),
    /// The `Idempotency-Key` was used before with another request (HTTP 422).
    ApiKeyReused,
}

/// Where the aggregate stands after the job.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// Types and idem keys of the new events, empty for a duplicate.
    pub events: Vec<ReceiptEvent>,
    /// State after the job; `None` for strays.
    pub order: Option<Arc<Order>>,
}

/// One new event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptEvent {
    /// UUIDv7.
    pub event_id: Uuid,
    /// `PaymentConfirmed`, ...
    pub event_type: String,
}

/// Why a job has no outcome. The caller answers 503 and says `unknown` where it is.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError {
    /// The shard's queue is full.
    #[error("the writer's queue is full: try again shortly")]
    QueueFull,
    /// The database can't be reached or refuses writes; nothing was written.
    #[error("the database is away or refuses writes: {0}")]
    Unavailable(String),
    /// COMMIT was sent and its result is not known yet; sending the same again is safe.
    #[error("the outcome of the commit is unknown: send the same again")]
    Unknown,
    /// This job could not be decided twice; it was set aside with an alarm.
    #[error("this order needs a person before it can be written: {0}")]
    Quarantined(String),
    /// The log has an event that this version can't read.
    #[error("the log has an event that this version can't decode ({0}): upgrade this node")]
    TooOld(String),
    /// The service is stopping.
    #[error("the service is stopping")]
    Stopping,
}

/// A read failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached or refuses.
    #[error("the database is away or refuses: {0}")]
    Unavailable(String),
    /// What is stored can't be understood: a person must look.
    #[error("the ledger holds something unexpected: {0}")]
    Corrupt(String),
    /// The request itself is wrong (an unreadable cursor, an unknown subscriber).
    #[error("{0}")]
    Invalid(String),
}

/// An event of the log with everything the audit needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// 0..64.
    pub shard: u16,
    /// Gapless in the shard, from 1.
    pub position: i64,
    /// UUIDv7.
    pub event_id: Uuid,
    /// `Order` or `Stray`.
    pub aggregate_type: String,
    /// order_no or stray id.
    pub aggregate_id: String,
    /// 1-based in the aggregate.
    pub sequence: i64,
    /// `PaymentConfirmed`, ...
    pub event_type: String,
    /// `1`.
    pub event_version: String,
    /// Exactly the stored JSON text.
    pub payload: String,
    /// Exactly the stored JSON text: string to string.
    pub metadata: String,
    /// Commit time, whole microseconds.
    pub recorded_at: Timestamp,
    /// SHA-256 chain value.
    pub hash: Digest,
}

/// The head of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// 0..64.
    pub shard: u16,
    /// Last position, 0 when empty.
    pub position: i64,
    /// Chain value of the last event; zeros when empty.
    pub hash: Digest,
}

/// A page of the feed.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// In (recorded_at, shard, position) order inside the page; gapless per shard.
    pub events: Vec<EventRow>,
    /// Opaque; holds all shard positions.
    pub next_cursor: String,
    /// Heads at the time of reading.
    pub heads: Vec<Head>,
}

/// Filter of the order search. Paged by `after`.
#[derive(Debug, Clone, Default)]
pub struct OrderFilter {
    /// Only this status.
    pub status: Option<Status>,
    /// Created at or after.
    pub from: Option<Timestamp>,
    /// Created before.
    pub to: Option<Timestamp>,
    /// Payments and refunds with this channel number.
    pub channel_trade_no: Option<ChannelTradeNo>,
    /// Continue behind this order number.
    pub after: Option<OrderNo>,
    /// Rows at most (callers cap it).
    pub limit: u32,
}

/// An open or closed item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemRow {
    /// Key.
    pub item_no: String,
    /// Kind.
    pub kind: ItemKind,
    /// Order, when it has one.
    pub order_no: Option<String>,
    /// Stray id, when it is one.
    pub stray_id: Option<String>,
    /// One sentence.
    pub detail: String,
    /// `channel:account:channel_trade_no`, when it is about a payment.
    pub payment: Option<String>,
    /// `open` or what closed it.
    pub state: String,
    /// Commit time of the opening event.
    pub opened_at: Timestamp,
    /// Commit time of the closing event.
    pub closed_at: Option<Timestamp>,
}

/// Who gets business effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscriber {
    /// Key.
    pub name: String,
    /// Event types; `["*"]` means all.
    pub events: Vec<String>,
    /// Where to POST.
    pub url: String,
    /// Name of the secret in the configuration (never the secret itself).
    pub secret_ref: String,
    /// Not sent to while `true`.
    pub paused: bool,
}

impl Subscriber {
    /// Whether events of this type are told.
    #[must_use]
    pub fn wants(&self, event_type: &str) -> bool {
        self.events.iter().any(|wanted| wanted == "*" || wanted == event_type)
    }
}

/// A row of `t_effect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectRow {
    /// Key.
    pub effect_id: Uuid,
    /// 0..64.
    pub shard: u16,
    /// Lane, first half.
    pub order_no: String,
    /// Lane, second half: subscriber name, or for channel calls a text that begins with `channel:`.
    pub subscriber: String,
    /// What to do: `deliver`, or one of [`CHANNEL_KINDS`].
    pub kind: String,
    /// The event that caused it: `webhook-id`.
    pub event_id: Uuid,
    /// Position of that event: order inside the lane.
    pub position: i64,
    /// `pending`, `leased`, `delivered`, `dead`, `discarded`.
    pub state: String,
    /// Tries begun so far, the running one too: a lease that ran out counts.
    pub attempts: i32,
    /// Next try, database clock; while leased, the end of the lease; behind an unfinished one of its lane, the next look.
    pub due_at: Timestamp,
    /// Present while leased.
    pub lease_token: Option<Uuid>,
    /// Result of the last try (no secrets, no bodies).
    pub last_error: Option<String>,
    /// Arguments of a channel call, JSON; empty for deliveries.
    pub call: Option<String>,
}

/// Kinds of effects that ask a platform, or may: what the channel relay claims.
pub const CHANNEL_KINDS: &[&str] =
    &["poll", "query_payment", "query_refund", "refund", "close", "surplus", "query_share"];

/// Requests of refunds, of any kind and account, that [`Store::list_surplus_refunds`] looks at. As many as that within an hour
/// count as a tripped breaker.
pub const SURPLUS_REFUNDS_MAX: u32 = 10_000;

/// A claimed effect and its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedEffect {
    /// The row, leased by us.
    pub effect: EffectRow,
    /// The event to tell.
    pub event: EventRow,
}

/// Result of one try, reported with the lease token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryResult {
    /// The receiver took it.
    Delivered,
    /// Try again after this many milliseconds (database clock).
    RetryAfter {
        /// Delay.
        delay_ms: i64,
        /// Why.
        error: String,
    },
    /// Given up: alarmed, blocks its lane until requeue or discard.
    Dead {
        /// Why.
        error: String,
    },
}

/// The ledger, for every caller. Implemented over PostgreSQL, SQLite and memory; one conformance suite holds them equal.
#[async_trait]
pub trait Store: Send + Sync {
    /// Hands one job to its shard's writer and waits for the commit. Dropping the future does not stop the job.
    async fn submit(&self, work: Work) -> Result<Outcome, SubmitError>;

    /// The order folded from its events, or `None` when it has none.
    async fn find_order(&self, order_no: &OrderNo) -> Result<Option<Order>, StoreError>;
    /// Its `t_order` row.
    async fn find_order_row(&self, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError>;
    /// Its events in sequence.
    async fn list_order_events(&self, order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError>;
    /// Its flows in booking order.
    async fn list_order_flows(&self, order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError>;
    /// How many rows the tables hold for this order: what `demo` and `storm` check promise P1 by.
    async fn count_rows(&self, order_no: &OrderNo) -> Result<RowCounts, StoreError> {
        let _ = order_no;
        Err(StoreError::Invalid("this store can't count rows yet".to_owned()))
    }
    /// Amounts of the refunds of surplus payments that were requested at this account at or after `since`, newest first;
    /// `None` when [`SURPLUS_REFUNDS_MAX`] refunds of any kind were requested since then: too many to be sure.
    async fn list_surplus_refunds(
        &self,
        account: &AccountRef,
        since: Timestamp,
    ) -> Result<Option<Vec<Money>>, StoreError>;
    /// Search; ordered by order_no.
    async fn list_orders(&self, filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError>;
    /// The order of a payment, for notices that carry only the channel's number (index on `t_order_flow`, then on
    /// parked payments).
    async fn find_order_by_trade_no(
        &self,
        account: &AccountRef,
        channel_trade_no: &ChannelTradeNo,
    ) -> Result<Option<OrderNo>, StoreError>;
    /// Feed over all shards. `cursor` empty means from the beginning. A hole is [`StoreError::Corrupt`].
    async fn read_feed(&self, cursor: &str, limit: u32) -> Result<FeedPage, StoreError>;

    /// Items, newest first, paged by `after` (an item_no). `state` `open` or `all`.
    async fn list_items(
        &self,
        kind: Option<ItemKind>,
        open_only: OnlyOpen,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemRow>, StoreError>;
    /// One item.
    async fn find_item(&self, item_no: &str) -> Result<Option<ItemRow>, StoreError>;
    /// Closes a quarantined item (those are not in the log).
    async fn resolve_quarantined(&self, item_no: &str, by: &str) -> Result<(), StoreError>;

    /// All subscribers.
    async fn list_subscribers(&self) -> Result<Vec<Subscriber>, StoreError>;
    /// Adds or changes one. With `backfill`, effects for all matching past events are made in bounded steps.
    async fn put_subscriber(&self, subscriber: &Subscriber, backfill: Backfill) -> Result<u64, StoreError>;
    /// Removes one and discards its unsent effects.
    async fn delete_subscriber(&self, name: &str) -> Result<(), StoreError>;

    /// Claims due effects of `kinds`, at most `limit`, only lane heads, with a lease of `lease_ms`.
    async fn claim_effects(&self, kinds: &[&str], lease_ms: i64, limit: u32) -> Result<Vec<ClaimedEffect>, StoreError>;
    /// Reports a try. `false`: the lease was no longer ours, nothing changed.
    async fn complete_effect(&self, effect_id: Uuid, lease_token: Uuid, result: &TryResult)
    -> Result<bool, StoreError>;
    /// Effects, filtered by state and order, paged by `after` (an effect_id), oldest first.
    async fn list_effects(
        &self,
        state: Option<&str>,
        order_no: Option<&str>,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<EffectRow>, StoreError>;
    /// DEAD to pending, due now, attempts from zero. `false` when it was not dead.
    async fn requeue_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError>;
    /// DEAD or pending to discarded. `false` when it was neither.
    async fn discard_effect(&self, effect_id: Uuid, by: &str) -> Result<bool, StoreError>;
    /// Milliseconds until the next effect of `kinds` is due (0 when one is), `None` when there is none.
    async fn next_effect_due_ms(&self, kinds: &[&str]) -> Result<Option<i64>, StoreError>;
    /// Deletes delivered and discarded effects older than this, at most `limit`; how many.
    async fn prune_effects(&self, older_than_ms: i64, limit: u32) -> Result<u64, StoreError>;

    /// Adds an attempt (duplicate or refusal) to `t_attempt`; best effort, bounded queue, never waits.
    fn note_attempt(&self, attempt: Attempt);

    /// Attempts of this order as far as they are kept, newest first, at most `limit`.
    async fn list_attempts(&self, order_no: &OrderNo, limit: u32) -> Result<Vec<Attempt>, StoreError>;

    /// Counts for metrics and health: see [`Gauges`].
    async fn gauges(&self) -> Result<Gauges, StoreError>;
    /// Can this node write now? `Err` says why not (for `/readyz`).
    async fn check_ready(&self) -> Result<(), StoreError>;
    /// With which rights the database's sessions work. `None`: this store has no roles (embedded, in memory).
    fn session_rights(&self) -> Option<&SessionRights> {
        None
    }
    /// Stops taking jobs, finishes what was accepted, closes.
    async fn shutdown(&self);
}

/// Rows of one order, table by table (`GET /v1/orders/{no}/counts`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// `events`.
    pub events: i64,
    /// `t_idempotent`.
    pub idempotent: i64,
    /// `t_order`: none or one.
    pub order: i64,
    /// `t_order_flow`.
    pub flows: i64,
    /// `t_effect`, deliveries only (channel calls are not counted).
    pub deliveries: i64,
    /// Those of them that the subscriber took.
    pub delivered: i64,
}

/// Whether closed items are listed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnlyOpen {
    /// Open ones only.
    Yes,
    /// All.
    No,
}

/// Whether a new subscriber hears of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backfill {
    /// From now on.
    No,
    /// Every matching event of the log.
    All,
}

/// A duplicate or refusal, kept for `explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// Where.
    pub account: AccountRef,
    /// The order, when known from signed content.
    pub order_no: Option<OrderNo>,
    /// `duplicate`, `rejected`, ...
    pub result: String,
    /// Push id or reason, cut.
    pub detail: String,
}

/// Numbers for `/metrics` and `/healthz`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Gauges {
    /// Effects by state: pending, leased, dead.
    pub effects: Vec<(String, i64)>,
    /// Open items by kind.
    pub items_open: Vec<(String, i64)>,
    /// Jobs waiting in the writers' queues.
    pub queue_depth: i64,
    /// Sum of head positions.
    pub events_total: i64,
    /// Attempts that were not kept since the start: queue full, or the write failed.
    pub attempts_dropped: i64,
}
