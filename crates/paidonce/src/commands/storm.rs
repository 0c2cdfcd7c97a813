//! `paidonce storm`.

use clap::Args;

use crate::exit::{Exit, Stop};

/// Arguments of `storm`.
#[derive(Debug, Args)]
pub struct StormArgs {}

/// Runs it.
#[expect(clippy::unused_async, reason = "a storm talks to a server")]
pub async fn run(_args: StormArgs) -> anyhow::Result<Exit> {
    Err(Stop::usage("the storm is not part of this build yet").into())
}
