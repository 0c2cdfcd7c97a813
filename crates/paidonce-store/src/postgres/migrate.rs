//! Brings the schema up to date, or says that it is not.
//!
//! | step | statement |
//! |---|---|
//! | one at a time | `pg_advisory_xact_lock`: of two that start at once, the second waits and finds nothing to do |
//! | what is there | `t_migration` |
//! | what is missing | the files, in order, in the same tx: all of them or none |

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection, PgPool, Postgres};

use crate::columns::Columns;
use crate::migrations::{self, Applied, POSTGRES};
use crate::rows::{all, read_error};
use crate::store::StoreError;

/// Key of the advisory lock: any number that no other program takes on this database.
const LOCK_KEY: i64 = 0x7061_6964_6f6e_6365;

/// Applies all migrations to the database at `url`; how many were applied.
///
/// Errors: [`StoreError::Unavailable`] when it can't be reached or refuses, [`StoreError::Invalid`] when its schema is newer or
/// was edited.
pub async fn migrate(url: &str) -> Result<u32, StoreError> {
    let target = PgConnectOptions::from_str(url).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut connection = PgConnection::connect_with(&target).await.map_err(read_error)?;
    let applied = apply_on(&mut connection).await?;
    connection.close().await.map_err(read_error)?;
    Ok(applied)
}

/// Applies what is missing.
pub(crate) async fn apply(pool: &PgPool) -> Result<u32, StoreError> {
    let mut connection = pool.acquire().await.map_err(read_error)?;
    apply_on(&mut connection).await
}

async fn apply_on(connection: &mut PgConnection) -> Result<u32, StoreError> {
    let mut tx = connection.begin().await.map_err(read_error)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_KEY).execute(&mut *tx).await.map_err(read_error)?;
    tx.execute(
        "CREATE TABLE IF NOT EXISTS t_migration (
             version    bigint      NOT NULL,
             name       text        NOT NULL,
             checksum   bytea       NOT NULL,
             applied_at timestamptz NOT NULL,
             CONSTRAINT t_migration_pkey PRIMARY KEY (version)
         )",
    )
    .await
    .map_err(read_error)?;
    let missing = migrations::missing(POSTGRES, &applied(&mut *tx).await?)?;
    for migration in &missing {
        tx.execute(migration.sql).await.map_err(read_error)?;
        sqlx::query("INSERT INTO t_migration (version, name, checksum, applied_at) VALUES ($1, $2, $3, now())")
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
pub(crate) async fn require(pool: &PgPool) -> Result<(), StoreError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('t_migration') IS NOT NULL")
        .fetch_one(pool)
        .await
        .map_err(read_error)?;
    let applied = if exists { applied(pool).await? } else { Vec::new() };
    migrations::require(POSTGRES, &applied)
}

async fn applied(executor: impl Executor<'_, Database = Postgres>) -> Result<Vec<Applied>, StoreError> {
    let rows = sqlx::query("SELECT version, checksum FROM t_migration ORDER BY version")
        .fetch_all(executor)
        .await
        .map_err(read_error)?;
    all(&rows, |row| Ok(Applied { version: row.integer("version")?, checksum: row.bytes("checksum")? }))
}
