//! One writer session on SQLite: the statements of a batch, one per table, each over a JSON array of its rows.
//!
//! There are no round trips to save here, but every statement is a hop to the driver's thread, so a table is one statement
//! whatever a batch holds, and a table without rows is none. Digests and ids travel as hex, since JSON has no bytes.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Executor, Row, SqliteConnection};
use tokio::sync::OwnedMutexGuard;

use super::connect::WriteConnection;
use super::load::{self, json};
use crate::backend::{
    AggregateKey, Append, DbError, EffectWrite, FlowWrite, HeadWrite, ItemClose, ItemWrite, KeyWrite, LockedHead, Lost,
    Opening, OrderMove, OrderWrite, Quarantine, Session, StoredKey, VersionWrite,
};
use crate::columns::Columns;
use crate::rows::all;
use crate::store::{EventRow, EvidenceRow, StoreError, Subscriber};

/// Longest wait for one step; the file is local, so only a sick disk or a foreign lock takes this long.
const STEP_MAX: Duration = Duration::from_millis(4_000);

/// Microseconds of now; SQLite's clock has milliseconds.
pub(super) const NOW: &str = "\
SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS now";

pub(super) const HEADS: &str = "\
SELECT shard, position, hash, recorded_at, subscribers_version
  FROM t_log_head WHERE shard IN (SELECT value FROM json_each($1)) ORDER BY shard";

pub(super) const EVENTS: &str = "\
INSERT INTO events (shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version, payload,
                    metadata, recorded_at, hash)
SELECT value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, value ->> 9, value ->> 10, unhex(value ->> 11)
  FROM json_each($1)";

pub(super) const KEYS: &str = "\
INSERT INTO t_idempotent (idem_key, order_no, create_time, shard, position, request_hash)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, unhex(value ->> 5) FROM json_each($1)";

pub(super) const NEW_ORDERS: &str = "\
INSERT INTO t_order (order_no, status, currency, amount_minor, paid_minor, refunded_minor, surplus_minor, version, channel,
                     account, channel_trade_no, pay_time, expires_at, description, supersedes, shard, create_time, update_time)
SELECT value ->> '$[0][0]', value ->> '$[0][1]', value ->> '$[0][2]', value ->> '$[0][3]', value ->> '$[0][4]',
       value ->> '$[0][5]', value ->> '$[0][6]', value ->> '$[0][7]', value ->> '$[0][8]', value ->> '$[0][9]',
       value ->> '$[0][10]', value ->> '$[0][11]', value ->> '$[0][12]', value ->> '$[0][13]', value ->> '$[0][14]',
       value ->> '$[1][0]', value ->> '$[1][1]', value ->> '$[1][2]'
  FROM json_each($1)";

/// Who is missing from the answer lost.
pub(super) const MOVED_ORDERS: &str = "\
UPDATE t_order
   SET status = w.value ->> '$[0][1]', currency = w.value ->> '$[0][2]', amount_minor = w.value ->> '$[0][3]',
       paid_minor = w.value ->> '$[0][4]', refunded_minor = w.value ->> '$[0][5]', surplus_minor = w.value ->> '$[0][6]',
       version = w.value ->> '$[0][7]', channel = w.value ->> '$[0][8]', account = w.value ->> '$[0][9]',
       channel_trade_no = w.value ->> '$[0][10]', pay_time = w.value ->> '$[0][11]', expires_at = w.value ->> '$[0][12]',
       description = w.value ->> '$[0][13]', supersedes = w.value ->> '$[0][14]', update_time = w.value ->> '$[1][0]'
  FROM json_each($1) AS w
 WHERE t_order.order_no = w.value ->> '$[0][0]'
   AND ($2 OR (t_order.status = w.value ->> '$[1][1]' AND t_order.version = w.value ->> '$[1][2]'))
RETURNING order_no";

pub(super) const FLOWS: &str = "\
INSERT INTO t_order_flow (idem_key, order_no, trade_type, direction, channel, account, channel_trade_no, refund_no, currency,
                          amount_minor, occurred_at, create_time, shard, position)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
       value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13
  FROM json_each($1)";

