//! A ledger file opened for reading only, by whoever copies it.

use std::path::Path;

use sqlx::{ConnectOptions, SqliteConnection};

use super::{append, connect, migrate};
use crate::backend::LockedHead;
use crate::options::Durability;
use crate::rows::{all, read_error};
use crate::store::StoreError;

/// Takes the file's lock and begins a read tx. The first part is the lock: keep it.
///
/// Errors: [`StoreError::Invalid`] when there is no ledger with the current schema, [`StoreError::Unavailable`] when another
/// process has it open.
pub(crate) async fn open(path: &Path) -> Result<(std::fs::File, SqliteConnection), StoreError> {
    if !path.is_file() {
        return Err(StoreError::Invalid(format!("there is no ledger at {}", path.display())));
    }
    let lock = connect::take_lock(path)?;
    let settings = connect::settings(path, Durability::Full).create_if_missing(false).read_only(true);
    let mut connection = settings.connect().await.map_err(read_error)?;
    migrate::require(&mut connection).await?;
    sqlx::query("BEGIN").execute(&mut connection).await.map_err(read_error)?;
    Ok((lock, connection))
}

/// Rows of a table.
pub(crate) async fn count(connection: &mut SqliteConnection, table: &str) -> Result<u64, StoreError> {
    let sql = format!("SELECT count(*) FROM {table}");
    let rows: i64 = sqlx::query_scalar(&sql).fetch_one(connection).await.map_err(read_error)?;
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// All rows of `t_log_head`.
pub(crate) async fn heads(connection: &mut SqliteConnection) -> Result<Vec<LockedHead>, StoreError> {
    let rows =
        sqlx::query("SELECT shard, position, hash, recorded_at, subscribers_version FROM t_log_head ORDER BY shard")
            .fetch_all(connection)
            .await
            .map_err(read_error)?;
    all(&rows, append::locked_head)
}
