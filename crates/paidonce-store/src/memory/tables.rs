//! The rows and the keys that hold them apart.

use std::collections::BTreeMap;

use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo, SHARD_COUNT, shard_of};
use paidonce_order::order::ItemKind;
use paidonce_order::project::OrderRow;
use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use super::effects::Effect;
use crate::backend::{Append, DbError, FlowWrite, ItemWrite, KeyWrite, LockedHead, Lost, ORDER, Quarantine, STRAY};
use crate::columns::word;
use crate::hash_chain::GENESIS;
use crate::rows;
use crate::store::{
    Attempt, EventRow, EvidenceRow, Head, ItemRow, OnlyOpen, OrderFilter, RowCounts, StoreError, Subscriber,
};

/// Attempts that are kept.
const ATTEMPTS_MAX: usize = 10_000;

/// A row of `t_order` with its times.
#[derive(Debug, Clone)]
pub(super) struct OrderEntry {
    pub(super) row: OrderRow,
    pub(super) create_time: Timestamp,
    pub(super) update_time: Timestamp,
}

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By shard; index + 1 = position.
    events: BTreeMap<u16, Vec<EventRow>>,
    /// (type, id) to (shard, index) of its events.
    streams: BTreeMap<(String, String), Vec<(u16, usize)>>,
    /// By shard: recorded_at of the head is that of its last event.
    subscribers_version: i64,
    pub(super) keys: BTreeMap<String, KeyWrite>,
    pub(super) orders: BTreeMap<String, OrderEntry>,
    pub(super) flows: BTreeMap<String, FlowWrite>,
    /// With the shard.
    pub(super) items: BTreeMap<String, (ItemRow, u16)>,
    evidence: BTreeMap<(u16, [u8; 32]), EvidenceRow>,
    pub(super) subscribers: BTreeMap<String, Subscriber>,
    pub(super) effects: BTreeMap<Uuid, Effect>,
    attempts: Vec<Attempt>,
}

impl Tables {
    pub(super) fn shard(&self, shard: u16) -> &[EventRow] {
        self.events.get(&shard).map_or(&[], Vec::as_slice)
    }

    pub(super) fn stream(&self, aggregate_type: &str, aggregate_id: &str) -> Vec<EventRow> {
        let places = self.streams.get(&(aggregate_type.to_owned(), aggregate_id.to_owned()));
        let rows = places.into_iter().flatten().filter_map(|(shard, index)| self.shard(*shard).get(*index));
        rows.cloned().collect()
    }

    pub(super) fn locked_head(&self, shard: u16) -> LockedHead {
        let last = self.shard(shard).last();
        LockedHead {
            shard,
            position: last.map_or(0, |row| row.position),
            hash: last.map_or(GENESIS, |row| row.hash),
            recorded_at: last.map_or(Timestamp::from_micros(0), |row| row.recorded_at),
            subscribers_version: self.subscribers_version,
        }
    }

    pub(super) fn heads(&self) -> Vec<Head> {
        let heads = (0..SHARD_COUNT).map(|shard| self.locked_head(shard));
        heads.map(|head| Head { shard: head.shard, position: head.position, hash: head.hash }).collect()
    }

    /// What the constraints of the databases say to these rows.
    pub(super) fn check(&self, append: &Append) -> Result<Lost, DbError> {
        for row in &append.events {
            let stream = self.streams.get(&(row.aggregate_type.clone(), row.aggregate_id.clone()));
            let sequence = i64::try_from(stream.map_or(0, Vec::len)).unwrap_or(i64::MAX);
            if row.sequence <= sequence {
                return Err(taken("events_stream_key", &row.aggregate_id));
            }
            if row.position <= self.locked_head(row.shard).position {
                return Err(taken("events_position_key", &row.position.to_string()));
            }
        }
        if let Some(key) = append.keys.iter().find(|key| self.keys.contains_key(&key.idem_key)) {
            return Err(taken("t_idempotent_pkey", &key.idem_key));
        }
        if let Some(order) = append.orders_new.iter().find(|it| self.orders.contains_key(it.row.order_no.as_str())) {
            return Err(taken("t_order_pkey", order.row.order_no.as_str()));
        }
        if let Some(flow) = append.flows.iter().find(|flow| self.flows.contains_key(flow.row.idem_key.as_str())) {
            return Err(taken("t_order_flow_pkey", flow.row.idem_key.as_str()));
        }
        if let Some(item) = append.items_opened.iter().find(|item| self.items.contains_key(&item.item_no)) {
            return Err(taken("t_item_pkey", &item.item_no));
        }
        let as_expected = |order: &&crate::backend::OrderMove| {
            self.orders.get(order.row.order_no.as_str()).is_some_and(|entry| {
                entry.row.status == order.expected_status && entry.row.version == order.expected_version
            })
        };
        let orders = append.orders_moved.iter().filter(|order| !as_expected(order));
        let shards = append.heads.iter().filter(|it| self.locked_head(it.shard).position != it.expected_position);
        Ok(Lost {
            orders: orders.map(|order| order.row.order_no.as_str().to_owned()).collect(),
            shards: shards.map(|head| head.shard).collect(),
        })
    }

