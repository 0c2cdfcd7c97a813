//! `paidonce audit`: what finance and auditors ask.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::config::Environment;
use crate::exit::Exit;

pub use database::Database;
pub use progress::Bar;

mod database;
mod days;
pub mod explain;
pub mod export;
mod progress;
pub mod replay;
pub mod seal;
pub mod verify;

const EXAMPLES: &str = "\
Examples:
  paidonce audit explain A-1001           why is this order paid?
  paidonce audit replay                   is every live row what the log says?
  paidonce audit verify                   has anybody changed the log, and did the platforms really say that?";

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// What to ask.
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// The timeline of an order: what came, what was decided, what followed.
    Explain(explain::ExplainArgs),
    /// Fold the log again and compare it with the live tables, row by row.
    Replay(replay::ReplayArgs),
    /// Write the books: every movement of money as a double entry.
    Export(export::ExportArgs),
    /// Sign a statement of where the log ends, to be kept outside of it.
    Seal(seal::SealArgs),
    /// Follow the hash chain, and hold every movement of money against what the platform signed.
    Verify(verify::VerifyArgs),
}

/// Runs it.
pub async fn run(args: AuditArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        AuditCommand::Explain(args) => explain::run(args).await,
        AuditCommand::Replay(args) => replay::run(args, file, env).await,
        AuditCommand::Export(args) => export::run(args, file, env).await,
        AuditCommand::Seal(args) => seal::run(args, file, env).await,
        AuditCommand::Verify(args) => verify::run(args, file, env).await,
    }
}
