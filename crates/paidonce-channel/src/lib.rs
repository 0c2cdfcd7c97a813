//! The trust boundary: raw bytes of a platform in, verified channel-neutral facts out.
//!
//! Promise: no IO, no clock, no configuration files; keys and `now` are passed in. Only the verifiers of this crate can
//! build a [`Verified`]. Nothing channel-specific leaves this crate but in the evidence.
//!
//! Reading order: [`observation`] (what comes out), [`channel`] (the one trait), [`accounts`] (the directory that gives a
//! path its receiver), [`keys`], `wxpay/`, `alipay/`.

pub mod accounts;
pub mod alipay;
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
pub use evidence::operator_statement;
pub use keys::{ConfigProblem, SecretText};
pub use observation::{Evidence, Fact, Notice, Observation, Source, StrayNotice, Verified, VerifyErrorAfterRecording};
pub use reading::{payment_fact, refund_fact};
