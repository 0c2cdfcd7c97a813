//! Opening a PostgreSQL ledger: the sessions' settings, the checks of the server and of the log.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool, Row};

use super::append::{Guards, PostgresSession, Tx};
use super::attempts::Attempts;
use super::{PostgresStore, load, migrate};
use crate::backend::{Backend, DbError, Session};
use crate::codec::check_known;
use crate::options::{Durability, Migrations, StoreOptions};
use crate::store::StoreError;
use crate::writer::Writer;

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Oldest server with everything that we use (`pg_xact_status`, `FOR UPDATE` in short simple queries, json functions).
const SERVER_VERSION_MIN: i32 = 140_000;

/// A writer's statements and locks end by themselves, and a writer that was stopped (SIGSTOP, a lost machine) loses its head locks
/// within seconds: by the idle limit when it was between two statements, by the keepalives when its network is gone.
const WRITER_SETTINGS: &[(&str, &str)] = &[
    ("statement_timeout", "3s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "3s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("default_transaction_isolation", "read\\ committed"),
    // The batch is joined to tables by their keys, whatever the planner believed of them while they were small.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
];

/// Opens the store.
pub(super) async fn connect(url: &str, options: StoreOptions) -> Result<PostgresStore, StoreError> {
    let target = PgConnectOptions::from_str(url)
        .map_err(|error| StoreError::Invalid(format!("the database URL is unreadable: {error}")))?
        .disable_statement_logging();
    let pool = PgPoolOptions::new()
        .max_connections(options.read_connections_max)
        .acquire_timeout(CONNECT_MAX)
        .connect_with(target.clone().application_name("paidonce").options([("jit", "off")]))
        .await
        .map_err(|error| unavailable(&error))?;
    match options.migrations {
        Migrations::Apply => {
            migrate::apply(&pool).await?;
        }
        Migrations::Require => migrate::require(&pool).await?,
    }
    check_server(&pool, options.durability).await?;
    check_versions(&pool).await?;
    let backend: Arc<dyn Backend> = Arc::new(PostgresBackend::new(&target, &options));
    let writer = Writer::start(&backend, &options);
    let attempts = Attempts::start(pool.clone());
    Ok(PostgresStore { pool, clock: options.clock, writer, attempts })
}

/// Opens writer sessions.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    target: PgConnectOptions,
    guards: Guards,
}

impl PostgresBackend {
    pub(super) fn new(target: &PgConnectOptions, options: &StoreOptions) -> Self {
        let synchronous_commit = match options.durability {
            Durability::Full => "on",
            Durability::Scratch => "off",
        };
        let target = target
            .clone()
            .application_name("paidonce-writer")
            .options(WRITER_SETTINGS.iter().copied())
            .options([("synchronous_commit", synchronous_commit)]);
        Self { target, guards: guards(options) }
    }
}

#[cfg(not(feature = "testing"))]
fn guards(_options: &StoreOptions) -> Guards {
    Guards { lock: "FOR UPDATE", any_order: false, any_head: false }
}

#[cfg(feature = "testing")]
fn guards(options: &StoreOptions) -> Guards {
    let without = options.without;
    Guards {
        lock: if without.head_lock { "" } else { "FOR UPDATE" },
        any_order: without.conditional_update,
        any_head: without.head_compare,
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn open(&self) -> Result<Box<dyn Session>, DbError> {
        let connection = tokio::time::timeout(CONNECT_MAX, self.target.connect())
            .await
            .map_err(|_| DbError::Away(format!("no connection within {} s", CONNECT_MAX.as_secs())))?
            .map_err(|error| DbError::Away(error.to_string()))?;
        Ok(Box::new(PostgresSession { connection, tx: Tx::None, guards: self.guards }))
    }
}

/// Promise P2 needs a server that really writes.
async fn check_server(pool: &PgPool, durability: Durability) -> Result<(), StoreError> {
    let version: i32 = setting(pool, "server_version_num").await?.parse().unwrap_or(0);
    if version < SERVER_VERSION_MIN {
        return Err(StoreError::Invalid(format!("PostgreSQL 14 or newer is needed, this is {version}")));
    }
    if durability == Durability::Scratch {
        return Ok(());
    }
    for (name, danger) in [
        ("fsync", "a crash of the machine would lose acknowledged payments"),
        ("full_page_writes", "a crash of the machine could tear pages of the ledger"),
    ] {
        if setting(pool, name).await? != "on" {
            return Err(StoreError::Invalid(format!("the server runs with {name} off: {danger}; turn it on")));
        }
    }
    Ok(())
}

async fn setting(pool: &PgPool, name: &str) -> Result<String, StoreError> {
    let row = sqlx::query("SELECT current_setting($1) AS value").bind(name).fetch_one(pool).await;
    row.and_then(|row| row.try_get("value")).map_err(|error| unavailable(&error))
}

/// Refuses a log with an event that this release can't decode.
async fn check_versions(pool: &PgPool) -> Result<(), StoreError> {
    let rows = sqlx::query(load::EVENT_VERSIONS).fetch_all(pool).await.map_err(|error| unavailable(&error))?;
    for row in rows {
        let event_type: String = row.try_get("event_type").map_err(|error| unavailable(&error))?;
        let event_version: String = row.try_get("event_version").map_err(|error| unavailable(&error))?;
        check_known(&event_type, &event_version)?;
    }
    Ok(())
}

/// Does the server answer?
pub(super) async fn ping(store: &PostgresStore) -> Result<(), StoreError> {
    sqlx::query("SELECT 1").execute(&store.pool).await.map(|_| ()).map_err(|error| unavailable(&error))
}

/// Closes the pool.
pub(super) async fn close(store: &PostgresStore) {
    store.pool.close().await;
}

fn unavailable(error: &sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
