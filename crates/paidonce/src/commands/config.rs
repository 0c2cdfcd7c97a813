//! `paidonce config check`: every problem of the configuration, its keys and its secrets, without starting anything.

use std::path::Path;

use clap::Subcommand;
use paidonce_app::Clock;
use paidonce_http::Money;

use crate::commands::print::say;
use crate::config::{Config, Environment};
use crate::exit::Exit;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read it, with all key and secret files, and print everything that is wrong, each with its line.
    #[command(after_help = "Example:\n  paidonce config check --config paidonce.toml")]
    Check,
}

/// Runs it. Errors: [`crate::config::Problems`].
pub fn run(command: &ConfigCommand, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    match command {
        ConfigCommand::Check => check(file, env),
    }
}

fn check(file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let config = Config::load(file, env)?;
    for warning in &config.warnings {
        say!("warning: {}", warning.text)?;
    }
    for (account, warning) in config.accounts.ours.key_warnings(Clock::default().now()) {
        say!("warning: {account}: {warning}")?;
    }
    if config.money == Money::Played {
        say!("warning: [sandbox] is enabled: the platforms are played, no money of this ledger is real")?;
    }
    for (account, keys) in &config.accounts.summary {
        say!("{account}: {keys}")?;
    }
    let (tokens, subscribers) = (config.tokens.len(), config.subscribers.len());
    let file =
        config.file.as_deref().map_or_else(|| "defaults and variables".to_owned(), |file| file.display().to_string());
    say!("{file}: no problem found; listen {}, {tokens} tokens, {subscribers} subscribers", config.listen)?;
    Ok(Exit::Ok)
}
