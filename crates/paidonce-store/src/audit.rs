//! Reading a ledger for the audit: heads first, then pages in short txs, never one long snapshot. Reads only, beside a running
//! server.
//!
//! | read | statement | index |
//! |---|---|---|
//! | heads | all of `t_log_head` | primary key |
//! | a page of a shard's log | position range | `events_position_key` |
//! | earlier or later events of some aggregates | by aggregate | `events_stream_key` |
//! | live rows of some aggregates, in one snapshot | by order number | `t_order_pkey`, `t_order_flow_order_idx`, `t_idempotent_order_idx` |
//! | flows of some payments | by channel number | `t_order_flow_trade_idx` |
//! | all flows | keyset pages | primary key |
//! | rows that no event made | keyset pages, anti-join on the first event | primary keys |

use std::path::Path;

use async_trait::async_trait;
use paidonce_order::ids::{AccountRef, Digest};
use paidonce_order::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backend::{FlowWrite, KeyWrite, OrderWrite};
use crate::columns::Columns;
use crate::postgres::audit::PostgresAudit;
use crate::rows;
use crate::sqlite::audit::SqliteAudit;
use crate::store::{EventRow, EvidenceRow, Head, StoreError};

/// Aggregates that are asked about at once, at most.
pub const IDS_MAX: usize = 1_000;

/// What the audit reads. Implemented over both databases.
#[async_trait]
pub trait AuditSource: Send + Sync {
    /// Every head, by shard.
    async fn heads(&self) -> Result<Vec<Head>, StoreError>;

    /// The events of a shard with `after < position <= to`, in position order, at most `limit`.
    async fn page(&self, shard: u16, range: Range, limit: u32) -> Result<Vec<EventRow>, StoreError>;

    /// The last position of a shard, at most `to`, that was recorded at `at` or before; 0 when there is none.
    async fn position_at(&self, shard: u16, to: i64, at: Timestamp) -> Result<i64, StoreError>;

    /// Events of these aggregates of one shard with `after < position <= to`, by aggregate and sequence.
    async fn events_of(&self, shard: u16, ids: &[String], range: Range) -> Result<Vec<EventRow>, StoreError>;

    /// The live rows of these aggregates, all from one snapshot.
    async fn live(&self, shard: u16, ids: &[String]) -> Result<LiveRows, StoreError>;

    /// Rows of a table, from behind `after` (a primary key) on, whose aggregate has no event. `None`: the table ends here.
    async fn strangers(&self, table: LiveTable, after: &str) -> Result<Option<StrangersPage>, StoreError>;

    /// Those of this evidence of a shard that are still there.
    async fn evidence(&self, shard: u16, digests: &[Digest]) -> Result<Vec<EvidenceRow>, StoreError>;

    /// Flows of these payments of one account.
    async fn flows_of_trades(&self, account: &AccountRef, trade_nos: &[String]) -> Result<Vec<FlowWrite>, StoreError>;

    /// All flows, from behind `after` (an idem key) on, by idem key: a page; empty at the end.
    async fn flows_page(&self, after: &str) -> Result<Vec<FlowWrite>, StoreError>;

    /// Seals with `seal_no > after`, in their order, at most `limit`.
    async fn seals(&self, after: i64, limit: u32) -> Result<Vec<SealRow>, StoreError>;
}

/// Positions: behind `after`, up to and with `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Not this one.
    pub after: i64,
    /// This one too.
    pub to: i64,
}

/// Live rows of some aggregates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveRows {
    /// `t_order`.
    pub orders: Vec<OrderWrite>,
    /// `t_order_flow`.
    pub flows: Vec<FlowWrite>,
    /// `t_idempotent`.
    pub keys: Vec<KeyWrite>,
}

/// A table that is a function of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveTable {
    /// `t_order`.
    TOrder,
    /// `t_order_flow`.
    TOrderFlow,
    /// `t_idempotent`.
    TIdempotent,
}

impl LiveTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::TOrder, Self::TOrderFlow, Self::TIdempotent];

    /// Its name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TOrder => "t_order",
            Self::TOrderFlow => "t_order_flow",
            Self::TIdempotent => "t_idempotent",
        }
    }

    /// Its primary key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::TOrder => "order_no",
            Self::TOrderFlow | Self::TIdempotent => "idem_key",
        }
    }
}

/// A page of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrangersPage {
    /// Rows that were looked at.
    pub rows: u64,
    /// Primary key of the last of them.
    pub last: String,
    /// Those whose aggregate has no event: primary key and order number.
    pub strangers: Vec<(String, String)>,
}

/// A row of `t_seal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealRow {
    /// From 1, without holes.
    pub seal_no: i64,
    /// JSON text, exactly as it was signed.
    pub body: String,
    /// Ed25519 over the body's bytes.
    pub signature: Vec<u8>,
    /// Commit time.
    pub created_at: Timestamp,
}

/// Opens the embedded ledger in this file for reading, also while a server has it open.
///
/// Errors: [`StoreError::Invalid`] when there is no ledger with the current schema.
pub async fn open_sqlite(path: &Path) -> Result<Box<dyn AuditSource>, StoreError> {
    Ok(Box::new(SqliteAudit::open(path).await?))
}

