//! WeChat Pay API v3: notifications (protocol facts A1, A2).
//!
//! | step | module | refusal |
//! |---|---|---|
//! | read the signature headers, find the key, check time and signature over the raw bytes | `headers` | 401 |
//! | read the envelope, open the resource | `envelope` | 400, or kept and refused |
//! | whose is it | `ownership` | 403 |
//! | read the plaintext: payment, combine payment, refund, share | `payment`, `combine`, `refund`, `share` | kept as strays |

pub mod account;
mod api;
pub(crate) mod bill;
mod combine;
mod envelope;
mod headers;
mod notification;
mod ownership;
mod payment;
mod plaintext;
mod refund;
mod share;

pub(crate) use api::WxpayApi;

pub use account::{MerchantMode, PlatformKeyConfig, WXPAY_API_URL, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
pub use notification::WxpayReceiver;