pub(super) const NEW_ITEMS: &str = "\
INSERT INTO t_item (item_no, kind, order_no, stray_id, detail, payment, state, opened_at, closed_at, shard)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
       value ->> 9
  FROM json_each($1)";

pub(super) const CLOSED_ITEMS: &str = "\
UPDATE t_item SET state = w.value ->> 1, closed_at = w.value ->> 2
  FROM json_each($1) AS w WHERE t_item.item_no = w.value ->> 0 AND t_item.state = 'open'";

pub(super) const EFFECTS: &str = "\
INSERT INTO t_effect (effect_id, shard, position, order_no, subscriber, kind, event_id, call, due_at, created_at)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, unhex(value ->> 6), value ->> 7,
       value ->> 8, value ->> 9
  FROM json_each($1)";

/// Named by the digest of its bytes: a row that is there already is the same row.
pub(super) const EVIDENCE: &str = "\
INSERT INTO t_evidence (shard, digest, channel, account, source, headers, body, key_id, received_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (shard, digest) DO NOTHING";

/// A registry.
pub(super) const VERSIONS: &str = "\
INSERT INTO t_event_version (event_type, event_version, first_seen_at)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) WHERE true
    ON CONFLICT (event_type, event_version) DO NOTHING";

/// Whose head had moved is missing from the answer.
pub(super) const MOVED_HEADS: &str = "\
UPDATE t_log_head
   SET position = w.value ->> 1, hash = unhex(w.value ->> 2), recorded_at = w.value ->> 3
  FROM json_each($1) AS w
 WHERE t_log_head.shard = w.value ->> 0 AND ($2 OR t_log_head.position = w.value ->> 4)
RETURNING shard";

/// An item for a person; a second failure of the same aggregate opens it again.
pub(super) const QUARANTINE: &str = "\
INSERT INTO t_item (item_no, kind, order_no, stray_id, detail, opened_at, shard)
VALUES ($1, 'quarantined', $2, $3, $4,
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 + $5, $6)
    ON CONFLICT (item_no)
    DO UPDATE SET state = 'open', detail = excluded.detail, opened_at = excluded.opened_at, closed_at = NULL";

/// Every statement of this file and of [`load`], for the test that prepares them all.
#[cfg(feature = "conformance")]
pub(super) const STATEMENTS: &[&str] = &[
    NOW,
    HEADS,
    EVENTS,
    KEYS,
    NEW_ORDERS,
    MOVED_ORDERS,
    FLOWS,
    NEW_ITEMS,
    CLOSED_ITEMS,
    EFFECTS,
    EVIDENCE,
    VERSIONS,
    MOVED_HEADS,
    QUARANTINE,
    load::LOAD,
    load::LOAD_FROM,
    load::FIND_KEYS,
    load::SUBSCRIBERS,
    load::EVENT_VERSIONS,
];

/// SQLite names the columns of a violated key; these are their constraints.
const KEYS_BY_COLUMNS: &[(&str, &str)] = &[
    ("events.aggregate_type, events.aggregate_id, events.sequence", "events_stream_key"),
    ("events.shard, events.position", "events_position_key"),
    ("t_idempotent.idem_key", "t_idempotent_pkey"),
    ("t_order.order_no", "t_order_pkey"),
    ("t_order_flow.idem_key", "t_order_flow_pkey"),
    ("t_item.item_no", "t_item_pkey"),
    ("t_effect.effect_id", "t_effect_pkey"),
    ("t_effect.event_id, t_effect.subscriber, t_effect.kind", "t_effect_once_key"),
];

/// The write connection while a batch has it. Between batches it is free for the effects.
#[derive(Debug)]
pub(super) struct SqliteSession {
    pub(super) write: WriteConnection,
    pub(super) held: Option<OwnedMutexGuard<SqliteConnection>>,
    pub(super) guards: Guards,
}

/// Which guards are in force: all of them, outside of the tests that prove that each can be missed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    /// Write orders whatever they were.
    pub(super) any_order: bool,
    /// Write heads wherever they were.
    pub(super) any_head: bool,
}

/// What a guarded update moves.
#[derive(Debug, Clone, Copy)]
enum Guarded {
    Orders,
    Heads,
}

