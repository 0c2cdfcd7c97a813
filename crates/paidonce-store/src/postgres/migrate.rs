//! Brings the schema up to date, or says that it is not.
//!
//! | step | statement |
//! |---|---|
//! | one at a time | `pg_advisory_xact_lock`: of two that start at once, the second waits and finds nothing to do |
//! | what is there | `t_migration` |
//! | what is missing | the files, in order, in the same tx: all of them or none |
//! | who may do what | roles and rights, on every run, in the same tx: [`super::roles`] |

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection, PgPool, Postgres};

use super::roles;
use crate::columns::Columns;
use crate::migrations::{self, Applied, POSTGRES};
use crate::rights::RolesReport;
use crate::rows::{all, read_error};
use crate::store::StoreError;

/// Key of the advisory lock: any number that no other program takes on this database.
const LOCK_KEY: i64 = 0x7061_6964_6f6e_6365;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Migrations that were missing.
    pub applied: u32,
    /// Who may do what now.
    pub roles: RolesReport,
}

/// Applies all migrations to the database at `url` and sets the rights of the roles. Who runs it first owns the tables.
///
/// Errors: [`StoreError::Unavailable`] when it can't be reached or refuses, [`StoreError::Invalid`] when its schema is newer or
/// was edited, or something has to be applied and the login may not. That the login may not make roles is no error: see
/// [`RolesReport`].
pub async fn migrate(url: &str) -> Result<Migrated, StoreError> {
    let target = PgConnectOptions::from_str(url).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut connection = PgConnection::connect_with(&target).await.map_err(read_error)?;
    let migrated = apply(&mut connection).await?;
    connection.close().await.map_err(read_error)?;
    Ok(migrated)
}

/// Applies what is missing, on a connection of the login.
pub(crate) async fn apply(connection: &mut PgConnection) -> Result<Migrated, StoreError> {
    let mut tx = connection.begin().await.map_err(read_error)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_KEY).execute(&mut *tx).await.map_err(read_error)?;
    // Asked first: IF NOT EXISTS wants the right to create a table also when it is there.
    if !is_begun(&mut *tx).await? {
        tx.execute(
            "CREATE TABLE t_migration (
                 version    bigint      NOT NULL,
                 name       text        NOT NULL,
                 checksum   bytea       NOT NULL,
                 applied_at timestamptz NOT NULL,
                 CONSTRAINT t_migration_pkey PRIMARY KEY (version)
             )",
        )
        .await
        .map_err(owner_error)?;
    }
    let missing = migrations::missing(POSTGRES, &applied(&mut *tx).await?)?;
    for migration in &missing {
        tx.execute(migration.sql).await.map_err(owner_error)?;
        sqlx::query("INSERT INTO t_migration (version, name, checksum, applied_at) VALUES ($1, $2, $3, now())")
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .execute(&mut *tx)
            .await
            .map_err(owner_error)?;
    }
    let roles = roles::ensure_in_tx(&mut tx).await?;
    tx.commit().await.map_err(read_error)?;
    Ok(Migrated { applied: u32::try_from(missing.len()).unwrap_or(u32::MAX), roles })
}

/// Of what only the owner may do.
fn owner_error(error: sqlx::Error) -> StoreError {
    if !roles::is_denied(&error) {
        return read_error(error);
    }
    StoreError::Invalid(format!(
        "{error}: the schema is brought up to date by the owner of the tables (of a new ledger: by a login that may create \
         tables); run `paidonce migrate` as that login"
    ))
}

async fn is_begun(executor: impl Executor<'_, Database = Postgres>) -> Result<bool, StoreError> {
    let sql = "SELECT to_regclass('t_migration') IS NOT NULL";
    sqlx::query_scalar(sql).fetch_one(executor).await.map_err(read_error)
}

/// Errors: [`StoreError::Invalid`] when a migration is missing, or the schema is newer or was edited.
pub(crate) async fn require(pool: &PgPool) -> Result<(), StoreError> {
    let applied = if is_begun(pool).await? { applied(pool).await? } else { Vec::new() };
    migrations::require(POSTGRES, &applied)
}

async fn applied(executor: impl Executor<'_, Database = Postgres>) -> Result<Vec<Applied>, StoreError> {
    let rows = sqlx::query("SELECT version, checksum FROM t_migration ORDER BY version")
        .fetch_all(executor)
        .await
        .map_err(owner_error)?;
    all(&rows, |row| Ok(Applied { version: row.integer("version")?, checksum: row.bytes("checksum")? }))
}
