//! After the commit: business effects leave the ledger, with its own retries.
//!
//! Promise (P7): a committed effect is sent until its receiver took it, or it is dead and a person was told; a crash between
//! any two steps sends again and never loses. Receivers see the same `webhook-id` on every try.
//!
//! Reading order: [`sign`].

pub mod sign;
