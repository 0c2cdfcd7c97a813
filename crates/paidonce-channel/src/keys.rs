//! Keys: read once at configuration time, never shown afterwards.
//!
//! Public keys are parsed to their native form here, so that one verification costs one RSA operation and no parsing.
//! Nothing in this module has a `Debug` that shows key material.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256,
    RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::timestamp::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::{DecodePem, Encode};
use x509_cert::time::Time;

/// One thing that is wrong with an account's configuration, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigProblem {
    /// The field, in the words of the configuration file (`apiv3_key`, `platform_keys[1].certificate`, ...).
    pub field: String,
    /// What is wrong and what would be right. Never contains a secret.
    pub problem: String,
}

impl ConfigProblem {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// A secret text from the configuration. `Debug` shows nothing of it; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps it.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret: only where it is used.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(hidden)")
    }
}

/// How an RSA signature is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RsaHash {
    /// WeChat `WECHATPAY2-SHA256-RSA2048`, Alipay `RSA2`.
    Sha256,
    /// Alipay `RSA`: only when the configuration asks for it.
    Sha1,
}

impl RsaHash {
    fn algorithm(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Sha1 => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        }
    }
}

/// A platform's public key, parsed, bound to one algorithm. RSA PKCS#1 v1.5, 2048 to 8192 bits.
#[derive(Clone)]
pub(crate) struct RsaPublicKey(ParsedPublicKey);

impl RsaPublicKey {
    pub(crate) fn from_spki_der(der: &[u8], hash: RsaHash) -> Result<Self, String> {
        ParsedPublicKey::new(hash.algorithm(), der)
            .map(Self)
            .map_err(|_| "is not an RSA public key of at least 2048 bits (SPKI)".to_owned())
    }

    /// `true` only for a signature of these bytes by this key.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.0.verify_sig(message, signature).is_ok()
    }
}

impl fmt::Debug for RsaPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaPublicKey")
    }
}

/// Our own private key, which signs what we ask. It never leaves this type.
#[derive(Clone)]
pub(crate) struct RsaPrivateKey(Arc<RsaKeyPair>);

impl RsaPrivateKey {
    /// PKCS#8 or PKCS#1, as PEM or as the bare base64 of either. Errors: a sentence without key material.
    pub(crate) fn from_text(text: &SecretText) -> Result<Self, String> {
        const WANTED: &str = "is not an RSA private key of at least 2048 bits (PEM \"PRIVATE KEY\" or \"RSA PRIVATE KEY\", not encrypted)";
        let text = text.expose().trim();
        if text.is_empty() {
            return Err("is empty: give our own private key".to_owned());
        }
        if text.contains("PUBLIC KEY-----") || text.contains("-----BEGIN CERTIFICATE-----") {
            return Err("is a public key or a certificate: our own private key is wanted".to_owned());
        }
        let inside = ["PRIVATE KEY", "RSA PRIVATE KEY"].iter().find_map(|label| {
            let (header, footer) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
            let (_, rest) = text.split_once(header.as_str())?;
            rest.split_once(footer.as_str()).map(|(inside, _)| inside)
        });
        let compact: String = inside.unwrap_or(text).chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let der = BASE64.decode(compact).map_err(|_| WANTED.to_owned())?;
        let pair =
            RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| WANTED.to_owned())?;
        Ok(Self(Arc::new(pair)))
    }

    /// PKCS#1 v1.5 with SHA-256, as standard base64. `None` only when the library has no memory or entropy left.
    pub(crate) fn sign_sha256(&self, message: &[u8]) -> Option<String> {
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, &aws_lc_rs::rand::SystemRandom::new(), message, &mut signature).ok()?;
        Some(BASE64.encode(signature))
    }
}

impl fmt::Debug for RsaPrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RsaPrivateKey(hidden)")
    }
}

/// A base URL, without slashes at its end.
pub(crate) fn check_api_url(text: &str, problems: &mut Vec<ConfigProblem>) -> String {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let plain = rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'"' | b'\\' | b'@'));
    if rest.is_empty() || rest.starts_with('/') || !plain {
        let problem = format!("{text:?} is not an http(s) URL without query: leave it out for the platform's own");
        problems.push(ConfigProblem::new("api_url", problem));
    }
    text.trim_end_matches('/').to_owned()
}

/// From when to when a certificate is valid, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Validity {
    pub(crate) fn contains(self, now: Timestamp) -> bool {
        (self.from..=self.to).contains(&now)
    }

    /// What both allow.
    pub(crate) fn overlap(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    /// What a person should know: `None` when all is well for the next 30 days.
    pub(crate) fn problem(self, now: Timestamp) -> Option<String> {
        const SOON_MICROS: i64 = 30 * 24 * 3600 * 1_000_000;
        if now > self.to {
            Some(format!("expired at {}: replace it", self.to))
        } else if now < self.from {
            Some(format!("is not valid before {}: check the clock of this host", self.from))
        } else if now.plus_micros(SOON_MICROS) > self.to {
            Some(format!("expires at {}: add its successor beside it", self.to))
        } else {
            None
        }
    }
}

