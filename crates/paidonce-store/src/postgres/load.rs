//! What the writer reads, under its locks.

use sqlx::PgConnection;

use super::append::{db_error, shard_column};
use crate::backend::{AggregateKey, DbError, StoredKey};
use crate::rows::{self, all};
use crate::store::{EventRow, Subscriber};

/// Cold aggregates, all of a batch in one query. `MATERIALIZED`-free: the join runs as one index probe per aggregate.
pub(super) const LOAD: &str = "\
SELECT e.shard, e.position, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.event_type, e.event_version,
       e.payload::text AS payload, e.metadata::text AS metadata, e.recorded_at, e.hash
  FROM unnest($1::text[], $2::text[]) AS w (aggregate_type, aggregate_id)
  JOIN events e ON e.aggregate_type = w.aggregate_type COLLATE \"C\" AND e.aggregate_id = w.aggregate_id COLLATE \"C\"
 ORDER BY e.aggregate_type, e.aggregate_id, e.sequence";

/// A shard's events from a position on.
pub(super) const LOAD_FROM: &str = "\
SELECT shard, position, event_id, aggregate_type, aggregate_id, sequence, event_type, event_version,
       payload::text AS payload, metadata::text AS metadata, recorded_at, hash
  FROM events WHERE shard = $1 AND position >= $2 ORDER BY position LIMIT $3";

/// API keys of any shard.
pub(super) const FIND_KEYS: &str = "SELECT idem_key, order_no, request_hash, request_hash IS NOT NULL AS has_hash
  FROM t_idempotent WHERE idem_key = ANY ($1::text[])";

/// Who gets effects.
pub(super) const SUBSCRIBERS: &str =
    "SELECT name, events::text AS events, url, secret_ref, paused FROM t_subscriber ORDER BY name";

/// Everything ever written, for the check at start.
pub(super) const EVENT_VERSIONS: &str =
    "SELECT event_type, event_version FROM t_event_version ORDER BY event_type, event_version";

pub(super) async fn load(connection: &mut PgConnection, aggregates: &[AggregateKey]) -> Result<Vec<EventRow>, DbError> {
    let types: Vec<&str> = aggregates.iter().map(|key| key.aggregate_type).collect();
    let ids: Vec<&str> = aggregates.iter().map(|key| key.aggregate_id.as_str()).collect();
    let rows = sqlx::query(LOAD).bind(types).bind(ids).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::event)?)
}

pub(super) async fn load_from(
    connection: &mut PgConnection,
    shard: u16,
    position: i64,
    limit: i64,
) -> Result<Vec<EventRow>, DbError> {
    let query = sqlx::query(LOAD_FROM).bind(shard_column(shard)).bind(position).bind(limit);
    let rows = query.fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::event)?)
}

pub(super) async fn find_keys(connection: &mut PgConnection, keys: &[String]) -> Result<Vec<StoredKey>, DbError> {
    let rows = sqlx::query(FIND_KEYS).bind(keys).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::stored_key)?)
}

pub(super) async fn subscribers(connection: &mut PgConnection) -> Result<Vec<Subscriber>, DbError> {
    let rows = sqlx::query(SUBSCRIBERS).fetch_all(connection).await.map_err(|e| db_error(&e))?;
    Ok(all(&rows, rows::subscriber)?)
}
