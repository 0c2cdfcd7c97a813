//! Alipay (domestic OpenAPI): notifications (protocol facts B1, B2).
//!
//! Reading order: [`account`] (who we are and the keys), `form` (what is signed), `notification` (verify, read).

pub mod account;
mod notification;

pub use account::{AlipayAccount, AlipayAccountConfig, AlipayAppConfig, AlipayKeyConfig, SignType};
pub use notification::AlipayReceiver;
