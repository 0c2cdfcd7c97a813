//! One writer session on PostgreSQL.
//!
//! | step | statement | round trips |
//! |---|---|---|
//! | begin | `BEGIN; SELECT .. FROM t_log_head .. FOR UPDATE; SELECT clock_timestamp()` | 1 |
//! | append | [`APPEND`]: all tables, set-based | 1 |
//! | commit | `SET LOCAL statement_timeout = 0; COMMIT; SELECT pg_xact_status(..)` | 1 |
//!
//! `begin` and `commit` are sent as simple queries, because only those can hold several statements; the only values in them
//! are integers of ours. Each statement of a simple query has its own snapshot, so that what is read after the lock was
//! waited for is what stands under it. The status is asked for because a COMMIT of a broken tx is answered with ROLLBACK and no
//! error. The timeout is lifted for COMMIT because with synchronous replication a cancelled wait is answered as success.

use std::time::Duration;

use async_trait::async_trait;
use paidonce_order::timestamp::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection, Row};
use time::OffsetDateTime;

use super::load;
use crate::backend::{
    AggregateKey, Append, DbError, EffectWrite, FlowWrite, HeadWrite, ItemClose, ItemWrite, KeyWrite, LockedHead, Lost,
    Opening, OrderMove, OrderWrite, Quarantine, Session, StoredKey, VersionWrite,
};
use crate::columns::Columns;
use crate::rows::all;
use crate::store::{EventRow, EvidenceRow, StoreError, Subscriber};

/// Longest wait for one answer. Longer than the server's own limits (3 s), shorter than the callers' patience (4.5 s).
const STEP_MAX: Duration = Duration::from_millis(4_000);

/// The lock. `{}` takes the shards. Times as microseconds: the driver doesn't read the text form that simple queries answer with.
pub(super) const LOCK_HEADS: &str = "\
SELECT shard, position, hash, (extract(epoch FROM recorded_at) * 1000000)::bigint AS recorded_micros, subscribers_version
  FROM t_log_head WHERE shard IN ({}) ORDER BY shard";

/// The clock, read after the locks were waited for.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_micros";

