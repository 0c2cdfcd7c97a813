//! Test harness.

pub mod postgres;
