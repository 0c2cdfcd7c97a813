//! Standard Webhooks signatures.
//!
//! | header | value |
//! |---|---|
//! | `webhook-id` | the event's id, the same for every try: the receiver's idempotency key |
//! | `webhook-timestamp` | seconds since 1970 of this try |
//! | `webhook-signature` | `v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")>`, one per secret, separated by a space |
//!
//! Source: the Standard Webhooks specification 1.0.0.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Standard Webhooks asks for 24 to 64 bytes; shorter ones are refused because they can be guessed, the upper bound is
/// kept so that a whole file given by mistake is noticed.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A text that is no signing secret. Never shows the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Not base64 after `whsec_`.
    #[error("a signing secret is whsec_ followed by base64 (printf 'whsec_%s' \"$(openssl rand -base64 32)\")")]
    NotBase64,
    /// Too short or too long.
    #[error("a signing secret has 24 to 64 bytes, this one has {bytes}")]
    Length {
        /// Decoded bytes.
        bytes: usize,
    },
}

/// A symmetric signing secret, ready for use. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct SigningSecret(hmac::Key);

impl SigningSecret {
    /// Reads `whsec_<base64>`. Errors: [`SecretError`].
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.trim().strip_prefix("whsec_").ok_or(SecretError::NotBase64)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SecretError::NotBase64)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(SecretError::Length { bytes: bytes.len() });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    fn sign(&self, message: &[u8]) -> String {
        format!("v1,{}", STANDARD.encode(hmac::sign(&self.0, message).as_ref()))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

/// The value of `webhook-signature`: one signature per secret, so that a receiver may hold either during a rotation.
#[must_use]
pub fn signature(secrets: &[SigningSecret], webhook_id: &str, timestamp_seconds: i64, body: &[u8]) -> String {
    let mut message = format!("{webhook_id}.{timestamp_seconds}.").into_bytes();
    message.extend_from_slice(body);
    secrets.iter().map(|secret| secret.sign(&message)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks documentation and its reference libraries.
    const EXAMPLE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_published_example_gives_the_published_signature() {
        let secret = SigningSecret::parse(EXAMPLE_SECRET).unwrap();
        let found = signature(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(found, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn during_a_rotation_both_secrets_sign() {
        let (new, old) = (format!("whsec_{}", STANDARD.encode([7_u8; 32])), EXAMPLE_SECRET);
        let secrets = [SigningSecret::parse(&new).unwrap(), SigningSecret::parse(old).unwrap()];
        let both = signature(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        let parts: Vec<_> = both.split(' ').collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts.last(), Some(&"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn a_secret_that_can_be_guessed_or_is_not_base64_is_refused_without_showing_it() {
        assert_eq!(SigningSecret::parse("whsec_c2hvcnQ=").unwrap_err(), SecretError::Length { bytes: 5 });
        assert_eq!(SigningSecret::parse("plainly not").unwrap_err(), SecretError::NotBase64);
        assert_eq!(format!("{:?}", SigningSecret::parse(EXAMPLE_SECRET).unwrap()), "SigningSecret(..)");
    }
}
