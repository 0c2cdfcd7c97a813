//! Brings the schema up to date, or says that it is not.
//!
//! | step | statement |
//! |---|---|
//! | one at a time | BEGIN IMMEDIATE: of two that start at once, the second waits and finds nothing to do |
//! | what is there | `t_migration` |
//! | what is missing | the files, in order, in the same tx: all of them or none |

use std::path::Path;

use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection};

use super::connect;
use crate::columns::Columns;
use crate::migrations::{self, Applied, SQLITE};
use crate::options::Durability;
use crate::rows::{all, read_error};
use crate::store::StoreError;

/// Creates the file if need be and applies all migrations; how many were applied.
///
/// Errors: [`StoreError::Unavailable`] when the file can't be used or another process has it open, [`StoreError::Invalid`] when
/// its schema is newer or was edited.
pub async fn migrate(path: &Path) -> Result<u32, StoreError> {
    let _lock = connect::take_lock(path)?;
    let mut connection = connect::settings(path, Durability::Full).connect().await.map_err(read_error)?;
    let applied = apply(&mut connection).await?;
    connection.close().await.map_err(read_error)?;
    Ok(applied)
}

/// Applies what is missing.
pub(crate) async fn apply(connection: &mut SqliteConnection) -> Result<u32, StoreError> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
    tx.execute(
        "CREATE TABLE IF NOT EXISTS t_migration (
             version    INTEGER NOT NULL,
             name       TEXT    NOT NULL,
             checksum   BLOB    NOT NULL,
             applied_at INTEGER NOT NULL,
             CONSTRAINT t_migration_pkey PRIMARY KEY (version)
         ) STRICT",
    )
    .await
    .map_err(read_error)?;
    let missing = migrations::missing(SQLITE, &applied(&mut tx).await?)?;
    for migration in &missing {
        tx.execute(migration.sql).await.map_err(read_error)?;
        sqlx::query(
            "INSERT INTO t_migration (version, name, checksum, applied_at) VALUES ($1, $2, $3, unixepoch() * 1000000)",
        )
        .bind(migration.version)
        .bind(migration.name)
        .bind(migration.checksum())
        .execute(&mut *tx)
        .await
        .map_err(read_error)?;
    }
    tx.commit().await.map_err(read_error)?;
    Ok(u32::try_from(missing.len()).unwrap_or(u32::MAX))
}

/// Errors: [`StoreError::Invalid`] when a migration is missing, or the schema is newer or was edited.
pub(crate) async fn require(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 't_migration'")
            .fetch_one(&mut *connection)
            .await
            .map_err(read_error)?;
    let applied = if tables == 1 { applied(connection).await? } else { Vec::new() };
    migrations::require(SQLITE, &applied)
}

async fn applied(connection: &mut SqliteConnection) -> Result<Vec<Applied>, StoreError> {
    let rows = sqlx::query("SELECT version, checksum FROM t_migration ORDER BY version")
        .fetch_all(connection)
        .await
        .map_err(read_error)?;
    all(&rows, |row| Ok(Applied { version: row.integer("version")?, checksum: row.bytes("checksum")? }))
}
