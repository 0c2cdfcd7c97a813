//! What use cases need from the outside and the binary wires in.

use std::time::Duration;

use async_trait::async_trait;
use paidonce_channel::api::{ApiAnswer, ApiCall};
use paidonce_order::ids::{AccountRef, Channel};
use paidonce_store::store::ClaimedEffect;
use serde::Serialize;

/// Drives the effect relay by hand (test builds only: `POST /testing/relay`). Implemented by the worker.
#[async_trait]
pub trait RelayDriver: Send + Sync {
    /// Runs the relay until nothing is due, at most `rounds_max` rounds. Errors: one sentence for the tester.
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String>;
}

/// What the relays did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayReport {
    /// Deliveries that the receiver took.
    pub delivered: u64,
    /// Deliveries that will be tried again.
    pub retried: u64,
    /// Deliveries given up.
    pub dead: u64,
    /// Channel-call effects that are done.
    pub calls_done: u64,
    /// Channel-call effects that come up again later.
    pub calls_again: u64,
}

impl RelayReport {
    /// What was done after `before`, of counters that only grow.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            delivered: self.delivered.saturating_sub(before.delivered),
            retried: self.retried.saturating_sub(before.retried),
            dead: self.dead.saturating_sub(before.dead),
            calls_done: self.calls_done.saturating_sub(before.calls_done),
            calls_again: self.calls_again.saturating_sub(before.calls_again),
        }
    }

    /// What two relays did together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            delivered: self.delivered.saturating_add(other.delivered),
            retried: self.retried.saturating_add(other.retried),
            dead: self.dead.saturating_add(other.dead),
            calls_done: self.calls_done.saturating_add(other.calls_done),
            calls_again: self.calls_again.saturating_add(other.calls_again),
        }
    }
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

/// Carries out the effects that mean a call to a platform (`paidonce_store::store::CHANNEL_KINDS`). Implemented by the use
/// cases; the worker claims, calls this, and reports what comes next.
#[async_trait]
pub trait ChannelEffects: Send + Sync {
    /// One try. Guarantees: may be dropped in the middle or run again after a crash; the next try asks before it acts.
    async fn run_channel_effect(&self, claimed: &ClaimedEffect) -> EffectStep;
}

/// What follows a try of a channel-call effect. Such an effect is never given up: it ends on a final answer, or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectStep {
    /// Nothing is left to do.
    Done,
    /// Not final yet.
    Again {
        /// When to try again, from now on.
        after: Duration,
        /// What is waited for, or what a person has to do; for a person's eye.
        why: String,
    },
}

/// Counts calls. Implemented by the metrics.
pub trait CallObserver: Send + Sync {
    /// A call has its answer, or was not made.
    fn observe(&self, call: &CallSeen);
}

/// A call, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSeen {
    /// Platform.
    pub channel: Channel,
    /// What was asked: `payment`, `payment_by_trade_no`, `combine_payment`, `refund_state`, `refund`, `close`, `share`,
    /// `certificates`.
    pub api: &'static str,
    /// `final`, `refused_wait`, `refused_person`, or the code of a doubt (`timeout`, `bad_signature`, ...).
    pub outcome: &'static str,
    /// From the moment the call may be made to its answer; waiting for its turn does not count.
    pub took: Duration,
}