/// The bytes of a PEM `PUBLIC KEY`, or of bare base64 as the Alipay console shows it (line breaks allowed).
pub(crate) fn spki_from_text(text: &str) -> Result<Vec<u8>, String> {
    const HEADER: &str = "-----BEGIN PUBLIC KEY-----";
    const FOOTER: &str = "-----END PUBLIC KEY-----";
    let text = text.trim();
    if text.contains("PRIVATE KEY") {
        return Err("is a private key: the platform's public key is wanted".to_owned());
    }
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return Err("is a certificate: give it as a certificate, not as a public key".to_owned());
    }
    let base64_text = match text.strip_prefix(HEADER) {
        Some(rest) => rest
            .trim_end()
            .strip_suffix(FOOTER)
            .ok_or_else(|| format!("has no line {FOOTER:?}: copy the whole file"))?,
        None => text,
    };
    let compact: String = base64_text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if compact.is_empty() {
        return Err("is empty: paste the platform's public key".to_owned());
    }
    BASE64.decode(compact).map_err(|_| format!("is neither PEM ({HEADER}) nor base64"))
}

/// What we need of an X.509 certificate.
pub(crate) struct CertificateParts {
    /// Big-endian serial number as upper-case hex without leading zeros.
    pub(crate) serial: String,
    /// The public key, DER.
    pub(crate) spki: Vec<u8>,
    /// notBefore to notAfter.
    pub(crate) validity: Validity,
}

/// Reads the first certificate of a PEM text.
pub(crate) fn certificate_from_pem(text: &str) -> Result<CertificateParts, String> {
    const FOOTER: &str = "-----END CERTIFICATE-----";
    let not_a_certificate = || "is not a PEM certificate (-----BEGIN CERTIFICATE-----)".to_owned();
    let begin = text.find("-----BEGIN CERTIFICATE-----").ok_or_else(not_a_certificate)?;
    let rest = text.get(begin..).ok_or_else(not_a_certificate)?;
    let end = rest.find(FOOTER).ok_or_else(not_a_certificate)?;
    let first = rest.get(..end + FOOTER.len()).ok_or_else(not_a_certificate)?;
    let certificate = Certificate::from_pem(first.as_bytes()).map_err(|_| not_a_certificate())?;
    let validity = validity(&certificate);
    let body = certificate.tbs_certificate;
    let spki = body.subject_public_key_info.to_der().map_err(|_| not_a_certificate())?;
    let serial = normal_serial(&hex::encode(body.serial_number.as_bytes())).ok_or_else(not_a_certificate)?;
    Ok(CertificateParts { serial, spki, validity })
}

/// notBefore to notAfter.
pub(crate) fn validity(certificate: &Certificate) -> Validity {
    let dates = certificate.tbs_certificate.validity;
    Validity { from: timestamp(dates.not_before), to: timestamp(dates.not_after) }
}

fn timestamp(time: Time) -> Timestamp {
    let micros = i64::try_from(time.to_unix_duration().as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(micros)
}

/// A hexadecimal serial as a number: upper case, no leading zeros, so that `0a5d`, `A5D` and `0A5D` are equal.
/// `None` when it is not hexadecimal or longer than an X.509 serial can be (20 bytes, with room for leading zeros).
pub(crate) fn normal_serial(text: &str) -> Option<String> {
    const DIGITS_MAX: usize = 64;
    if text.is_empty() || text.len() > DIGITS_MAX || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { digits.to_ascii_uppercase() })
}

/// An APIv3 key, ready to open resources. It never leaves this type.
#[derive(Clone)]
pub(crate) struct Apiv3Key(Arc<LessSafeKey>);

impl Apiv3Key {
    /// Exactly 32 ASCII bytes; the text is the key (neither hex nor base64).
    pub(crate) fn try_new(text: &SecretText) -> Result<Self, String> {
        let bytes = text.expose().as_bytes();
        if bytes.len() != 32 {
            return Err(format!(
                "has {} bytes, an APIv3 key has exactly 32: copy it from the merchant platform (API security)",
                bytes.len()
            ));
        }
        let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| "is not usable as an AES-256 key".to_owned())?;
        Ok(Self(Arc::new(LessSafeKey::new(key))))
    }

    /// Opens AES-256-GCM: `None` when key, nonce, associated data or ciphertext do not fit together.
    pub(crate) fn open(&self, nonce: [u8; NONCE_LEN], associated_data: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain_len = self.0.open_in_place(nonce, Aad::from(associated_data), &mut buffer).ok()?.len();
        buffer.truncate(plain_len);
        Some(buffer)
    }
}

impl fmt::Debug for Apiv3Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Apiv3Key(hidden)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_compared_as_a_number() {
        for text in ["0A5DFF77", "0a5dff77", "A5DFF77", "000a5DfF77"] {
            assert_eq!(normal_serial(text).as_deref(), Some("A5DFF77"), "{text}");
        }
        assert_eq!(normal_serial("0000").as_deref(), Some("0"));
        for text in ["", "PUB_KEY_ID_01", "0x1F", " 1F", "1F:2A"] {
            assert_eq!(normal_serial(text), None, "{text}");
        }
        assert_eq!(normal_serial(&"1".repeat(65)), None);
    }

    #[test]
    fn a_key_of_another_length_is_refused_and_the_reason_does_not_repeat_it() {
        for text in ["", "short", "0123456789abcdefghijklmnopqrstuvw", "一二三四五六七八九十"] {
            let problem = Apiv3Key::try_new(&SecretText::from(text)).unwrap_err();
            assert!(problem.contains("exactly 32"), "{problem}");
            assert!(text.is_empty() || !problem.contains(text));
        }
    }

    #[test]
    fn secrets_do_not_show_in_debug() {
        let secret = SecretText::from("0123456789abcdefghijklmnopqrstuv");
        let key = Apiv3Key::try_new(&secret).unwrap();
        let shown = format!("{secret:?} {key:?}");
        assert!(!shown.contains("0123"), "{shown}");
    }
}
