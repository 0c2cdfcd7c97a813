//! `paidonce reconcile`: a platform's trade bill against the ledger.

use std::path::{Path, PathBuf};

use clap::Args;
use paidonce_app::reconcile::{ReconcileError, Reconciliation, bill_of, reconcile};
use paidonce_channel::bill::{BillError, BillHash, FEE_SCALE};
use paidonce_order::money::Currency;
use serde_json::{Value, json};

use crate::commands::audit::Database;
use crate::commands::print::say;
use crate::config::Environment;
use crate::exit::{Exit, Stop};
use crate::ledger;
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Examples:
  paidonce reconcile --account wxpay:1900000001 --day 2026-01-31 --file tradebill.csv.gz --hash HASH_VALUE
  paidonce reconcile --account alipay:2088000000000001 --day 2026-01-31 --file 20260131.zip --json

Takes WeChat Pay's trade bill (ALL, SUCCESS, REFUND; plain or gzip) and Alipay's business bill (zip, or its detail file) as they
were downloaded. Reads the ledger's database itself, beside a running server; books nothing. Exit code 0 if the bill and the
ledger agree, or differ only by what another day or a query explains; 1 if not; 2 if the bill is refused as a whole.";

/// Arguments of `reconcile`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReconcileArgs {
    /// Whose bill: wxpay:MCHID or alipay:SELLER_ID.
    #[arg(long)]
    pub account: String,
    /// The day of the bill, in Beijing.
    #[arg(long, value_name = "DAY")]
    pub day: String,
    /// The bill as it was downloaded.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// WeChat Pay's hash_value (SHA1 over the uncompressed file).
    #[arg(long, value_name = "HEX")]
    pub hash: Option<String>,
    #[command(flatten)]
    database: Database,
    /// Print the result as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

const DIFFERENCES: &[Column] = &[
    Column::Text("kind"),
    Column::Text("line"),
    Column::Text("order_no"),
    Column::Text("channel_trade_no"),
    Column::Text("refund_no"),
    Column::Money("bill_minor"),
    Column::Money("ledger_minor"),
    Column::Text("note"),
];

const SUMS: &[Column] =
    &[Column::Text("what"), Column::Text("bill"), Column::Text("count"), Column::Text("ledger"), Column::Text("rows")];

/// Runs it. Errors: the command line; a bill that is refused; the database.
pub async fn run(args: ReconcileArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let mut of = bill_of(&args.account, &args.day).map_err(Stop::usage)?;
    of.hash = args.hash.as_deref().map(|hash| BillHash::parse("SHA1", hash)).transpose().map_err(refused)?;
    let unreadable = |error| Stop::usage(format!("can't read the bill {}: {error}", args.file.display()));
    let bill = std::io::BufReader::new(std::fs::File::open(&args.file).map_err(unreadable)?);
    let source = args.database.open(file, env).await?;
    let report = reconcile(source, &of, bill).await.map_err(stop)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        show(&report)?;
    }
    Ok(if report.is_balanced { Exit::Ok } else { Exit::Failed })
}

fn refused(error: BillError) -> Stop {
    Stop::usage(format!("the bill is refused, nothing of it was used: {error}"))
}

fn stop(error: ReconcileError) -> Stop {
    match error {
        ReconcileError::Bill(error) => refused(error),
        ReconcileError::Store(error) => ledger::stop(error),
        ReconcileError::Internal(text) => Stop { exit: Exit::Failed, text },
    }
}

fn show(report: &Reconciliation) -> anyhow::Result<()> {
    let row = |what: &str, bill: paidonce_app::reconcile::Sum, ledger: paidonce_app::reconcile::Sum| {
        json!({
            "what": what, "bill": yuan(bill.amount_minor), "count": bill.count,
            "ledger": yuan(ledger.amount_minor), "rows": ledger.count,
        })
    };
    let sums = [
        row("payments", report.bill_payments, report.ledger_payments),
        row("refunds", report.bill_refunds, report.ledger_refunds),
    ];
    say!("{} on {} (Beijing)", report.account, report.day)?;
    say!("{}", table::rows(&sums, SUMS))?;
    say!("fees of the bill: {}", fee(report.bill_fee_e5))?;
    say!("{} rows agree", report.agreed)?;
    if report.differences_total > 0 {
        let rows: Vec<Value> =
            report.differences.iter().map(|it| serde_json::to_value(it).unwrap_or_default()).collect();
        say!("{}", table::rows(&rows, DIFFERENCES))?;
        say!("{} differences, {} shown", report.differences_total, report.differences.len())?;
    }
    say!("{}", if report.is_balanced { "BALANCED" } else { "NOT BALANCED: see the differences" })
}

fn yuan(minor: i128) -> String {
    paidonce_app::audit::postings::decimal(minor, Currency::CNY)
}

/// Fees have five decimals.
fn fee(e5: i128) -> String {
    let sign = if e5 < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", e5.unsigned_abs(), width = usize::from(FEE_SCALE).saturating_add(1));
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(usize::from(FEE_SCALE)));
    format!("{sign}{whole}.{fraction}")
}
