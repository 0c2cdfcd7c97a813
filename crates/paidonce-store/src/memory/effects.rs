//! The effect queue: the rules of [`crate::postgres`]' effects in plain loops.

use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use super::tables::Tables;
use crate::backend::EffectWrite;
use crate::codec::uuid_v7;
use crate::effect_rules::{CLAIM_LIMIT_MAX, discarded_note, fair_turns, requeued_note, wait_ms};
use crate::store::{ClaimedEffect, EffectRow, StoreError, Subscriber, TryResult};

/// A row of `t_effect`.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) row: EffectRow,
    done_at: Option<Timestamp>,
}

impl Effect {
    /// Pending.
    pub(super) fn new(effect: EffectWrite) -> Self {
        let row = EffectRow {
            effect_id: effect.effect_id,
            shard: effect.shard,
            order_no: effect.order_no,
            subscriber: effect.subscriber,
            kind: effect.kind.to_owned(),
            event_id: effect.event_id,
            position: effect.position,
            state: "pending".to_owned(),
            attempts: 0,
            due_at: effect.due_at,
            lease_token: None,
            last_error: None,
            call: effect.call,
        };
        Self { row, done_at: None }
    }

    /// Neither delivered nor discarded.
    fn is_unfinished(&self) -> bool {
        matches!(self.row.state.as_str(), "pending" | "leased" | "dead")
    }

    /// To be sent, or being sent until its lease ends.
    fn is_live(&self) -> bool {
        matches!(self.row.state.as_str(), "pending" | "leased")
    }

    fn place(&self) -> (i64, Uuid) {
        (self.row.position, self.row.effect_id)
    }

    /// Whose turn it takes: its subscriber's, or that of its kind.
    fn queue(&self) -> &str {
        if self.row.kind == "deliver" { &self.row.subscriber } else { &self.row.kind }
    }

    fn is_in_lane_of(&self, other: &EffectRow) -> bool {
        self.row.order_no == other.order_no && self.row.subscriber == other.subscriber
    }

    fn note(&mut self, note: String) {
        self.row.last_error = Some(note + self.row.last_error.as_deref().unwrap_or_default());
    }
}

impl Tables {
    /// Claims due lane heads; of each subscriber, and of each kind of channel calls, in turn.
    pub(super) fn claim(
        &mut self,
        kinds: &[&str],
        now: Timestamp,
        lease_ms: i64,
        limit: u32,
    ) -> Result<Vec<ClaimedEffect>, StoreError> {
        let due = self.effects.values().filter(|effect| {
            effect.is_live()
                && effect.row.due_at <= now
                && self.may_send(&effect.row, kinds)
                && self.is_lane_head(effect)
        });
        let mut queues = std::collections::BTreeMap::<&str, Vec<(Timestamp, Uuid)>>::new();
        for effect in due {
            queues.entry(effect.queue()).or_default().push((effect.row.due_at, effect.row.effect_id));
        }
        let queues = queues.into_values().map(|mut queue| {
            queue.sort_unstable();
            queue
        });
        let limit = usize::try_from(limit.min(CLAIM_LIMIT_MAX)).unwrap_or(0);
        let mut claimed = Vec::new();
        for (turn, effect_id) in fair_turns(queues.collect(), limit).into_iter().enumerate() {
            claimed.push(self.lease(effect_id, (now, lease_ms), turn)?);
        }
        claimed.sort_by_key(|claimed| (claimed.event.shard, claimed.event.position));
        Ok(claimed)
    }

    fn may_send(&self, row: &EffectRow, kinds: &[&str]) -> bool {
        let is_ready =
            row.subscriber.contains(':') || self.subscribers.get(&row.subscriber).is_some_and(|it| !it.paused);
        is_ready && kinds.contains(&row.kind.as_str())
    }

    fn is_lane_head(&self, effect: &Effect) -> bool {
        !self
            .effects
            .values()
            .any(|other| other.is_in_lane_of(&effect.row) && other.is_unfinished() && other.place() < effect.place())
    }

    fn lease(
        &mut self,
        effect_id: Uuid,
        (now, lease_ms): (Timestamp, i64),
        turn: usize,
    ) -> Result<ClaimedEffect, StoreError> {
        let gone = || StoreError::Corrupt(format!("effect {effect_id} tells of an event that is not in the log"));
        let effect = self.effects.get_mut(&effect_id).ok_or_else(gone)?;
        effect.row.state = "leased".to_owned();
        effect.row.attempts = effect.row.attempts.saturating_add(1);
        effect.row.lease_token = Some(uuid_v7(now, turn, u64::from(effect.row.attempts.unsigned_abs())));
        effect.row.due_at = now.plus_micros(lease_ms.saturating_mul(1_000));
        let row = effect.row.clone();
        let event = self.shard(row.shard).iter().find(|event| event.position == row.position).cloned();
        Ok(ClaimedEffect { event: event.ok_or_else(gone)?, effect: row })
    }