impl SqliteSession {
    fn held(&mut self) -> Result<&mut SqliteConnection, DbError> {
        self.held.as_deref_mut().ok_or_else(|| DbError::Away("no tx is open".to_owned()))
    }

    async fn run(&mut self, statement: &'static str, rows: &impl Serialize) -> Result<(), DbError> {
        let rows = json(rows)?;
        timed(sqlx::query(statement).bind(rows).execute(self.held()?)).await.map(|_| ())
    }

    async fn run_returning(
        &mut self,
        statement: &'static str,
        rows: String,
        guarded: Guarded,
    ) -> Result<Vec<SqliteRow>, DbError> {
        let whatever_it_was = match guarded {
            Guarded::Orders => self.guards.any_order,
            Guarded::Heads => self.guards.any_head,
        };
        timed(sqlx::query(statement).bind(rows).bind(whatever_it_was).fetch_all(self.held()?)).await
    }

    async fn evidence(&mut self, shard: u16, evidence: &EvidenceRow) -> Result<(), DbError> {
        let query = sqlx::query(EVIDENCE)
            .bind(shard)
            .bind(&evidence.digest.0[..])
            .bind(evidence.account.channel.as_str())
            .bind(evidence.account.account.as_str())
            .bind(&evidence.source)
            .bind(json(&evidence.headers)?)
            .bind(&evidence.body)
            .bind(&evidence.key_id)
            .bind(evidence.received_at.as_micros());
        timed(query.execute(self.held()?)).await.map(|_| ())
    }
}

#[async_trait]
impl Session for SqliteSession {
    async fn begin(&mut self, shards: &[u16]) -> Result<Opening, DbError> {
        self.held = Some(self.write.lock().await);
        timed(self.held()?.execute("BEGIN IMMEDIATE")).await?;
        let shard_list = json(&shards)?;
        let heads = timed(sqlx::query(HEADS).bind(shard_list).fetch_all(self.held()?)).await?;
        let now = timed(sqlx::query(NOW).fetch_one(self.held()?)).await?;
        let heads = all(&heads, locked_head)?;
        if heads.len() != shards.len() {
            return Err(DbError::Unreadable("t_log_head lacks a shard".to_owned()));
        }
        Ok(Opening { now: now.time("now")?, heads })
    }

    async fn load(&mut self, aggregates: &[AggregateKey]) -> Result<Vec<EventRow>, DbError> {
        timed_db(load::load(self.held()?, aggregates)).await
    }

    async fn load_from(&mut self, shard: u16, position: i64, limit: i64) -> Result<Vec<EventRow>, DbError> {
        timed_db(load::load_from(self.held()?, shard, position, limit)).await
    }

    async fn find_keys(&mut self, keys: &[String]) -> Result<Vec<StoredKey>, DbError> {
        timed_db(load::find_keys(self.held()?, keys)).await
    }

    async fn subscribers(&mut self) -> Result<Vec<Subscriber>, DbError> {
        timed_db(load::subscribers(self.held()?)).await
    }

    async fn append(&mut self, append: &Append) -> Result<Lost, DbError> {
        self.run(EVENTS, &col(&append.events, event)).await?;
        if !append.keys.is_empty() {
            self.run(KEYS, &col(&append.keys, key)).await?;
        }
        if !append.orders_new.is_empty() {
            self.run(NEW_ORDERS, &col(&append.orders_new, new_order)).await?;
        }
        if !append.flows.is_empty() {
            self.run(FLOWS, &col(&append.flows, flow)).await?;
        }
        for (shard, evidence) in &append.evidence {
            self.evidence(*shard, evidence).await?;
        }
        if !append.items_opened.is_empty() {
            self.run(NEW_ITEMS, &col(&append.items_opened, item)).await?;
        }
        if !append.items_closed.is_empty() {
            self.run(CLOSED_ITEMS, &col(&append.items_closed, closed_item)).await?;
        }
        if !append.effects.is_empty() {
            self.run(EFFECTS, &col(&append.effects, effect)).await?;
        }
        if !append.versions.is_empty() {
            self.run(VERSIONS, &col(&append.versions, version)).await?;
        }
        self.move_orders_and_heads(append).await
    }

