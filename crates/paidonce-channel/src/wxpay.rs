//! WeChat Pay API v3: notifications (protocol facts A1, A2).
//!
//! Reading order: [`account`] (who we are and the keys), `headers` (what is signed), `notification` (verify, open, read).

pub mod account;
mod notification;

pub use account::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
pub use notification::WxpayReceiver;
