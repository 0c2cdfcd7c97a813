//! The writer's session: stages a batch, applies it at COMMIT.

use std::time::SystemTime;

use async_trait::async_trait;
use paidonce_order::timestamp::Timestamp;
use tokio::sync::OwnedMutexGuard;

use super::Shared;
use crate::backend::{
    AggregateKey, Append, Backend, DbError, LockedHead, Lost, Opening, Quarantine, Session, StoredKey,
};
use crate::clock::ClockOffset;
use crate::store::{EventRow, Subscriber};

/// What stands for the database's clock.
#[derive(Debug, Clone)]
pub(super) struct SystemClock(pub(super) ClockOffset);

impl SystemClock {
    /// Now, with the offset of test builds.
    pub(super) fn now(&self) -> Timestamp {
        database_now().plus_micros(self.0.micros())
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the database here, and its clock is the one that counts")]
fn database_now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[derive(Debug)]
pub(super) struct MemoryBackend {
    shared: Shared,
}

impl MemoryBackend {
    pub(super) const fn new(shared: Shared) -> Self {
        Self { shared }
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn open(&self) -> Result<Box<dyn Session>, DbError> {
        Ok(Box::new(MemorySession { shared: self.shared.clone(), tx: None, staged: None }))
    }
}

/// One tx at a time; nothing of it is visible before COMMIT.
#[derive(Debug)]
struct MemorySession {
    shared: Shared,
    tx: Option<OwnedMutexGuard<()>>,
    staged: Option<Append>,
}

#[async_trait]
impl Session for MemorySession {
    async fn begin(&mut self, shards: &[u16]) -> Result<Opening, DbError> {
        self.tx = Some(std::sync::Arc::clone(&self.shared.tx).lock_owned().await);
        let tables = self.shared.tables();
        let heads: Vec<LockedHead> = shards.iter().map(|shard| tables.locked_head(*shard)).collect();
        Ok(Opening { now: database_now(), heads })
    }

    async fn load(&mut self, aggregates: &[AggregateKey]) -> Result<Vec<EventRow>, DbError> {
        let tables = self.shared.tables();
        Ok(aggregates.iter().flat_map(|key| tables.stream(key.aggregate_type, &key.aggregate_id)).collect())
    }

    async fn load_from(&mut self, shard: u16, position: i64, limit: i64) -> Result<Vec<EventRow>, DbError> {
        let tables = self.shared.tables();
        let rows = tables.shard(shard).iter().filter(|row| row.position >= position);
        Ok(rows.take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect())
    }

    async fn find_keys(&mut self, keys: &[String]) -> Result<Vec<StoredKey>, DbError> {
        let tables = self.shared.tables();
        let found = keys.iter().filter_map(|key| tables.keys.get(key));
        let stored = found.map(|row| StoredKey {
            idem_key: row.idem_key.clone(),
            order_no: row.order_no.clone(),
            request_hash: row.request_hash,
        });
        Ok(stored.collect())
    }

    async fn subscribers(&mut self) -> Result<Vec<Subscriber>, DbError> {
        Ok(self.shared.tables().subscribers.values().cloned().collect())
    }

    async fn append(&mut self, append: &Append) -> Result<Lost, DbError> {
        let lost = self.shared.tables().check(append)?;
        self.staged = Some(append.clone());
        Ok(lost)
    }

    async fn commit(&mut self) -> Result<(), DbError> {
        let staged = self.staged.take().ok_or_else(|| DbError::Away("COMMIT without a written tx".to_owned()))?;
        self.shared.tables().apply(staged);
        self.tx = None;
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), DbError> {
        self.staged = None;
        self.tx = None;
        Ok(())
    }

    async fn quarantine(&mut self, item: &Quarantine) -> Result<(), DbError> {
        let at = database_now().plus_micros(item.offset_micros);
        self.shared.tables().quarantine(item, at);
        Ok(())
    }
}
