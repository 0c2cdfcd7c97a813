//! `paidonce audit`: what finance and auditors ask.

use clap::{Args, Subcommand};

use crate::exit::Exit;

pub mod explain;

const EXAMPLES: &str = "\
Examples:
  paidonce audit explain A-1001           why is this order paid?
  paidonce audit explain A-1001 --json";

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
}

/// Runs it.
pub async fn run(args: AuditArgs) -> anyhow::Result<Exit> {
    match args.command {
        AuditCommand::Explain(args) => explain::run(args).await,
    }
}
