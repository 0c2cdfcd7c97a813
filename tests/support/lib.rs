//! The harness of all outside tests: it starts the whole program as a real process, plays the platforms and the
//! warehouse, and at the end accuses (see [`accuse`]).
//!
//! | module | plays |
//! |---|---|
//! | [`keys`], [`signer`] | WeChat Pay and Alipay, with code that shares nothing with `paidonce-channel` |
//! | [`platform_stub`] | the platforms' APIs: answers as prepared, checks and records every request |
//! | [`forward`] | an address that outlives the server behind it |
//! | [`wire`] | an HTTP client that can also misbehave |
//! | [`warehouse`] | the subscriber that gets business effects |
//! | [`database`] | the ledger's database, read by SQL |
//! | [`config`], [`process`], [`app`] | the server under test |
//! | [`accuse`], [`chain`] | what must hold at the end of every test |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    reason = "a test harness: a failure here is a failed test, with its reason"
)]

pub mod accuse;
pub mod app;
pub mod chain;
pub mod config;
pub mod database;
pub mod forward;
pub mod keys;
pub mod ledger;
pub mod platform_stub;
pub mod postgres;
pub mod process;
pub mod signer;
pub mod warehouse;
pub mod wire;
