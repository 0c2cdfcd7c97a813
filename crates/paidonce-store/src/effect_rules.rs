//! What the effect queues of all databases have in common: limits and words.

use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use crate::store::{StoreError, Subscriber};

/// Effects that one claim gives at most, and due rows that it looks at for each subscriber.
pub(crate) const CLAIM_LIMIT_MAX: u32 = 500;

/// Rounds of one claim at most, when all that was due stood behind something unfinished and was put off. The next claim goes on.
pub(crate) const CLAIM_ROUNDS_MAX: u32 = 20;

/// A row behind one that is being sent is looked at again after this; normally it was made due by then.
pub(crate) const LOOK_AGAIN_MICROS: i64 = 1_000_000;

/// A row behind a dead one is looked at again after this; requeue and discard make it due. Five minutes: only a discard in
/// the very moment of the row's commit is caught by the look, and 200,000 blocked rows cost less than 700 looks a second.
pub(crate) const LOOK_AGAIN_DEAD_MICROS: i64 = 300_000_000;

/// Events looked at in one step of a backfill, and effects discarded in one step: a short tx each.
pub(crate) const STEP_ROWS: i64 = 1_000;

/// Kind of the effects that subscribers get; every other kind is a channel call.
pub(crate) const DELIVER: &str = "deliver";

/// Longest subscriber name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// When a row behind a head in this state is worth another look.
pub(crate) fn look_again_at(head_state: &str, head_due_at: Timestamp, now: Timestamp) -> Timestamp {
    let soon = now.plus_micros(LOOK_AGAIN_MICROS);
    match head_state {
        "dead" => now.plus_micros(LOOK_AGAIN_DEAD_MICROS),
        "leased" => soon,
        _ => head_due_at.max(soon),
    }
}

/// Milliseconds from `now` to `due_at`, rounded up; 0 when it is past.
pub(crate) fn wait_ms(due_at: Timestamp, now: Timestamp) -> i64 {
    let micros = due_at.as_micros().saturating_sub(now.as_micros()).max(0);
    micros.saturating_add(999) / 1_000
}

/// The first `limit` of several queues, one of each in turn: the backlog of one subscriber never stands before the others.
pub(crate) fn fair_turns(queues: Vec<Vec<(Timestamp, Uuid)>>, limit: usize) -> Vec<Uuid> {
    let mut turns: Vec<(usize, Timestamp, Uuid)> = queues
        .into_iter()
        .flat_map(|queue| queue.into_iter().enumerate().map(|(turn, (due_at, effect_id))| (turn, due_at, effect_id)))
        .collect();
    turns.sort_unstable();
    turns.into_iter().take(limit).map(|(_, _, effect_id)| effect_id).collect()
}

/// Stands before the last error of a requeued effect.
pub(crate) fn requeued_note(by: &str) -> String {
    format!("requeued by {by}; before: ")
}

/// Stands before the last error of a discarded effect.
pub(crate) fn discarded_note(by: &str) -> String {
    format!("discarded by {by}; before: ")
}

/// Errors: [`StoreError::Invalid`] for a name or a list of events that can't work. A colon would name a channel lane.
pub(crate) fn check_subscriber(subscriber: &Subscriber) -> Result<(), StoreError> {
    let name = subscriber.name.as_str();
    let named = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !named {
        return Err(StoreError::Invalid(format!(
            "a subscriber's name has 1 to {NAME_BYTES_MAX} letters, digits and _-., not {name:?}"
        )));
    }
    if subscriber.events.is_empty() {
        return Err(StoreError::Invalid(format!("subscriber {name} names no events: list them, or say \"*\"")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_backlog_does_not_stand_before_the_others() {
        let (at, id) = (Timestamp::from_micros, Uuid::from_u128);
        let long = vec![(at(1), id(1)), (at(2), id(2)), (at(3), id(3))];
        let short = vec![(at(90), id(9))];
        assert_eq!(fair_turns(vec![long, short], 3), [id(1), id(9), id(2)]);
    }

    #[test]
    fn a_wait_is_rounded_up_so_that_nobody_wakes_too_early() {
        let at = Timestamp::from_micros;
        assert_eq!([wait_ms(at(5_001), at(0)), wait_ms(at(5_000), at(0)), wait_ms(at(0), at(9_000))], [6, 5, 0]);
    }
}
