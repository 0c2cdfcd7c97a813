//! Alipay (domestic OpenAPI): notifications (protocol facts B1, B2).
//!
//! | step | module | refusal |
//! |---|---|---|
//! | split and decode the form once, find the key by app_id, check the signature over the decoded bytes | `form`, `notification` | 401 |
//! | whose is it | `notification` | 403 |
//! | read a trade notice | `trade` | kept as strays |
//! | read an application-gateway message | `gateway` | 400, or kept as strays |

pub mod account;
mod api;
pub(crate) mod bill;
mod cert_sn;
mod chain;
mod form;
mod gateway;
mod notification;
mod trade;
mod value;

pub(crate) use api::AlipayApi;

pub use account::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayApiCerts, AlipayAppApiConfig, AlipayAppConfig,
    AlipayKeyConfig, SignType,
};
pub use notification::AlipayReceiver;
