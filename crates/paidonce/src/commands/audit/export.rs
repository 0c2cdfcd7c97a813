//! `paidonce audit export`: the books, for the programs of finance people.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use paidonce_app::audit::as_of::AsOf;
use paidonce_app::audit::export::{ExportPlan, ExportReport, export};
use paidonce_app::audit::postings::Entry;
use paidonce_app::audit::report::AuditError;
use serde_json::Value;

use super::database::{self, Database};
use super::days;
use super::progress::Bar;
use crate::config::Environment;
use crate::exit::{Exit, Stop};
use crate::table::{self, Column};

mod plain_text;
mod rows;
mod xlsx;

const EXAMPLES: &str = "\
Examples:
  paidonce audit export --format csv --from 2026-01-01 --to 2026-01-31 --out january.csv
  paidonce audit export --format hledger --out books.journal && hledger -f books.journal bal
  paidonce audit export --format beancount --out books.beancount && bean-check books.beancount
  paidonce audit export --format xlsx --out books.xlsx

Every event that moved money is one double entry, dated by its business date (Beijing, by the channel's clock), in the order of
the log. Balances are told on standard error. Fees stand in the platforms' bills, not in the log.";

/// Arguments of `audit export`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// For which program.
    #[arg(long, value_enum)]
    pub format: Format,
    /// File to write; it must not be there. Standard output otherwise (not for xlsx).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Up to where: a day (the end of it in Beijing) or a time, by when the ledger recorded it.
    #[arg(long, value_name = "DAY|TIME")]
    pub as_of: Option<String>,
    /// First business date.
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Last business date.
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    #[command(flatten)]
    database: Database,
}

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One row an entry, for spreadsheets and databases.
    Csv,
    /// One JSON object an entry.
    Jsonl,
    /// A workbook.
    Xlsx,
    /// A journal of hledger.
    Hledger,
    /// A ledger of beancount.
    Beancount,
}

/// Takes entries one by one.
trait Sink {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()>;

    /// What stands at the end; everything is on its way to the disk afterwards.
    fn finish(self: Box<Self>) -> anyhow::Result<()>;
}

/// Runs it. Errors: the command line; a file that is there; the database; a log with a hole.
pub async fn run(args: ExportArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let as_of = args.as_of.as_deref().map(AsOf::parse).transpose();
    let as_of = as_of.map_err(|error| Stop::usage(format!("--as-of {error}")))?.unwrap_or_default();
    let days = days::read(args.from.as_deref(), args.to.as_deref())?;
    let plan = ExportPlan { as_of, days, ..ExportPlan::default() };
    let source = args.database.open(file, env).await?;
    let mut sink = open(args.format, args.out.as_deref())?;
    let bar = Arc::new(Bar::new("events"));
    let write = |entry: &Entry| sink.write(entry).map_err(|error| AuditError::Internal(format!("{error:#}")));
    let report = export(source, &plan, (write, bar.on_progress())).await;
    bar.finish();
    let report = report.map_err(database::stop)?;
    sink.finish()?;
    tell(&report)?;
    Ok(Exit::Ok)
}

fn open(format: Format, out: Option<&Path>) -> anyhow::Result<Box<dyn Sink + Send>> {
    if format == Format::Xlsx {
        let path = out.ok_or_else(|| Stop::usage("a workbook needs --out FILE"))?;
        return Ok(Box::new(xlsx::Workbook::create(path)?));
    }
    let to: Box<dyn Write + Send> = match out {
        Some(path) => Box::new(create(path)?),
        None => Box::new(std::io::stdout()),
    };
    let to = BufWriter::new(to);
    Ok(match format {
        Format::Csv => Box::new(rows::Csv::begin(to)?),
        Format::Jsonl => Box::new(rows::Jsonl(to)),
        Format::Hledger => Box::new(plain_text::Hledger(to)),
        Format::Beancount | Format::Xlsx => Box::new(plain_text::Beancount::begin(to)?),
    })
}

/// An export never takes the place of another file.
fn create(path: &Path) -> Result<std::fs::File, Stop> {
    let refused =
        |error| Stop::usage(format!("can't write {}: {error}: name a file that is not there", path.display()));
    std::fs::File::create_new(path).map_err(refused)
}

/// On standard error: standard output may be the export itself.
#[expect(clippy::print_stderr, reason = "the export may stand on standard output")]
fn tell(report: &ExportReport) -> anyhow::Result<()> {
    let rows: Vec<Value> = report.balances.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let columns = [Column::Text("account"), Column::Text("currency"), Column::Text("amount")];
    eprintln!("{}", table::rows(&rows, &columns));
    eprintln!("{} entries of {} events", report.entries, report.events);
    Ok(())
}
