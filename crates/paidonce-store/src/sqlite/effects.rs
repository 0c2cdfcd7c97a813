//! Claiming and completing effects.

use uuid::Uuid;

use crate::sqlite::SqliteStore;
use crate::store::{ClaimedEffect, EffectRow, StoreError, TryResult};

/// Claims due lane heads.
pub(crate) async fn claim_effects(
    _store: &SqliteStore,
    _kinds: &[&str],
    _lease_ms: i64,
    _limit: u32,
) -> Result<Vec<ClaimedEffect>, StoreError> {
    Err(StoreError::Invalid("claim_effects is not built yet".to_owned()))
}

/// Reports a try.
pub(crate) async fn complete_effect(
    _store: &SqliteStore,
    _effect_id: Uuid,
    _lease_token: Uuid,
    _result: &TryResult,
) -> Result<bool, StoreError> {
    Err(StoreError::Invalid("complete_effect is not built yet".to_owned()))
}

/// Effects, oldest first.
pub(crate) async fn list_effects(
    _store: &SqliteStore,
    _state: Option<&str>,
    _order_no: Option<&str>,
    _after: Option<Uuid>,
    _limit: u32,
) -> Result<Vec<EffectRow>, StoreError> {
    Err(StoreError::Invalid("list_effects is not built yet".to_owned()))
}

/// DEAD to pending.
pub(crate) async fn requeue_effect(_store: &SqliteStore, _effect_id: Uuid, _by: &str) -> Result<bool, StoreError> {
    Err(StoreError::Invalid("requeue_effect is not built yet".to_owned()))
}

/// DEAD or pending to discarded.
pub(crate) async fn discard_effect(_store: &SqliteStore, _effect_id: Uuid, _by: &str) -> Result<bool, StoreError> {
    Err(StoreError::Invalid("discard_effect is not built yet".to_owned()))
}

/// Time until the next one is due.
pub(crate) async fn next_effect_due_ms(_store: &SqliteStore, _kinds: &[&str]) -> Result<Option<i64>, StoreError> {
    Err(StoreError::Invalid("next_effect_due_ms is not built yet".to_owned()))
}

/// Deletes old finished effects.
pub(crate) async fn prune_effects(_store: &SqliteStore, _older_than_ms: i64, _limit: u32) -> Result<u64, StoreError> {
    Err(StoreError::Invalid("prune_effects is not built yet".to_owned()))
}
