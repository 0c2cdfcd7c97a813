//! What use cases need from the outside and the binary wires in.

use async_trait::async_trait;
use paidonce_channel::api::{ApiAnswer, ApiCall};
use paidonce_order::ids::AccountRef;
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

/// Calls the platforms. Implemented by the worker (HTTP), wired by the binary.
///
/// Guarantees: never more calls per second and account than configured; an answer is judged by the account's keys of now.
#[async_trait]
pub trait ChannelClient: Send + Sync {
    /// Whether this account has what it takes to ask (our private key).
    fn can_ask(&self, account: &AccountRef) -> bool;

    /// Makes one call and reads its answer. Every failure of transport is [`ApiAnswer::Unknown`].
    async fn ask(&self, account: &AccountRef, call: &ApiCall) -> ApiAnswer;

    /// Fetches the platform's certificates once for all who ask at the same time, and not again within the minimum
    /// interval; puts what was learned beside the configured keys.
    async fn refresh_keys(&self, account: &AccountRef) -> KeyRefresh;
}

/// What a refresh of the platform keys did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRefresh {
    /// At least one key is new: verify again.
    Learned,
    /// Nothing new, or asked too recently.
    Nothing,
    /// The platform could not be asked, or this account can't ask.
    Failed(String),
}