    /// Reports a try.
    pub(super) fn complete(&mut self, effect_id: Uuid, token: Uuid, result: &TryResult, now: Timestamp) -> bool {
        let Some(effect) = self.effects.get_mut(&effect_id).filter(|it| it.row.lease_token == Some(token)) else {
            return false;
        };
        let (state, delay_ms, error) = match result {
            TryResult::Delivered => ("delivered", 0, None),
            TryResult::RetryAfter { delay_ms, error } => ("pending", *delay_ms, Some(error.clone())),
            TryResult::Dead { error } => ("dead", 0, Some(error.clone())),
        };
        effect.row.state = state.to_owned();
        effect.row.due_at = now.plus_micros(delay_ms.saturating_mul(1_000));
        effect.row.last_error = error;
        effect.row.lease_token = None;
        effect.done_at = (state == "delivered").then_some(now);
        true
    }

    /// DEAD to pending.
    pub(super) fn requeue(&mut self, effect_id: Uuid, by: &str, now: Timestamp) -> bool {
        let Some(effect) = self.effects.get_mut(&effect_id).filter(|it| it.row.state == "dead") else { return false };
        effect.row.state = "pending".to_owned();
        effect.row.attempts = 0;
        effect.row.due_at = now;
        effect.note(requeued_note(by));
        true
    }

    /// DEAD or pending to discarded.
    pub(super) fn discard(&mut self, effect_id: Uuid, by: &str, now: Timestamp) -> bool {
        let waits = |effect: &&mut Effect| matches!(effect.row.state.as_str(), "dead" | "pending");
        let Some(effect) = self.effects.get_mut(&effect_id).filter(waits) else { return false };
        effect.row.state = "discarded".to_owned();
        effect.done_at = Some(now);
        effect.note(discarded_note(by));
        true
    }

    /// Time until the next one is due.
    pub(super) fn next_due_ms(&self, kinds: &[&str], now: Timestamp) -> Option<i64> {
        let live = self.effects.values().filter(|effect| effect.is_live() && self.may_send(&effect.row, kinds));
        // What stands behind an unfinished one becomes due with it.
        live.filter(|effect| self.is_lane_head(effect)).map(|effect| wait_ms(effect.row.due_at, now)).min()
    }

    /// Deletes old finished effects.
    pub(super) fn prune(&mut self, before: Timestamp, limit: u32) -> u64 {
        let mut old: Vec<(Timestamp, Uuid)> = self
            .effects
            .values()
            .filter_map(|effect| effect.done_at.filter(|at| *at < before).map(|at| (at, effect.row.effect_id)))
            .collect();
        old.sort_unstable();
        old.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        for (_, effect_id) in &old {
            self.effects.remove(effect_id);
        }
        u64::try_from(old.len()).unwrap_or(u64::MAX)
    }

    /// Effects for every matching event of the log that has none; how many.
    pub(super) fn backfill(&mut self, subscriber: &Subscriber, now: Timestamp) -> u64 {
        let has_one = |event_id: Uuid| {
            self.effects.values().any(|effect| {
                effect.row.event_id == event_id
                    && effect.row.subscriber == subscriber.name
                    && effect.row.kind == "deliver"
            })
        };
        let wanted = self.all_events().filter(|row| subscriber.wants(&row.event_type) && !has_one(row.event_id));
        let made: Vec<EffectWrite> = wanted
            .enumerate()
            .map(|(index, row)| EffectWrite {
                effect_id: uuid_v7(now, index, row.event_id.as_u64_pair().1),
                shard: row.shard,
                position: row.position,
                order_no: row.aggregate_id.clone(),
                subscriber: subscriber.name.clone(),
                kind: "deliver",
                event_id: row.event_id,
                call: None,
                created_at: now,
                due_at: now,
            })
            .collect();
        let count = u64::try_from(made.len()).unwrap_or(u64::MAX);
        self.effects.extend(made.into_iter().map(|effect| (effect.effect_id, Effect::new(effect))));
        count
    }

    /// Removes a subscriber and discards what was not sent to it.
    pub(super) fn delete_subscriber(&mut self, name: &str, now: Timestamp) -> Result<(), StoreError> {
        let removed = self.remove_subscriber(name);
        let mut discarded = false;
        for effect in self.effects.values_mut().filter(|it| it.row.subscriber == name && it.is_unfinished()) {
            effect.row.state = "discarded".to_owned();
            effect.row.lease_token = None;
            effect.done_at = Some(now);
            effect.note(discarded_note("the removal of its subscriber"));
            discarded = true;
        }
        if removed || discarded {
            return Ok(());
        }
        Err(StoreError::Invalid(format!("there is no subscriber {name}")))
    }
}