    /// Takes a checked batch over.
    pub(super) fn apply(&mut self, append: Append) {
        for row in append.events {
            let log = self.events.entry(row.shard).or_default();
            let stream = self.streams.entry((row.aggregate_type.clone(), row.aggregate_id.clone())).or_default();
            stream.push((row.shard, log.len()));
            log.push(row);
        }
        self.keys.extend(append.keys.into_iter().map(|key| (key.idem_key.clone(), key)));
        for order in append.orders_new {
            let entry = OrderEntry { create_time: order.create_time, update_time: order.update_time, row: order.row };
            self.orders.insert(entry.row.order_no.as_str().to_owned(), entry);
        }
        for order in append.orders_moved {
            if let Some(entry) = self.orders.get_mut(order.row.order_no.as_str()) {
                entry.row = order.row;
                entry.update_time = order.update_time;
            }
        }
        self.flows.extend(append.flows.into_iter().map(|flow| (flow.row.idem_key.as_str().to_owned(), flow)));
        for item in append.items_opened {
            self.items.insert(item.item_no.clone(), item_entry(item));
        }
        for close in append.items_closed {
            if let Some((item, _)) = self.items.get_mut(&close.item_no).filter(|(item, _)| item.state == "open") {
                item.state = close.state;
                item.closed_at = Some(close.closed_at);
            }
        }
        for (shard, evidence) in append.evidence {
            self.evidence.entry((shard, evidence.digest.0)).or_insert_with(|| EvidenceRow::clone(&evidence));
        }
        for effect in append.effects {
            self.effects.insert(effect.effect_id, Effect::new(effect));
        }
    }

    pub(super) fn counts(&self, order_no: &str) -> RowCounts {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let deliveries: Vec<&Effect> = self
            .effects
            .values()
            .filter(|effect| effect.row.order_no == order_no && effect.row.kind == "deliver")
            .collect();
        RowCounts {
            events: count(self.stream(ORDER, order_no).len()),
            idempotent: count(self.keys.values().filter(|key| key.order_no == order_no).count()),
            order: i64::from(self.orders.contains_key(order_no)),
            flows: count(self.flows.values().filter(|flow| flow.row.order_no.as_str() == order_no).count()),
            deliveries: count(deliveries.len()),
            delivered: count(deliveries.iter().filter(|effect| effect.row.state == "delivered").count()),
        }
    }

    pub(super) fn matches(&self, filter: &OrderFilter, order: &OrderEntry) -> bool {
        let has_trade_no = |trade_no: &ChannelTradeNo| {
            self.flows
                .values()
                .any(|flow| flow.row.order_no == order.row.order_no && flow.row.channel_trade_no == *trade_no)
        };
        filter.status.is_none_or(|status| order.row.status == status)
            && filter.from.is_none_or(|from| order.create_time >= from)
            && filter.to.is_none_or(|to| order.create_time < to)
            && filter.after.as_ref().is_none_or(|after| order.row.order_no > *after)
            && filter.channel_trade_no.as_ref().is_none_or(has_trade_no)
    }

    pub(super) fn order_of_payment(
        &self,
        account: &AccountRef,
        channel_trade_no: &ChannelTradeNo,
    ) -> Result<Option<OrderNo>, StoreError> {
        let flows = self.flows.values();
        let booked = flows.filter(|it| it.row.account == *account && it.row.channel_trade_no == *channel_trade_no);
        let first = booked.min_by(|a, b| (a.create_time, &a.row.idem_key).cmp(&(b.create_time, &b.row.idem_key)));
        if let Some(flow) = first {
            return Ok(Some(flow.row.order_no.clone()));
        }
        let payment = Some(format!("{account}:{channel_trade_no}"));
        let items = self.items.values().map(|(item, _)| item);
        let parked = items.filter(|item| item.payment == payment && item.order_no.is_some());
        let first = parked.min_by(|a, b| (a.opened_at, &a.item_no).cmp(&(b.opened_at, &b.item_no)));
        first.and_then(|item| item.order_no.as_deref()).map(rows::order_no).transpose()
    }

