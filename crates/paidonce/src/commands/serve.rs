//! `paidonce serve`: runs the ledger until SIGTERM or SIGINT; SIGHUP reads keys, tokens and secrets again.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use paidonce_store::Migrations;

use crate::config::{Config, DatabaseUrl, Environment};
use crate::exit::Exit;
use crate::ledger::OpenPlan;
use crate::running::Running;
use crate::shutdown::{Request, Signals};

const EXAMPLES: &str = "\
Prints one line when it is ready: listening on http://127.0.0.1:8080
SIGTERM and SIGINT: finish what was accepted, then end. SIGHUP: read keys, tokens and secrets again.

Examples:
  paidonce serve                                     on ./paidonce-data, with ./paidonce.toml if it is there
  paidonce serve --config paidonce.toml --port 0     on a free port
  DATABASE_URL=postgres://.. paidonce serve --migrate";

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Listen here instead of where the configuration says.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Another port at the same address; 0 picks a free one.
    #[arg(long)]
    pub port: Option<u16>,
    /// Bring a PostgreSQL schema up to date first (the embedded database always is).
    #[arg(long)]
    pub migrate: bool,
}

/// Runs it. Errors: configuration, database, address.
pub async fn run(args: ServeArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let mut signals = Signals::catch()?;
    let mut config = Config::load(file, env)?;
    config.listen = args.listen.unwrap_or(config.listen);
    config.listen.set_port(args.port.unwrap_or(config.listen.port()));
    warn(&config);
    let embedded = config.database.url == DatabaseUrl::Sqlite;
    let migrations = if embedded || args.migrate { Migrations::Apply } else { Migrations::Require };
    let mut running = Running::start(&config, OpenPlan::durable(migrations)).await?;
    announce(&running)?;
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            error = running.ended() => return Err(error),
        };
        match request {
            Request::Reload => reload(&running, file, env),
            Request::Stop => break,
        }
    }
    tracing::info!("stopping: no new connections, what was accepted is finished");
    let stopping = running.stop();
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            () = &mut stopping => break,
            request = signals.next() => if request == Request::Stop {
                tracing::warn!("stopped at once by a second signal: what was not acknowledged will be sent again");
                return Ok(Exit::Failed);
            },
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Ok)
}

/// The one line that scripts wait for.
fn announce(running: &Running) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {}", running.url())?;
    out.flush()?;
    Ok(())
}

fn warn(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{}", warning.text);
    }
    if config.accounts.summary.is_empty() {
        tracing::warn!("no account is configured: every callback is refused (see paidonce.example.toml)");
    }
    if config.tokens.is_empty() {
        tracing::warn!("no token is configured: nobody can open orders (see [[tokens]] in paidonce.example.toml)");
    }
    if !config.listen.ip().is_loopback() {
        tracing::warn!(listen = %config.listen, "listening beyond this host without TLS: put a TLS proxy in front");
    }
    if cfg!(feature = "testing") {
        tracing::warn!("TEST BUILD: anyone can move its clock and make it fail. Never run it with real money.");
    }
}

/// A configuration with problems changes nothing.
fn reload(running: &Running, file: Option<&Path>, env: &Environment) {
    match Config::load(file, env) {
        Ok(config) => {
            running.reload(&config);
            let (accounts, tokens) = (config.accounts.summary.len(), config.tokens.len());
            tracing::info!(accounts, tokens, "keys, tokens and secrets were read again");
        }
        Err(problems) => tracing::error!("the old keys stay in force, because {problems}"),
    }
}
