//! What the writer reads, inside its tx.

use sqlx::SqliteConnection;

use super::append::db_error;
use crate::backend::{AggregateKey, DbError, StoredKey};
use crate::rows::{self, all};
use crate::store::{EventRow, Subscriber};

/// Cold aggregates, all of a batch in one query: one index probe per aggregate.
pub(super) const LOAD: &str = "\
SELECT e.shard, e.position, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.event_type, e.event_version,
       e.payload, e.metadata, e.recorded_at, e.hash
  FROM json_each($1) AS w
  JOIN events AS e ON e.aggregate_type = w.value ->> 0 AND e.aggregate_id = w.value ->> 1
 ORDER BY e.aggregate_type, e.aggregate_id, e.sequence";

/// A shard's events from a position on.
pub(super) const LOAD_FROM: &str = "\
SELECT shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata,
       recorded_at, hash
  FROM events WHERE shard = $1 AND position >= $2 ORDER BY position LIMIT $3";

/// API keys of any shard.
pub(super) const FIND_KEYS: &str = "\
SELECT idem_key, order_no, request_hash, request_hash IS NOT NULL AS has_hash
  FROM t_idempotent WHERE idem_key IN (SELECT value FROM json_each($1))";

/// Who gets effects.
pub(super) const SUBSCRIBERS: &str = "SELECT name, events, url, secret_ref, paused FROM t_subscriber ORDER BY name";

/// Everything ever written, for the check at start.
pub(super) const EVENT_VERSIONS: &str =
    "SELECT event_type, event_version FROM t_event_version ORDER BY event_type, event_version";

pub(super) async fn load(
    connection: &mut SqliteConnection,
    aggregates: &[AggregateKey],
) -> Result<Vec<EventRow>, DbError> {
    let keys: Vec<(&str, &str)> =
        aggregates.iter().map(|key| (key.aggregate_type, key.aggregate_id.as_str())).collect();
    let rows = sqlx::query(LOAD).bind(json(&keys)?).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::event)?)
}

pub(super) async fn load_from(
    connection: &mut SqliteConnection,
    shard: u16,
    position: i64,
    limit: i64,
) -> Result<Vec<EventRow>, DbError> {
    let query = sqlx::query(LOAD_FROM).bind(shard).bind(position).bind(limit);
    let rows = query.fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::event)?)
}

pub(super) async fn find_keys(connection: &mut SqliteConnection, keys: &[String]) -> Result<Vec<StoredKey>, DbError> {
    let rows = sqlx::query(FIND_KEYS).bind(json(&keys)?).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::stored_key)?)
}

pub(super) async fn subscribers(connection: &mut SqliteConnection) -> Result<Vec<Subscriber>, DbError> {
    let rows = sqlx::query(SUBSCRIBERS).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::subscriber)?)
}

/// The set of a set-based statement: a JSON array of rows.
pub(super) fn json(rows: &impl serde::Serialize) -> Result<String, DbError> {
    serde_json::to_string(rows).map_err(|error| DbError::Refused(error.to_string()))
}
