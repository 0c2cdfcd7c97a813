//! `paidonce items`: what needs a person, and what a person can do about it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Call, Client, Remote};
use crate::commands::print;
use crate::exit::Exit;
use crate::table::Column;

const EXAMPLES: &str = "\
Examples:
  paidonce items list                       everything that waits for a person
  paidonce items list --kind surplus
  paidonce items adopt ITEM_NO --reason \"order was lost in the shop, goods are sent\"
  paidonce items refund ITEM_NO --reason \"paid twice\"";

/// Arguments of `items`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ItemsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ItemsCommand,
}

/// What to do with items.
#[derive(Debug, Subcommand)]
pub enum ItemsCommand {
    /// Show them, newest first.
    List(ListArgs),
    /// Close an item without moving money.
    Resolve(ActionArgs),
    /// Open the order of a parked payment with the payment's own terms.
    Adopt(ActionArgs),
    /// Ask for a surplus payment back.
    Refund(ActionArgs),
    /// Let a surplus payment settle its order.
    Accept(ActionArgs),
}

/// A filter.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// parked, surplus, flagged, stray, quarantined or stalled.
    #[arg(long)]
    pub kind: Option<String>,
    /// Closed ones too.
    #[arg(long)]
    pub all: bool,
    /// Continue behind this item.
    #[arg(long)]
    pub after: Option<String>,
    /// Rows at most.
    #[arg(long)]
    pub limit: Option<u32>,
    #[command(flatten)]
    remote: Remote,
}

/// An action of a named person.
#[derive(Debug, Args)]
pub struct ActionArgs {
    /// From `items list`.
    pub item_no: String,
    /// Why; stands in the log for good.
    #[arg(long)]
    pub reason: String,
    /// Who decides; otherwise the name of the token. The token's name is logged in any case.
    #[arg(long)]
    pub operator: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: &[Column] = &[
    Column::Text("item_no"),
    Column::Text("kind"),
    Column::Text("order_no"),
    Column::Text("detail"),
    Column::Text("state"),
    Column::Text("opened_at"),
];

/// Runs it.
pub async fn run(args: ItemsArgs) -> anyhow::Result<Exit> {
    match args.command {
        ItemsCommand::List(args) => list(args).await,
        ItemsCommand::Resolve(args) => act(&args, "resolve").await,
        ItemsCommand::Adopt(args) => act(&args, "adopt").await,
        ItemsCommand::Refund(args) => act(&args, "refund").await,
        ItemsCommand::Accept(args) => act(&args, "accept").await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    let call = Call::get(&["v1", "items"])
        .with("kind", args.kind)
        .with("state", args.all.then_some("all"))
        .with("after", args.after)
        .with("limit", args.limit);
    let page = Client::try_new(&args.remote)?.send(call).await?;
    print::page(&args.remote, &page, "items", COLUMNS)
}

async fn act(args: &ActionArgs, action: &str) -> anyhow::Result<Exit> {
    let path = ["v1", "items", &args.item_no, action];
    let mut body = json!({ "reason": args.reason });
    if let (Value::Object(body), Some(operator)) = (&mut body, &args.operator) {
        body.insert("operator".to_owned(), Value::String(operator.clone()));
    }
    let item = Client::try_new(&args.remote)?.send(Call::post(&path, body)).await?;
    print::one(&args.remote, &item, COLUMNS)
}
