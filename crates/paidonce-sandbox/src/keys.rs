//! RSA test keys of both sides, and the certificates around some of them. Every key is made here and protects nothing.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// RFC 7468: lines of 64 characters.
const PEM_LINE_CHARS: usize = 64;

/// A key could not be made, read or used.
#[derive(Debug, thiserror::Error)]
#[error("test key: {0}")]
pub struct KeyError(pub &'static str);

/// A key pair: signs as its owner and checks what its owner signed. RSA 2048, PKCS#1 v1.5, SHA-256.
#[derive(Clone)]
pub struct Key {
    pair: Arc<RsaKeyPair>,
    spki: Arc<Vec<u8>>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A fresh one.
    pub fn generate() -> Result<Self, KeyError> {
        Self::of_pair(RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| KeyError("none could be made"))?)
    }

    /// Reads PKCS#8 in PEM.
    pub fn parse(pem: &str) -> Result<Self, KeyError> {
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(base64).map_err(|_| KeyError("not PEM"))?;
        Self::of_pair(RsaKeyPair::from_pkcs8(&der).map_err(|_| KeyError("not PKCS#8"))?)
    }

    fn of_pair(pair: RsaKeyPair) -> Result<Self, KeyError> {
        let spki: PublicKeyX509Der<'_> =
            pair.public_key().as_der().map_err(|_| KeyError("its public half can't be written"))?;
        let spki = Arc::new(spki.as_ref().to_vec());
        Ok(Self { pair: Arc::new(pair), spki })
    }

    /// The raw signature.
    pub fn sign_raw(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let mut signature = vec![0_u8; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .map_err(|_| KeyError("signing failed"))?;
        Ok(signature)
    }

    /// The signature in standard base64.
    pub fn sign(&self, message: &[u8]) -> Result<String, KeyError> {
        Ok(STANDARD.encode(self.sign_raw(message)?))
    }

    /// Whether this base64 is this key's signature of exactly these bytes.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature_base64: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature_base64) else { return false };
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.pair.public_key().as_ref());
        key.verify(message, &signature).is_ok()
    }

    /// PKCS#8 in PEM.
    pub fn private_pem(&self) -> Result<String, KeyError> {
        let der: Pkcs8V1Der<'_> = self.pair.as_der().map_err(|_| KeyError("it can't be written"))?;
        Ok(pem("PRIVATE KEY", der.as_ref()))
    }

    /// SubjectPublicKeyInfo in PEM.
    #[must_use]
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &self.spki)
    }

    /// SubjectPublicKeyInfo in bare base64, as the Alipay console shows a key.
    #[must_use]
    pub fn public_base64(&self) -> String {
        STANDARD.encode(self.spki.as_slice())
    }

    /// SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }
}

/// PEM around DER.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % PEM_LINE_CHARS == 0 {
            out.push('\n');
        }
        out.push(character);
    }
    out.push_str(&format!("\n-----END {label}-----\n"));
    out
}

/// Fresh random bytes as lower-case hex: nonces and push ids, where chance need not be repeatable.
pub fn random_hex(bytes: usize) -> Result<String, KeyError> {
    let mut random = vec![0_u8; bytes];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| KeyError("the system gives no random numbers"))?;
    Ok(hex::encode(random))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_key_checks_its_own_signature_and_no_other() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let signature = key.sign(b"message").unwrap();
        assert!(key.verifies(b"message", &signature));
        assert!(!key.verifies(b"massage", &signature));
        assert!(!other.verifies(b"message", &signature));
        assert!(!key.verifies(b"message", "not base64!"));
    }

    #[test]
    fn a_key_that_was_written_is_the_same_when_read() {
        let key = Key::generate().unwrap();
        let again = Key::parse(&key.private_pem().unwrap()).unwrap();
        assert_eq!(again.sign(b"m").unwrap(), key.sign(b"m").unwrap());
        assert_eq!(again.public_pem(), key.public_pem());
    }
}