/// All rows of a batch, in one statement: one round trip whatever a batch holds. Rows that don't exist are empty arrays. The heads'
/// and orders' updates compare what the batch was decided on; who is missing from the answer lost.
///
/// Plain INSERTs, so that a second row of any key is an error that names its constraint; only evidence may be there already
/// (it is named by the digest of its bytes, so the row that is there is the same row) and event versions (a registry).
pub(super) const APPEND: &str = "\
WITH
new_events AS (
    INSERT INTO events (shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version,
                        payload, metadata, recorded_at, hash)
    SELECT shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version,
           payload::json, metadata::json, recorded_at, hash
      FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::timestamptz[], $12::bytea[])
        AS w (shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version,
              payload, metadata, recorded_at, hash)
),
new_keys AS (
    INSERT INTO t_idempotent (idem_key, order_no, create_time, shard, position, request_hash)
    SELECT * FROM unnest($13::text[], $14::text[], $15::timestamptz[], $16::smallint[], $17::bigint[], $18::bytea[])
),
new_orders AS (
    INSERT INTO t_order (order_no, status, currency, amount_minor, paid_minor, refunded_minor, surplus_minor, version,
                         channel, account, channel_trade_no, pay_time, expires_at, description, supersedes, shard,
                         create_time, update_time)
    SELECT * FROM unnest($19::text[], $20::text[], $21::text[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[],
                         $26::bigint[], $27::text[], $28::text[], $29::text[], $30::timestamptz[], $31::timestamptz[],
                         $32::text[], $33::text[], $34::smallint[], $35::timestamptz[], $36::timestamptz[])
),
moved_orders AS (
    UPDATE t_order AS o
       SET status = w.status, currency = w.currency, amount_minor = w.amount_minor, paid_minor = w.paid_minor,
           refunded_minor = w.refunded_minor, surplus_minor = w.surplus_minor, version = w.version, channel = w.channel,
           account = w.account, channel_trade_no = w.channel_trade_no, pay_time = w.pay_time, expires_at = w.expires_at,
           description = w.description, supersedes = w.supersedes, update_time = w.update_time
      FROM unnest($37::text[], $38::text[], $39::text[], $40::bigint[], $41::bigint[], $42::bigint[], $43::bigint[],
                  $44::bigint[], $45::text[], $46::text[], $47::text[], $48::timestamptz[], $49::timestamptz[], $50::text[],
                  $51::text[], $52::timestamptz[], $53::text[], $54::bigint[])
        AS w (order_no, status, currency, amount_minor, paid_minor, refunded_minor, surplus_minor, version, channel, account,
              channel_trade_no, pay_time, expires_at, description, supersedes, update_time, expected_status,
              expected_version)
     WHERE o.order_no = w.order_no COLLATE \"C\"
       AND ($96::boolean OR (o.status = w.expected_status AND o.version = w.expected_version))
    RETURNING o.order_no
),
new_flows AS (
    INSERT INTO t_order_flow (idem_key, order_no, trade_type, direction, channel, account, channel_trade_no, refund_no,
                              currency, amount_minor, occurred_at, create_time, shard, position)
    SELECT * FROM unnest($55::text[], $56::text[], $57::text[], $58::text[], $59::text[], $60::text[], $61::text[],
                         $62::text[], $63::text[], $64::bigint[], $65::timestamptz[], $66::timestamptz[], $67::smallint[],
                         $68::bigint[])
),
new_items AS (
    INSERT INTO t_item (item_no, kind, order_no, stray_id, detail, payment, state, opened_at, closed_at, shard)
    SELECT * FROM unnest($69::text[], $70::text[], $71::text[], $72::text[], $73::text[], $74::text[], $75::text[],
                         $76::timestamptz[], $77::timestamptz[], $78::smallint[])
),
closed_items AS (
    UPDATE t_item AS i SET state = w.state, closed_at = w.closed_at
      FROM unnest($79::text[], $80::text[], $81::timestamptz[]) AS w (item_no, state, closed_at)
     WHERE i.item_no = w.item_no COLLATE \"C\" AND i.state = 'open'
),
new_effects AS (
    INSERT INTO t_effect (effect_id, shard, position, order_no, subscriber, kind, event_id, call, due_at, created_at)
    SELECT effect_id, shard, position, order_no, subscriber, kind, event_id, call::json, due_at, created_at
      FROM unnest($82::uuid[], $83::smallint[], $84::bigint[], $85::text[], $86::text[], $87::text[], $88::uuid[],
                  $89::text[], $90::timestamptz[], $107::timestamptz[])
        AS w (effect_id, shard, position, order_no, subscriber, kind, event_id, call, created_at, due_at)
),
new_evidence AS (
    INSERT INTO t_evidence (shard, digest, channel, account, source, headers, body, key_id, received_at)
    SELECT shard, digest, channel, account, source, headers::json, body, key_id, received_at
      FROM unnest($98::smallint[], $99::bytea[], $100::text[], $101::text[], $102::text[], $103::text[], $104::bytea[],
                  $105::text[], $106::timestamptz[])
        AS w (shard, digest, channel, account, source, headers, body, key_id, received_at)
        ON CONFLICT ON CONSTRAINT t_evidence_pkey DO NOTHING
),
moved_heads AS (
    UPDATE t_log_head AS h SET position = w.position, hash = w.hash, recorded_at = w.recorded_at
      FROM unnest($91::smallint[], $92::bigint[], $93::bytea[], $94::timestamptz[], $95::bigint[])
        AS w (shard, position, hash, recorded_at, expected_position)
     WHERE h.shard = w.shard AND ($97::boolean OR h.position = w.expected_position)
    RETURNING h.shard
)
SELECT ARRAY(SELECT order_no FROM moved_orders) AS orders, ARRAY(SELECT shard FROM moved_heads) AS shards,
       pg_current_xact_id()::text AS xid";

/// Event versions, the first time that a writer writes one.
pub(super) const VERSIONS: &str = "\
INSERT INTO t_event_version (event_type, event_version, first_seen_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[])
    ON CONFLICT ON CONSTRAINT t_event_version_pkey DO NOTHING";

/// An item for a person; a second failure of the same aggregate opens it again.
pub(super) const QUARANTINE: &str = "\
INSERT INTO t_item (item_no, kind, order_no, stray_id, detail, opened_at, shard)
VALUES ($1, 'quarantined', $2, $3, $4, clock_timestamp() + $5 * interval '1 microsecond', $6)
    ON CONFLICT ON CONSTRAINT t_item_pkey
    DO UPDATE SET state = 'open', detail = excluded.detail, opened_at = excluded.opened_at, closed_at = NULL";

/// A connection and what it is in the middle of.
#[derive(Debug)]
pub(super) struct PostgresSession {
    pub(super) connection: PgConnection,
    pub(super) tx: Tx,
    pub(super) guards: Guards,
}

/// Is a tx open?
#[derive(Debug)]
pub(super) enum Tx {
    /// No.
    None,
    /// Begun; nothing written.
    Open,
    /// Everything written, under this id.
    Written(String),
}

/// Which guards are in force: all of them, outside of the tests that prove that each can be missed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guards {
    /// `FOR UPDATE`, or nothing.
    pub(super) lock: &'static str,
    /// Write orders whatever they were.
    pub(super) any_order: bool,
    /// Write heads wherever they were.
    pub(super) any_head: bool,
}

