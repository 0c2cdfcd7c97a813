//! The caller's `Idempotency-Key` as an idempotency key of the ledger.

use aws_lc_rs::digest;
use paidonce_order::idem_key::{IDEM_KEY_BYTES_MAX, IdemKey};
use paidonce_order::ids::Digest;
use paidonce_order::project::ApiKey;

use crate::error::AppError;

/// Longest `Idempotency-Key`, in characters.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 120;

const HEADER: &str = "Idempotency-Key";

/// A request as it was sent: the same key must come with the same one.
#[derive(Debug, Clone, Copy)]
pub struct RequestContent<'a> {
    /// `POST`, ...
    pub method: &'a str,
    /// Path as sent.
    pub path: &'a str,
    /// Exact body bytes.
    pub body: &'a [u8],
}

/// `API:<token>:<key>` with a digest of the request.
///
/// Errors: [`AppError::Invalid`] when the key is empty, too long, or has anything but visible ASCII.
pub fn api_key(token: &str, key: &str, request: RequestContent<'_>) -> Result<ApiKey, AppError> {
    let visible = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if !visible || key.len() > IDEMPOTENCY_KEY_CHARS_MAX {
        return Err(AppError::invalid(
            HEADER,
            format!("must have 1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters, for example a UUID"),
        ));
    }
    let idem_key = IdemKey::from_parts(&["API", token, key]);
    if idem_key.as_str().len() > IDEM_KEY_BYTES_MAX {
        return Err(AppError::invalid(HEADER, "is too long once its `:` and `%` are escaped: use a shorter key"));
    }
    let parts = [request.method.as_bytes(), request.path.as_bytes(), request.body];
    Ok(ApiKey { idem_key, request: sha256_of_parts(&parts) })
}

/// SHA-256 over length-prefixed parts, so that no two lists of parts give one digest.
pub(crate) fn sha256_of_parts(parts: &[&[u8]]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        context.update(&length.to_be_bytes());
        context.update(part);
    }
    let mut bytes = [0_u8; 32];
    bytes.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestContent<'_> = RequestContent { method: "POST", path: "/v1/orders", body: b"{}" };

    #[test]
    fn a_key_names_its_token_and_its_request() {
        let key = api_key("shop", "a:b", REQUEST).unwrap();
        assert_eq!(key.idem_key.as_str(), "API:shop:a%3Ab");
        let others = [
            RequestContent { method: "PUT", ..REQUEST },
            RequestContent { path: "/v1/order", ..REQUEST },
            RequestContent { body: b"{} ", ..REQUEST },
            RequestContent { path: "/v1/orders{}", body: b"", ..REQUEST },
        ];
        for other in others {
            assert_ne!(api_key("shop", "a:b", other).unwrap().request, key.request, "{other:?}");
        }
    }

    #[test]
    fn keys_that_cant_be_stored_or_read_are_refused() {
        for key in ["", " ", "a b", "\u{7f}", "\u{4e2d}", &"k".repeat(IDEMPOTENCY_KEY_CHARS_MAX + 1), &"%".repeat(90)] {
            assert!(matches!(api_key("shop", key, REQUEST), Err(AppError::Invalid { field: HEADER, .. })), "{key:?}");
        }
        assert!(api_key("shop", &"k".repeat(IDEMPOTENCY_KEY_CHARS_MAX), REQUEST).is_ok());
    }
}
