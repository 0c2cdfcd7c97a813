//! The command line. What each command does stands in `commands/`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{commands, telemetry};

const AFTER_HELP: &str = "\
Exit codes: 0 done and all checks hold; 1 a check did not hold or something failed; 2 command line, configuration or input
file; 3 the ledger can't be reached; 4 the ledger refused by its rules.

Examples:
  paidonce demo                                  see what it does, on a temporary ledger
  paidonce config check --config paidonce.toml   find every problem of a configuration
  paidonce serve --config paidonce.toml          run it";

const DEMO_EXAMPLES: &str = "\
Examples:
  paidonce demo
  paidonce demo --keep                              look around afterwards
  paidonce demo --database-url postgres://user@host/name --json";

const STORM_EXAMPLES: &str = "\
Examples (the ledger and its keys from `paidonce demo --keep`, which prints where they are):
  paidonce storm --config FOLDER/paidonce.toml --platform-keys FOLDER --token-file FOLDER/operator.token
  paidonce storm --orders 200 --copies 100 --concurrency 20 ..
  paidonce storm --config paidonce.toml --replay evidence.jsonl";

/// An event-sourced payment ledger: a callback arrives a hundred times and the books move once.
#[derive(Debug, Parser)]
#[command(name = "paidonce", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// Configuration file; otherwise PAIDONCE_CONFIG, or ./paidonce.toml if it is there, or none.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the ledger.
    Serve(commands::serve::ServeArgs),
    /// See what it does: a temporary ledger, test keys, and every kind of callback a hundred times.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(commands::demo::DemoArgs),
    /// Send storms of repeated callbacks to a running ledger and check that everything happened once.
    #[command(after_help = STORM_EXAMPLES)]
    Storm(commands::storm::StormArgs),
    /// Play WeChat Pay and Alipay on this machine, with test keys, for a ledger under development.
    Sandbox(commands::sandbox::SandboxArgs),
    /// Bring the schema of the database up to date.
    Migrate(commands::migrate::MigrateArgs),
    /// Open, look at and close orders of a running ledger.
    Order(commands::order::OrderArgs),
    /// What needs a person, and what a person can do about it.
    Items(commands::items::ItemsArgs),
    /// Deliveries to subscribers and calls to the platforms: list, send again, discard.
    Effects(commands::effects::EffectsArgs),
    /// Who is told of events.
    Subscribers(commands::subscribers::SubscribersArgs),
    /// Bring in orders that were paid before go-live.
    Import(commands::import::ImportArgs),
    /// Move the whole ledger from the embedded database to PostgreSQL.
    Copy(commands::copy::CopyArgs),
    /// Prove the books: explain an order, replay, verify, seal and export the log.
    Audit(commands::audit::AuditArgs),
    /// Hold a platform's trade bill against the ledger.
    Reconcile(commands::reconcile::ReconcileArgs),
    /// Fill a scratch ledger, to measure on.
    Bench(commands::bench::BenchArgs),
    /// Inspect the configuration.
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
}

impl Command {
    /// What is logged when nobody says otherwise.
    #[must_use]
    pub const fn log_filter(&self) -> &'static str {
        match self {
            Self::Demo(_) | Self::Storm(_) => telemetry::TABLE_FILTER,
            Self::Serve(_)
            | Self::Sandbox(_)
            | Self::Migrate(_)
            | Self::Order(_)
            | Self::Items(_)
            | Self::Effects(_)
            | Self::Subscribers(_)
            | Self::Import(_)
            | Self::Copy(_)
            | Self::Audit(_)
            | Self::Reconcile(_)
            | Self::Bench(_)
            | Self::Config(_) => telemetry::SERVICE_FILTER,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_command_shows_an_example() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let of_a_group = command.get_subcommands().any(|sub| sub.get_after_help().is_some());
            assert!(help.contains("xample") || of_a_group, "{} has no example:\n{help}", command.get_name());
        }
    }
}
