//! A subcommand a file.

use crate::cli::{Cli, Command};
use crate::config::Environment;
use crate::exit::Exit;

pub mod audit;
pub mod bench;
pub mod config;
pub mod copy;
pub mod demo;
pub mod effects;
pub mod import;
pub mod items;
pub mod migrate;
pub mod order;
mod print;
pub mod reconcile;
pub mod sandbox;
pub mod serve;
pub mod storm;
pub mod subscribers;

/// Runs one command. Errors: anything that is no result; [`crate::exit::of_error`] tells its exit code.
pub async fn run(cli: Cli, env: &Environment) -> anyhow::Result<Exit> {
    let file = cli.config.as_deref();
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Storm(args) => storm::run(args, file, env).await,
        Command::Sandbox(args) => sandbox::run(args).await,
        Command::Serve(args) => serve::run(args, file, env).await,
        Command::Migrate(args) => migrate::run(args, file, env).await,
        Command::Order(args) => order::run(args).await,
        Command::Items(args) => items::run(args).await,
        Command::Effects(args) => effects::run(args).await,
        Command::Subscribers(args) => subscribers::run(args).await,
        Command::Import(args) => import::run(args, file, env).await,
        Command::Copy(args) => copy::run(args, file, env).await,
        Command::Audit(args) => audit::run(args, file, env).await,
        Command::Reconcile(args) => reconcile::run(args, file, env).await,
        Command::Bench(args) => bench::run(args, file, env).await,
        Command::Config(command) => config::run(&command, file, env),
    }
}
