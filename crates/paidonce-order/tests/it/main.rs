//! The rules of the order, from outside: one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "a failing test may panic, and tests are not an API"
)]

mod adapter;
mod cells;
mod combine;
mod events;
mod ids;
mod keys;
mod money;
mod parked;
mod policy;
mod properties;
mod refunds;
mod rows;
mod strays;
mod support;
mod surplus;
