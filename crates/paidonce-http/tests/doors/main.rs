//! The doors from outside: a real server on a free port over a small ledger in memory that can be told to stumble.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::panic,
    clippy::too_many_arguments,
    clippy::fn_params_excessive_bools,
    clippy::disallowed_methods,
    missing_docs,
    dead_code,
    reason = "a test may fail loudly, and the signers are shared with other tests"
)]

mod access;
mod acknowledgements;
mod client;
mod documents;
mod harness;
mod idempotency;
mod key_refresh;
mod ledger;
mod orders;
mod problems;
#[cfg(feature = "testing")]
mod testing_doors;

#[path = "../../../../tests/support/keys.rs"]
mod keys;
#[path = "../../../../tests/support/signer.rs"]
mod signer;