    pub(super) fn list_items(
        &self,
        kind: Option<ItemKind>,
        open_only: OnlyOpen,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemRow>, StoreError> {
        let behind = match after {
            None => None,
            Some(item_no) => match self.items.get(item_no) {
                Some((item, _)) => Some((item.opened_at, item.item_no.as_str())),
                None => {
                    return Err(StoreError::Invalid(format!("there is no item {item_no} to continue behind")));
                }
            },
        };
        let wanted = |item: &&ItemRow| {
            kind.is_none_or(|kind| item.kind == kind)
                && (open_only == OnlyOpen::No || item.state == "open")
                && behind.is_none_or(|behind| (item.opened_at, item.item_no.as_str()) < behind)
        };
        let mut items: Vec<&ItemRow> = self.items.values().map(|(item, _)| item).filter(wanted).collect();
        items.sort_by(|a, b| (b.opened_at, &b.item_no).cmp(&(a.opened_at, &a.item_no)));
        Ok(items.into_iter().take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect())
    }

    pub(super) fn resolve_quarantined(&mut self, item_no: &str, by: &str, now: Timestamp) -> Result<(), StoreError> {
        let open = |item: &ItemRow| item.kind == ItemKind::Quarantined && item.state == "open";
        match self.items.get_mut(item_no) {
            Some((item, _)) if open(item) => {
                item.state = "resolved".to_owned();
                item.closed_at = Some(now);
                item.detail = format!("{} (resolved by {by})", item.detail);
                Ok(())
            }
            _ => Err(StoreError::Invalid(format!("there is no open quarantined item {item_no}"))),
        }
    }

    pub(super) fn quarantine(&mut self, item: &Quarantine, at: Timestamp) {
        let id = item.aggregate.aggregate_id.clone();
        let row = ItemRow {
            item_no: item.item_no.clone(),
            kind: ItemKind::Quarantined,
            order_no: (item.aggregate.aggregate_type == ORDER).then(|| id.clone()),
            stray_id: (item.aggregate.aggregate_type == STRAY).then_some(id),
            detail: item.detail.clone(),
            payment: None,
            state: "open".to_owned(),
            opened_at: at,
            closed_at: None,
        };
        self.items.insert(item.item_no.clone(), (row, item.shard));
    }

    pub(super) fn put_subscriber(&mut self, subscriber: &Subscriber) {
        self.subscribers.insert(subscriber.name.clone(), subscriber.clone());
        self.subscribers_version = self.subscribers_version.saturating_add(1);
    }

    pub(super) fn remove_subscriber(&mut self, name: &str) -> bool {
        self.subscribers_version = self.subscribers_version.saturating_add(1);
        self.subscribers.remove(name).is_some()
    }

    pub(super) fn all_events(&self) -> impl Iterator<Item = &EventRow> {
        self.events.values().flatten()
    }

    pub(super) fn note_attempt(&mut self, attempt: Attempt) {
        if self.attempts.len() < ATTEMPTS_MAX {
            self.attempts.push(attempt);
        }
    }

    pub(super) fn attempts_of(&self, order_no: &OrderNo, limit: u32) -> Vec<Attempt> {
        let of_order = self.attempts.iter().filter(|attempt| attempt.order_no.as_ref() == Some(order_no));
        let mut attempts: Vec<Attempt> = of_order.cloned().collect();
        attempts.sort_by_key(|attempt| std::cmp::Reverse(attempt.at));
        attempts.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        attempts
    }

    /// The counts that the databases' gauges select.
    pub(super) fn gauge_counts(&self) -> Vec<(String, i64)> {
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        let words = self.effects.values().map(|effect| effect.row.state.clone());
        let open = self.items.values().filter(|(item, _)| item.state == "open");
        for word in words.chain(open.map(|(item, _)| format!("item:{}", item.kind.as_str()))) {
            let count = counts.entry(word).or_default();
            *count = count.saturating_add(1);
        }
        counts.insert("events".to_owned(), self.heads().iter().map(|head| head.position).sum());
        counts.into_iter().collect()
    }
}

fn item_entry(item: ItemWrite) -> (ItemRow, u16) {
    let shard = item.shard;
    let row = ItemRow {
        item_no: item.item_no,
        // The word comes from ItemKind::as_str, so it is always known.
        kind: word("kind", item.kind.to_owned()).unwrap_or(ItemKind::Flagged),
        order_no: item.order_no,
        stray_id: item.stray_id,
        detail: item.detail,
        payment: item.payment,
        state: item.state,
        opened_at: item.opened_at,
        closed_at: item.closed_at,
    };
    debug_assert!(row.order_no.as_ref().or(row.stray_id.as_ref()).is_none_or(|id| shard_of(id) == shard));
    (row, shard)
}

fn taken(constraint: &str, detail: &str) -> DbError {
    DbError::Taken { constraint: constraint.to_owned(), detail: detail.to_owned() }
}