/// Every statement of this file and of [`load`], for the test that prepares them all.
#[cfg(feature = "conformance")]
pub(super) const STATEMENTS: &[&str] = &[
    LOCK_HEADS,
    NOW,
    APPEND,
    VERSIONS,
    QUARANTINE,
    load::LOAD,
    load::LOAD_FROM,
    load::FIND_KEYS,
    load::SUBSCRIBERS,
    load::EVENT_VERSIONS,
];

#[async_trait]
impl Session for PostgresSession {
    async fn begin(&mut self, shards: &[u16]) -> Result<Opening, DbError> {
        let list = shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let lock = LOCK_HEADS.replace("{}", &list);
        let text = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {lock} {}; {NOW}", self.guards.lock);
        self.tx = Tx::Open;
        let rows = timed(self.connection.fetch_all(text.as_str())).await?;
        let Some((now, heads)) = rows.split_last() else {
            return Err(DbError::Unreadable("no answer to BEGIN".to_owned()));
        };
        let heads = all(heads, locked_head)?;
        if heads.len() != shards.len() {
            return Err(DbError::Unreadable(format!("t_log_head lacks one of the shards {list}")));
        }
        Ok(Opening { now: Timestamp::from_micros(now.integer("now_micros")?), heads })
    }

    async fn load(&mut self, aggregates: &[AggregateKey]) -> Result<Vec<EventRow>, DbError> {
        timed_db(load::load(&mut self.connection, aggregates)).await
    }

    async fn load_from(&mut self, shard: u16, position: i64, limit: i64) -> Result<Vec<EventRow>, DbError> {
        timed_db(load::load_from(&mut self.connection, shard, position, limit)).await
    }

    async fn find_keys(&mut self, keys: &[String]) -> Result<Vec<StoredKey>, DbError> {
        timed_db(load::find_keys(&mut self.connection, keys)).await
    }

    async fn subscribers(&mut self) -> Result<Vec<Subscriber>, DbError> {
        timed_db(load::subscribers(&mut self.connection)).await
    }

    async fn append(&mut self, append: &Append) -> Result<Lost, DbError> {
        if !append.versions.is_empty() {
            timed(bind_versions(&append.versions).execute(&mut self.connection)).await?;
        }
        let query = bind_append(append).bind(self.guards.any_order).bind(self.guards.any_head);
        let query = bind_evidence(query, append)?.bind(col(&append.effects, |effect| at(effect.due_at)));
        let row = timed(query.fetch_one(&mut self.connection)).await?;
        let moved: Vec<String> = row.try_get("orders").map_err(|error| db_error(&error))?;
        let heads: Vec<i16> = row.try_get("shards").map_err(|error| db_error(&error))?;
        self.tx = Tx::Written(row.text("xid")?);
        Ok(lost(append, &moved, &heads))
    }

