//! `paidonce copy`: moves a whole ledger from the embedded database to PostgreSQL, events, evidence and all, keeping shards,
//! positions and hashes, so that both give the same proofs.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use paidonce_store::copy::{CopyProgress, copy_to_postgres};
use serde_json::{Value, json};

use crate::commands::print::say;
use crate::config::{Config, DatabaseUrl, Environment};
use crate::exit::{Exit, Stop};
use crate::ledger;
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Stop `serve` first: the embedded database belongs to one process. The target must be empty; it is all or nothing.
Afterwards start serve with DATABASE_URL, and keep the old folder until the new ledger is backed up.

Example:
  DATABASE_URL=postgres://owner:password@db/ledger paidonce copy --from ./paidonce-data";

/// Arguments of `copy`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CopyArgs {
    /// Folder of the embedded database; otherwise the configuration's data_dir.
    #[arg(long, value_name = "FOLDER")]
    pub from: Option<PathBuf>,
    /// The PostgreSQL database; otherwise DATABASE_URL or the configuration's database.url. Others on this host can see
    /// what stands on a command line.
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    /// Print the result as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// Runs it. Errors: configuration, one of the databases away, a target that is not empty, a broken hash chain.
pub async fn run(args: CopyArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let mut config = Config::load(file, env)?;
    if let Some(to) = &args.to {
        config.database.url = DatabaseUrl::parse(to).map_err(|allowed| Stop::usage(format!("--to {allowed}")))?;
    }
    let DatabaseUrl::Postgres(to) = config.database.url.clone() else {
        return Err(Stop::usage("copy to where? Set DATABASE_URL (or --to) to a postgres:// address").into());
    };
    config.database.data_dir = args.from.unwrap_or(config.database.data_dir);
    let from = ledger::sqlite_file(&config.database);
    let bar = progress_bar();
    let report = copy_to_postgres(&from, to.reveal(), &|progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    let tables = report.map_err(ledger::stop)?.tables;
    let rows: Vec<Value> = tables.iter().map(|(table, rows)| json!({ "table": table, "rows": rows })).collect();
    if args.json {
        say!("{}", json!({ "from": from, "tables": rows }))?;
    } else {
        say!("{}", table::rows(&rows, &[Column::Text("table"), Column::Text("rows")]))?;
        say!("{} was copied; every link of its hash chain was checked", from.display())?;
    }
    Ok(Exit::Ok)
}

/// On standard error, and only when that is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:14} {bar:40} {pos}/{len} rows");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: CopyProgress) {
    bar.set_message(progress.table);
    bar.set_length(progress.rows_total);
    bar.set_position(progress.rows);
}
