//! All outside tests in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "tests: a failure here is a failed test, with its reason"
)]

mod architecture;
mod cases;
mod postgres_starter;
