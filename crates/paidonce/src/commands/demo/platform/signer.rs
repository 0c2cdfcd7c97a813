//! RSA test keys: made, written, read, used.

use std::fmt;

use anyhow::Context as _;
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// RFC 7468: lines of 64 characters.
const PEM_LINE_CHARS: usize = 64;

/// A private key that signs as a platform does: RSA, PKCS#1 v1.5, SHA-256.
pub struct Signer(RsaKeyPair);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// A fresh key of 2048 bits, the size both platforms use.
    pub fn generate() -> anyhow::Result<Self> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).ok().context("no RSA key could be made")?;
        Ok(Self(pair))
    }

    /// Reads what [`Signer::private_pem`] wrote, or any unencrypted PKCS#8 RSA key. Errors name no content.
    pub fn parse(pem: &str) -> anyhow::Result<Self> {
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(base64).context("a private key is PKCS#8 in PEM (-----BEGIN PRIVATE KEY-----)")?;
        let pair = RsaKeyPair::from_pkcs8(&der).map_err(|error| anyhow::anyhow!("no usable RSA key: {error}"))?;
        Ok(Self(pair))
    }

    /// PKCS#8 in PEM.
    pub fn private_pem(&self) -> anyhow::Result<String> {
        let der: Pkcs8V1Der<'_> = self.0.as_der().ok().context("the key can't be written")?;
        Ok(pem("PRIVATE KEY", der.as_ref()))
    }

    /// SubjectPublicKeyInfo in PEM.
    pub fn public_pem(&self) -> anyhow::Result<String> {
        let der: PublicKeyX509Der<'_> = self.0.public_key().as_der().ok().context("the key can't be written")?;
        Ok(pem("PUBLIC KEY", der.as_ref()))
    }

    /// Standard base64 of the signature.
    pub fn sign(&self, message: &[u8]) -> anyhow::Result<String> {
        let mut signature = vec![0_u8; self.0.public_modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok().context("signing failed")?;
        Ok(STANDARD.encode(signature))
    }
}

fn pem(label: &str, der: &[u8]) -> String {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_written_is_read_back_and_signs_the_same() {
        let signer = Signer::generate().unwrap();
        let again = Signer::parse(&signer.private_pem().unwrap()).unwrap();
        assert_eq!(again.sign(b"message").unwrap(), signer.sign(b"message").unwrap());
        assert_eq!(again.public_pem().unwrap(), signer.public_pem().unwrap());
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let error = Signer::parse("-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----").unwrap_err();
        assert!(!format!("{error:#}").contains("secret"));
    }
}
