//! The use cases that ask a platform, over a ledger in memory and a platform that answers as a script says. Its answers are
//! signed with test keys and read by the real channel adapters, so nothing here is believed that a platform did not sign.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::panic,
    clippy::too_many_arguments,
    clippy::disallowed_methods,
    missing_docs,
    dead_code,
    reason = "a test may fail loudly, and the signers are shared with other tests"
)]

mod close;
mod combine;
mod harness;
mod platform;
mod poll;
mod query;
mod refund;
mod share;
mod surplus;

#[path = "../../../../tests/support/keys.rs"]
mod keys;
#[path = "../../../../tests/support/signer.rs"]
mod signer;
