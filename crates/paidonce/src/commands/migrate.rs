//! `paidonce migrate`: brings the schema of the configured database up to date and sets the rights of its roles.

use std::path::Path;

use clap::Args;
use paidonce_store::postgres::{READER, WRITER};
use paidonce_store::rights::RolesReport;

use crate::commands::print::say;
use crate::config::{Config, DatabaseUrl, Environment};
use crate::exit::Exit;
use crate::ledger;

const HELP: &str = "\
PostgreSQL: whoever runs this first owns the tables. It also makes two roles without a login, or sets their rights again:
  paidonce_writer   the service; adds to the log and never changes it. `serve` runs as it, if its login is a member
  paidonce_reader   reads everything, writes nothing
Making roles needs CREATEROLE. A login without it gets the SQL printed that somebody else must run.

Exit codes: 0 done; 1 the schema is up to date, but the roles are not as they must be; 2 wrong configuration or schema,
or the login may not change it; 3 the database can't be reached.

Example:
  DATABASE_URL=postgres://owner:password@db/ledger paidonce migrate";

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct MigrateArgs {}

/// Runs it.
pub async fn run(_args: MigrateArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let config = Config::load(file, env)?;
    let migrated = ledger::migrate(&config.database).await?;
    let database = match &config.database.url {
        DatabaseUrl::Sqlite => ledger::sqlite_file(&config.database).display().to_string(),
        DatabaseUrl::Postgres(_) => "the PostgreSQL database".to_owned(),
    };
    match migrated.applied {
        0 => say!("{database} is up to date")?,
        1 => say!("1 migration applied to {database}")?,
        count => say!("{count} migrations applied to {database}")?,
    }
    migrated.roles.map_or(Ok(Exit::Ok), |roles| report(&roles))
}

fn report(roles: &RolesReport) -> anyhow::Result<Exit> {
    let RolesReport { login, owner, granted, member, by_hand } = roles;
    if *granted {
        say!("roles: {WRITER} adds to the log and can't change it, {READER} only reads; the tables belong to {owner}")?;
    } else {
        say!("roles: {WRITER} and {READER} are not as they must be; the tables belong to {owner}")?;
    }
    if !member {
        say!("{login} is no member of {WRITER}: `serve` must not use this login, or would work with its rights")?;
    }
    if !by_hand.is_empty() {
        say!("\nA superuser (or who may manage these roles) must run in this database:\n")?;
        for sql in by_hand {
            say!("    {sql}")?;
        }
    }
    if *granted {
        return Ok(Exit::Ok);
    }
    say!(
        "\nThen run `paidonce migrate` again as {owner}: it gives the roles their rights. Until then append-only rests on the triggers alone."
    )?;
    Ok(Exit::Failed)
}
