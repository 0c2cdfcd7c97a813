//! The hash chain over a shard's events (promise P8).
//!
//! ```text
//! hash = SHA-256( version byte 0x01
//!               | hash of the event before (32 bytes, zeros for the first)
//!               | field, field, ... )
//! field = length (u32, big endian) | bytes
//! fields: shard (u16 BE), position (i64 BE), event_id (16 bytes), aggregate_type, aggregate_id, sequence (i64 BE),
//!         event_type, event_version, recorded_at (i64 BE, microseconds), payload bytes, metadata bytes,
//!         evidence digest (32 bytes, or an empty field)
//! ```
//!
//! Every field has its length before it, so no two lists of fields give the same bytes. Stored format: the golden values in
//! the tests hold it; another format takes another version byte.

use aws_lc_rs::digest::{Context, SHA256};
use paidonce_order::ids::Digest;

use crate::store::EventRow;

/// First byte of everything that is hashed.
pub const FORMAT_VERSION: u8 = 1;

/// What stands before the first event of a shard.
pub const GENESIS: Digest = Digest([0; 32]);

/// The chain value of `row`, which follows `previous`. Reads every field of the row but its `hash`.
///
/// `evidence` is the digest named in the row's metadata: see [`crate::codec::evidence_of`].
#[must_use]
pub fn link(previous: &Digest, row: &EventRow, evidence: Option<&Digest>) -> Digest {
    let mut hash = Context::new(&SHA256);
    hash.update(&[FORMAT_VERSION]);
    hash.update(&previous.0);
    field(&mut hash, &row.shard.to_be_bytes());
    field(&mut hash, &row.position.to_be_bytes());
    field(&mut hash, row.event_id.as_bytes());
    field(&mut hash, row.aggregate_type.as_bytes());
    field(&mut hash, row.aggregate_id.as_bytes());
    field(&mut hash, &row.sequence.to_be_bytes());
    field(&mut hash, row.event_type.as_bytes());
    field(&mut hash, row.event_version.as_bytes());
    field(&mut hash, &row.recorded_at.as_micros().to_be_bytes());
    field(&mut hash, row.payload.as_bytes());
    field(&mut hash, row.metadata.as_bytes());
    field(&mut hash, evidence.map_or(&[], |digest| &digest.0));
    let mut out = [0; 32];
    out.copy_from_slice(hash.finish().as_ref());
    Digest(out)
}

fn field(hash: &mut Context, bytes: &[u8]) {
    // A payload comes from one command of at most 64 KiB, so its length always fits; saturating keeps the function total.
    hash.update(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use paidonce_order::timestamp::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn row() -> EventRow {
        EventRow {
            shard: 7,
            position: 1,
            event_id: Uuid::from_u128(0x0194_4000_0000_7000_8000_0000_0000_0001),
            aggregate_type: "Order".to_owned(),
            aggregate_id: "2025010812345678".to_owned(),
            sequence: 1,
            event_type: "OrderClosed".to_owned(),
            event_version: "1".to_owned(),
            payload: r#"{"OrderClosed":{"reason":"expired"}}"#.to_owned(),
            metadata: r#"{"source":"api"}"#.to_owned(),
            recorded_at: Timestamp::from_micros(1_736_339_696_789_000),
            hash: GENESIS,
        }
    }

    /// P8: these values were computed by another program (Python's hashlib) from the description above.
    #[test]
    fn the_chain_has_its_golden_values() {
        let first = link(&GENESIS, &row(), None);
        assert_eq!(first.to_string(), "93bf026ece032a123f9bf5d63c31f60d9352870e97be572a1dc01f49aeafb3b2");
        let second = link(&first, &EventRow { position: 2, sequence: 2, ..row() }, Some(&Digest([0xab; 32])));
        assert_eq!(second.to_string(), "9f49f3ac1f8911f8cf09ebf6d78b7ffd941b7fe1fb449ec2cb3471457813f2cb");
    }

    #[test]
    fn every_field_changes_the_value() {
        let base = link(&GENESIS, &row(), None);
        let changed = [
            EventRow { shard: 8, ..row() },
            EventRow { position: 2, ..row() },
            EventRow { event_id: Uuid::nil(), ..row() },
            EventRow { aggregate_type: "Stray".to_owned(), ..row() },
            EventRow { aggregate_id: "2025010812345679".to_owned(), ..row() },
            EventRow { sequence: 2, ..row() },
            EventRow { event_type: "OrderOpened".to_owned(), ..row() },
            EventRow { event_version: "2".to_owned(), ..row() },
            EventRow { payload: "{}".to_owned(), ..row() },
            EventRow { metadata: "{}".to_owned(), ..row() },
            EventRow { recorded_at: Timestamp::from_micros(0), ..row() },
        ];
        for other in changed {
            assert_ne!(link(&GENESIS, &other, None), base, "{other:?}");
        }
        assert_ne!(link(&base, &row(), None), base);
        assert_ne!(link(&GENESIS, &row(), Some(&GENESIS)), base);
    }

    #[test]
    fn a_byte_that_moves_to_the_next_field_changes_the_value() {
        let moved = EventRow { event_type: "OrderClosed1".to_owned(), event_version: String::new(), ..row() };
        assert_ne!(link(&GENESIS, &moved, None), link(&GENESIS, &row(), None));
    }
}
