//! The feed over all shards: one merge, the same for every database.
//!
//! | step | statement | round trips |
//! |---|---|---|
//! | heads | all of `t_log_head` | 1 |
//! | ranges | of each shard that the cursor has not seen whole: its next events by position (`events_position_key`) | 1, more when shards are uneven |
//! | merge | by (recorded_at, shard, position), as far as it is known of every shard what comes next | none |
//!
//! Everything at or below a head is committed and can't change, so the steps need no common snapshot.

use std::collections::BTreeMap;

use async_trait::async_trait;
use paidonce_order::timestamp::Timestamp;

use crate::cursor::{Behind, Cursor};
use crate::store::{EventRow, FeedPage, Head, StoreError};

/// Events in a page at most, whatever was asked for: some MiB of payload.
pub(crate) const FEED_LIMIT_MAX: u32 = 5_000;

/// Rows read of each shard at least: spares a second round when the shards are uneven.
const ROWS_PER_SHARD_MIN: usize = 16;

/// The reads that a database gives the feed.
#[async_trait]
pub(crate) trait FeedSource: Sync {
    /// All heads, by shard.
    async fn heads(&self) -> Result<Vec<Head>, StoreError>;

    /// The first events of each range by position, at most `rows_max` of each; in any order of shards.
    async fn ranges(&self, ranges: &[Behind], rows_max: i64) -> Result<Vec<EventRow>, StoreError>;
}

/// A page of the feed. A page is full unless the log ends.
///
/// Errors: [`StoreError::Invalid`] for a cursor that no page of this ledger gave, [`StoreError::Corrupt`] for a hole.
pub(crate) async fn read_feed(source: &impl FeedSource, cursor: &str, limit: u32) -> Result<FeedPage, StoreError> {
    let mut cursor = Cursor::parse(cursor)?;
    let heads = source.heads().await?;
    let limit = usize::try_from(limit.clamp(1, FEED_LIMIT_MAX)).unwrap_or(1);
    let mut events = Vec::new();
    loop {
        let behind = cursor.behind(&heads)?;
        let missing = limit.saturating_sub(events.len());
        if behind.is_empty() || missing == 0 {
            return Ok(FeedPage { events, next_cursor: cursor.encode(), heads });
        }
        let rows_max = rows_per_shard(missing, behind.len());
        let rows = source.ranges(&behind, i64::try_from(rows_max).unwrap_or(i64::MAX)).await?;
        for event in merge(&behind, rows, rows_max)?.into_iter().take(missing) {
            cursor.advance(event.shard, event.position);
            events.push(event);
        }
    }
}

/// Twice the even share, so that most pages need one round.
fn rows_per_shard(missing: usize, shards: usize) -> usize {
    let share = missing.saturating_mul(2).checked_div(shards).unwrap_or(missing);
    share.max(ROWS_PER_SHARD_MIN).min(missing)
}

/// Place in the merged order.
fn key(event: &EventRow) -> (Timestamp, u16, i64) {
    (event.recorded_at, event.shard, event.position)
}

/// The rows whose place in the merged order is certain: nothing unread can stand before them. Never empty: the range that
/// bounds the page is certain to its last row.
fn merge(behind: &[Behind], rows: Vec<EventRow>, rows_max: usize) -> Result<Vec<EventRow>, StoreError> {
    let mut by_shard: BTreeMap<u16, Vec<EventRow>> = BTreeMap::new();
    for row in rows {
        by_shard.entry(row.shard).or_default().push(row);
    }
    let mut merged = Vec::new();
    let mut frontier = None;
    for range in behind {
        let rows = by_shard.remove(&range.shard).unwrap_or_default();
        let last = check_gapless(range, &rows, rows_max)?;
        if last.position < range.head {
            let bound = key(last);
            frontier = Some(frontier.map_or(bound, |known: (Timestamp, u16, i64)| known.min(bound)));
        }
        merged.extend(rows);
    }
    merged.sort_by_key(key);
    if let Some(frontier) = frontier {
        merged.retain(|event| key(event) <= frontier);
    }
    Ok(merged)
}

