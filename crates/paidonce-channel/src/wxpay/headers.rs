//! The signature headers, and the check of the raw bytes (facts A1.2, A1.4, A1.5).
//!
//! Nothing of the body is parsed here. The key is chosen by `Wechatpay-Serial` alone; no other key is ever tried.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use crate::channel::VerifyError;
use crate::reading::cut;

const TIMESTAMP: &str = "Wechatpay-Timestamp";
const NONCE: &str = "Wechatpay-Nonce";
const SIGNATURE: &str = "Wechatpay-Signature";
const SERIAL: &str = "Wechatpay-Serial";
const SIGNATURE_TYPE: &str = "Wechatpay-Signature-Type";
const REQUEST_ID: &str = "Request-ID";

/// The only signature type that we verify; also what an absent header means.
const RSA_SHA256: &str = "WECHATPAY2-SHA256-RSA2048";

/// A deliberately wrong signature that WeChat Pay sends now and then: it must be refused.
const PROBE_PREFIX: &str = "WECHATPAY/SIGNTEST/";

/// Freshness window, exclusive: a difference of exactly this much is refused.
const FRESH_MICROS: i64 = 300 * 1_000_000;

/// Longest header value that is read, in bytes: an RSA-8192 signature has 1368 in base64.
const HEADER_BYTES_MAX: usize = 2048;

/// The signature headers as received: present once, printable ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignatureHeaders<'a> {
    timestamp: &'a str,
    nonce: &'a str,
    signature: &'a str,
    serial: &'a str,
    signature_type: Option<&'a str>,
    request_id: Option<&'a str>,
}

impl<'a> SignatureHeaders<'a> {
    /// Errors: a probe, a header that is missing, there twice or unreadable, another signature type.
    pub(super) fn read(headers: &'a [(String, Vec<u8>)]) -> Result<Self, VerifyError> {
        let signature = needed(headers, SIGNATURE, "a base64 signature")?;
        if signature.starts_with(PROBE_PREFIX) {
            return Err(VerifyError::Probe);
        }
        let signature_type = find(headers, SIGNATURE_TYPE)?;
        if let Some(found) = signature_type.filter(|found| *found != RSA_SHA256) {
            let found = cut(found);
            return Err(VerifyError::AlgorithmNotAllowed { field: SIGNATURE_TYPE, found, allowed: RSA_SHA256 });
        }
        Ok(Self {
            timestamp: needed(headers, TIMESTAMP, "unix seconds")?,
            nonce: needed(headers, NONCE, "random text")?,
            signature,
            serial: needed(headers, SERIAL, "a certificate serial or PUB_KEY_ID_...")?,
            signature_type,
            // Only a support reference: an odd one is not a reason to refuse.
            request_id: find(headers, REQUEST_ID).ok().flatten(),
        })
    }

    /// Checks key, freshness and signature, in this order. Gives the id of the key that verified the bytes.
    pub(super) fn verify(&self, account: &WxpayAccount, body: &[u8], now: Timestamp) -> Result<String, VerifyError> {
        let unknown = || VerifyError::UnknownSerial { serial: cut(self.serial) };
        let (key_id, key) = account.platform_key(self.serial, now).ok_or_else(unknown)?;
        self.check_fresh(now)?;
        let malformed = |_| VerifyError::Malformed { field: SIGNATURE, hint: "standard base64 with padding" };
        let signature = BASE64.decode(self.signature).map_err(malformed)?;
        if key.verifies(&self.message(body), &signature) {
            Ok(key_id.to_owned())
        } else {
            Err(VerifyError::BadSignature { key_id: key_id.to_owned() })
        }
    }

    /// `timestamp LF nonce LF body LF`: three lines, each with its end, the last one too and also when the body is empty.
    fn message(&self, body: &[u8]) -> Vec<u8> {
        [self.timestamp.as_bytes(), b"\n", self.nonce.as_bytes(), b"\n", body, b"\n"].concat()
    }

    fn check_fresh(&self, now: Timestamp) -> Result<(), VerifyError> {
        const DIGITS_MAX: usize = 11;
        let malformed = VerifyError::Malformed { field: TIMESTAMP, hint: "unix seconds, decimal digits only" };
        let digits = self.timestamp.len() <= DIGITS_MAX && self.timestamp.bytes().all(|b| b.is_ascii_digit());
        let seconds: i64 = self.timestamp.parse().ok().filter(|_| digits).ok_or(malformed)?;
        let off_by_micros = now.as_micros().saturating_sub(seconds.saturating_mul(1_000_000));
        if off_by_micros.saturating_abs() >= FRESH_MICROS {
            return Err(VerifyError::Stale { off_by_seconds: now.as_seconds().saturating_sub(seconds) });
        }
        Ok(())
    }

    /// What must be kept beside the body, so that the signature can be checked again.
    pub(super) fn evidence(&self) -> Vec<(String, String)> {
        let needed = [
            (TIMESTAMP, Some(self.timestamp)),
            (NONCE, Some(self.nonce)),
            (SIGNATURE, Some(self.signature)),
            (SERIAL, Some(self.serial)),
            (SIGNATURE_TYPE, self.signature_type),
            (REQUEST_ID, self.request_id),
        ];
        let pair = |(name, value): (&str, Option<&str>)| Some((name.to_ascii_lowercase(), value?.to_owned()));
        needed.into_iter().filter_map(pair).collect()
    }
}

fn needed<'a>(
    headers: &'a [(String, Vec<u8>)],
    name: &'static str,
    hint: &'static str,
) -> Result<&'a str, VerifyError> {
    find(headers, name)?.filter(|value| !value.is_empty()).ok_or(VerifyError::Malformed { field: name, hint })
}

fn find<'a>(headers: &'a [(String, Vec<u8>)], name: &'static str) -> Result<Option<&'a str>, VerifyError> {
    let mut values = headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(VerifyError::Malformed { field: name, hint: "exactly one such header" });
    }
    let printable = value.len() <= HEADER_BYTES_MAX && value.iter().all(|b| (0x20..0x7f).contains(b));
    let text = std::str::from_utf8(value).ok().filter(|_| printable);
    text.map(Some).ok_or(VerifyError::Malformed { field: name, hint: "printable ASCII" })
}
