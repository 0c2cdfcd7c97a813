//! A ledger in memory: decides and projects by the real rules, keeps nothing, and can be told to stumble.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_order::decide::decide;
use paidonce_order::error::OrderError;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order};
use paidonce_order::project::{Aggregate, ApiKey, FlowRow, ItemChange, OrderRow, project};
use paidonce_order::stray::decide_stray;
use paidonce_order::timestamp::Timestamp;
use paidonce_order::{LedgerEvent, OrderEvent};
use paidonce_store::store::*;
use uuid::Uuid;

/// How the ledger behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Works,
    QueueFull,
    Away,
    OutcomeUnknown,
    /// Commits, but only after this.
    Slow(Duration),
    Panics,
}

#[derive(Default)]
struct Book {
    aggregates: BTreeMap<String, Aggregate>,
    events: Vec<EventRow>,
    order_rows: BTreeMap<String, OrderRow>,
    flows: Vec<FlowRow>,
    items: Vec<ItemRow>,
    api_keys: BTreeMap<String, Digest>,
    subscribers: BTreeMap<String, Subscriber>,
    attempts: Vec<Attempt>,
    contexts: Vec<CommandContext>,
}

pub struct Ledger {
    mood: Mutex<Mood>,
    book: Arc<Mutex<Book>>,
    jobs_begun: AtomicUsize,
}

impl Ledger {
    pub fn new() -> Self {
        Self { mood: Mutex::new(Mood::Works), book: Arc::default(), jobs_begun: AtomicUsize::new(0) }
    }

    pub fn feel(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn event_types(&self) -> Vec<String> {
        self.book.lock().unwrap().events.iter().map(|event| event.event_type.clone()).collect()
    }

    /// How many jobs were handed over, finished or not.
    pub fn jobs_begun(&self) -> usize {
        self.jobs_begun.load(Ordering::SeqCst)
    }

    pub fn attempts(&self) -> Vec<Attempt> {
        self.book.lock().unwrap().attempts.clone()
    }

    pub fn contexts(&self) -> Vec<CommandContext> {
        self.book.lock().unwrap().contexts.clone()
    }

    pub fn quarantine(&self, item_no: &str) {
        let item = item_row(item_no, ItemKind::Quarantined, "could not be decided", None);
        self.book.lock().unwrap().items.push(item);
    }
}

fn item_row(item_no: &str, kind: ItemKind, detail: &str, payment: Option<String>) -> ItemRow {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    ItemRow {
        item_no: item_no.to_owned(),
        kind,
        order_no: None,
        stray_id: None,
        detail: detail.to_owned(),
        payment,
        state: "open".to_owned(),
        opened_at: at,
        closed_at: None,
    }
}

impl Book {
    fn submit(&mut self, work: Work) -> Outcome {
        self.contexts.push(work.context.clone());
        let (id, empty) = match &work.target {
            Target::Order { order_no, .. } => (order_no.to_string(), Aggregate::empty("Order").unwrap()),
            Target::Stray { stray_id, .. } => (stray_id.clone(), Aggregate::empty("Stray").unwrap()),
        };
        let mut state = self.aggregates.get(&id).cloned().unwrap_or(empty);
        if let Some(ApiKey { idem_key, request }) = &work.context.api_key {
            match self.api_keys.get(idem_key.as_str()) {
                Some(known) if known == request => return Outcome::Duplicate(receipt(&state, Vec::new())),
                Some(_) => return Outcome::ApiKeyReused,
                None => {}
            }
        }
        let events = match decided(&id, &state, work.target) {
            Ok(events) => events,
            Err(error) => return Outcome::Rejected(error),
        };
        if events.is_empty() {
            return Outcome::Duplicate(receipt(&state, Vec::new()));
        }
        let mut told = Vec::new();
        for event in events {
            told.push(self.append(&id, &mut state, &event, &work.context));
        }
        if let Some(ApiKey { idem_key, request }) = work.context.api_key {
            self.api_keys.insert(idem_key.to_string(), request);
        }
        self.aggregates.insert(id, state.clone());
        Outcome::Committed(receipt(&state, told))
    }