    async fn commit(&mut self) -> Result<(), DbError> {
        timed(self.held()?.execute("COMMIT")).await?;
        self.held = None;
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), DbError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        match timed(held.execute("ROLLBACK")).await {
            Ok(_) => Ok(()),
            // Some errors end the tx by themselves; then there is nothing to roll back, and the next BEGIN proves it.
            Err(DbError::Away(text)) if text.contains("no transaction is active") => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn quarantine(&mut self, item: &Quarantine) -> Result<(), DbError> {
        let mut connection = self.write.lock().await;
        let is_order = item.aggregate.aggregate_type == crate::backend::ORDER;
        let query = sqlx::query(QUARANTINE)
            .bind(&item.item_no)
            .bind(is_order.then_some(&item.aggregate.aggregate_id))
            .bind((!is_order).then_some(&item.aggregate.aggregate_id))
            .bind(&item.detail)
            .bind(item.offset_micros)
            .bind(item.shard);
        timed(query.execute(&mut *connection)).await.map(|_| ())
    }
}

impl SqliteSession {
    async fn move_orders_and_heads(&mut self, append: &Append) -> Result<Lost, DbError> {
        let mut lost = Lost::default();
        if !append.orders_moved.is_empty() {
            let rows = json(&col(&append.orders_moved, moved_order))?;
            let moved = self.run_returning(MOVED_ORDERS, rows, Guarded::Orders).await?;
            let moved: Vec<String> =
                moved.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(|e| db_error(&e))?;
            let wanted = append.orders_moved.iter().map(|order| order.row.order_no.as_str());
            lost.orders = wanted.filter(|no| !moved.iter().any(|it| it == no)).map(str::to_owned).collect();
        }
        let rows = json(&col(&append.heads, head))?;
        let moved = self.run_returning(MOVED_HEADS, rows, Guarded::Heads).await?;
        let moved: Vec<u16> =
            moved.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(|e| db_error(&e))?;
        lost.shards = append.heads.iter().map(|head| head.shard).filter(|shard| !moved.contains(shard)).collect();
        Ok(lost)
    }
}

pub(super) fn locked_head(row: &SqliteRow) -> Result<LockedHead, StoreError> {
    Ok(LockedHead {
        shard: row.shard("shard")?,
        position: row.integer("position")?,
        hash: row.digest("hash")?,
        recorded_at: row.time("recorded_at")?,
        subscribers_version: row.integer("subscribers_version")?,
    })
}

async fn timed<T>(step: impl Future<Output = Result<T, sqlx::Error>> + Send) -> Result<T, DbError> {
    timed_db(async { step.await.map_err(|error| db_error(&error)) }).await
}

async fn timed_db<T>(step: impl Future<Output = Result<T, DbError>> + Send) -> Result<T, DbError> {
    match tokio::time::timeout(STEP_MAX, step).await {
        Ok(result) => result,
        Err(_) => Err(DbError::Away(format!("no answer within {} ms", STEP_MAX.as_millis()))),
    }
}

/// What a statement's error means for the writer. The number is SQLite's extended result code.
pub(super) fn db_error(error: &sqlx::Error) -> DbError {
    let Some(db) = error.as_database_error() else {
        let unreadable =
            matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_));
        let text = error.to_string();
        return if unreadable { DbError::Unreadable(text) } else { DbError::Away(text) };
    };
    let code: i32 = db.code().and_then(|code| code.parse().ok()).unwrap_or(0);
    let text = format!("{} ({code})", db.message());
    const UNIQUE: i32 = 2067;
    const PRIMARY_KEY: i32 = 1555;
    const CONSTRAINT: i32 = 19;
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const TOO_BIG: i32 = 18;
    const MISMATCH: i32 = 20;
    match (code, code & 0xff) {
        (UNIQUE | PRIMARY_KEY, _) => {
            let columns = db.message().split_once(": ").map_or("", |(_, columns)| columns);
            let known = KEYS_BY_COLUMNS.iter().find(|(of, _)| *of == columns).map(|(_, constraint)| *constraint);
            DbError::Taken { constraint: known.unwrap_or(columns).to_owned(), detail: text }
        }
        (_, CONSTRAINT | TOO_BIG | MISMATCH) => DbError::Refused(text),
        (_, BUSY | LOCKED) => DbError::Busy(text),
        _ => DbError::Away(text),
    }
}

