//! The audit's reads: of a file that a server may have open.

use std::path::Path;

use async_trait::async_trait;
use paidonce_order::ids::{AccountRef, Digest};
use paidonce_order::timestamp::Timestamp;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions, Connection, SqlitePool};

use super::{connect, migrate};
use crate::audit::{
    self, AuditSource, EVIDENCE, KEY, LiveRows, LiveTable, Range, STRANGERS_PAGE, SealRow, StrangersPage,
};
use crate::backend::FlowWrite;
use crate::options::Durability;
use crate::rows::{self, EVENT, all, read_error};
use crate::store::{EventRow, EvidenceRow, Head, StoreError};

/// As many shards are read at once, and one more.
const CONNECTIONS_MAX: u32 = 8;

/// Connections that can't write.
#[derive(Debug)]
pub(crate) struct SqliteAudit {
    pool: SqlitePool,
}

impl SqliteAudit {
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.is_file() {
            return Err(StoreError::Invalid(format!("there is no ledger at {}", path.display())));
        }
        let settings = connect::settings(path, Durability::Full).create_if_missing(false).read_only(true);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).connect_with(settings).await;
        let pool = pool.map_err(read_error)?;
        let mut connection = pool.acquire().await.map_err(read_error)?;
        migrate::require(&mut connection).await?;
        drop(connection);
        Ok(Self { pool })
    }
}

/// One row, in a tx of its own; the server's writer waits for it, or it for the writer.
pub(crate) async fn append_seal(path: &Path, seal: &SealRow) -> Result<(), StoreError> {
    let settings = connect::settings(path, Durability::Full).create_if_missing(false);
    let mut connection = settings.connect().await.map_err(read_error)?;
    migrate::require(&mut connection).await?;
    let inserted = sqlx::query("INSERT INTO t_seal (seal_no, body, signature, created_at) VALUES ($1, $2, $3, $4)")
        .bind(seal.seal_no)
        .bind(&seal.body)
        .bind(&seal.signature)
        .bind(seal.created_at.as_micros())
        .execute(&mut connection)
        .await;
    let done = match inserted {
        Err(error) if is_taken(&error) => Err(audit::seal_taken(seal)),
        other => other.map(|_| ()).map_err(read_error),
    };
    connection.close().await.map_err(read_error)?;
    done
}

fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// A list as one value.
fn json(ids: &[String]) -> String {
    serde_json::Value::from(ids.to_vec()).to_string()
}

#[async_trait]
impl AuditSource for SqliteAudit {
    async fn heads(&self) -> Result<Vec<Head>, StoreError> {
        let rows = sqlx::query("SELECT shard, position, hash FROM t_log_head ORDER BY shard")
            .fetch_all(&self.pool)
            .await
            .map_err(read_error)?;
        all(&rows, rows::head)
    }

