//! The trust boundary: raw bytes of a platform in, verified channel-neutral facts out.
//!
//! Promise: no IO, no clock, no configuration files; keys and `now` are passed in. Only the verifiers of this crate can
//! build a [`Verified`]. Nothing channel-specific leaves this crate but in the evidence.
//!
//! What is verified but not booked says why in a code:
//!
//! | code | of | what it is, and what a person does |
//! |---|---|---|
//! | `unknown_type` | stray | another product, or a word that we don't know: read it, then resolve |
//! | `missing_field`, `unusable_amount`, `unusable_number`, `unusable_time`, `unknown_charset` | stray | we can't book it: query the platform |
//! | `undecryptable` | stray, refused | the APIv3 key does not fit: correct it, the resend is booked |
//! | `broken_resource` | stray, refused | nothing to open: tell the platform |
//! | `foreign_sub_order` | stray | part of a combine payment that is not ours: resolve |
//! | `share_received`, `refund_depositback` | stray | money between others, or the bank's part: read, then resolve |
//! | `share_failed` | stray of a notice, flag of an answer | the receiver got nothing, the money stays with us: read the reason |
//! | `trade_state_disagrees`, `refund_status_disagrees`, `attempt_failed` | flag | event and content say different things, or an attempt failed: query |
//! | `closed_without_refund`, `refund_without_amount` | flag | paid, then closed, and no word of the money: query trade and refunds |
//!
//! Asking is [`api`]: pure too. It builds signed requests and reads answers into the same facts; who sends them is not
//! known here. What an error code means stands in `wxpay/api/codes.rs` and `alipay/api/codes.rs`, what follows from it for
//! each question in `answer`.
//!
//! What a platform lists at the end of a day is [`bill`]: a reader is passed in, typed rows come out.
//!
//! Reading order: [`observation`] (what comes out), [`channel`] (the trait of listening), [`api`] (the trait of asking),
//! [`accounts`] (the directory that gives a path its receiver), [`keys`], [`bill`], `wxpay/`, `alipay/`.

pub mod accounts;
pub mod alipay;
mod answer;
pub mod api;
pub mod bill;
pub mod channel;
mod digest;
mod evidence;
mod json;
pub mod keys;
pub mod observation;
mod reading;
pub mod wxpay;

pub use accounts::OurAccounts;
pub use channel::{Acknowledgement, ChannelReceiver, RawNotification, VerifyError};
pub use evidence::{evidence_digest, operator_statement};
pub use keys::{ConfigProblem, SecretText};
pub use observation::{Evidence, Fact, Notice, Observation, Source, StrayNotice, Verified, VerifyErrorAfterRecording};
pub use reading::{payment_fact, refund_fact};
