//! `[channel_calls]`, `[surplus]`, `[sandbox]`: how the platforms are asked, and what becomes of money that settles nothing.

use std::ops::RangeInclusive;

use paidonce_http::Money;
use paidonce_order::policy::{SurplusAction, SurplusPolicy};

use super::section::Section;

/// How the platforms are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelCallsConfig {
    /// Per account and node.
    pub calls_per_second: u32,
    /// Of a whole call.
    pub request_timeout_seconds: u16,
    /// An answer about a payment is given to whoever asks the same again within this time.
    pub fresh_seconds: u16,
    /// Pauses of the poll of an unpaid order; the last one repeats.
    pub poll_seconds: Vec<u64>,
    /// Pauses between the questions about a refund that is not final; the last one repeats.
    pub refund_follow_seconds: Vec<u64>,
    /// The platform's certificates are fetched at most this often.
    pub key_refresh_min_seconds: u16,
}

impl Default for ChannelCallsConfig {
    fn default() -> Self {
        Self {
            calls_per_second: 20,
            request_timeout_seconds: 10,
            fresh_seconds: 3,
            poll_seconds: vec![15, 30, 60, 300, 1800, 3600],
            refund_follow_seconds: vec![10, 30, 60, 300, 1800, 3600],
            key_refresh_min_seconds: 60,
        }
    }
}

/// What becomes of payments that settle nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurplusConfig {
    /// The action for each reason.
    pub policy: SurplusPolicy,
    /// How long a surplus payment waits before it is decided.
    pub delay_seconds: u32,
    /// Automatic refunds of an account within an hour; above it surplus payments are held.
    pub refunds_per_hour_max: u32,
    /// Their sum, minor units.
    pub minor_per_hour_max: i64,
}

impl Default for SurplusConfig {
    fn default() -> Self {
        Self {
            policy: SurplusPolicy::default(),
            delay_seconds: 600,
            refunds_per_hour_max: 50,
            minor_per_hour_max: 1_000_000,
        }
    }
}

/// Far above what a platform takes from one account.
const CALLS_PER_SECOND: RangeInclusive<i64> = 1..=1_000;
/// A try of an effect makes several calls one after the other, and is cut after 90 s.
const REQUEST_TIMEOUT_SECONDS: RangeInclusive<i64> = 1..=30;
/// Longer, and a payer who has just paid is told that he has not.
const FRESH_SECONDS: RangeInclusive<i64> = 0..=300;
const KEY_REFRESH_MIN_SECONDS: RangeInclusive<i64> = 10..=3_600;
/// Between two questions about one order. Longer than a day, and an order would expire before it is asked.
const PAUSE_SECONDS: RangeInclusive<i64> = 1..=86_400;
const PAUSES_MAX: usize = 30;
/// A month: refunds of a platform end some day.
const DELAY_SECONDS: RangeInclusive<i64> = 0..=2_592_000;
const REFUNDS_PER_HOUR: RangeInclusive<i64> = 0..=100_000;
const MINOR_PER_HOUR: RangeInclusive<i64> = 0..=1_000_000_000_000;

pub(super) fn read_calls(section: &Section<'_>) -> ChannelCallsConfig {
    let default = ChannelCallsConfig::default();
    let small = |key, allowed| section.integer(key, allowed).and_then(|number| u16::try_from(number).ok());
    let calls = section.integer("calls_per_second", CALLS_PER_SECOND).and_then(|number| u32::try_from(number).ok());
    let config = ChannelCallsConfig {
        calls_per_second: calls.unwrap_or(default.calls_per_second),
        request_timeout_seconds: small("request_timeout_seconds", REQUEST_TIMEOUT_SECONDS)
            .unwrap_or(default.request_timeout_seconds),
        fresh_seconds: small("fresh_seconds", FRESH_SECONDS).unwrap_or(default.fresh_seconds),
        poll_seconds: read_pauses(section, "poll_seconds").unwrap_or(default.poll_seconds),
        refund_follow_seconds: read_pauses(section, "refund_follow_seconds").unwrap_or(default.refund_follow_seconds),
        key_refresh_min_seconds: small("key_refresh_min_seconds", KEY_REFRESH_MIN_SECONDS)
            .unwrap_or(default.key_refresh_min_seconds),
    };
    section.finish();
    config
}

/// `None` when absent, or when it was complained about.
fn read_pauses(section: &Section<'_>, key: &str) -> Option<Vec<u64>> {
    let given = section.integers(key, &PAUSE_SECONDS)?;
    if given.is_empty() || given.len() > PAUSES_MAX {
        section.problem(section.line_of_key(key), format!("{} needs 1 to {PAUSES_MAX} pauses", section.name(key)));
        return None;
    }
    Some(given.into_iter().filter_map(|seconds| u64::try_from(seconds).ok()).collect())
}

pub(super) fn read_surplus(section: &Section<'_>) -> SurplusConfig {
    let default = SurplusConfig::default();
    let action = |key, otherwise| read_action(section, key).unwrap_or(otherwise);
    let policy = SurplusPolicy {
        second_payment: action("second_payment", default.policy.second_payment),
        after_close: action("after_close", default.policy.after_close),
        amount_mismatch: action("amount_mismatch", default.policy.amount_mismatch),
        other_account: action("other_account", default.policy.other_account),
    };
    let number = |key, allowed| section.integer(key, allowed).and_then(|number| u32::try_from(number).ok());
    let config = SurplusConfig {
        policy,
        delay_seconds: number("delay_seconds", DELAY_SECONDS).unwrap_or(default.delay_seconds),
        refunds_per_hour_max: number("refunds_per_hour_max", REFUNDS_PER_HOUR).unwrap_or(default.refunds_per_hour_max),
        minor_per_hour_max: section.integer("minor_per_hour_max", MINOR_PER_HOUR).unwrap_or(default.minor_per_hour_max),
    };
    section.finish();
    config
}

fn read_action(section: &Section<'_>, key: &str) -> Option<SurplusAction> {
    let found = section.string(key)?;
    match found.value.as_str() {
        "refund" => Some(SurplusAction::Refund),
        "hold" => Some(SurplusAction::Hold),
        "accept" => Some(SurplusAction::Accept),
        other => {
            let name = section.name(key);
            section.problem(found.line, format!("{name} must be refund, hold or accept, not {other:?}"));
            None
        }
    }
}

/// `paidonce sandbox` writes this table; nobody else should.
pub(super) fn read_sandbox(section: &Section<'_>) -> Money {
    let enabled = section.boolean("enabled").unwrap_or(false);
    section.finish();
    if enabled { Money::Played } else { Money::Real }
}
