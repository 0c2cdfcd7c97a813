//! Opening a SQLite ledger: the lock file, the one write connection, the read pool.
//!
//! How values are stored (`migrations/sqlite`): the tables, columns and keys of PostgreSQL; times are INTEGER microseconds since
//! the epoch, UUIDs are BLOBs of 16 bytes, digests and hashes BLOBs of 32, JSON is TEXT, booleans are 0 or 1.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::append::{Guards, SqliteSession};
use super::attempts::Attempts;
use super::{SqliteStore, load, migrate};
use crate::backend::{Backend, DbError, Session};
use crate::codec::check_known;
use crate::columns::Columns;
use crate::options::{Durability, Migrations, StoreOptions};
use crate::rows::read_error;
use crate::store::StoreError;
use crate::writer::Writer;

/// The only connection that writes. The writer holds it for a batch, the effects for a statement or a short tx.
#[derive(Debug, Clone)]
pub(crate) struct WriteConnection(Arc<Mutex<SqliteConnection>>);

impl WriteConnection {
    /// Waits for its turn. Begin a tx with `connection.begin()`, so that a dropped future rolls back.
    pub(crate) async fn lock(&self) -> OwnedMutexGuard<SqliteConnection> {
        Arc::clone(&self.0).lock_owned().await
    }
}

/// Opens the store.
pub(super) async fn open(path: &Path, options: StoreOptions) -> Result<SqliteStore, StoreError> {
    let lock = take_lock(path)?;
    let settings = settings(path, options.durability);
    let mut connection = settings.connect().await.map_err(unavailable)?;
    match options.migrations {
        Migrations::Apply => {
            migrate::apply(&mut connection).await?;
        }
        Migrations::Require => migrate::require(&mut connection).await?,
    }
    check_versions(&mut connection).await?;
    let write = WriteConnection(Arc::new(Mutex::new(connection)));
    let read = SqlitePoolOptions::new()
        .max_connections(options.read_connections_max)
        .connect_with(settings.clone().create_if_missing(false).read_only(true))
        .await
        .map_err(unavailable)?;
    let backend: Arc<dyn Backend> =
        Arc::new(SqliteBackend { write: write.clone(), settings, guards: guards(&options) });
    let options = StoreOptions { writers: 1, ..options };
    let writer = Writer::start(&backend, &options);
    let attempts = Attempts::start(write.clone());
    Ok(SqliteStore { read, write, clock: options.clock, writer, attempts, _lock: lock })
}

/// WAL, one writer; every commit waits for the disk unless the ledger is a scratch one.
pub(super) fn settings(path: &Path, durability: Durability) -> SqliteConnectOptions {
    let synchronous = match durability {
        Durability::Full => SqliteSynchronous::Full,
        Durability::Scratch => SqliteSynchronous::Off,
    };
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .busy_timeout(std::time::Duration::from_secs(2))
        // Without it INSERT OR REPLACE would not fire the triggers that keep the log append-only.
        .pragma("recursive_triggers", "ON")
}

/// One process at a time: `<file>.lock`, held by the operating system's file lock, so that a crash releases it.
pub(super) fn take_lock(path: &Path) -> Result<std::fs::File, StoreError> {
    let lock_path: PathBuf = path.with_extension("lock");
    if let Some(folder) = lock_path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| StoreError::Unavailable(format!("{}: {error}", folder.display())))?;
    }
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|error| StoreError::Unavailable(format!("{}: {error}", lock_path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::Unavailable(format!(
            "another process has this ledger open ({} is locked): stop it first",
            lock_path.display()
        ))),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(StoreError::Unavailable(format!("{}: {error}", lock_path.display())))
        }
    }
}

fn unavailable(error: sqlx::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

/// Opens writer sessions.
#[derive(Debug)]
struct SqliteBackend {
    write: WriteConnection,
    settings: SqliteConnectOptions,
    guards: Guards,
}

#[cfg(not(feature = "testing"))]
fn guards(_options: &StoreOptions) -> Guards {
    Guards { any_order: false, any_head: false }
}

#[cfg(feature = "testing")]
fn guards(options: &StoreOptions) -> Guards {
    Guards { any_order: options.without.conditional_update, any_head: options.without.head_compare }
}

#[async_trait]
impl Backend for SqliteBackend {
    /// A session is opened after an error that nobody can say what it left behind, so it always brings a new connection;
    /// closing the old one ends whatever tx it had.
    async fn open(&self) -> Result<Box<dyn Session>, DbError> {
        let fresh = self.settings.connect().await.map_err(|error| DbError::Away(error.to_string()))?;
        let mut held = self.write.lock().await;
        let stale = std::mem::replace(&mut *held, fresh);
        if let Err(error) = stale.close().await {
            tracing::warn!(%error, "the old write connection did not close well");
        }
        drop(held);
        Ok(Box::new(SqliteSession { write: self.write.clone(), held: None, guards: self.guards }))
    }
}

/// Refuses a log with an event that this release can't decode.
async fn check_versions(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let rows = sqlx::query(load::EVENT_VERSIONS).fetch_all(connection).await.map_err(read_error)?;
    for row in rows {
        check_known(&row.text("event_type")?, &row.text("event_version")?)?;
    }
    Ok(())
}

/// Does the file answer?
pub(super) async fn ping(store: &SqliteStore) -> Result<(), StoreError> {
    sqlx::query("SELECT 1").execute(&store.read).await.map(|_| ()).map_err(unavailable)
}

/// Closes the read pool and writes back the WAL.
pub(super) async fn close(store: &SqliteStore) {
    store.read.close().await;
    let mut write = store.write.lock().await;
    if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *write).await {
        tracing::warn!(%error, "the write-ahead log could not be written back; it will be at the next start");
    }
    let _ = write.ping().await;
}