    async fn page(&self, shard: u16, range: Range, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "SELECT {EVENT} FROM events e
             WHERE e.shard = $1 AND e.position > $2 AND e.position <= $3 ORDER BY e.position LIMIT $4"
        );
        let query = sqlx::query(&sql).bind(i64::from(shard)).bind(range.after).bind(range.to).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, rows::event)
    }

    async fn position_at(&self, shard: u16, to: i64, at: Timestamp) -> Result<i64, StoreError> {
        let sql = "SELECT position FROM events WHERE shard = $1 AND position <= $2 AND recorded_at <= $3
                   ORDER BY position DESC LIMIT 1";
        let query = sqlx::query_scalar(sql).bind(i64::from(shard)).bind(to).bind(at.as_micros());
        let found: Option<i64> = query.fetch_optional(&self.pool).await.map_err(read_error)?;
        Ok(found.unwrap_or(0))
    }

    async fn events_of(&self, shard: u16, ids: &[String], range: Range) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "SELECT {EVENT} FROM json_each($1) w CROSS JOIN (SELECT 'Order' AS kind UNION ALL SELECT 'Stray') k
             CROSS JOIN events e ON e.aggregate_type = k.kind AND e.aggregate_id = w.value
             WHERE e.shard = $2 AND e.position > $3 AND e.position <= $4
             ORDER BY e.aggregate_type, e.aggregate_id, e.sequence"
        );
        let query = sqlx::query(&sql).bind(json(ids)).bind(i64::from(shard)).bind(range.after).bind(range.to);
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, rows::event)
    }

    async fn live(&self, shard: u16, ids: &[String]) -> Result<LiveRows, StoreError> {
        // Deferred: the first read takes the snapshot.
        let mut tx = self.pool.begin().await.map_err(read_error)?;
        let ids = json(ids);
        let select = |columns: &str, table: &str| {
            format!("SELECT {columns} FROM {table} WHERE order_no IN (SELECT value FROM json_each($1)) AND shard = $2")
        };
        let sql = select(&audit::order_columns(), "t_order");
        let rows = sqlx::query(&sql).bind(&ids).bind(i64::from(shard)).fetch_all(&mut *tx).await;
        let orders = all(&rows.map_err(read_error)?, audit::order)?;
        let sql = select(&audit::flow_columns(), "t_order_flow");
        let rows = sqlx::query(&sql).bind(&ids).bind(i64::from(shard)).fetch_all(&mut *tx).await;
        let flows = all(&rows.map_err(read_error)?, audit::flow)?;
        let sql = select(KEY, "t_idempotent");
        let rows = sqlx::query(&sql).bind(&ids).bind(i64::from(shard)).fetch_all(&mut *tx).await;
        let keys = all(&rows.map_err(read_error)?, audit::key)?;
        tx.rollback().await.map_err(read_error)?;
        Ok(LiveRows { orders, flows, keys })
    }

    async fn strangers(&self, table: LiveTable, after: &str) -> Result<Option<StrangersPage>, StoreError> {
        let sql = audit::strangers_sql(table);
        let rows =
            sqlx::query(&sql).bind(after).bind(STRANGERS_PAGE).fetch_all(&self.pool).await.map_err(read_error)?;
        audit::strangers_page(&rows)
    }

    async fn evidence(&self, shard: u16, digests: &[Digest]) -> Result<Vec<EvidenceRow>, StoreError> {
        let sql = format!(
            "SELECT {EVIDENCE} FROM t_evidence WHERE shard = $1 AND digest IN (SELECT unhex(value) FROM json_each($2))"
        );
        let digests: Vec<String> = digests.iter().map(Digest::to_string).collect();
        let rows = sqlx::query(&sql).bind(i64::from(shard)).bind(json(&digests)).fetch_all(&self.pool).await;
        all(&rows.map_err(read_error)?, audit::evidence)
    }

    async fn flows_of_trades(&self, account: &AccountRef, trade_nos: &[String]) -> Result<Vec<FlowWrite>, StoreError> {
        let sql = format!(
            "SELECT {} FROM t_order_flow WHERE channel = $1 AND channel_trade_no IN (SELECT value FROM json_each($2)) AND account = $3",
            audit::flow_columns()
        );
        let query =
            sqlx::query(&sql).bind(account.channel.as_str()).bind(json(trade_nos)).bind(account.account.as_str());
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, audit::flow)
    }

    async fn flows_page(&self, after: &str) -> Result<Vec<FlowWrite>, StoreError> {
        let sql = format!(
            "SELECT {} FROM t_order_flow WHERE idem_key > $1 ORDER BY idem_key LIMIT {STRANGERS_PAGE}",
            audit::flow_columns()
        );
        let rows = sqlx::query(&sql).bind(after).fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, audit::flow)
    }

    async fn seals(&self, after: i64, limit: u32) -> Result<Vec<SealRow>, StoreError> {
        let sql =
            "SELECT seal_no, body, signature, created_at FROM t_seal WHERE seal_no > $1 ORDER BY seal_no LIMIT $2";
        let query = sqlx::query(sql).bind(after).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, audit::seal)
    }
}
