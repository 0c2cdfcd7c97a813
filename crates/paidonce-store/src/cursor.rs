//! The feed's cursor: how far a reader has come in every shard, as one opaque text.
//!
//! Shape: base64url of a format byte, one varint per shard, and a checksum. The checksum catches damage and guesses; it is no
//! seal, because a position grants nothing.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paidonce_order::ids::SHARD_COUNT;

use crate::store::{Head, StoreError};

/// First byte of every cursor.
const FORMAT: u8 = 1;

/// Bytes of the checksum at the end: a random damage passes once in four billion.
const CHECKSUM_BYTES: usize = 4;

/// Longest text that can be a cursor: 64 varints of at most ten bytes. Anything longer is refused unread.
const TEXT_BYTES_MAX: usize = 900;

/// What a reader has not seen of one shard: positions above `after` up to `head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) shard: u16,
    pub(crate) after: i64,
    pub(crate) head: i64,
}

/// The last position seen in every shard, by shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor(Vec<i64>);

impl Cursor {
    /// Reads a cursor; the empty text is the beginning. Errors: [`StoreError::Invalid`].
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        if text.is_empty() {
            return Ok(Self(vec![0; usize::from(SHARD_COUNT)]));
        }
        Self::decode(text).ok_or_else(|| {
            StoreError::Invalid("the cursor is unreadable: use one that a page of the feed gave".to_owned())
        })
    }

    fn decode(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (content, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        let (format, mut rest) = content.split_first()?;
        if *format != FORMAT || digest(&SHA256, content).as_ref().get(..CHECKSUM_BYTES)? != checksum {
            return None;
        }
        let mut positions = Vec::with_capacity(usize::from(SHARD_COUNT));
        for _ in 0..SHARD_COUNT {
            positions.push(i64::try_from(take_varint(&mut rest)?).ok()?);
        }
        rest.is_empty().then_some(Self(positions))
    }

    /// The text that [`Cursor::parse`] reads.
    pub(crate) fn encode(&self) -> String {
        let mut bytes = vec![FORMAT];
        for position in &self.0 {
            push_varint(&mut bytes, position.unsigned_abs());
        }
        let checksum = digest(&SHA256, &bytes);
        bytes.extend(checksum.as_ref().iter().take(CHECKSUM_BYTES));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The shards that have more than this cursor has seen. Errors: [`StoreError::Invalid`] when it has seen more than there is:
    /// it belongs to another ledger, or this one was restored from an older backup.
    pub(crate) fn behind(&self, heads: &[Head]) -> Result<Vec<Behind>, StoreError> {
        let mut behind = Vec::new();
        for head in heads {
            let after = self.0.get(usize::from(head.shard)).copied().unwrap_or(0);
            if after > head.position {
                return Err(StoreError::Invalid(format!(
                    "the cursor has seen position {after} of shard {}, which ends at {}: it belongs to another ledger, or this \
                     ledger was restored from an older backup",
                    head.shard, head.position
                )));
            }
            if after < head.position {
                behind.push(Behind { shard: head.shard, after, head: head.position });
            }
        }
        Ok(behind)
    }

    /// Notes that `position` of `shard` was seen.
    pub(crate) fn advance(&mut self, shard: u16, position: i64) {
        if let Some(seen) = self.0.get_mut(usize::from(shard)) {
            *seen = position;
        }
    }
}

/// LEB128: seven bits a byte, lowest first.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, reason = "a test may fail loudly")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back_as_it_was_written(positions in proptest::collection::vec(0..=i64::MAX, 64)) {
            let cursor = Cursor(positions);
            prop_assert_eq!(Cursor::parse(&cursor.encode()).unwrap(), cursor);
        }

        #[test]
        fn no_text_makes_the_reader_stumble(text in ".{0,200}") {
            drop(Cursor::parse(&text));
        }
    }

    #[test]
    fn every_changed_character_of_a_cursor_is_refused() {
        let text = Cursor((0..64).map(|shard| shard * 1_000).collect()).encode();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(matches!(Cursor::parse(&changed), Err(StoreError::Invalid(_))), "{changed}");
        }
        assert!(Cursor::parse(&text[..text.len() - 1]).is_err());
        assert!(Cursor::parse(&"A".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_cursor_ahead_of_the_ledger_is_refused() {
        let mut cursor = Cursor::parse("").unwrap();
        cursor.advance(3, 10);
        let head = |position| vec![Head { shard: 3, position, hash: paidonce_order::Digest([0; 32]) }];
        assert!(matches!(cursor.behind(&head(9)), Err(StoreError::Invalid(_))));
        assert_eq!(cursor.behind(&head(10)).unwrap(), []);
        assert_eq!(cursor.behind(&head(12)).unwrap(), [Behind { shard: 3, after: 10, head: 12 }]);
    }
}
