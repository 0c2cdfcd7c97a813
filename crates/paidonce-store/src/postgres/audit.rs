//! The audit's reads.

use std::str::FromStr;

use async_trait::async_trait;
use paidonce_order::ids::{AccountRef, Digest};
use paidonce_order::timestamp::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgPool};

use super::append::shard_column;
use super::connect::service_connection;
use super::migrate;
use crate::audit::{
    self, AuditSource, EVIDENCE, KEY, LiveRows, LiveTable, Range, STRANGERS_PAGE, SealRow, StrangersPage,
};
use crate::backend::FlowWrite;
use crate::rows::{self, EVENT, all, read_error};
use crate::store::{EventRow, EvidenceRow, Head, StoreError};

/// As many shards are read at once, and one more.
const CONNECTIONS_MAX: u32 = 8;

/// Sessions of the audit can't write.
#[derive(Debug)]
pub(crate) struct PostgresAudit {
    pool: PgPool,
}

impl PostgresAudit {
    pub(crate) async fn connect(url: &str) -> Result<Self, StoreError> {
        let unreadable = |error| StoreError::Invalid(format!("the database URL is unreadable: {error}"));
        let target = PgConnectOptions::from_str(url).map_err(unreadable)?.disable_statement_logging();
        let target = target.application_name("paidonce-audit");
        // The planner prefers a sort of a whole shard when the tables were never analysed.
        let target =
            target.options([("default_transaction_read_only", "on"), ("jit", "off"), ("enable_seqscan", "off")]);
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).connect_with(target).await;
        let pool = pool.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        migrate::require(&pool).await?;
        Ok(Self { pool })
    }
}

/// One row, with the rights of the service.
pub(crate) async fn append_seal(url: &str, seal: &SealRow) -> Result<(), StoreError> {
    let mut connection = service_connection(url).await?;
    let inserted =
        sqlx::query("INSERT INTO t_seal (seal_no, body, signature, created_at) VALUES ($1, $2::text::json, $3, $4)")
            .bind(seal.seal_no)
            .bind(&seal.body)
            .bind(&seal.signature)
            .bind(seal.created_at.to_datetime())
            .execute(&mut connection)
            .await;
    let done = match inserted {
        Err(error) if error.as_database_error().is_some_and(|it| it.is_unique_violation()) => {
            Err(audit::seal_taken(seal))
        }
        other => other.map(|_| ()).map_err(read_error),
    };
    connection.close().await.map_err(read_error)?;
    done
}

fn digest_column(digests: &[Digest]) -> Vec<Vec<u8>> {
    digests.iter().map(|digest| digest.0.to_vec()).collect()
}

#[async_trait]
impl AuditSource for PostgresAudit {
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
        let query = sqlx::query(&sql).bind(shard_column(shard)).bind(range.after).bind(range.to).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, rows::event)
    }

    async fn position_at(&self, shard: u16, to: i64, at: Timestamp) -> Result<i64, StoreError> {
        let sql = "SELECT position FROM events WHERE shard = $1 AND position <= $2 AND recorded_at <= $3
                   ORDER BY position DESC LIMIT 1";
        let query = sqlx::query_scalar(sql).bind(shard_column(shard)).bind(to).bind(at.to_datetime());
        let found: Option<i64> = query.fetch_optional(&self.pool).await.map_err(read_error)?;
        Ok(found.unwrap_or(0))
    }

    async fn events_of(&self, shard: u16, ids: &[String], range: Range) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "SELECT {EVENT} FROM unnest($1::text[]) AS w (id) CROSS JOIN unnest(ARRAY['Order', 'Stray']) AS k (kind)
             JOIN events e ON e.aggregate_type = k.kind COLLATE \"C\" AND e.aggregate_id = w.id COLLATE \"C\"
             WHERE e.shard = $2 AND e.position > $3 AND e.position <= $4
             ORDER BY e.aggregate_type, e.aggregate_id, e.sequence"
        );
        let query = sqlx::query(&sql).bind(ids).bind(shard_column(shard)).bind(range.after).bind(range.to);
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, rows::event)
    }

    async fn live(&self, shard: u16, ids: &[String]) -> Result<LiveRows, StoreError> {
        let mut tx = self.pool.begin().await.map_err(read_error)?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *tx).await.map_err(read_error)?;
        let select = |columns: &str, table: &str| {
            format!("SELECT {columns} FROM {table} WHERE order_no = ANY ($1::text[]) AND shard = $2")
        };
        let sql = select(&audit::order_columns(), "t_order");
        let rows = sqlx::query(&sql).bind(ids).bind(shard_column(shard)).fetch_all(&mut *tx).await;
        let orders = all(&rows.map_err(read_error)?, audit::order)?;
        let sql = select(&audit::flow_columns(), "t_order_flow");
        let rows = sqlx::query(&sql).bind(ids).bind(shard_column(shard)).fetch_all(&mut *tx).await;
        let flows = all(&rows.map_err(read_error)?, audit::flow)?;
        let sql = select(KEY, "t_idempotent");
        let rows = sqlx::query(&sql).bind(ids).bind(shard_column(shard)).fetch_all(&mut *tx).await;
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
        let sql = format!("SELECT {EVIDENCE} FROM t_evidence WHERE shard = $1 AND digest = ANY ($2::bytea[])");
        let query = sqlx::query(&sql).bind(shard_column(shard)).bind(digest_column(digests));
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, audit::evidence)
    }

    async fn flows_of_trades(&self, account: &AccountRef, trade_nos: &[String]) -> Result<Vec<FlowWrite>, StoreError> {
        let sql = format!(
            "SELECT {} FROM t_order_flow WHERE channel = $1 AND channel_trade_no = ANY ($2::text[]) AND account = $3",
            audit::flow_columns()
        );
        let query = sqlx::query(&sql).bind(account.channel.as_str()).bind(trade_nos).bind(account.account.as_str());
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
        let sql = "SELECT seal_no, CAST(body AS text) AS body, signature, created_at FROM t_seal
                   WHERE seal_no > $1 ORDER BY seal_no LIMIT $2";
        let query = sqlx::query(sql).bind(after).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(read_error)?;
        all(&rows, audit::seal)
    }
}
