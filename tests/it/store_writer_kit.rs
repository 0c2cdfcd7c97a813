//! A ledger of its own for each test of the store, on either database, and a look at its tables.

use std::sync::Arc;

use paidonce_store::options::{Durability, Migrations, StoreOptions};
use paidonce_store::{MemoryStore, PostgresStore, SqliteStore, Store};
use paidonce_tests::postgres;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};

/// A database and, while it is open, its store.
pub struct Ledger {
    pub store: Arc<dyn Store>,
    pub place: Place,
}

/// Where a ledger lives.
#[derive(Clone)]
pub enum Place {
    Postgres(String),
    Sqlite(Arc<tempfile::TempDir>),
}

/// Fault points of its own, migrations applied.
pub fn options() -> StoreOptions {
    StoreOptions {
        migrations: Migrations::Apply,
        faults: paidonce_store::fault::Faults::private(),
        ..StoreOptions::default()
    }
}

impl Place {
    pub fn postgres() -> Self {
        Self::Postgres(postgres::fresh_database())
    }

    pub fn sqlite() -> Self {
        Self::Sqlite(Arc::new(tempfile::tempdir().unwrap()))
    }

    /// Opens another store on it (on SQLite only when no other is open).
    pub async fn open(&self, options: StoreOptions) -> Ledger {
        let store: Arc<dyn Store> = match self {
            Self::Postgres(url) => Arc::new(PostgresStore::connect(url, options).await.unwrap()),
            Self::Sqlite(folder) => {
                Arc::new(SqliteStore::open(&folder.path().join("ledger.db"), options).await.unwrap())
            }
        };
        Ledger { store, place: self.clone() }
    }

    /// The first column of every row, as text.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        match self {
            Self::Postgres(url) => {
                let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
                let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::Sqlite(folder) => {
                let file = SqliteConnectOptions::new().filename(folder.path().join("ledger.db"));
                let mut connection = file.connect().await.unwrap();
                let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }

    /// Runs statements.
    pub async fn execute(&self, sql: &str) {
        match self {
            Self::Postgres(url) => {
                let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            }
            Self::Sqlite(folder) => {
                let file = SqliteConnectOptions::new().filename(folder.path().join("ledger.db"));
                let mut connection = file.connect().await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            }
        }
    }
}

/// A store without a database.
pub fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(&options()))
}

/// Commits that are faster than the disk, for tests that count and do not crash.
pub fn fast() -> StoreOptions {
    StoreOptions { durability: Durability::Scratch, ..options() }
}
