//! Opening the configured ledger, and what its errors mean for a script.

use std::path::PathBuf;
use std::sync::Arc;

use paidonce_store::clock::ClockOffset;
use paidonce_store::options::{Durability, FirstDue, StoreOptions};
use paidonce_store::rights::{AppendOnly, RolesReport, SessionRights};
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
    /// When calls to the platforms are made first.
    pub first_due: FirstDue,
    /// Shared with [`paidonce_app::Clock`].
    pub clock: ClockOffset,
}

impl OpenPlan {
    /// For a ledger that is meant to last.
    #[must_use]
    pub fn durable(migrations: Migrations) -> Self {
        Self { migrations, durability: Durability::Full, first_due: FirstDue::default(), clock: starting_clock() }
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
        first_due: plan.first_due,
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
            tell_rights(&store);
            Ok(Arc::new(store))
        }
    }
}

/// With which role this process works, once at its start.
fn tell_rights(store: &PostgresStore) {
    let Some(SessionRights { login, role, append_only }) = store.session_rights() else { return };
    match append_only {
        AppendOnly::RoleAndTriggers => {
            tracing::info!(login, role, "the database sessions run as {role}, which has no right to change the log");
        }
        AppendOnly::TriggersAlone(why) => {
            tracing::warn!(
                login,
                role,
                "the database sessions run as {role} with the right to change the log: append-only rests on the triggers alone \
                 ({why})"
            );
        }
    }
}

/// What [`migrate`] did.
#[derive(Debug)]
pub struct Migrated {
    /// Migrations that were missing.
    pub applied: u32,
    /// On PostgreSQL.
    pub roles: Option<RolesReport>,
}

/// Brings the schema up to date and sets the rights of the roles. Errors: [`Stop`].
pub async fn migrate(database: &DatabaseConfig) -> Result<Migrated, Stop> {
    match &database.url {
        DatabaseUrl::Sqlite => {
            make_data_dir(database)?;
            let applied = paidonce_store::sqlite::migrate(&sqlite_file(database)).await.map_err(stop)?;
            Ok(Migrated { applied, roles: None })
        }
        DatabaseUrl::Postgres(url) => {
            let migrated = paidonce_store::postgres::migrate(url.reveal()).await.map_err(stop)?;
            Ok(Migrated { applied: migrated.applied, roles: Some(migrated.roles) })
        }
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
