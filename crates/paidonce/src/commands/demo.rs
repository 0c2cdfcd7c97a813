//! `paidonce demo`: the whole program in one table, on a temporary ledger with test keys.
//!
//! | step | where |
//! |---|---|
//! | test keys, a configuration file, a folder for it | [`stage`] |
//! | the server, in this process, as `serve` starts it | [`crate::running`] |
//! | a subscriber that checks signatures and counts | [`warehouse`] |
//! | what the platforms tell, and what must come of it | [`acts`], [`platform`] |
//! | a hundred copies, twenty at a time | [`sender`] |
//! | a payment that nobody tells of, at the sandbox | [`lost`] |
//! | what the tables say, before and after | [`play`], [`ledger`] |
//! | the table | [`report`] |

use std::sync::Arc;

use clap::Args;
use paidonce_store::Migrations;

use crate::config::{Config, Environment};
use crate::exit::Exit;
use crate::ledger::OpenPlan;
use crate::running::Running;
use crate::shutdown::Signals;

pub mod acts;
pub mod ledger;
pub mod lost;
pub mod platform;
pub mod play;
pub mod report;
pub mod sender;
pub mod stage;
pub mod warehouse;

use acts::Script;
use ledger::Ledger;
use play::Theatre;
use report::Report;
use sender::{Pace, Sender};
use stage::Stage;
use warehouse::Warehouse;

/// A platform sends again what got no final answer (503, or none within five seconds); so does the demo, on a machine that
/// is busy with something else.
const RESENDS_MAX: u32 = 5;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Run on this PostgreSQL instead of a temporary SQLite ledger (postgres://user@host/name; its tables are made).
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Leave the server running afterwards, and say where it is, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
    /// Copies of each callback.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub copies: u16,
    /// Copies on the way at once.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub concurrency: u16,
}

/// Runs it. `Exit::Ok` only if every line of the table holds.
pub async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let stage = Stage::build(args.database_url.as_deref()).await?;
    // The process's own variables must not turn the demo towards a real database.
    let config = Config::load(Some(&stage.config_file), &Environment::of(&[]))?;
    let running = Running::start(&config, OpenPlan::durable(Migrations::Apply)).await?;
    let report = match play_all(&args, &stage).await {
        Ok(report) => report,
        Err(error) => {
            running.stop().await;
            return Err(error);
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.to_table());
    }
    if args.keep {
        eprintln!("{}", stage.directions());
        Signals::catch()?.next().await;
    }
    running.stop().await;
    if args.keep {
        stage.forget();
    }
    Ok(if report.holds { Exit::Ok } else { Exit::Failed })
}

async fn play_all(args: &DemoArgs, stage: &Stage) -> anyhow::Result<Report> {
    let platforms = Arc::clone(&stage.platforms);
    let ledger = Ledger::new(&stage.server(), stage.token.clone())?;
    let warehouse = Warehouse::start(stage.warehouse_listen(), stage.warehouse_secrets()?).await?;
    let subscriber = serde_json::json!({
        "events": ["PaymentConfirmed", "RefundConfirmed"],
        "url": warehouse.url(),
        "secret_ref": stage::SECRET_NAME,
    });
    ledger.put_subscriber(&stage.subscriber, subscriber).await?;
    let theatre = Theatre {
        sender: Sender::new(vec![stage.server()], Arc::clone(&platforms))?,
        ledger: ledger.clone(),
        warehouse: warehouse.clone(),
        sandbox: Arc::clone(&stage.sandbox),
        platforms: Arc::clone(&platforms),
        copies: usize::from(args.copies),
        pace: Pace { concurrency: usize::from(args.concurrency), resends_max: RESENDS_MAX },
    };
    let mut played = Vec::new();
    for act in Script::new(&stage.run).acts()? {
        played.push(theatre.play(act).await?);
    }
    let lines = theatre.judge(played).await?;
    let log_events = ledger.read_log().await?;
    if !args.keep {
        ledger.delete_subscriber(&stage.subscriber).await?;
    }
    let (warehouse_refused, warehouse_repeats) = (warehouse.refused(), warehouse.repeats());
    let holds = lines.iter().all(|line| line.holds) && warehouse_refused == 0 && warehouse_repeats == 0;
    let database = if args.database_url.is_some() { "PostgreSQL" } else { "SQLite" };
    let concurrency = theatre.pace.concurrency;
    Ok(Report { database, concurrency, lines, log_events, warehouse_refused, warehouse_repeats, holds })
}
