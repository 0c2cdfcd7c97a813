//! What an audit found, in words and numbers that a program and a person can read.

use paidonce_order::ids::Channel;
use paidonce_order::project::TradeType;
use paidonce_store::audit::LiveTable;
use paidonce_store::store::{EventRow, StoreError};
use serde::Serialize;

/// An audit could not be finished: what was read so far proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The database can't be read, or holds something that no release writes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event is missing, out of order, or can't be decoded.
    #[error("event {position} of shard {shard}: {problem}")]
    Broken {
        /// 0..64.
        shard: u16,
        /// Where.
        position: i64,
        /// What is wrong, one sentence.
        problem: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A task of the audit ended inside: report it.
    #[error("the audit ended inside: {0}")]
    Internal(String),
}

/// How far an audit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Events read.
    pub events: u64,
    /// Events to read.
    pub total: u64,
}

/// Called now and then, from any thread.
pub type OnProgress = std::sync::Arc<dyn Fn(Progress) + Send + Sync>;

/// A live row that is not what the log says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Whose.
    pub order_no: String,
    /// `t_order`, `t_order_flow`, `t_idempotent`.
    pub table: LiveTable,
    /// Primary key of the row.
    pub key: String,
    /// Which column; `row` when the whole row is missing or too many.
    pub column: String,
    /// What the table holds; `None`: no such row, or NULL.
    pub live: Option<String>,
    /// What the log says; `None`: no such row, or NULL.
    pub derived: Option<String>,
}

/// Something in the log that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// 0..64.
    pub shard: u16,
    /// Of the event.
    pub position: i64,
    /// order_no or stray id; empty when there is no such event.
    pub aggregate_id: String,
    /// One sentence.
    pub problem: String,
}

impl Problem {
    /// Of this event.
    #[must_use]
    pub fn at(event: &EventRow, problem: impl Into<String>) -> Self {
        let aggregate_id = event.aggregate_id.clone();
        Self { shard: event.shard, position: event.position, aggregate_id, problem: problem.into() }
    }
}

/// Money that moved on one day, through one account, in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Business date: Beijing, by the channel's clock.
    pub date: String,
    /// WXPAY, ALIPAY.
    pub channel: Channel,
    /// mchid, seller_id.
    pub account: String,
    /// PAY, SURPLUS, REFUND, SHARE, SHARE_RETURN.
    pub trade_type: TradeType,
    /// ISO 4217.
    pub currency: String,
    /// Rows.
    pub count: u64,
    /// Their sum, minor units, as text: it may be larger than any integer of a reader.
    pub amount_minor: String,
}
