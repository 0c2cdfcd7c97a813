//! Opening a PostgreSQL ledger: settings of the sessions, checks of the server.

use std::str::FromStr;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::PostgresStore;
use super::attempts::Attempts;
use super::migrate;
use crate::backend::{Backend, DbError, Session};
use crate::options::{Migrations, StoreOptions};
use crate::store::StoreError;
use crate::writer::Writer;

/// Opens the store.
pub(super) async fn connect(url: &str, options: StoreOptions) -> Result<PostgresStore, StoreError> {
    let target = PgConnectOptions::from_str(url).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let pool = PgPoolOptions::new()
        .max_connections(options.read_connections_max)
        .connect_with(target.clone())
        .await
        .map_err(|error| StoreError::Unavailable(error.to_string()))?;
    match options.migrations {
        Migrations::Apply => {
            migrate::apply(&pool).await?;
        }
        Migrations::Require => migrate::require(&pool).await?,
    }
    let backend = PostgresBackend { target };
    let writer = Writer::start(std::sync::Arc::new(backend), &options);
    let attempts = Attempts::start(pool.clone());
    Ok(PostgresStore { pool, clock: options.clock, writer, attempts })
}

/// Opens writer sessions.
#[derive(Debug)]
struct PostgresBackend {
    target: PgConnectOptions,
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn open(&self) -> Result<Box<dyn Session>, DbError> {
        Err(DbError::Away(format!("{:?} is not built yet", self.target.get_host())))
    }
}

/// Does the server answer?
pub(super) async fn ping(store: &PostgresStore) -> Result<(), StoreError> {
    sqlx::query("SELECT 1")
        .execute(&store.pool)
        .await
        .map(|_| ())
        .map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Closes the pool.
pub(super) async fn close(store: &PostgresStore) {
    store.pool.close().await;
}
