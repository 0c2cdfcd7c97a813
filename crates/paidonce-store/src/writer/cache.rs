//! What a writer remembers between batches: hot aggregates, the heads that they are valid at, subscribers, event versions.
//!
//! Promise: nothing in here is used before the head of its shard was locked and compared with ours ([`Cache::check_head`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use paidonce_order::ids::{Digest, shard_of};
use paidonce_order::project::Aggregate;

use crate::backend::{AggregateKey, LockedHead};
use crate::store::Subscriber;

/// Bounded memory of one writer.
#[derive(Debug)]
pub(super) struct Cache {
    heads: HashMap<u16, (i64, Digest)>,
    /// Used since the last turn. Two generations make a bounded cache without a list: see [`Cache::put`].
    young: HashMap<AggregateKey, Arc<Aggregate>>,
    old: HashMap<AggregateKey, Arc<Aggregate>>,
    generation_max: usize,
    /// With the version they were read at.
    pub(super) subscribers: Option<(i64, Arc<Vec<Subscriber>>)>,
    /// Pairs (event type, version) that this writer has put into `t_event_version`.
    pub(super) versions: HashSet<(&'static str, &'static str)>,
}

/// How a locked head compares with ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadCheck {
    /// Nobody wrote since.
    Current,
    /// We have nothing of this shard.
    First,
    /// Others wrote: their events begin behind this position, where the chain must be this.
    Behind {
        /// Ours.
        position: i64,
        /// Ours.
        hash: Digest,
    },
    /// The database is not the one that we knew (restored from a backup, another one).
    Different,
}

impl Cache {
    pub(super) fn new(aggregates_max: usize) -> Self {
        Self {
            heads: HashMap::new(),
            young: HashMap::new(),
            old: HashMap::new(),
            generation_max: (aggregates_max / 2).max(1),
            subscribers: None,
            versions: HashSet::new(),
        }
    }

    pub(super) fn check_head(&self, head: &LockedHead) -> HeadCheck {
        match self.heads.get(&head.shard) {
            None => HeadCheck::First,
            Some((position, hash)) if *position == head.position && *hash == head.hash => HeadCheck::Current,
            Some((position, hash)) if *position < head.position => {
                HeadCheck::Behind { position: *position, hash: *hash }
            }
            Some(_) => HeadCheck::Different,
        }
    }

    /// The head that everything of this shard in here is valid at.
    pub(super) fn set_head(&mut self, shard: u16, position: i64, hash: Digest) {
        self.heads.insert(shard, (position, hash));
    }

    /// A hot aggregate; using it keeps it.
    pub(super) fn get(&mut self, key: &AggregateKey) -> Option<Arc<Aggregate>> {
        if let Some(state) = self.young.get(key) {
            return Some(Arc::clone(state));
        }
        let (key, state) = self.old.remove_entry(key)?;
        self.put(key, Arc::clone(&state));
        Some(state)
    }

    /// Keeps an aggregate. When a generation is full it becomes the old one, and what was not used since the turn before is
    /// forgotten: at most twice `generation_max` aggregates are held.
    pub(super) fn put(&mut self, key: AggregateKey, state: Arc<Aggregate>) {
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, state);
    }

    pub(super) fn forget(&mut self, key: &AggregateKey) {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// Forgets the aggregates of one shard and its head.
    pub(super) fn forget_shard(&mut self, shard: u16) {
        self.heads.remove(&shard);
        self.young.retain(|key, _| shard_of(&key.aggregate_id) != shard);
        self.old.retain(|key, _| shard_of(&key.aggregate_id) != shard);
    }

    /// Forgets everything: the database is not the one that we knew.
    pub(super) fn forget_all(&mut self) {
        self.heads.clear();
        self.young.clear();
        self.old.clear();
        self.subscribers = None;
        self.versions.clear();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use paidonce_order::order::Order;
    use paidonce_order::timestamp::Timestamp;

    use super::*;
    use crate::backend::ORDER;

    fn key(number: usize) -> AggregateKey {
        AggregateKey { aggregate_type: ORDER, aggregate_id: format!("N{number}") }
    }

    fn state() -> Arc<Aggregate> {
        Arc::new(Aggregate::Order(Box::<Order>::default()))
    }

    fn head(position: i64, hash: u8) -> LockedHead {
        LockedHead {
            shard: 3,
            position,
            hash: Digest([hash; 32]),
            recorded_at: Timestamp::from_micros(0),
            subscribers_version: 0,
        }
    }

    #[test]
    fn the_cache_never_holds_more_than_its_bound_and_keeps_what_is_used() {
        let mut cache = Cache::new(10);
        for number in 0..1_000 {
            cache.put(key(number), state());
            assert!(cache.get(&key(0)).is_some(), "used all the time, so kept ({number})");
            assert!(cache.len() <= 10);
        }
        assert!(cache.get(&key(500)).is_none());
    }

    #[test]
    fn a_head_is_current_behind_or_of_another_database() {
        let mut cache = Cache::new(10);
        assert_eq!(cache.check_head(&head(5, 1)), HeadCheck::First);
        cache.set_head(3, 5, Digest([1; 32]));
        assert_eq!(cache.check_head(&head(5, 1)), HeadCheck::Current);
        assert_eq!(cache.check_head(&head(6, 2)), HeadCheck::Behind { position: 5, hash: Digest([1; 32]) });
        assert_eq!(cache.check_head(&head(5, 2)), HeadCheck::Different);
        assert_eq!(cache.check_head(&head(4, 1)), HeadCheck::Different);
    }

    #[test]
    fn forgetting_a_shard_leaves_the_others() {
        let mut cache = Cache::new(100);
        for number in 0..50 {
            cache.put(key(number), state());
        }
        let shard = shard_of("N7");
        cache.forget_shard(shard);
        for number in 0..50 {
            let same = shard_of(&format!("N{number}")) == shard;
            assert_eq!(cache.get(&key(number)).is_none(), same);
        }
    }
}
