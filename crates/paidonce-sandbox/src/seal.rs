//! AES-256-GCM as WeChat Pay seals resources and certificates: the 32 characters of the APIv3 key, a nonce of 12 characters.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::keys::{KeyError, random_hex};

/// What stands in a `resource` or `encrypt_certificate`.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// 12 characters, never used before.
    pub nonce: String,
    /// Base64 of ciphertext and tag.
    pub ciphertext: String,
}

/// Seals a text.
pub fn seal(apiv3_key: &str, associated_data: &str, plaintext: &str) -> Result<Sealed, KeyError> {
    let nonce = random_hex(6)?;
    let key = UnboundKey::new(&AES_256_GCM, apiv3_key.as_bytes()).map_err(|_| KeyError("an APIv3 key has 32 bytes"))?;
    let once = Nonce::try_assume_unique_for_key(nonce.as_bytes()).map_err(|_| KeyError("a nonce has 12 bytes"))?;
    let mut sealed = plaintext.as_bytes().to_vec();
    LessSafeKey::new(key)
        .seal_in_place_append_tag(once, Aad::from(associated_data.as_bytes()), &mut sealed)
        .map_err(|_| KeyError("sealing failed"))?;
    Ok(Sealed { nonce, ciphertext: STANDARD.encode(sealed) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
pub(crate) fn open(apiv3_key: &str, associated_data: &str, nonce: &str, ciphertext: &str) -> Option<String> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, apiv3_key.as_bytes()).unwrap());
    let nonce = Nonce::try_assume_unique_for_key(nonce.as_bytes()).unwrap();
    let mut bytes = STANDARD.decode(ciphertext).unwrap();
    let plain = key.open_in_place(nonce, Aad::from(associated_data.as_bytes()), &mut bytes).ok()?;
    String::from_utf8(plain.to_vec()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_associated_data_open_what_was_sealed() {
        let key = "0123456789abcdef0123456789abcdef";
        let sealed = seal(key, "transaction", "{}").unwrap();
        let opened = |key, aad| open(key, aad, &sealed.nonce, &sealed.ciphertext);
        assert_eq!(opened(key, "transaction").as_deref(), Some("{}"));
        assert_eq!(opened(key, "refund"), None);
        assert_eq!(opened("1123456789abcdef0123456789abcdef", "transaction"), None);
    }
}
