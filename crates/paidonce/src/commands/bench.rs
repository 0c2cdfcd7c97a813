//! `paidonce bench`: what it takes to measure a ledger.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::config::Environment;
use crate::exit::Exit;

pub mod seed;

const EXAMPLES: &str = "\
Examples:
  paidonce bench seed --orders 1000000 --data-dir ./scratch
  time paidonce audit replay --data-dir ./scratch";

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Fill a new, empty ledger with made-up orders.
    Seed(seed::SeedArgs),
}

/// Runs it.
pub async fn run(args: BenchArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        BenchCommand::Seed(args) => seed::run(args, file, env).await,
    }
}