/// Connects for reading.
///
/// Errors: [`StoreError::Unavailable`] when the server can't be reached, [`StoreError::Invalid`] when there is no ledger with the
/// current schema.
pub async fn connect_postgres(url: &str) -> Result<Box<dyn AuditSource>, StoreError> {
    Ok(Box::new(PostgresAudit::connect(url).await?))
}

/// Adds a seal to the embedded ledger in this file, beside a running server.
///
/// Errors: [`StoreError::Invalid`] when there is a seal of this number.
pub async fn append_seal_sqlite(path: &Path, seal: &SealRow) -> Result<(), StoreError> {
    crate::sqlite::audit::append_seal(path, seal).await
}

/// Adds a seal, with the rights of the service.
///
/// Errors: [`StoreError::Invalid`] when there is a seal of this number.
pub async fn append_seal_postgres(url: &str, seal: &SealRow) -> Result<(), StoreError> {
    crate::postgres::audit::append_seal(url, seal).await
}

/// Somebody else was quicker.
pub(crate) fn seal_taken(seal: &SealRow) -> StoreError {
    StoreError::Invalid(format!("seal {} was written meanwhile by somebody else: try again", seal.seal_no))
}

/// Columns of [`order`].
pub(crate) fn order_columns() -> String {
    format!("{}, create_time, update_time, shard", rows::ORDER)
}

pub(crate) fn order(row: &impl Columns) -> Result<OrderWrite, StoreError> {
    Ok(OrderWrite {
        row: rows::order(row)?,
        shard: row.shard("shard")?,
        create_time: row.time("create_time")?,
        update_time: row.time("update_time")?,
    })
}

/// Columns of [`flow`].
pub(crate) fn flow_columns() -> String {
    format!("{}, create_time, shard, position", rows::FLOW)
}

pub(crate) fn flow(row: &impl Columns) -> Result<FlowWrite, StoreError> {
    Ok(FlowWrite {
        row: rows::flow(row)?,
        create_time: row.time("create_time")?,
        shard: row.shard("shard")?,
        position: row.integer("position")?,
    })
}

/// Columns of [`key`].
pub(crate) const KEY: &str =
    "idem_key, order_no, create_time, shard, position, request_hash, request_hash IS NOT NULL AS has_hash";

pub(crate) fn key(row: &impl Columns) -> Result<KeyWrite, StoreError> {
    let has_hash = row.flag("has_hash")?;
    Ok(KeyWrite {
        idem_key: row.text("idem_key")?,
        order_no: row.text("order_no")?,
        create_time: row.time("create_time")?,
        shard: row.shard("shard")?,
        position: row.integer("position")?,
        request_hash: has_hash.then(|| row.digest("request_hash")).transpose()?,
    })
}

/// Columns of [`evidence`].
pub(crate) const EVIDENCE: &str =
    "digest, channel, account, source, CAST(headers AS text) AS headers, body, key_id, received_at";

pub(crate) fn evidence(row: &impl Columns) -> Result<EvidenceRow, StoreError> {
    Ok(EvidenceRow {
        digest: row.digest("digest")?,
        account: rows::account_ref(&row.text("channel")?, &row.text("account")?)?,
        source: row.text("source")?,
        headers: crate::columns::parsed("headers", serde_json::from_str(&row.text("headers")?))?,
        body: row.bytes("body")?,
        key_id: row.text("key_id")?,
        received_at: row.time("received_at")?,
    })
}

pub(crate) fn seal(row: &impl Columns) -> Result<SealRow, StoreError> {
    Ok(SealRow {
        seal_no: row.integer("seal_no")?,
        body: row.text("body")?,
        signature: row.bytes("signature")?,
        created_at: row.time("created_at")?,
    })
}

/// A page of a table with the rows that no event made. `$1`: the key behind which it begins, `$2`: rows at most. The first event
/// of an order or a stray proves that there are some; both kinds are looked for, since a key may be of either.
pub(crate) fn strangers_sql(table: LiveTable) -> String {
    let (name, key) = (table.as_str(), table.key());
    format!(
        "SELECT p.pk, p.order_no, NOT EXISTS (
             SELECT 1 FROM events e WHERE e.aggregate_type = 'Order' AND e.aggregate_id = p.order_no AND e.sequence = 1
         ) AND NOT EXISTS (
             SELECT 1 FROM events e WHERE e.aggregate_type = 'Stray' AND e.aggregate_id = p.order_no AND e.sequence = 1
         ) AS is_stranger
         FROM (SELECT {key} AS pk, order_no FROM {name} WHERE {key} > $1 ORDER BY {key} LIMIT $2) p ORDER BY p.pk"
    )
}

/// Rows of a table in one page.
pub(crate) const STRANGERS_PAGE: i64 = 5_000;

/// What [`strangers_sql`] found.
pub(crate) fn strangers_page<R: Columns>(rows: &[R]) -> Result<Option<StrangersPage>, StoreError> {
    let Some(last) = rows.last() else { return Ok(None) };
    let mut strangers = Vec::new();
    for row in rows {
        if row.flag("is_stranger")? {
            strangers.push((row.text("pk")?, row.text("order_no")?));
        }
    }
    Ok(Some(StrangersPage { rows: u64::try_from(rows.len()).unwrap_or(u64::MAX), last: last.text("pk")?, strangers }))
}
