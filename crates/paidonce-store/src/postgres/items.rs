//! What needs a person.

use paidonce_order::order::ItemKind;

use crate::postgres::PostgresStore;
use crate::store::{ItemRow, OnlyOpen, StoreError};

/// Items, newest first.
pub(crate) async fn list_items(
    _store: &PostgresStore,
    _kind: Option<ItemKind>,
    _open_only: OnlyOpen,
    _after: Option<&str>,
    _limit: u32,
) -> Result<Vec<ItemRow>, StoreError> {
    Err(StoreError::Invalid("list_items is not built yet".to_owned()))
}

/// One item.
pub(crate) async fn find_item(_store: &PostgresStore, _item_no: &str) -> Result<Option<ItemRow>, StoreError> {
    Err(StoreError::Invalid("find_item is not built yet".to_owned()))
}

/// Closes a quarantined item.
pub(crate) async fn resolve_quarantined(_store: &PostgresStore, _item_no: &str, _by: &str) -> Result<(), StoreError> {
    Err(StoreError::Invalid("resolve_quarantined is not built yet".to_owned()))
}
