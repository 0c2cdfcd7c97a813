//! The whole program: configuration, wiring, subcommands. No business rules, no SQL.
//!
//! Reading order: [`cli`] (what can be asked), [`config`] (what can be told), [`ledger`] and [`running`] (what is wired), the
//! [`commands`] (a subcommand a file) with [`client`] and [`table`], [`exit`] (what a script sees), [`telemetry`],
//! [`shutdown`], [`open_files`], [`sealing`].

use std::process::ExitCode;

use clap::Parser as _;

pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod exit;
pub mod ledger;
pub mod open_files;
pub mod running;
pub mod sealing;
pub mod shutdown;
pub mod table;
pub mod telemetry;

use config::Environment;
use exit::Exit;

/// Runs the command line of this process and gives its exit code.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let shown = error.print();
            let asked_for = !error.use_stderr() && shown.is_ok();
            return if asked_for { Exit::Ok.into() } else { Exit::Usage.into() };
        }
    };
    let env = Environment::of_process();
    if let Err(problem) = telemetry::start(&env, cli.command.log_filter()) {
        eprintln!("error: {problem}");
        return Exit::Usage.into();
    }
    match run_to_end(cli, &env) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit::of_error(&error).into()
        }
    }
}

fn run_to_end(cli: cli::Cli, env: &Environment) -> anyhow::Result<Exit> {
    // Before anything makes a TLS connection: two providers in one program are an error at run time.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.install_default().is_err() {
        anyhow::bail!("another TLS provider was installed first");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(commands::run(cli, env));
    // What still runs is a connection to a receiver at most; nothing of the ledger waits on it.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    exit
}
