//! The signed bytes, kept so that they can be checked again years later.

use paidonce_order::ids::{AccountRef, Digest};
use paidonce_order::timestamp::Timestamp;

use crate::channel::RawNotification;
use crate::digest::PartsDigest;
use crate::observation::{Evidence, Source};

/// Evidence of a message that its signature proves: a callback, or an answer to a question of ours.
pub(crate) fn evidence(
    account: &AccountRef,
    source: Source,
    headers: Vec<(String, String)>,
    raw: RawNotification<'_>,
    key_id: String,
) -> Evidence {
    let digest = evidence_digest(&headers, raw.body);
    Evidence {
        account: account.clone(),
        source,
        headers,
        body: raw.body.to_vec(),
        key_id,
        received_at: raw.now,
        digest,
    }
}

/// What a named person states, kept as the evidence of the events that it makes (promise P5). Nothing of it is verified: the
/// name and the reason stand in `headers`, what was stated in `body`.
#[must_use]
pub fn operator_statement(
    account: &AccountRef,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    stated_at: Timestamp,
) -> Evidence {
    let (account, key_id) = (account.clone(), "operator".to_owned());
    let digest = evidence_digest(&headers, &body);
    Evidence { account, source: Source::Operator, headers, body, key_id, received_at: stated_at, digest }
}

/// The name of a piece of evidence: over the headers (name, value, name, value, ...) and then the body.
#[must_use]
pub fn evidence_digest(headers: &[(String, String)], body: &[u8]) -> Digest {
    let parts = headers.iter().fold(PartsDigest::new("evidence"), |digest, (name, value)| {
        digest.with(name.as_bytes()).with(value.as_bytes())
    });
    parts.with(body).finish()
}
