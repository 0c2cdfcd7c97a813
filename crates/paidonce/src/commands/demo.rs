//! `paidonce demo`.

use clap::Args;

use crate::exit::{Exit, Stop};

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {}

/// Runs it.
#[expect(clippy::unused_async, reason = "the demo talks to a server")]
pub async fn run(_args: DemoArgs) -> anyhow::Result<Exit> {
    Err(Stop::usage("the demo is not part of this build yet").into())
}