    async fn commit(&mut self) -> Result<(), DbError> {
        let Tx::Written(xid) = std::mem::replace(&mut self.tx, Tx::None) else {
            return Err(DbError::Away("COMMIT without a written tx".to_owned()));
        };
        let text = format!("SET LOCAL statement_timeout = 0; COMMIT; SELECT pg_xact_status('{xid}'::xid8) AS status");
        let rows = timed(self.connection.fetch_all(text.as_str())).await?;
        let status = rows.last().map(|row| row.maybe_text("status")).transpose()?.flatten();
        match status.as_deref() {
            Some("committed") => Ok(()),
            other => Err(DbError::Away(format!("the status of tx {xid} is {other:?} after COMMIT"))),
        }
    }

    async fn rollback(&mut self) -> Result<(), DbError> {
        if matches!(std::mem::replace(&mut self.tx, Tx::None), Tx::None) {
            return Ok(());
        }
        timed(self.connection.execute("ROLLBACK")).await.map(|_| ())
    }

    async fn quarantine(&mut self, item: &Quarantine) -> Result<(), DbError> {
        let is_order = item.aggregate.aggregate_type == crate::backend::ORDER;
        let query = sqlx::query(QUARANTINE)
            .bind(&item.item_no)
            .bind(is_order.then_some(&item.aggregate.aggregate_id))
            .bind((!is_order).then_some(&item.aggregate.aggregate_id))
            .bind(&item.detail)
            .bind(item.offset_micros)
            .bind(shard_column(item.shard));
        timed(query.execute(&mut self.connection)).await.map(|_| ())
    }
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

fn locked_head(row: &PgRow) -> Result<LockedHead, StoreError> {
    Ok(LockedHead {
        shard: row.shard("shard")?,
        position: row.integer("position")?,
        hash: row.digest("hash")?,
        recorded_at: Timestamp::from_micros(row.integer("recorded_micros")?),
        subscribers_version: row.integer("subscribers_version")?,
    })
}

/// Who is missing from what was written.
fn lost(append: &Append, moved: &[String], heads: &[i16]) -> Lost {
    let mut lost = Lost::default();
    if moved.len() != append.orders_moved.len() {
        let wanted = append.orders_moved.iter().map(|order| order.row.order_no.as_str());
        lost.orders = wanted.filter(|no| !moved.iter().any(|it| it == no)).map(str::to_owned).collect();
    }
    if heads.len() != append.heads.len() {
        let wanted = append.heads.iter().map(|head| head.shard);
        lost.shards = wanted.filter(|shard| !heads.contains(&shard_column(*shard))).collect();
    }
    lost
}

/// What a statement's error means for the writer. Constraints are read by name, never by text.
pub(super) fn db_error(error: &sqlx::Error) -> DbError {
    let Some(db) = error.as_database_error() else {
        let unreadable =
            matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_));
        let text = error.to_string();
        return if unreadable { DbError::Unreadable(text) } else { DbError::Away(text) };
    };
    let code = db.code().unwrap_or_default();
    let text = format!("{} ({code})", db.message());
    match code.as_ref() {
        "23505" => DbError::Taken { constraint: db.constraint().unwrap_or_default().to_owned(), detail: text },
        "40001" | "40P01" | "55P03" | "57014" => DbError::Busy(text),
        code if code.starts_with("22") || code.starts_with("23") || code == "P0001" => DbError::Refused(text),
        _ => DbError::Away(text),
    }
}

/// `shard` as the column's type; shards are below 64.
pub(super) fn shard_column(shard: u16) -> i16 {
    i16::try_from(shard).unwrap_or(i16::MAX)
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// One array per column.
fn col<'a, R, T>(rows: &'a [R], read: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(read).collect()
}

fn at(timestamp: Timestamp) -> OffsetDateTime {
    timestamp.to_datetime()
}

fn bind_append(append: &Append) -> Query<'_> {
    let query = bind_events(sqlx::query(APPEND), &append.events);
    let query = bind_keys(query, &append.keys);
    let query = bind_new_orders(query, &append.orders_new);
    let query = bind_moved_orders(query, &append.orders_moved);
    let query = bind_flows(query, &append.flows);
    let query = bind_items(query, &append.items_opened, &append.items_closed);
    let query = bind_effects(query, &append.effects);
    bind_heads(query, &append.heads)
}

