//! `paidonce storm`: a hundred copies of many callbacks against a running ledger whose keys we have, and then the counts.
//!
//! The acceptance test of the design: for every order exactly one PAID, one `t_idempotent` row, one `t_order_flow` row, one
//! delivery to the warehouse. With `--replay` it plays callbacks saved from production onto a scratch ledger instead.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::Environment;
use crate::exit::{Exit, Stop};

pub mod checks;
pub mod evidence;
pub mod flood;
pub mod replay;
pub mod sql;
pub mod summary;

/// Arguments of `storm`.
#[derive(Debug, Args)]
pub struct StormArgs {
    /// Orders to open and pay, one half through each channel.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub orders: u32,
    /// Copies of each callback.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub copies: u32,
    /// Copies on the way at once.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub concurrency: u16,
    /// A server of the ledger; give it again for each further process. Default: `server.listen` of the configuration.
    #[arg(long, value_name = "URL")]
    pub server: Vec<String>,
    /// File with a token that has the scope operator; otherwise variable PAIDONCE_TOKEN has it.
    #[arg(long, env = "PAIDONCE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Folder with the platforms' private keys, as `demo --keep` writes it.
    #[arg(long, value_name = "DIR", required_unless_present = "replay")]
    pub platform_keys: Option<PathBuf>,
    /// Count the rows in this PostgreSQL too, not only through the API.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Where the storm's own subscriber listens; the servers must reach it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub warehouse_listen: SocketAddr,
    /// Play exported evidence onto a scratch ledger, each message verified at the time it was signed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["orders", "platform_keys", "warehouse_listen"])]
    pub replay: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Runs it. `Exit::Ok` only if every count holds.
pub async fn run(args: StormArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let summary = match &args.replay {
        Some(evidence) => {
            // Old messages are only believed by a clock that is turned back, and that clock must not be a real ledger's.
            if !args.server.is_empty() || args.database_url.is_some() {
                let text = "--replay plays only onto a scratch ledger that it starts itself: leave out --server and --database-url";
                return Err(Stop::usage(text).into());
            }
            replay::run(&args, evidence, file, env).await?
        }
        None => flood::run(&args, file, env).await?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", summary.to_text());
    }
    Ok(if summary.holds { Exit::Ok } else { Exit::Failed })
}
