//! The signed bytes, kept so that they can be checked again years later.

use paidonce_order::ids::AccountRef;

use crate::channel::RawNotification;
use crate::digest::PartsDigest;
use crate::observation::{Evidence, Source};

/// Evidence of a callback. `digest` is over the headers (name, value, name, value, ...) and then the body.
pub(crate) fn evidence(
    account: &AccountRef,
    headers: Vec<(String, String)>,
    raw: RawNotification<'_>,
    key_id: String,
) -> Evidence {
    let digest = headers
        .iter()
        .fold(PartsDigest::new("evidence"), |digest, (name, value)| digest.with(name.as_bytes()).with(value.as_bytes()))
        .with(raw.body)
        .finish();
    Evidence {
        account: account.clone(),
        source: Source::Callback,
        headers,
        body: raw.body.to_vec(),
        key_id,
        received_at: raw.now,
        digest,
    }
}
