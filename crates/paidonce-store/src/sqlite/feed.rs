//! The feed's reads.

use async_trait::async_trait;

use crate::cursor::Behind;
use crate::feed::{self, FeedSource};
use crate::rows::{self, EVENT, all, read_error};
use crate::sqlite::SqliteStore;
use crate::store::{EventRow, FeedPage, Head, StoreError};

/// A page of all shards.
pub(crate) async fn read_feed(store: &SqliteStore, cursor: &str, limit: u32) -> Result<FeedPage, StoreError> {
    feed::read_feed(store, cursor, limit).await
}

#[async_trait]
impl FeedSource for SqliteStore {
    async fn heads(&self) -> Result<Vec<Head>, StoreError> {
        let rows = sqlx::query("SELECT shard, position, hash FROM t_log_head ORDER BY shard")
            .fetch_all(&self.read)
            .await
            .map_err(read_error)?;
        all(&rows, rows::head)
    }

    /// Reads events_position_key; a statement a range costs no round trip here.
    async fn ranges(&self, ranges: &[Behind], rows_max: i64) -> Result<Vec<EventRow>, StoreError> {
        let sql = format!(
            "SELECT {EVENT} FROM events e
             WHERE e.shard = $1 AND e.position > $2 AND e.position <= $3 ORDER BY e.position LIMIT $4"
        );
        let mut connection = self.read.acquire().await.map_err(read_error)?;
        let mut events = Vec::new();
        for range in ranges {
            let rows = sqlx::query(&sql)
                .bind(i64::from(range.shard))
                .bind(range.after)
                .bind(range.head)
                .bind(rows_max)
                .fetch_all(&mut *connection)
                .await
                .map_err(read_error)?;
            events.extend(all(&rows, rows::event)?);
        }
        Ok(events)
    }
}
