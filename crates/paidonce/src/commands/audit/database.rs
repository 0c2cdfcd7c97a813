//! The database that an audit reads, and what its errors mean for a script.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use paidonce_app::audit::report::AuditError;
use paidonce_store::audit::AuditSource;

use crate::config::{Config, DatabaseConfig, DatabaseUrl, Environment};
use crate::exit::{Exit, Stop};
use crate::ledger;
use crate::sealing::open_source;

/// Which database; the configuration's otherwise.
#[derive(Debug, Args)]
pub struct Database {
    /// Folder of the embedded database; otherwise DATABASE_URL or the configuration.
    #[arg(long, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
}

impl Database {
    /// Opens it for reading. Errors: [`Stop`].
    pub async fn open(&self, file: Option<&Path>, env: &Environment) -> anyhow::Result<Arc<dyn AuditSource>> {
        let database = self.of(Config::load(file, env)?.database);
        Ok(open_source(&database).await.map_err(ledger::stop)?)
    }

    /// The configured one, or the one that was named.
    #[must_use]
    pub fn of(&self, mut database: DatabaseConfig) -> DatabaseConfig {
        if let Some(data_dir) = &self.data_dir {
            database.url = DatabaseUrl::Sqlite;
            database.data_dir.clone_from(data_dir);
        }
        database
    }
}

/// What an audit's error means for a script.
#[must_use]
pub fn stop(error: AuditError) -> Stop {
    match error {
        AuditError::Store(error) => ledger::stop(error),
        AuditError::Invalid(text) => Stop::usage(text),
        AuditError::Broken { .. } | AuditError::Internal(_) => Stop { exit: Exit::Failed, text: error.to_string() },
    }
}
