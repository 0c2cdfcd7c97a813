//! `paidonce import`: orders that were paid before go-live, so that their late callbacks and refunds find them.
//!
//! | step | what |
//! |---|---|
//! | 1 | read the whole file; every problem is told with its line, and nothing is done while there is one |
//! | 2 | open the ledger (the embedded one: stop `serve` first) |
//! | 3 | for each order the commands of the one door (P3): open, payment, refund; the person, the reason and the line are the evidence (P5) |
//!
//! The same file again changes nothing, so an import that was cut off is simply run again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use paidonce_order::command::Operator;
use paidonce_store::Migrations;
use paidonce_store::store::Store;
use tokio::task::JoinSet;

mod book;
mod file;
#[cfg(test)]
mod tests;

use crate::commands::print::say;
use crate::config::{Config, DatabaseUrl, Environment};
use crate::exit::{Exit, Stop};
use crate::ledger::{self, OpenPlan};
use book::{Booked, Importer, Tally};
use file::{ImportFile, PaidOrder};

/// Orders under way at once: fills the writer's batches.
const ORDERS_MAX: usize = 256;
/// Problems that are printed one by one.
const PROBLEMS_SHOWN_MAX: usize = 50;

const EXAMPLES: &str = "\
CSV with a heading line, or one JSON object a line, with these fields:
  order_no, amount (88.88) or amount_minor, currency (CNY if absent), account (wxpay:1900000001),
  channel_trade_no, paid_at (RFC 3339), description (optional);
  refund_no, refund_amount or refund_amount_minor, refunded_at: of one refund; repeat the line for each further one.

Subscribers would hear of every imported payment as if it were new. So with subscribers in the ledger the import refuses
to begin, unless --tell-subscribers is given. The usual order is: import, then start serve with its subscribers.

Examples:
  paidonce import paid.csv --operator lin --reason \"go-live, shop export of 1 March\" --dry-run
  paidonce import paid.csv --operator lin --reason \"go-live, shop export of 1 March\"";

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// The file.
    pub file: PathBuf,
    /// Who answers for it; stands in the log for good.
    #[arg(long)]
    pub operator: String,
    /// Why; stands in the log for good.
    #[arg(long)]
    pub reason: String,
    /// Otherwise by the file's ending (.csv, .jsonl, .ndjson).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Only read and check the file; the ledger is not opened.
    #[arg(long)]
    pub dry_run: bool,
    /// Let subscribers hear of the imported payments and refunds.
    #[arg(long)]
    pub tell_subscribers: bool,
    /// Print the result as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// How the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma separated, RFC 4180, with a heading line.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// Runs it. Errors: configuration, file, ledger away.
pub async fn run(args: ImportArgs, config_file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let config = Config::load(config_file, env)?;
    let by = operator(&args)?;
    let orders = read(&args, &config)?;
    if args.dry_run {
        let (orders, refunds) = (orders.len(), orders.iter().map(|order| order.refunds.len()).sum::<usize>());
        if args.json {
            say!("{}", serde_json::json!({ "dry_run": true, "orders": orders, "refunds": refunds }))?;
        } else {
            say!("{}: no problem found; {orders} orders, {refunds} refunds", args.file.display())?;
        }
        return Ok(Exit::Ok);
    }
    let embedded = config.database.url == DatabaseUrl::Sqlite;
    let migrations = if embedded { Migrations::Apply } else { Migrations::Require };
    let store = ledger::open(&config.database, &OpenPlan::durable(migrations)).await?;
    let result = import(&args, by, orders, &store).await;
    store.shutdown().await;
    report(&args, result?)
}

fn operator(args: &ImportArgs) -> Result<Operator, Stop> {
    for (name, text) in [("--operator", &args.operator), ("--reason", &args.reason)] {
        if text.trim().is_empty() {
            return Err(Stop::usage(format!("{name} is empty: a person answers for an import, with a reason")));
        }
    }
    Ok(Operator { name: args.operator.clone(), reason: args.reason.clone() })
}

