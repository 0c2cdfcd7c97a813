//! What needs a person.

use paidonce_order::order::ItemKind;

use crate::rows::{self, ITEM, all, read_error};
use crate::search;
use crate::sqlite::SqliteStore;
use crate::sqlite::now::now;
use crate::store::{ItemRow, OnlyOpen, StoreError};

/// Items, newest first.
pub(crate) async fn list_items(
    store: &SqliteStore,
    kind: Option<ItemKind>,
    open_only: OnlyOpen,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<ItemRow>, StoreError> {
    let sql = search::items(kind.map(ItemKind::as_str), open_only, after);
    let mut query = sqlx::query(&sql);
    if let Some(kind) = kind {
        query = query.bind(kind.as_str());
    }
    if let Some(item_no) = after {
        let Some(item) = find_item(store, item_no).await? else {
            return Err(StoreError::Invalid(format!("there is no item {item_no} to continue behind")));
        };
        query = query.bind(item.opened_at.as_micros()).bind(item.item_no);
    }
    let rows = query.bind(i64::from(limit)).fetch_all(&store.read).await.map_err(read_error)?;
    all(&rows, rows::item)
}

/// One item.
pub(crate) async fn find_item(store: &SqliteStore, item_no: &str) -> Result<Option<ItemRow>, StoreError> {
    let sql = format!("SELECT {ITEM} FROM t_item WHERE item_no = $1");
    let row = sqlx::query(&sql).bind(item_no).fetch_optional(&store.read).await.map_err(read_error)?;
    row.as_ref().map(rows::item).transpose()
}

/// Closes a quarantined item. Errors: [`StoreError::Invalid`] when there is no such open item.
pub(crate) async fn resolve_quarantined(store: &SqliteStore, item_no: &str, by: &str) -> Result<(), StoreError> {
    let mut connection = store.write.lock().await;
    let now = now(&mut connection, &store.clock).await?;
    let closed = sqlx::query(
        "UPDATE t_item SET state = 'resolved', closed_at = $3, detail = detail || ' (resolved by ' || $2 || ')'
         WHERE item_no = $1 AND kind = 'quarantined' AND state = 'open'",
    )
    .bind(item_no)
    .bind(by)
    .bind(now.as_micros())
    .execute(&mut *connection)
    .await
    .map_err(read_error)?;
    if closed.rows_affected() == 1 {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("there is no open quarantined item {item_no}")))
}
