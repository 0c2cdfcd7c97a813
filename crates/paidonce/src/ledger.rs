//! Opening the configured ledger, and what its errors mean for a script.

use std::path::PathBuf;
use std::sync::Arc;

use paidonce_store::clock::ClockOffset;
use paidonce_store::options::{Durability, StoreOptions};
use paidonce_store::store::{Store, StoreError};
use paidonce_store::{Migrations, PostgresStore, SqliteStore};

use crate::config::{DatabaseConfig, DatabaseUrl};
use crate::exit::{Exit, Stop};

/// Name of the embedded database inside its folder.
const SQLITE_FILE: &str = "ledger.db";

/// How to open.
#[derive(Debug, Clone)]
pub struct OpenPlan {
    /// What to do about migrations.
    pub migrations: Migrations,
    /// Whether commits wait for the disk.
    pub durability: Durability,
    /// Shared with [`paidonce_app::Clock`].
    pub clock: ClockOffset,
}

impl OpenPlan {
    /// For a ledger that is meant to last.
    #[must_use]
    pub fn durable(migrations: Migrations) -> Self {
        Self { migrations, durability: Durability::Full, clock: starting_clock() }
    }
}

/// Zero: only a test build moves it.
#[cfg(not(feature = "testing"))]
fn starting_clock() -> ClockOffset {
    ClockOffset::default()
}

/// Where the tests' clock stood when the process before this one ended: without it the first moments of a restart would be
/// in another year.
#[cfg(feature = "testing")]
fn starting_clock() -> ClockOffset {
    let clock = ClockOffset::default();
    let micros = std::env::var("PAIDONCE_TESTING_CLOCK_OFFSET_MICROS").ok().and_then(|text| text.parse().ok());
    clock.set_micros(micros.unwrap_or(0));
    clock
}

/// The file of the embedded database.
#[must_use]
pub fn sqlite_file(database: &DatabaseConfig) -> PathBuf {
    database.data_dir.join(SQLITE_FILE)
}

/// Opens it. Errors: [`Stop`] with the exit code that fits.
pub async fn open(database: &DatabaseConfig, plan: &OpenPlan) -> Result<Arc<dyn Store>, Stop> {
    let options = StoreOptions {
        writers: usize::from(database.writers),
        queue_jobs_max: database.queue_jobs_max,
        migrations: plan.migrations,
        durability: plan.durability,
        clock: plan.clock.clone(),
        ..StoreOptions::default()
    };
    match &database.url {
        DatabaseUrl::Sqlite => {
            make_data_dir(database)?;
            let store = SqliteStore::open(&sqlite_file(database), options).await.map_err(stop)?;
            Ok(Arc::new(store))
        }
        DatabaseUrl::Postgres(url) => {
            let store = PostgresStore::connect(url.reveal(), options).await.map_err(stop)?;
            Ok(Arc::new(store))
        }
    }
}

/// Brings the schema up to date; how many migrations were applied. Errors: [`Stop`].
pub async fn migrate(database: &DatabaseConfig) -> Result<u32, Stop> {
    match &database.url {
        DatabaseUrl::Sqlite => {
            make_data_dir(database)?;
            paidonce_store::sqlite::migrate(&sqlite_file(database)).await.map_err(stop)
        }
        DatabaseUrl::Postgres(url) => paidonce_store::postgres::migrate(url.reveal()).await.map_err(stop),
    }
}

fn make_data_dir(database: &DatabaseConfig) -> Result<(), Stop> {
    let dir = &database.data_dir;
    std::fs::create_dir_all(dir)
        .map_err(|error| Stop::usage(format!("can't make the data folder {}: {error}", dir.display())))
}

/// What a store's error means for a script.
#[must_use]
pub fn stop(error: StoreError) -> Stop {
    let exit = match &error {
        StoreError::Unavailable(_) => Exit::Unreachable,
        StoreError::Invalid(_) => Exit::Usage,
        StoreError::Corrupt(_) => Exit::Failed,
    };
    Stop { exit, text: error.to_string() }
}
