//! What use cases need from the outside and the binary wires in.

use async_trait::async_trait;
use serde::Serialize;

/// Drives the effect relay by hand (test builds only: `POST /testing/relay`). Implemented by the worker.
#[async_trait]
pub trait RelayDriver: Send + Sync {
    /// Runs the relay until nothing is due, at most `rounds_max` rounds. Errors: one sentence for the tester.
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String>;
}

/// What the relay did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayReport {
    /// Effects that the receiver took.
    pub delivered: u64,
    /// Effects that will be tried again.
    pub retried: u64,
    /// Effects given up.
    pub dead: u64,
}