fn col<'a, R, T>(rows: &'a [R], read: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(read).collect()
}

fn event(row: &EventRow) -> impl Serialize {
    (
        row.shard,
        row.position,
        hex::encode(row.event_id.as_bytes()),
        &row.aggregate_type,
        &row.aggregate_id,
        row.sequence,
        &row.event_type,
        &row.event_version,
        &row.payload,
        &row.metadata,
        row.recorded_at.as_micros(),
        hex::encode(row.hash.0),
    )
}

fn key(row: &KeyWrite) -> impl Serialize {
    let request_hash = row.request_hash.map(|hash| hex::encode(hash.0));
    (&row.idem_key, &row.order_no, row.create_time.as_micros(), row.shard, row.position, request_hash)
}

fn new_order(order: &OrderWrite) -> impl Serialize {
    (order_row(&order.row), (order.shard, order.create_time.as_micros(), order.update_time.as_micros()))
}

fn moved_order(order: &OrderMove) -> impl Serialize {
    (order_row(&order.row), (order.update_time.as_micros(), order.expected_status.as_str(), order.expected_version))
}

/// order_no to supersedes, in the order of the columns.
fn order_row(row: &paidonce_order::project::OrderRow) -> impl Serialize {
    (
        row.order_no.as_str(),
        row.status.as_str(),
        row.amount.as_ref().map(|amount| amount.currency.as_str()),
        row.amount.as_ref().map(|amount| amount.amount_minor),
        row.paid_minor,
        row.refunded_minor,
        row.surplus_minor,
        row.version,
        row.account.as_ref().map(|account| account.channel.as_str()),
        row.account.as_ref().map(|account| account.account.as_str()),
        row.channel_trade_no.as_ref().map(|no| no.as_str()),
        row.pay_time.map(|at| at.as_micros()),
        row.expires_at.map(|at| at.as_micros()),
        row.description.as_deref(),
        row.supersedes.as_ref().map(|no| no.as_str()),
    )
}

fn flow(flow: &FlowWrite) -> impl Serialize {
    (
        flow.row.idem_key.as_str(),
        flow.row.order_no.as_str(),
        flow.row.trade_type.as_str(),
        flow.row.direction.as_str(),
        flow.row.account.channel.as_str(),
        flow.row.account.account.as_str(),
        flow.row.channel_trade_no.as_str(),
        flow.row.refund_no.as_deref(),
        flow.row.amount.currency.as_str(),
        flow.row.amount.amount_minor,
        flow.row.occurred_at.as_micros(),
        flow.create_time.as_micros(),
        flow.shard,
        flow.position,
    )
}

fn item(item: &ItemWrite) -> impl Serialize {
    (
        &item.item_no,
        item.kind,
        &item.order_no,
        &item.stray_id,
        &item.detail,
        &item.payment,
        &item.state,
        item.opened_at.as_micros(),
        item.closed_at.map(|at| at.as_micros()),
        item.shard,
    )
}

fn closed_item(item: &ItemClose) -> impl Serialize {
    (&item.item_no, &item.state, item.closed_at.as_micros())
}

fn effect(effect: &EffectWrite) -> impl Serialize {
    (
        hex::encode(effect.effect_id.as_bytes()),
        effect.shard,
        effect.position,
        &effect.order_no,
        &effect.subscriber,
        effect.kind,
        hex::encode(effect.event_id.as_bytes()),
        &effect.call,
        effect.due_at.as_micros(),
        effect.created_at.as_micros(),
    )
}

fn version(row: &VersionWrite) -> impl Serialize {
    (row.event_type, row.event_version, row.first_seen_at.as_micros())
}

fn head(head: &HeadWrite) -> impl Serialize {
    (head.shard, head.position, hex::encode(head.hash.0), head.recorded_at.as_micros(), head.expected_position)
}
