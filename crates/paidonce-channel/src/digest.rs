//! SHA-256 over length-prefixed parts: no two lists of parts give the same bytes.

use aws_lc_rs::digest::{Context, SHA256};
use paidonce_order::ids::Digest;

/// A digest that takes parts one by one. `purpose` keeps digests of different kinds apart.
pub(crate) struct PartsDigest(Context);

impl PartsDigest {
    pub(crate) fn new(purpose: &str) -> Self {
        Self(Context::new(&SHA256)).with(purpose.as_bytes())
    }

    pub(crate) fn with(mut self, part: &[u8]) -> Self {
        // A slice is never longer than u64::MAX bytes.
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.0.update(&length.to_be_bytes());
        self.0.update(part);
        self
    }

    pub(crate) fn finish(self) -> Digest {
        from_hash(&self.0.finish())
    }
}

fn from_hash(hash: &aws_lc_rs::digest::Digest) -> Digest {
    let mut bytes = [0_u8; 32];
    for (out, byte) in bytes.iter_mut().zip(hash.as_ref()) {
        *out = *byte;
    }
    Digest(bytes)
}

/// Plain SHA-256 of these bytes.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    from_hash(&aws_lc_rs::digest::digest(&SHA256, bytes))
}

/// The digest of text parts.
pub(crate) fn digest_of(purpose: &str, parts: &[&str]) -> Digest {
    parts.iter().fold(PartsDigest::new(purpose), |digest, part| digest.with(part.as_bytes())).finish()
}

#[cfg(test)]
#[allow(missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn moving_a_border_between_parts_changes_the_digest() {
        assert_ne!(digest_of("t", &["ab", "c"]), digest_of("t", &["a", "bc"]));
        assert_ne!(digest_of("t", &["abc"]), digest_of("t", &["abc", ""]));
        assert_ne!(digest_of("t", &["a"]), digest_of("u", &["a"]));
        assert_eq!(digest_of("t", &["ab", "c"]), digest_of("t", &["ab", "c"]));
    }
}
