//! `paidonce effects`: deliveries and channel calls, and what a person can do about dead ones.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::client::{Call, Client, Remote};
use crate::commands::print;
use crate::exit::Exit;
use crate::table::Column;

const EXAMPLES: &str = "\
Examples:
  paidonce effects list --state dead        what was given up, with the receiver's last answer
  paidonce effects requeue EFFECT_ID        send it again, from the first try
  paidonce effects discard EFFECT_ID        give it up; what waits behind it goes on";

/// Arguments of `effects`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct EffectsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: EffectsCommand,
}

/// What to do with effects.
#[derive(Debug, Subcommand)]
pub enum EffectsCommand {
    /// Show them, oldest first.
    List(ListArgs),
    /// Send a dead one again.
    Requeue(OneArgs),
    /// Give a dead or waiting one up.
    Discard(OneArgs),
}

/// A filter.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// pending, leased, delivered, dead or discarded.
    #[arg(long)]
    pub state: Option<String>,
    /// Of this order.
    #[arg(long)]
    pub order_no: Option<String>,
    /// Continue behind this effect.
    #[arg(long)]
    pub after: Option<String>,
    /// Rows at most.
    #[arg(long)]
    pub limit: Option<u32>,
    #[command(flatten)]
    remote: Remote,
}

/// One effect.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// From `effects list`.
    pub effect_id: String,
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: &[Column] = &[
    Column::Text("effect_id"),
    Column::Text("order_no"),
    Column::Text("subscriber"),
    Column::Text("kind"),
    Column::Text("state"),
    Column::Text("attempts"),
    Column::Text("due_at"),
    Column::Text("last_error"),
];

/// Runs it.
pub async fn run(args: EffectsArgs) -> anyhow::Result<Exit> {
    match args.command {
        EffectsCommand::List(args) => list(args).await,
        EffectsCommand::Requeue(args) => act(&args, "requeue").await,
        EffectsCommand::Discard(args) => act(&args, "discard").await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    let call = Call::get(&["v1", "effects"])
        .with("state", args.state)
        .with("order_no", args.order_no)
        .with("after", args.after)
        .with("limit", args.limit);
    let page = Client::try_new(&args.remote)?.send(call).await?;
    print::page(&args.remote, &page, "effects", COLUMNS)
}

async fn act(args: &OneArgs, action: &str) -> anyhow::Result<Exit> {
    let path = ["v1", "effects", &args.effect_id, action];
    let done = Client::try_new(&args.remote)?.send(Call::post(&path, json!({}))).await?;
    print::one(&args.remote, &done, &[Column::Text("effect_id"), Column::Text("state")])
}
