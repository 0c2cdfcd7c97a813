//! The ledger's database, read (and where a test needs it, broken) by SQL from outside of the product.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use crate::postgres;

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The embedded default.
    Sqlite,
    /// The shared test cluster, a database of its own.
    Postgres,
}

impl Engine {
    /// `sqlite`, `postgres`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// Where the ledger is.
#[derive(Debug, Clone)]
pub enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A URL.
    Postgres(String),
}

impl Database {
    /// A new, empty one. `data_dir` is where the SQLite file will be.
    #[must_use]
    pub fn fresh(engine: Engine, data_dir: &Path) -> Self {
        match engine {
            Engine::Sqlite => Self::Sqlite(data_dir.join("ledger.db")),
            Engine::Postgres => Self::Postgres(postgres::migrated_database()),
        }
    }

    /// Which kind.
    #[must_use]
    pub const fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// What `[database] url` says.
    #[must_use]
    pub fn config_url(&self) -> String {
        match self {
            Self::Sqlite(_) => "sqlite".to_owned(),
            Self::Postgres(url) => url.clone(),
        }
    }

    /// The single integer that `sql` gives.
    #[must_use]
    pub fn count(&self, sql: &str) -> i64 {
        match self {
            Self::Sqlite(path) => sqlite_query(path, sql).first().unwrap_or_else(|| panic!("{sql}: no row")).get(0),
            Self::Postgres(url) => postgres::count(url, sql),
        }
    }

    /// All rows of `sql`; every column has to be text (cast it in the SQL), NULL reads as the empty text.
    #[must_use]
    pub fn texts(&self, sql: &str) -> Vec<Vec<String>> {
        match self {
            Self::Sqlite(path) => sqlite_query(path, sql)
                .iter()
                .map(|row| (0..row.len()).map(|i| row.get::<Option<String>, _>(i).unwrap_or_default()).collect())
                .collect(),
            Self::Postgres(url) => postgres::query(url, sql)
                .iter()
                .map(|row| (0..row.len()).map(|i| row.get::<Option<String>, _>(i).unwrap_or_default()).collect())
                .collect(),
        }
    }

    /// When the next call to a platform is due (unix microseconds), of all that wait or are under way.
    #[must_use]
    pub fn next_call_due(&self) -> Option<i64> {
        let micros = match self {
            Self::Sqlite(_) => "min(due_at)",
            Self::Postgres(_) => "CAST(min(extract(epoch FROM due_at)) * 1000000 AS bigint)",
        };
        let sql = format!(
            "SELECT coalesce({micros}, 0) FROM t_effect WHERE kind <> 'deliver' AND state IN ('pending', 'leased')"
        );
        Some(self.count(&sql)).filter(|due| *due > 0)
    }

    /// Whether somebody holds the write lock of the embedded database right now.
    #[must_use]
    pub fn is_write_locked(&self) -> bool {
        let Self::Sqlite(path) = self else { return false };
        let attempt = block_on(async || {
            let mut connection = options(path).busy_timeout(Duration::ZERO).connect().await?;
            sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut connection).await?;
            connection.close().await
        });
        attempt.is_err()
    }

    /// Runs statements, for tests that damage something on purpose.
    pub fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(path) => sqlite_execute(path, sql),
            Self::Postgres(url) => postgres::execute(url, sql),
        }
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(10)).disable_statement_logging()
}

fn sqlite_query(path: &Path, sql: &str) -> Vec<SqliteRow> {
    block_on(async || {
        let mut connection = options(path).connect().await?;
        let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(rows)
    })
    .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn sqlite_execute(path: &Path, sql: &str) {
    block_on(async || {
        let mut connection = options(path).connect().await?;
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        connection.close().await
    })
    .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Runs async code on a thread and a runtime of its own: also usable from inside a test's runtime.
fn block_on<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work())
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