/// Every position from the cursor on is there, and time does not run backwards. Gives the last row.
fn check_gapless<'a>(range: &Behind, rows: &'a [EventRow], rows_max: usize) -> Result<&'a EventRow, StoreError> {
    let hole = |position: i64| {
        StoreError::Corrupt(format!(
            "event {position} of shard {} is missing below its head {}",
            range.shard, range.head
        ))
    };
    let mut next = range.after.saturating_add(1);
    let mut earlier: Option<&EventRow> = None;
    for row in rows {
        if row.position != next {
            return Err(hole(next));
        }
        if earlier.is_some_and(|earlier| earlier.recorded_at > row.recorded_at) {
            return Err(StoreError::Corrupt(format!(
                "event {} of shard {} was recorded before its predecessor",
                row.position, row.shard
            )));
        }
        next = next.saturating_add(1);
        earlier = Some(row);
    }
    match earlier {
        Some(last) if last.position == range.head || rows.len() == rows_max => Ok(last),
        Some(_) | None => Err(hole(next)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, reason = "a test may fail loudly")]

    use paidonce_order::Digest;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// A log in memory: recorded_at by shard and position.
    struct Log(Vec<Vec<EventRow>>);

    #[async_trait]
    impl FeedSource for Log {
        async fn heads(&self) -> Result<Vec<Head>, StoreError> {
            let head = |(shard, rows): (usize, &Vec<EventRow>)| Head {
                shard: shard as u16,
                position: rows.last().map_or(0, |row| row.position),
                hash: Digest([0; 32]),
            };
            Ok(self.0.iter().enumerate().map(head).collect())
        }

        async fn ranges(&self, ranges: &[Behind], rows_max: i64) -> Result<Vec<EventRow>, StoreError> {
            let rows = ranges.iter().flat_map(|range| {
                let unseen = self.0[usize::from(range.shard)].iter().filter(|row| row.position > range.after);
                unseen.filter(|row| row.position <= range.head).take(rows_max as usize).cloned()
            });
            Ok(rows.collect())
        }
    }

    fn event(shard: u16, position: i64, recorded_at: i64) -> EventRow {
        EventRow {
            shard,
            position,
            event_id: Uuid::nil(),
            aggregate_type: "Order".to_owned(),
            aggregate_id: String::new(),
            sequence: 1,
            event_type: String::new(),
            event_version: String::new(),
            payload: String::new(),
            metadata: String::new(),
            recorded_at: Timestamp::from_micros(recorded_at),
            hash: Digest([0; 32]),
        }
    }

    fn log(steps: &[Vec<i64>]) -> Log {
        let shard = |(shard, steps): (usize, &Vec<i64>)| {
            let mut at = 0;
            let rows = steps.iter().enumerate().map(|(index, step)| {
                at += step;
                event(shard as u16, index as i64 + 1, at)
            });
            rows.collect()
        };
        Log(steps.iter().enumerate().map(shard).collect())
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        #[test]
        fn pages_of_any_size_give_every_event_once_in_order(
            steps in proptest::collection::vec(proptest::collection::vec(0..50_i64, 0..60), 1..8),
            limit in 1..40_u32,
        ) {
            let log = log(&steps);
            let mut expected: Vec<_> = log.0.iter().flatten().cloned().collect();
            expected.sort_by_key(key);
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = run(read_feed(&log, &cursor, limit)).unwrap();
                let full = page.events.len() == limit as usize;
                seen.extend(page.events);
                cursor = page.next_cursor;
                if !full {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_hole_anywhere_is_an_error_and_never_skipped() {
        for missing in 0..20 {
            let mut log = log(&[vec![1; 20], vec![1; 20]]);
            let head = event(0, 20, 1_000);
            log.0[0].remove(missing);
            if missing == 19 {
                // The head row says 20 although the last event is gone.
                log.0[0].push(EventRow { position: 21, ..head });
            }
            let found = run(read_feed(&log, "", 100));
            assert!(matches!(found, Err(StoreError::Corrupt(_))), "{missing}: {found:?}");
        }
    }
}