fn read(args: &ImportArgs, config: &Config) -> anyhow::Result<Vec<PaidOrder>> {
    let name = args.file.display();
    let ending = args.file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let format = match (args.format, ending.as_str()) {
        (Some(format), _) => format,
        (None, "csv") => Format::Csv,
        (None, "jsonl" | "ndjson") => Format::Jsonl,
        (None, _) => return Err(Stop::usage(format!("{name}: say --format csv or --format jsonl")).into()),
    };
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Stop::usage(format!("can't read {name} as UTF-8 text: {error}")))?;
    let ImportFile { orders, problems } = file::read(&text, format, &config.accounts.ours);
    if problems.is_empty() {
        return Ok(orders);
    }
    let mut told = format!("{name} has {} problems, nothing was done:", problems.len());
    for problem in problems.iter().take(PROBLEMS_SHOWN_MAX) {
        told.push_str(&format!("\n  {name}:{}: {}", problem.line, problem.text));
    }
    if problems.len() > PROBLEMS_SHOWN_MAX {
        told.push_str(&format!("\n  and {} more", problems.len() - PROBLEMS_SHOWN_MAX));
    }
    Err(Stop::usage(told).into())
}

async fn import(
    args: &ImportArgs,
    by: Operator,
    orders: Vec<PaidOrder>,
    store: &Arc<dyn Store>,
) -> anyhow::Result<Tally> {
    let subscribers = store.list_subscribers().await.map_err(ledger::stop)?;
    if !subscribers.is_empty() && !args.tell_subscribers {
        let names: Vec<_> = subscribers.iter().map(|subscriber| subscriber.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Stop::usage(format!(
            "{names} would hear of every imported payment as if it were new: remove the subscribers first, or say --tell-subscribers"
        ))
        .into());
    }
    let file_name = args.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let importer = Arc::new(Importer::new(Arc::clone(store), by, file_name));
    let progress = progress(orders.len());
    let mut tally = Tally::default();
    let mut tasks = JoinSet::new();
    for order in orders {
        if tasks.len() >= ORDERS_MAX {
            take(&mut tasks, &mut tally, &progress).await?;
        }
        let importer = Arc::clone(&importer);
        tasks.spawn(async move { importer.book(order).await });
    }
    while !tasks.is_empty() {
        take(&mut tasks, &mut tally, &progress).await?;
    }
    progress.finish_and_clear();
    Ok(tally)
}

/// On standard error, and only when that is a terminal.
fn progress(orders: usize) -> ProgressBar {
    let progress = ProgressBar::new(u64::try_from(orders).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} orders, {per_sec}, {eta} left");
    progress.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

async fn take(
    tasks: &mut JoinSet<Result<Booked, Stop>>,
    tally: &mut Tally,
    progress: &ProgressBar,
) -> anyhow::Result<()> {
    if let Some(done) = tasks.join_next().await {
        let booked = done?.map_err(|stop| {
            let done = tally.orders();
            Stop {
                text: format!("{}; {done} orders were done, run the same import again for the rest", stop.text),
                ..stop
            }
        })?;
        tally.add(booked);
        progress.inc(1);
    }
    Ok(())
}

fn report(args: &ImportArgs, mut tally: Tally) -> anyhow::Result<Exit> {
    tally.refused.sort();
    if args.json {
        say!("{}", serde_json::to_string(&tally)?)?;
    } else {
        for refused in &tally.refused {
            say!("{}:{}: {}", args.file.display(), refused.line, refused.text)?;
        }
        let Tally { imported, known, refunds, refused } = &tally;
        say!(
            "{imported} orders imported, {known} were there before, {refunds} refunds booked, {} refused",
            refused.len()
        )?;
    }
    Ok(if tally.refused.is_empty() { Exit::Ok } else { Exit::Refused })
}
