//! Upcasters from older event versions, applied after the hash chain was checked (the chain covers the stored bytes).
//!
//! All events are at version 1, so the list is empty; the wiring is the same for our own reader and for a stock
//! `PersistedEventStore`, which takes [`upcasters`] as it is.

use std::borrow::Cow;

use cqrs_es::persist::{EventUpcaster, SerializedEvent};

/// Every upcaster, oldest first. A new event version adds one here and a line to the golden file.
#[must_use]
pub fn upcasters() -> Vec<Box<dyn EventUpcaster>> {
    Vec::new()
}

/// Brings a stored payload to the current version. Borrowed, and not even parsed, when no upcaster wants it.
pub(crate) fn upcast_payload<'a>(
    event_type: &str,
    event_version: &str,
    payload: &'a str,
) -> Result<Cow<'a, str>, serde_json::Error> {
    upcast_with(&upcasters(), event_type, event_version, payload)
}

fn upcast_with<'a>(
    upcasters: &[Box<dyn EventUpcaster>],
    event_type: &str,
    event_version: &str,
    payload: &'a str,
) -> Result<Cow<'a, str>, serde_json::Error> {
    if !upcasters.iter().any(|upcaster| upcaster.can_upcast(event_type, event_version)) {
        return Ok(Cow::Borrowed(payload));
    }
    let stored = SerializedEvent {
        aggregate_id: String::new(),
        sequence: 0,
        aggregate_type: String::new(),
        event_type: event_type.to_owned(),
        event_version: event_version.to_owned(),
        payload: serde_json::from_str(payload)?,
        metadata: serde_json::Value::Null,
    };
    let current = upcasters.iter().fold(stored, |event, upcaster| {
        if upcaster.can_upcast(&event.event_type, &event.event_version) { upcaster.upcast(event) } else { event }
    });
    serde_json::to_string(&current.payload).map(Cow::Owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test may panic")]
mod tests {
    use cqrs_es::persist::SemanticVersionEventUpcaster;

    use super::*;

    #[test]
    fn an_older_payload_goes_through_its_upcaster_and_a_current_one_is_left_alone() {
        let rename = SemanticVersionEventUpcaster::new(
            "OrderClosed",
            "2",
            Box::new(|mut payload| {
                payload["OrderClosed"]["reason"] = "renamed".into();
                payload
            }),
        );
        let list: Vec<Box<dyn EventUpcaster>> = vec![Box::new(rename)];
        let old = upcast_with(&list, "OrderClosed", "1", r#"{"OrderClosed":{"why":"x"}}"#).unwrap();
        assert!(old.contains("renamed"));
        let current = r#"{"OrderClosed":{"reason":"x"}}"#;
        assert!(matches!(upcast_with(&list, "OrderClosed", "2", current).unwrap(), Cow::Borrowed(_)));
    }
}
