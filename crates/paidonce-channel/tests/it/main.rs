//! The channel crate from outside: signed vectors, the platforms' gotchas, corruption byte by byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "test binary"
)]

mod vectors;
