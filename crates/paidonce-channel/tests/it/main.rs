//! The channel crate from outside: signed vectors, the platforms' gotchas, odd content, corruption byte by byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "test binary"
)]

mod accounts;
mod api_answers_alipay;
mod api_answers_wxpay;
mod api_codes;
mod api_requests;
mod api_signer;
mod bills;
mod bills_bad;
mod corruption;
mod gotchas_alipay;
mod gotchas_wxpay;
mod odd_content;
mod shares;
mod signer;
mod vectors;
mod vectors_api;
