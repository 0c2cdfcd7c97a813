//! `paidonce audit replay`: the log folded again and compared with the live tables.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use paidonce_app::audit::as_of::AsOf;
use paidonce_app::audit::replay::{ReplayPlan, ReplayReport, replay};
use paidonce_order::ids::OrderNo;
use serde_json::{Value, json};

use super::database::{self, Database};
use super::days;
use super::progress::Bar;
use crate::commands::print::say;
use crate::config::Environment;
use crate::exit::{Exit, Stop};
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Examples:
  paidonce audit replay                                  is every live row what the log says?
  paidonce audit replay --as-of 2026-01-31               the money as it was recorded by the end of that day (Beijing)
  paidonce audit replay --from 2026-01-01 --to 2026-01-31 --json
  paidonce audit replay --order A-1001

Reads the database itself, beside a running server; changes nothing. Exit code 0 only if every event was read and every row
is equal; 1 if not. The sums are by business date: Beijing, by the channel's clock.";

/// Arguments of `audit replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Up to where: a day (the end of it in Beijing) or a time, by when the ledger recorded it.
    #[arg(long, value_name = "DAY|TIME")]
    pub as_of: Option<String>,
    /// First business date of the sums.
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Last business date of the sums.
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Only this order.
    #[arg(long, value_name = "ORDER_NO")]
    pub order: Option<String>,
    #[command(flatten)]
    database: Database,
    /// Print the report as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

const TOTALS: &[Column] = &[
    Column::Text("date"),
    Column::Text("channel"),
    Column::Text("account"),
    Column::Text("trade_type"),
    Column::Text("count"),
    Column::Money("amount_minor"),
];

const DIFFERENCES: &[Column] = &[
    Column::Text("order_no"),
    Column::Text("table"),
    Column::Text("key"),
    Column::Text("column"),
    Column::Text("live"),
    Column::Text("derived"),
];

/// Runs it. Errors: the command line; the database; a log with a hole.
pub async fn run(args: ReplayArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let plan = plan(&args)?;
    let source = args.database.open(file, env).await?;
    let bar = Arc::new(Bar::new("events"));
    let report = replay(source, &plan, bar.on_progress()).await;
    bar.finish();
    let report = report.map_err(database::stop)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        show(&report)?;
    }
    Ok(if report.is_proof() { Exit::Ok } else { Exit::Failed })
}

fn plan(args: &ReplayArgs) -> Result<ReplayPlan, Stop> {
    let as_of =
        args.as_of.as_deref().map(AsOf::parse).transpose().map_err(|error| Stop::usage(format!("--as-of {error}")))?;
    let days = days::read(args.from.as_deref(), args.to.as_deref())?;
    let order = args.order.as_deref().map(OrderNo::parse).transpose();
    let order = order.map_err(|error| Stop::usage(format!("--order: {error}")))?;
    Ok(ReplayPlan { as_of: as_of.unwrap_or_default(), days, order, ..ReplayPlan::default() })
}

fn show(report: &ReplayReport) -> anyhow::Result<()> {
    let totals: Vec<Value> = report.totals.iter().map(total).collect();
    say!("{}", table::rows(&totals, TOTALS))?;
    say!(
        "{}: {} of {} events, {} orders, {} strays; rows: {} flows, {} keys",
        report.as_of,
        report.events,
        report.events_expected,
        report.orders,
        report.strays,
        report.flows,
        report.keys
    )?;
    if !report.orders_compared {
        say!("t_order shows the present only: for a moment of the past, flows and keys were compared")?;
    }
    if report.differences_total > 0 {
        let rows: Vec<Value> =
            report.differences.iter().map(|it| serde_json::to_value(it).unwrap_or_default()).collect();
        say!("{}", table::rows(&rows, DIFFERENCES))?;
        let shown = report.differences.len();
        say!("{} differences, {shown} shown: the log is the truth, see the runbook", report.differences_total)?;
    }
    let verdict = match (report.is_equal, report.is_complete) {
        (true, true) => "EQUAL and COMPLETE: every live row is what the log says",
        (false, true) => "NOT EQUAL: live rows differ from the log",
        (_, false) => "INCOMPLETE: events are missing, so nothing is proven",
    };
    say!("{verdict}")
}

/// Sums that fit into 64 bits are shown as money; larger ones as they are.
fn total(total: &paidonce_app::audit::report::Total) -> Value {
    let mut row = serde_json::to_value(total).unwrap_or_default();
    if let (Some(row), Ok(minor)) = (row.as_object_mut(), total.amount_minor.parse::<i64>()) {
        row.insert("amount_minor".to_owned(), json!(minor));
    }
    row
}
