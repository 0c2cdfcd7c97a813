//! `paidonce migrate`: brings the schema of the configured database up to date.

use std::path::Path;

use clap::Args;

use crate::commands::print::say;
use crate::config::{Config, DatabaseUrl, Environment};
use crate::exit::Exit;
use crate::ledger;

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  DATABASE_URL=postgres://owner:password@db/ledger paidonce migrate")]
pub struct MigrateArgs {}

/// Runs it.
pub async fn run(_args: MigrateArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let config = Config::load(file, env)?;
    let applied = ledger::migrate(&config.database).await?;
    let database = match &config.database.url {
        DatabaseUrl::Sqlite => ledger::sqlite_file(&config.database).display().to_string(),
        DatabaseUrl::Postgres(_) => "the PostgreSQL database".to_owned(),
    };
    match applied {
        0 => say!("{database} is up to date")?,
        1 => say!("1 migration applied to {database}")?,
        count => say!("{count} migrations applied to {database}")?,
    }
    Ok(Exit::Ok)
}
