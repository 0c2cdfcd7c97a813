//! The one trait of a channel, and the words of its refusals.

use paidonce_order::ids::{AccountRef, Channel};
use paidonce_order::timestamp::Timestamp;

use crate::observation::{Notice, Verified};

/// Largest body that is read, in bytes. Real notifications have a few kilobytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// What arrived: nothing in here is trusted.
#[derive(Debug, Clone, Copy)]
pub struct RawNotification<'a> {
    /// All headers as received; names are compared case-insensitively.
    pub headers: &'a [(String, Vec<u8>)],
    /// Exact body bytes.
    pub body: &'a [u8],
    /// Our clock.
    pub now: Timestamp,
}

/// Receives the notifications of one configured account (the path chose it, and so its keys; never the order).
pub trait ChannelReceiver: Send + Sync {
    /// The account of the path.
    fn account(&self) -> &AccountRef;

    /// Verifies the raw bytes, then reads them.
    ///
    /// Errors: [`VerifyError`], and then nothing may be written (the one exception is carried inside [`Notice`]).
    fn receive(&self, raw: RawNotification<'_>) -> Result<Verified<Notice>, VerifyError>;
}

/// Why a message is refused. `code()` names the metric; the text is for the log and the FAIL body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A needed header or field is missing or unreadable.
    #[error("{field} is missing or malformed: {hint}")]
    Malformed {
        /// Header or field, in the platform's words.
        field: &'static str,
        /// What it should look like.
        hint: &'static str,
    },
    /// `WECHATPAY/SIGNTEST/`: a probe; expected, refused, counted apart.
    #[error("signature probe refused, as WeChat Pay expects")]
    Probe,
    /// The signature does not fit the bytes and the key.
    #[error("the signature does not verify with key {key_id}")]
    BadSignature {
        /// Which key was tried.
        key_id: String,
    },
    /// No key of that name.
    #[error("no key with the serial {serial:?} is configured: add the platform certificate or public key")]
    UnknownSerial {
        /// As received, cut.
        serial: String,
    },
    /// Outside the freshness window.
    #[error(
        "Wechatpay-Timestamp is {off_by_seconds} s away from our clock, the limit is 300 s (exclusive): check the clock of this host"
    )]
    Stale {
        /// Signed difference, now - timestamp.
        off_by_seconds: i64,
    },
    /// The algorithm offered is not the configured one.
    #[error("{field} is {found:?}, only {allowed} is accepted")]
    AlgorithmNotAllowed {
        /// Header or field.
        field: &'static str,
        /// As received, cut.
        found: String,
        /// What is accepted.
        allowed: &'static str,
    },
    /// Signature good, account not ours.
    #[error("{field} {found:?} is not one of ours: check the account's configuration or who sent this")]
    NotOurs {
        /// mchid, appid, app_id, seller_id, ...
        field: &'static str,
        /// As received, cut.
        found: String,
    },
    /// Signature good, not JSON / not a form, or duplicate keys.
    #[error("the signed content is unreadable: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
}

impl VerifyError {
    /// Stable word for metrics and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed",
            Self::Probe => "probe",
            Self::BadSignature { .. } => "bad_signature",
            Self::UnknownSerial { .. } => "unknown_serial",
            Self::Stale { .. } => "stale",
            Self::AlgorithmNotAllowed { .. } => "algorithm_not_allowed",
            Self::NotOurs { .. } => "not_ours",
            Self::Unreadable { .. } => "unreadable",
        }
    }

    /// HTTP status of the refusal (DESIGN section 5): 401, 403 or 400.
    #[must_use]
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::Malformed { .. }
            | Self::Probe
            | Self::BadSignature { .. }
            | Self::UnknownSerial { .. }
            | Self::Stale { .. }
            | Self::AlgorithmNotAllowed { .. } => 401,
            Self::NotOurs { .. } => 403,
            Self::Unreadable { .. } => 400,
        }
    }
}

/// What the platform is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Exact status.
    pub status: u16,
    /// Media type, when there is a body.
    pub content_type: Option<&'static str>,
    /// Exact body bytes.
    pub body: Vec<u8>,
}

/// The success answer: 204 without a body for WeChat, exactly `success` for Alipay.
#[must_use]
pub fn acknowledge(channel: Channel) -> Acknowledgement {
    match channel {
        Channel::Wxpay => Acknowledgement { status: 204, content_type: None, body: Vec::new() },
        Channel::Alipay => Acknowledgement { status: 200, content_type: Some("text/plain"), body: b"success".to_vec() },
    }
}

/// A refusal: FAIL JSON for WeChat, `fail` for Alipay, never a 2xx.
#[must_use]
pub fn refuse(channel: Channel, status: u16, message: &str) -> Acknowledgement {
    let status = if status >= 400 { status } else { 500 };
    match channel {
        Channel::Wxpay => {
            let body = serde_json::json!({ "code": "FAIL", "message": message }).to_string();
            Acknowledgement { status, content_type: Some("application/json"), body: body.into_bytes() }
        }
        Channel::Alipay => Acknowledgement { status, content_type: Some("text/plain"), body: b"fail".to_vec() },
    }
}
