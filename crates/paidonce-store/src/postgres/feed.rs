//! The feed over all shards.

use crate::postgres::PostgresStore;
use crate::store::{FeedPage, StoreError};

/// A page of all shards.
pub(crate) async fn read_feed(_store: &PostgresStore, _cursor: &str, _limit: u32) -> Result<FeedPage, StoreError> {
    Err(StoreError::Invalid("read_feed is not built yet".to_owned()))
}
