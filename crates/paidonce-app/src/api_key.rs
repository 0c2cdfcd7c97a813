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
