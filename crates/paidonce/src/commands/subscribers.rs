//! `paidonce subscribers`: who is told of events.

use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use crate::client::{Call, Client, Remote};
use crate::commands::print;
use crate::exit::Exit;
use crate::table::Column;

/// Reads the whole log in bounded steps: takes as long as the log is.
const BACKFILL_TIMEOUT: Duration = Duration::from_secs(6 * 3600);

const EXAMPLES: &str = "\
Examples:
  paidonce subscribers put warehouse --url http://127.0.0.1:9000/hook --secret-ref warehouse \\
      --event PaymentConfirmed --event RefundConfirmed
  paidonce subscribers backfill warehouse   tell it of everything that happened before
  paidonce subscribers remove warehouse";

/// Arguments of `subscribers`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SubscribersArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SubscribersCommand,
}

/// What to do with subscribers.
#[derive(Debug, Subcommand)]
pub enum SubscribersCommand {
    /// Show them.
    List(ListArgs),
    /// Add or change one; it hears of events from now on.
    Put(PutArgs),
    /// Remove one; what was not yet sent to it is discarded.
    Remove(OneArgs),
    /// Send it every matching event of the past that it was not told of.
    Backfill(OneArgs),
}

/// A list.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    remote: Remote,
}

/// One subscriber.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// Its name.
    pub name: String,
    #[command(flatten)]
    remote: Remote,
}

/// A new or changed subscriber.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Its name.
    pub name: String,
    /// Where to POST.
    #[arg(long)]
    pub url: String,
    /// Name of the secret in the secrets table of the server's configuration.
    #[arg(long)]
    pub secret_ref: String,
    /// An event type it hears of; repeat for more. Without any: all.
    #[arg(long = "event", default_values_t = vec!["*".to_owned()])]
    pub events: Vec<String>,
    /// Send nothing for now; events are kept for it.
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: &[Column] = &[
    Column::Text("name"),
    Column::Text("events"),
    Column::Text("url"),
    Column::Text("secret_ref"),
    Column::Text("paused"),
];

/// Runs it.
pub async fn run(args: SubscribersArgs) -> anyhow::Result<Exit> {
    match args.command {
        SubscribersCommand::List(args) => {
            let page = Client::try_new(&args.remote)?.send(Call::get(&["v1", "subscribers"])).await?;
            print::page(&args.remote, &page, "subscribers", COLUMNS)
        }
        SubscribersCommand::Put(args) => put(args).await,
        SubscribersCommand::Remove(args) => {
            let path = ["v1", "subscribers", &args.name];
            let call = Call { method: Method::DELETE, ..Call::get(&path) };
            let done = Client::try_new(&args.remote)?.send(call).await?;
            let done = if done.is_null() { json!({ "removed": args.name }) } else { done };
            print::one(&args.remote, &done, &[Column::Text("removed")])
        }
        SubscribersCommand::Backfill(args) => {
            let path = ["v1", "subscribers", &args.name, "backfill"];
            let call = Call { timeout: BACKFILL_TIMEOUT, ..Call::post(&path, json!({})) };
            let done = Client::try_new(&args.remote)?.send(call).await?;
            print::one(&args.remote, &done, &[Column::Text("name"), Column::Text("effects")])
        }
    }
}

async fn put(args: PutArgs) -> anyhow::Result<Exit> {
    let path = ["v1", "subscribers", &args.name];
    let body = json!({ "events": args.events, "url": args.url, "secret_ref": args.secret_ref, "paused": args.paused });
    let call = Call { method: Method::PUT, ..Call::post(&path, body) };
    let subscriber = Client::try_new(&args.remote)?.send(call).await?;
    print::one(&args.remote, &subscriber, COLUMNS)
}
