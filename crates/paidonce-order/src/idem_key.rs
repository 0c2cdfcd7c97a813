//! Idempotency keys: one business fact, one key (DESIGN section 3). Never the platform's push id.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest key, in bytes (`t_idempotent.idem_key`).
pub const IDEM_KEY_BYTES_MAX: usize = 255;

/// A key such as `WXPAY:2025010812345678:PAY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdemKey(String);

impl IdemKey {
    /// Joins parts with `:`; `:` and `%` inside a part are percent-encoded, so that no two lists of parts give one key.
    /// A key that would be longer than [`IDEM_KEY_BYTES_MAX`] can't come from validated parts; callers check the length
    /// of foreign parts (an `Idempotency-Key` header, out_order_no) before.
    #[must_use]
    pub fn from_parts(parts: &[&str]) -> Self {
        let escaped: Vec<String> = parts.iter().map(|part| escape(part)).collect();
        Self(escaped.join(":"))
    }

    /// A key read back from storage.
    #[must_use]
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Percent-encodes the two characters that have a meaning in keys.
pub(crate) fn escape(part: &str) -> String {
    part.replace('%', "%25").replace(':', "%3A")
}