fn bind_events<'q>(query: Query<'q>, rows: &'q [EventRow]) -> Query<'q> {
    query
        .bind(col(rows, |row| shard_column(row.shard)))
        .bind(col(rows, |row| row.position))
        .bind(col(rows, |row| row.event_id))
        .bind(col(rows, |row| row.aggregate_type.as_str()))
        .bind(col(rows, |row| row.aggregate_id.as_str()))
        .bind(col(rows, |row| row.sequence))
        .bind(col(rows, |row| row.event_type.as_str()))
        .bind(col(rows, |row| row.event_version.as_str()))
        .bind(col(rows, |row| row.payload.as_str()))
        .bind(col(rows, |row| row.metadata.as_str()))
        .bind(col(rows, |row| at(row.recorded_at)))
        .bind(col(rows, |row| &row.hash.0[..]))
}

fn bind_keys<'q>(query: Query<'q>, rows: &'q [KeyWrite]) -> Query<'q> {
    query
        .bind(col(rows, |row| row.idem_key.as_str()))
        .bind(col(rows, |row| row.order_no.as_str()))
        .bind(col(rows, |row| at(row.create_time)))
        .bind(col(rows, |row| shard_column(row.shard)))
        .bind(col(rows, |row| row.position))
        .bind(col(rows, |row| row.request_hash.as_ref().map(|hash| &hash.0[..])))
}

fn bind_new_orders<'q>(query: Query<'q>, rows: &'q [OrderWrite]) -> Query<'q> {
    bind_order_rows(query, &col(rows, |order| &order.row))
        .bind(col(rows, |order| shard_column(order.shard)))
        .bind(col(rows, |order| at(order.create_time)))
        .bind(col(rows, |order| at(order.update_time)))
}

fn bind_moved_orders<'q>(query: Query<'q>, rows: &'q [OrderMove]) -> Query<'q> {
    bind_order_rows(query, &col(rows, |order| &order.row))
        .bind(col(rows, |order| at(order.update_time)))
        .bind(col(rows, |order| order.expected_status.as_str()))
        .bind(col(rows, |order| order.expected_version))
}

/// order_no to supersedes, in the order of the columns.
fn bind_order_rows<'q>(query: Query<'q>, rows: &[&'q paidonce_order::project::OrderRow]) -> Query<'q> {
    query
        .bind(col(rows, |row| row.order_no.as_str()))
        .bind(col(rows, |row| row.status.as_str()))
        .bind(col(rows, |row| row.amount.as_ref().map(|amount| amount.currency.as_str())))
        .bind(col(rows, |row| row.amount.as_ref().map(|amount| amount.amount_minor)))
        .bind(col(rows, |row| row.paid_minor))
        .bind(col(rows, |row| row.refunded_minor))
        .bind(col(rows, |row| row.surplus_minor))
        .bind(col(rows, |row| row.version))
        .bind(col(rows, |row| row.account.as_ref().map(|account| account.channel.as_str())))
        .bind(col(rows, |row| row.account.as_ref().map(|account| account.account.as_str())))
        .bind(col(rows, |row| row.channel_trade_no.as_ref().map(|no| no.as_str())))
        .bind(col(rows, |row| row.pay_time.map(at)))
        .bind(col(rows, |row| row.expires_at.map(at)))
        .bind(col(rows, |row| row.description.as_deref()))
        .bind(col(rows, |row| row.supersedes.as_ref().map(|no| no.as_str())))
}

fn bind_flows<'q>(query: Query<'q>, rows: &'q [FlowWrite]) -> Query<'q> {
    query
        .bind(col(rows, |flow| flow.row.idem_key.as_str()))
        .bind(col(rows, |flow| flow.row.order_no.as_str()))
        .bind(col(rows, |flow| flow.row.trade_type.as_str()))
        .bind(col(rows, |flow| flow.row.direction.as_str()))
        .bind(col(rows, |flow| flow.row.account.channel.as_str()))
        .bind(col(rows, |flow| flow.row.account.account.as_str()))
        .bind(col(rows, |flow| flow.row.channel_trade_no.as_str()))
        .bind(col(rows, |flow| flow.row.refund_no.as_deref()))
        .bind(col(rows, |flow| flow.row.amount.currency.as_str()))
        .bind(col(rows, |flow| flow.row.amount.amount_minor))
        .bind(col(rows, |flow| at(flow.row.occurred_at)))
        .bind(col(rows, |flow| at(flow.create_time)))
        .bind(col(rows, |flow| shard_column(flow.shard)))
        .bind(col(rows, |flow| flow.position))
}

fn bind_items<'q>(query: Query<'q>, opened: &'q [ItemWrite], closed: &'q [ItemClose]) -> Query<'q> {
    query
        .bind(col(opened, |item| item.item_no.as_str()))
        .bind(col(opened, |item| item.kind))
        .bind(col(opened, |item| item.order_no.as_deref()))
        .bind(col(opened, |item| item.stray_id.as_deref()))
        .bind(col(opened, |item| item.detail.as_str()))
        .bind(col(opened, |item| item.payment.as_deref()))
        .bind(col(opened, |item| item.state.as_str()))
        .bind(col(opened, |item| at(item.opened_at)))
        .bind(col(opened, |item| item.closed_at.map(at)))
        .bind(col(opened, |item| shard_column(item.shard)))
        .bind(col(closed, |item| item.item_no.as_str()))
        .bind(col(closed, |item| item.state.as_str()))
        .bind(col(closed, |item| at(item.closed_at)))
}