    fn append(
        &mut self,
        id: &str,
        state: &mut Aggregate,
        event: &LedgerEvent,
        context: &CommandContext,
    ) -> ReceiptEvent {
        let before = state.clone();
        state.apply(event);
        let changes = project(id, event, &before, state);
        let position = i64::try_from(self.events.len()).unwrap() + 1;
        let mut metadata = serde_json::json!({ "source": context.source });
        if let Some(key) = &changes.idem_key {
            metadata["idem_key"] = key.as_str().into();
        }
        if let Some(actor) = &context.actor {
            metadata["actor"] = actor.as_str().into();
        }
        let event_id = Uuid::now_v7();
        self.events.push(EventRow {
            shard: 0,
            position,
            event_id,
            aggregate_type: event.aggregate_type().to_owned(),
            aggregate_id: id.to_owned(),
            sequence: state.version(),
            event_type: event.event_type().to_owned(),
            event_version: event.event_version().to_owned(),
            payload: event.to_payload_json().unwrap(),
            metadata: metadata.to_string(),
            recorded_at: Timestamp::from_micros(position),
            hash: Digest([0; 32]),
        });
        if let Some(row) = changes.order {
            self.order_rows.insert(id.to_owned(), row);
        }
        self.flows.extend(changes.flows);
        for change in changes.items {
            self.change_item(id, change, matches!(state, Aggregate::Order(_)));
        }
        ReceiptEvent { event_id, event_type: event.event_type().to_owned() }
    }

