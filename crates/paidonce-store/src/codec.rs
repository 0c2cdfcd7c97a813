//! Event to row and back, and the metadata that goes with it.

use std::collections::BTreeMap;

use paidonce_order::event::{DecodeError, KNOWN_EVENTS, LedgerEvent};
use paidonce_order::ids::Digest;
use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use crate::store::{CommandContext, EventRow, StoreError};

/// Reads the event of a row.
///
/// Errors: [`DecodeError`]; an unknown (type, version) was written by a newer release.
pub fn decode(row: &EventRow) -> Result<LedgerEvent, DecodeError> {
    LedgerEvent::from_stored(&row.aggregate_type, &row.event_type, &row.event_version, &row.payload)
}

/// Errors: [`StoreError::Corrupt`] for an event that this release can't decode.
pub(crate) fn check_known(event_type: &str, event_version: &str) -> Result<(), StoreError> {
    if KNOWN_EVENTS.contains(&(event_type, event_version)) {
        return Ok(());
    }
    Err(StoreError::Corrupt(format!(
        "the log holds {event_type} version {event_version}, which this release can't decode: upgrade it"
    )))
}

/// The metadata text of an event: a JSON object of strings with sorted keys, so that equal metadata has equal bytes.
///
/// `idem_key` is the event's own key. The API key goes on the first event of a command only: see [`api_key_of`].
pub(crate) fn metadata_json(
    context: &CommandContext,
    recorded_at: Timestamp,
    idem_key: Option<&str>,
    place: Place,
) -> Result<String, serde_json::Error> {
    let recorded_at = recorded_at.to_string();
    let evidence = context.evidence.as_ref().map(|evidence| evidence.digest.to_string());
    let api_key = context.api_key.as_ref().filter(|_| place == Place::First);
    let api_request = api_key.map(|key| key.request.to_string());
    let entries = [
        ("actor", context.actor.as_deref()),
        ("api_key", api_key.map(|key| key.idem_key.as_str())),
        ("api_request", api_request.as_deref()),
        ("evidence", evidence.as_deref()),
        ("idem_key", idem_key),
        ("recorded_at", Some(recorded_at.as_str())),
        ("request_id", context.request_id.as_deref()),
        ("source", Some(context.source.as_str())),
    ];
    let object: BTreeMap<&str, &str> =
        entries.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect();
    serde_json::to_string(&object)
}

/// Where an event stands among those of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first.
    First,
    /// Behind the first.
    Later,
}

/// The stored metadata as a map. Errors: it is not an object of strings.
pub fn metadata_of(row: &EventRow) -> Result<BTreeMap<String, String>, serde_json::Error> {
    serde_json::from_str(&row.metadata)
}

/// The digest of the evidence that caused the event, from its metadata.
#[must_use]
pub fn evidence_of(metadata: &BTreeMap<String, String>) -> Option<Digest> {
    metadata.get("evidence").and_then(|text| Digest::parse(text).ok())
}

/// The `API:` key that the event's command carried, with the hash of its request.
#[must_use]
pub fn api_key_of(metadata: &BTreeMap<String, String>) -> Option<(String, Digest)> {
    let key = metadata.get("api_key")?;
    let request = Digest::parse(metadata.get("api_request")?).ok()?;
    Some((key.clone(), request))
}

/// UUIDv7 for the `index`-th row of a batch: the milliseconds of `at`, then its microseconds and the index, so that ids of one
/// batch sort in the order of making; the rest is random.
pub(crate) fn uuid_v7(at: Timestamp, index: usize, random: u64) -> Uuid {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    let fraction = u16::try_from(micros % 1_000).unwrap_or(0);
    let index = u16::try_from(index & 0x3fff).unwrap_or(0);
    let [_, _, ms @ ..] = (micros / 1_000).to_be_bytes();
    let [f_high, f_low] = fraction.to_be_bytes();
    let [i_high, i_low] = index.to_be_bytes();
    let [_, _, r @ ..] = random.to_be_bytes();
    let [m0, m1, m2, m3, m4, m5] = ms;
    let [r0, r1, r2, r3, r4, r5] = r;
    let bytes = [m0, m1, m2, m3, m4, m5, 0x70 | f_high, f_low, 0x80 | i_high, i_low, r0, r1, r2, r3, r4, r5];
    Uuid::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use paidonce_order::idem_key::IdemKey;
    use paidonce_order::project::ApiKey;

    use super::*;

    #[test]
    fn ids_are_version_7_and_sort_as_they_were_made() {
        let at = Timestamp::from_micros(1_736_339_696_789_123);
        let ids: Vec<Uuid> = (0..600).map(|index| uuid_v7(at, index, u64::MAX - 7)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
        let (seconds, nanos) = ids[0].get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos / 1_000_000), (1_736_339_696, 789));
    }

    #[test]
    fn metadata_is_an_object_of_strings_and_gives_the_api_key_back() {
        let key = ApiKey { idem_key: IdemKey::from_parts(&["API", "shop", "k1"]), request: Digest([7; 32]) };
        let context = CommandContext { source: "api".to_owned(), api_key: Some(key), ..CommandContext::default() };
        let at = Timestamp::from_micros(0);
        let first = metadata_json(&context, at, Some("K"), Place::First).unwrap();
        let map: BTreeMap<String, String> = serde_json::from_str(&first).unwrap();
        assert_eq!(api_key_of(&map), Some(("API:shop:k1".to_owned(), Digest([7; 32]))));
        let later: BTreeMap<String, String> =
            serde_json::from_str(&metadata_json(&context, at, None, Place::Later).unwrap()).unwrap();
        assert_eq!(api_key_of(&later), None);
        assert_eq!(later.keys().collect::<Vec<_>>(), ["recorded_at", "source"]);
    }
}
