//! The trust boundary: raw bytes of a platform in, verified channel-neutral facts out.
//!
//! Promise: no IO, no clock, no configuration files; keys and `now` are passed in. Only the verifiers of this crate can
//! build a [`Verified`]. Nothing channel-specific leaves this crate but in the evidence.
//!
//! Reading order: [`observation`] (what comes out), [`channel`] (the one trait), `wxpay/`, `alipay/`.

pub mod channel;
pub mod observation;

pub use channel::{Acknowledgement, ChannelReceiver, RawNotification, VerifyError};
pub use observation::{Evidence, Fact, Notice, Observation, Source, StrayNotice, Verified};
