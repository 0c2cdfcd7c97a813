//! Who gets effects.
//!
//! **The writer's view of subscribers.** Writers keep the subscribers in memory and compare `t_log_head.subscribers_version`,
//! read with the head lock, in every batch. So whoever changes `t_subscriber` must, in the same tx, first lock all heads in
//! shard order (`SELECT position FROM t_log_head ORDER BY shard FOR UPDATE`) and add one to `subscribers_version` of all of
//! them. An event is then either at or below the head positions read under that lock (a backfill covers exactly those), or
//! its writer sees the change.

use crate::sqlite::SqliteStore;
use crate::store::{Backfill, StoreError, Subscriber};

/// All subscribers.
pub(crate) async fn list_subscribers(_store: &SqliteStore) -> Result<Vec<Subscriber>, StoreError> {
    Err(StoreError::Invalid("list_subscribers is not built yet".to_owned()))
}

/// Adds or changes one; how many effects the backfill made.
pub(crate) async fn put_subscriber(
    _store: &SqliteStore,
    _subscriber: &Subscriber,
    _backfill: Backfill,
) -> Result<u64, StoreError> {
    Err(StoreError::Invalid("put_subscriber is not built yet".to_owned()))
}

/// Removes one and discards its unsent effects.
pub(crate) async fn delete_subscriber(_store: &SqliteStore, _name: &str) -> Result<(), StoreError> {
    Err(StoreError::Invalid("delete_subscriber is not built yet".to_owned()))
}
