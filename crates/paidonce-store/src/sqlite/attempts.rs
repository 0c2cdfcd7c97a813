//! Where attempts go to, and where they are read.

use async_trait::async_trait;
use paidonce_order::ids::OrderNo;
use serde_json::json;
use uuid::Uuid;

use super::connect::WriteConnection;
pub(crate) use crate::attempts::Attempts;
use crate::attempts::{AttemptSink, QUEUE_MAX, newest, oldest_kept};
use crate::rows::{self, ATTEMPT, all, read_error};
use crate::sqlite::SqliteStore;
use crate::store::{Attempt, StoreError};

#[async_trait]
impl AttemptSink for WriteConnection {
    async fn write(&self, attempts: &[Attempt]) -> Result<(), StoreError> {
        let rows: Vec<_> = attempts
            .iter()
            .map(|attempt| {
                json!([
                    Uuid::now_v7().simple().to_string(),
                    attempt.at.as_micros(),
                    attempt.account.channel.as_str(),
                    attempt.account.account.as_str(),
                    attempt.order_no,
                    attempt.result,
                    attempt.detail,
                ])
            })
            .collect();
        let mut connection = self.lock().await;
        // One statement: the ledger's writer waits for this connection.
        sqlx::query(
            "INSERT INTO t_attempt (attempt_id, at, channel, account, order_no, result, detail)
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
             FROM json_each($1)",
        )
        .bind(serde_json::Value::Array(rows).to_string())
        .execute(&mut *connection)
        .await
        .map_err(read_error)?;
        sqlx::query(
            "DELETE FROM t_attempt WHERE attempt_id IN (
                 SELECT attempt_id FROM t_attempt WHERE attempt_id < $1 ORDER BY attempt_id LIMIT $2)",
        )
        .bind(newest(attempts).map(oldest_kept))
        .bind(i64::try_from(QUEUE_MAX).unwrap_or(i64::MAX))
        .execute(&mut *connection)
        .await
        .map(|_| ())
        .map_err(read_error)
    }
}

/// Attempts of one order, newest first. Reads t_attempt_order_idx.
pub(crate) async fn list_attempts(
    store: &SqliteStore,
    order_no: &OrderNo,
    limit: u32,
) -> Result<Vec<Attempt>, StoreError> {
    let sql = format!("SELECT {ATTEMPT} FROM t_attempt WHERE order_no = $1 ORDER BY at DESC, attempt_id DESC LIMIT $2");
    let query = sqlx::query(&sql).bind(order_no.as_str()).bind(i64::from(limit));
    let rows = query.fetch_all(&store.read).await.map_err(read_error)?;
    all(&rows, rows::attempt)
}