    fn change_item(&mut self, id: &str, change: ItemChange, is_order: bool) {
        match change {
            ItemChange::Opened { item_no, kind, detail, payment } => {
                let mut row = item_row(&item_no, kind, &detail, payment);
                row.order_no = is_order.then(|| id.to_owned());
                row.stray_id = (!is_order).then(|| id.to_owned());
                self.items.push(row);
            }
            ItemChange::Closed { item_no, outcome } => {
                let item = self.items.iter_mut().find(|item| item.item_no == item_no).unwrap();
                item.state = outcome;
                item.closed_at = Some(item.opened_at);
            }
        }
    }
}

fn decided(id: &str, state: &Aggregate, target: Target) -> Result<Vec<LedgerEvent>, OrderError> {
    match (target, state) {
        (Target::Order { command, .. }, Aggregate::Order(order)) => {
            let order_no = OrderNo::parse(id).unwrap();
            let events: Vec<OrderEvent> = decide(&order_no, order, command)?;
            Ok(events.into_iter().map(LedgerEvent::Order).collect())
        }
        (Target::Stray { command, .. }, Aggregate::Stray(stray)) => {
            Ok(decide_stray(stray, command)?.into_iter().map(LedgerEvent::Stray).collect())
        }
        _ => panic!("one id, two kinds of aggregate"),
    }
}

fn receipt(state: &Aggregate, events: Vec<ReceiptEvent>) -> Receipt {
    let order = match state {
        Aggregate::Order(order) => Some(Arc::new(order.as_ref().clone())),
        Aggregate::Stray(_) => None,
    };
    Receipt { events, order }
}

#[async_trait]
impl Store for Ledger {
    async fn submit(&self, work: Work) -> Result<Outcome, SubmitError> {
        let mood = *self.mood.lock().unwrap();
        self.jobs_begun.fetch_add(1, Ordering::SeqCst);
        match mood {
            Mood::Works => {}
            Mood::QueueFull => return Err(SubmitError::QueueFull),
            Mood::Away => return Err(SubmitError::Unavailable("connection refused".to_owned())),
            Mood::OutcomeUnknown => return Err(SubmitError::Unknown),
            Mood::Slow(delay) => {
                // The job goes on whatever becomes of the caller, as the store's does.
                let book = Arc::clone(&self.book);
                let job = tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    book.lock().unwrap().submit(work)
                });
                return Ok(job.await.unwrap());
            }
            Mood::Panics => panic!("told to"),
        }
        Ok(self.book.lock().unwrap().submit(work))
    }

    async fn find_order(&self, order_no: &OrderNo) -> Result<Option<Order>, StoreError> {
        Ok(match self.book.lock().unwrap().aggregates.get(order_no.as_str()) {
            Some(Aggregate::Order(order)) => Some(order.as_ref().clone()),
            Some(Aggregate::Stray(_)) | None => None,
        })
    }

    async fn find_order_row(&self, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
        Ok(self.book.lock().unwrap().order_rows.get(order_no.as_str()).cloned())
    }

    async fn list_order_events(&self, order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError> {
        let book = self.book.lock().unwrap();
        Ok(book.events.iter().filter(|event| event.aggregate_id == order_no.as_str()).cloned().collect())
    }

    async fn list_order_flows(&self, order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError> {
        Ok(self.book.lock().unwrap().flows.iter().filter(|flow| flow.order_no == *order_no).cloned().collect())
    }

    async fn list_surplus_refunds(&self, _: &AccountRef, _: Timestamp) -> Result<Option<Vec<Money>>, StoreError> {
        Ok(Some(Vec::new()))
    }

    async fn list_orders(&self, filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError> {
        let book = self.book.lock().unwrap();
        let rows = book.order_rows.values().filter(|row| filter.status.is_none_or(|status| row.status == status));
        let rows = rows.filter(|row| filter.after.as_ref().is_none_or(|after| row.order_no > *after));
        Ok(rows.take(filter.limit as usize).cloned().collect())
    }

    async fn find_order_by_trade_no(
        &self,
        account: &AccountRef,
        channel_trade_no: &ChannelTradeNo,
    ) -> Result<Option<OrderNo>, StoreError> {
        let book = self.book.lock().unwrap();
        let mut flows = book.flows.iter();
        let flow = flows.find(|flow| flow.account == *account && flow.channel_trade_no == *channel_trade_no);
        Ok(flow.map(|flow| flow.order_no.clone()))
    }

    async fn read_feed(&self, cursor: &str, limit: u32) -> Result<FeedPage, StoreError> {
        let start: usize = if cursor.is_empty() {
            0
        } else {
            cursor.parse().map_err(|_| StoreError::Invalid("cursor is unreadable".to_owned()))?
        };
        let book = self.book.lock().unwrap();
        let events: Vec<EventRow> = book.events.iter().skip(start).take(limit as usize).cloned().collect();
        let next_cursor = (start + events.len()).to_string();
        let position = i64::try_from(book.events.len()).unwrap();
        Ok(FeedPage { events, next_cursor, heads: vec![Head { shard: 0, position, hash: Digest([0; 32]) }] })
    }

    async fn list_items(
        &self,
        kind: Option<ItemKind>,
        open_only: OnlyOpen,
        _after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ItemRow>, StoreError> {
        let book = self.book.lock().unwrap();
        let rows = book.items.iter().rev().filter(|item| kind.is_none_or(|kind| item.kind == kind));
        let rows = rows.filter(|item| open_only == OnlyOpen::No || item.state == "open");
        Ok(rows.take(limit as usize).cloned().collect())
    }

    async fn find_item(&self, item_no: &str) -> Result<Option<ItemRow>, StoreError> {
        Ok(self.book.lock().unwrap().items.iter().find(|item| item.item_no == item_no).cloned())
    }

    async fn resolve_quarantined(&self, item_no: &str, _by: &str) -> Result<(), StoreError> {
        let mut book = self.book.lock().unwrap();
        book.items.iter_mut().find(|item| item.item_no == item_no).unwrap().state = "resolved".to_owned();
        Ok(())
    }

    async fn list_subscribers(&self) -> Result<Vec<Subscriber>, StoreError> {
        Ok(self.book.lock().unwrap().subscribers.values().cloned().collect())
    }

    async fn put_subscriber(&self, subscriber: &Subscriber, backfill: Backfill) -> Result<u64, StoreError> {
        let mut book = self.book.lock().unwrap();
        book.subscribers.insert(subscriber.name.clone(), subscriber.clone());
        Ok(if backfill == Backfill::All { book.events.len() as u64 } else { 0 })
    }

    async fn delete_subscriber(&self, name: &str) -> Result<(), StoreError> {
        self.book.lock().unwrap().subscribers.remove(name);
        Ok(())
    }

    async fn claim_effects(&self, _: &[&str], _: i64, _: u32) -> Result<Vec<ClaimedEffect>, StoreError> {
        Ok(Vec::new())
    }

    async fn complete_effect(&self, _: Uuid, _: Uuid, _: &TryResult) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn list_effects(
        &self,
        _state: Option<&str>,
        _order_no: Option<&str>,
        _after: Option<Uuid>,
        _limit: u32,
    ) -> Result<Vec<EffectRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn requeue_effect(&self, _: Uuid, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn discard_effect(&self, _: Uuid, _: &str) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn next_effect_due_ms(&self, _: &[&str]) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    async fn prune_effects(&self, _: i64, _: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn note_attempt(&self, attempt: Attempt) {
        self.book.lock().unwrap().attempts.push(attempt);
    }

    async fn list_attempts(&self, order_no: &OrderNo, _limit: u32) -> Result<Vec<Attempt>, StoreError> {
        let attempts = self.attempts().into_iter().rev();
        Ok(attempts.filter(|attempt| attempt.order_no.as_ref() == Some(order_no)).collect())
    }

    async fn gauges(&self) -> Result<Gauges, StoreError> {
        if *self.mood.lock().unwrap() == Mood::Away {
            return Err(StoreError::Unavailable("connection refused".to_owned()));
        }
        let events_total = i64::try_from(self.book.lock().unwrap().events.len()).unwrap();
        Ok(Gauges {
            effects: vec![("dead".to_owned(), 2)],
            items_open: Vec::new(),
            queue_depth: 0,
            events_total,
            attempts_dropped: 0,
        })
    }

    async fn check_ready(&self) -> Result<(), StoreError> {
        if *self.mood.lock().unwrap() == Mood::Away {
            return Err(StoreError::Unavailable("connection refused".to_owned()));
        }
        Ok(())
    }

    async fn shutdown(&self) {}
}