fn bind_effects<'q>(query: Query<'q>, rows: &'q [EffectWrite]) -> Query<'q> {
    query
        .bind(col(rows, |effect| effect.effect_id))
        .bind(col(rows, |effect| shard_column(effect.shard)))
        .bind(col(rows, |effect| effect.position))
        .bind(col(rows, |effect| effect.order_no.as_str()))
        .bind(col(rows, |effect| effect.subscriber.as_str()))
        .bind(col(rows, |effect| effect.kind))
        .bind(col(rows, |effect| effect.event_id))
        .bind(col(rows, |effect| effect.call.as_deref()))
        .bind(col(rows, |effect| at(effect.created_at)))
}

fn bind_heads<'q>(query: Query<'q>, rows: &'q [HeadWrite]) -> Query<'q> {
    query
        .bind(col(rows, |head| shard_column(head.shard)))
        .bind(col(rows, |head| head.position))
        .bind(col(rows, |head| &head.hash.0[..]))
        .bind(col(rows, |head| at(head.recorded_at)))
        .bind(col(rows, |head| head.expected_position))
}

fn bind_versions(rows: &[VersionWrite]) -> Query<'_> {
    sqlx::query(VERSIONS)
        .bind(col(rows, |row| row.event_type))
        .bind(col(rows, |row| row.event_version))
        .bind(col(rows, |row| at(row.first_seen_at)))
}

fn bind_evidence<'q>(query: Query<'q>, append: &'q Append) -> Result<Query<'q>, DbError> {
    let rows = &append.evidence;
    let headers = rows.iter().map(|(_, evidence)| headers_json(evidence)).collect::<Result<Vec<_>, _>>()?;
    Ok(query
        .bind(col(rows, |(shard, _)| shard_column(*shard)))
        .bind(col(rows, |(_, evidence)| &evidence.digest.0[..]))
        .bind(col(rows, |(_, evidence)| evidence.account.channel.as_str()))
        .bind(col(rows, |(_, evidence)| evidence.account.account.as_str()))
        .bind(col(rows, |(_, evidence)| evidence.source.as_str()))
        .bind(headers)
        .bind(col(rows, |(_, evidence)| evidence.body.as_slice()))
        .bind(col(rows, |(_, evidence)| evidence.key_id.as_str()))
        .bind(col(rows, |(_, evidence)| at(evidence.received_at))))
}

/// `[[name, value], ..]`: headers are a list, a name may come twice.
pub(crate) fn headers_json(evidence: &EvidenceRow) -> Result<String, DbError> {
    serde_json::to_string(&evidence.headers).map_err(|error| DbError::Refused(error.to_string()))
}
