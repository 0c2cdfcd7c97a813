//! Where attempts go to, and where they are read.

use async_trait::async_trait;
use paidonce_order::ids::OrderNo;
use sqlx::PgPool;
use uuid::Uuid;

pub(crate) use crate::attempts::Attempts;
use crate::attempts::{AttemptSink, QUEUE_MAX, newest, oldest_kept};
use crate::postgres::PostgresStore;
use crate::rows::{self, ATTEMPT, all, read_error};
use crate::store::{Attempt, StoreError};

#[async_trait]
impl AttemptSink for PgPool {
    async fn write(&self, attempts: &[Attempt]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = attempts.iter().map(|_| Uuid::now_v7()).collect();
        let at: Vec<_> = attempts.iter().map(|attempt| attempt.at.to_datetime()).collect();
        let channels: Vec<&str> = attempts.iter().map(|attempt| attempt.account.channel.as_str()).collect();
        let accounts: Vec<&str> = attempts.iter().map(|attempt| attempt.account.account.as_str()).collect();
        let orders: Vec<Option<&str>> =
            attempts.iter().map(|attempt| attempt.order_no.as_ref().map(|no| no.as_str())).collect();
        let results: Vec<&str> = attempts.iter().map(|attempt| attempt.result.as_str()).collect();
        let details: Vec<&str> = attempts.iter().map(|attempt| attempt.detail.as_str()).collect();
        sqlx::query(
            "INSERT INTO t_attempt (attempt_id, at, channel, account, order_no, result, detail)
             SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])",
        )
        .bind(ids)
        .bind(at)
        .bind(channels)
        .bind(accounts)
        .bind(orders)
        .bind(results)
        .bind(details)
        .execute(self)
        .await
        .map_err(read_error)?;
        sqlx::query(
            "DELETE FROM t_attempt WHERE attempt_id IN (
                 SELECT attempt_id FROM t_attempt
                 WHERE attempt_id < $1 ORDER BY attempt_id LIMIT $2)",
        )
        .bind(newest(attempts).map(oldest_kept))
        .bind(i64::try_from(QUEUE_MAX).unwrap_or(i64::MAX))
        .execute(self)
        .await
        .map(|_| ())
        .map_err(read_error)
    }
}

/// Attempts of one order, newest first. Reads t_attempt_order_idx.
pub(crate) async fn list_attempts(
    store: &PostgresStore,
    order_no: &OrderNo,
    limit: u32,
) -> Result<Vec<Attempt>, StoreError> {
    let sql = format!("SELECT {ATTEMPT} FROM t_attempt WHERE order_no = $1 ORDER BY at DESC, attempt_id DESC LIMIT $2");
    let query = sqlx::query(&sql).bind(order_no.as_str()).bind(i64::from(limit));
    let rows = query.fetch_all(&store.pool).await.map_err(read_error)?;
    all(&rows, rows::attempt)
}
