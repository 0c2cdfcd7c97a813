//! Opening a PostgreSQL ledger: the sessions' settings, the checks of the server and of the log.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Row};

use super::append::{Guards, PostgresSession, Tx};
use super::attempts::Attempts;
use super::rights::{Sessions, confirm};
use super::{PostgresStore, load, migrate, rights};
use crate::backend::{Backend, DbError, Session};
use crate::codec::check_known;
use crate::options::{Durability, Migrations, StoreOptions};
use crate::rights::SessionRights;
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

/// Opens the store. Migrations are the login's work, everything after them is done with the sessions' own rights.
pub(super) async fn connect(url: &str, options: StoreOptions) -> Result<PostgresStore, StoreError> {
    let Sessions { target, rights } = sessions(url, options.migrations).await?;
    let role = rights.role.clone();
    let pool = PgPoolOptions::new()
        .max_connections(options.read_connections_max)
        .acquire_timeout(CONNECT_MAX)
        .after_connect(move |connection, _| {
            let role = role.clone();
            Box::pin(async move { confirm(connection, &role).await })
        })
        .connect_with(target.clone().application_name("paidonce").options([("jit", "off")]))
        .await
        .map_err(|error| unavailable(&error))?;
    migrate::require(&pool).await?;
    check_server(&pool, options.durability).await?;
    check_versions(&pool).await?;
    let backend: Arc<dyn Backend> = Arc::new(PostgresBackend::new(&target, &rights, &options));
    let writer = Writer::start(&backend, &options);
    let attempts = Attempts::start(pool.clone());
    Ok(PostgresStore { pool, clock: options.clock, rights, writer, attempts })
}

/// A connection with the service's rights, for commands that write on their own.
///
/// Errors: as [`connect`].
pub(crate) async fn service_connection(url: &str) -> Result<PgConnection, StoreError> {
    let Sessions { target, rights } = sessions(url, Migrations::Require).await?;
    first_session(&target, &rights).await
}

/// Asks as the login how its sessions are to be opened, and tries one of them.
async fn sessions(url: &str, migrations: Migrations) -> Result<Sessions, StoreError> {
    let target = PgConnectOptions::from_str(url)
        .map_err(|error| StoreError::Invalid(format!("the database URL is unreadable: {error}")))?
        .disable_statement_logging();
    // A pool only because it goes on trying while the server starts.
    let login = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_MAX);
    let login = login.connect_with(target.clone().application_name("paidonce-login")).await;
    let login = login.map_err(|error| unavailable(&error))?;
    let found = of_login(&login, &target, migrations).await;
    login.close().await;
    let found = found?;
    first_session(&found.target, &found.rights).await?.close().await.map_err(|error| unavailable(&error))?;
    Ok(found)
}

async fn of_login(login: &PgPool, target: &PgConnectOptions, migrations: Migrations) -> Result<Sessions, StoreError> {
    if migrations == Migrations::Apply {
        let mut connection = login.acquire().await.map_err(|error| unavailable(&error))?;
        migrate::apply(&mut connection).await?;
    }
    let mut connection = login.acquire().await.map_err(|error| unavailable(&error))?;
    if let Some(sessions) = rights::sessions(&mut connection, target).await? {
        return Ok(sessions);
    }
    drop(connection);
    migrate::require(login).await?;
    Err(StoreError::Invalid("this database has no table `events`".to_owned()))
}

/// The pool would try again and again, and then say that it took too long.
async fn first_session(target: &PgConnectOptions, rights: &SessionRights) -> Result<PgConnection, StoreError> {
    let first = tokio::time::timeout(CONNECT_MAX, target.connect()).await;
    let first =
        first.map_err(|_| StoreError::Unavailable("the server does not take a second connection".to_owned()))?;
    let mut first = first.map_err(|error| unavailable(&error))?;
    match confirm(&mut first, &rights.role).await {
        Ok(()) => Ok(first),
        Err(error @ sqlx::Error::Configuration(_)) => Err(StoreError::Invalid(error.to_string())),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Opens writer sessions.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    target: PgConnectOptions,
    role: String,
    guards: Guards,
}

impl PostgresBackend {
    pub(super) fn new(target: &PgConnectOptions, rights: &SessionRights, options: &StoreOptions) -> Self {
        let synchronous_commit = match options.durability {
            Durability::Full => "on",
            Durability::Scratch => "off",
        };
        let target = target
            .clone()
            .application_name("paidonce-writer")
            .options(WRITER_SETTINGS.iter().copied())
            .options([("synchronous_commit", synchronous_commit)]);
        Self { target, role: rights.role.clone(), guards: guards(options) }
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
        let opened = async {
            let mut connection = self.target.connect().await?;
            confirm(&mut connection, &self.role).await.map(|()| connection)
        };
        let connection = tokio::time::timeout(CONNECT_MAX, opened)
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
