//! Deciding a batch: jobs and loaded state in, rows and verdicts out. Pure: no IO and no clock, so that a batch can be planned
//! again from the start whenever the database says that somebody was faster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aws_lc_rs::rand;
use paidonce_order::decide::decide;
use paidonce_order::error::OrderError;
use paidonce_order::event::LedgerEvent;
use paidonce_order::ids::{Digest, shard_of};
use paidonce_order::order::{Order, Status};
use paidonce_order::project::{Aggregate, ApiKey, ChannelCall, ItemChange, OrderRow, RowChanges, project};
use paidonce_order::stray::decide_stray;
use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use crate::backend::{
    AggregateKey, Append, EffectWrite, FlowWrite, HeadWrite, ItemClose, ItemWrite, KeyWrite, LockedHead, ORDER,
    OrderMove, OrderWrite, STRAY, StoredKey, VersionWrite,
};
use crate::codec::{Place, metadata_json, uuid_v7};
use crate::fault::Faults;
use crate::hash_chain;
use crate::options::FirstDue;
use crate::store::{CommandContext, EventRow, Outcome, Receipt, ReceiptEvent, SubmitError, Subscriber, Target, Work};

/// The aggregate that a job is for.
pub(super) fn key_of(work: &Work) -> AggregateKey {
    match &work.target {
        Target::Order { order_no, .. } => {
            AggregateKey { aggregate_type: ORDER, aggregate_id: order_no.as_str().to_owned() }
        }
        Target::Stray { stray_id, .. } => AggregateKey { aggregate_type: STRAY, aggregate_id: stray_id.clone() },
    }
}

/// Everything a plan is made from.
#[derive(Debug)]
pub(super) struct Basis {
    /// The locked heads.
    pub(super) heads: Vec<LockedHead>,
    /// Database time and offset.
    pub(super) now: Timestamp,
    /// State of every aggregate of the batch; an `Err` names what is unreadable about it.
    pub(super) states: HashMap<AggregateKey, Result<Arc<Aggregate>, String>>,
    /// API keys of the batch that are in `t_idempotent`.
    pub(super) keys: HashMap<String, StoredKey>,
    /// Who gets effects.
    pub(super) subscribers: Arc<Vec<Subscriber>>,
    /// When channel calls are tried first.
    pub(super) first_due: FirstDue,
    /// Pairs (event type, version) known to be in `t_event_version`.
    pub(super) versions: HashSet<(&'static str, &'static str)>,
}

/// What becomes of a job once the plan is committed.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The caller's answer.
    Answer(Outcome),
    /// The rules stumbled over it (a panic, unreadable state): nothing of it is in the plan.
    Poisoned(String),
}

/// A decided batch.
#[derive(Debug)]
pub(super) struct Plan {
    /// All rows.
    pub(super) append: Append,
    /// One per job, in order.
    pub(super) verdicts: Vec<Verdict>,
    /// State after the batch, of every aggregate that moved.
    pub(super) moved: Vec<(AggregateKey, Arc<Aggregate>)>,
}

/// Decides all jobs in arrival order. `faults` make the rules panic in test builds, and are nothing otherwise.
pub(super) fn plan<'a>(basis: Basis, faults: &Faults, jobs: impl Iterator<Item = &'a Work>) -> Plan {
    let mut planner = Planner::new(basis, faults.clone());
    let verdicts = jobs.map(|work| planner.job(work)).collect();
    planner.finish(verdicts)
}

/// One shard's chain while it grows.
#[derive(Debug)]
struct Chain {
    start: i64,
    position: i64,
    hash: Digest,
    recorded_at: Timestamp,
}

/// One aggregate while it grows.
#[derive(Debug)]
struct Working {
    state: Result<Arc<Aggregate>, String>,
    /// Made once per state, for receipts.
    receipt: Option<Arc<Order>>,
    before: (Status, i64),
    row: Option<OrderRow>,
}

/// What one command makes, before it has positions.
type Decided = (Vec<(LedgerEvent, RowChanges)>, Arc<Aggregate>);

struct Planner {
    now: Timestamp,
    faults: Faults,
    chains: BTreeMap<u16, Chain>,
    working: HashMap<AggregateKey, Working>,
    keys: HashMap<String, StoredKey>,
    subscribers: Arc<Vec<Subscriber>>,
    first_due: FirstDue,
    versions: HashSet<(&'static str, &'static str)>,
    evidence: HashSet<(u16, Digest)>,
    items: HashMap<String, usize>,
    append: Append,
}

impl Planner {
    fn new(basis: Basis, faults: Faults) -> Self {
        let chains = basis.heads.into_iter().map(|head| {
            let chain = Chain {
                start: head.position,
                position: head.position,
                hash: head.hash,
                // Never earlier than the event before, whatever the database's clock does.
                recorded_at: basis.now.max(head.recorded_at),
            };
            (head.shard, chain)
        });
        let working = basis.states.into_iter().map(|(key, state)| {
            let before = match state.as_deref() {
                Ok(Aggregate::Order(order)) => (order.status, order.version),
                Ok(Aggregate::Stray(stray)) => (Status::Unopened, stray.version),
                Err(_) => (Status::Unopened, 0),
            };
            (key, Working { state, receipt: None, before, row: None })
        });
        Self {
            now: basis.now,
            faults,
            chains: chains.collect(),
            working: working.collect(),
            keys: basis.keys,
            subscribers: basis.subscribers,
            first_due: basis.first_due,
            versions: basis.versions,
            evidence: HashSet::new(),
            items: HashMap::new(),
            append: Append::default(),
        }
    }

    fn job(&mut self, work: &Work) -> Verdict {
        let key = key_of(work);
        let state = match self.working.get(&key).map(|working| working.state.clone()) {
            Some(Ok(state)) => state,
            Some(Err(problem)) => return Verdict::Poisoned(problem),
            None => return Verdict::Poisoned("its state was not loaded".to_owned()),
        };
        if let Some(outcome) = self.known_key(&key, work.context.api_key.as_ref()) {
            return Verdict::Answer(outcome);
        }
        // A panic in the rules must not take the neighbours: the state is shared and never changed in place, so nothing of this
        // job is left behind.
        match catch_unwind(AssertUnwindSafe(|| decide_all(work, &key, &state, &self.faults))) {
            Err(_) => Verdict::Poisoned("the rules panicked over it: see the log".to_owned()),
            Ok(Err(rejection)) => Verdict::Answer(Outcome::Rejected(rejection)),
            Ok(Ok((events, _))) if events.is_empty() => {
                Verdict::Answer(Outcome::Duplicate(self.receipt(&key, Vec::new())))
            }
            Ok(Ok(decided)) => match self.take(&key, &work.context, decided) {
                Ok(events) => Verdict::Answer(Outcome::Committed(self.receipt(&key, events))),
                Err(problem) => Verdict::Poisoned(problem),
            },
        }
    }

    /// The answer to an `Idempotency-Key` that was used before, in the log or earlier in this batch.
    fn known_key(&mut self, key: &AggregateKey, api_key: Option<&ApiKey>) -> Option<Outcome> {
        let api_key = api_key?;
        let stored = self.keys.get(api_key.idem_key.as_str())?;
        let same = stored.order_no == key.aggregate_id && stored.request_hash == Some(api_key.request);
        Some(if same { Outcome::Duplicate(self.receipt(key, Vec::new())) } else { Outcome::ApiKeyReused })
    }

    fn receipt(&mut self, key: &AggregateKey, events: Vec<ReceiptEvent>) -> Receipt {
        let order = self.working.get_mut(key).and_then(|working| {
            if working.receipt.is_none()
                && let Ok(Aggregate::Order(order)) = working.state.as_deref()
            {
                working.receipt = Some(Arc::new(Order::clone(order)));
            }
            working.receipt.clone()
        });
        Receipt { events, order }
    }

    /// Gives the events of one command their positions and collects their rows.
    fn take(
        &mut self,
        key: &AggregateKey,
        context: &CommandContext,
        (events, after): Decided,
    ) -> Result<Vec<ReceiptEvent>, String> {
        let shard = shard_of(&key.aggregate_id);
        // All rows that can fail are made before anything is collected, so that a failed job leaves no trace.
        let recorded_at = self.chains.get(&shard).map(|chain| chain.recorded_at).ok_or("its shard is not locked")?;
        let mut texts = Vec::with_capacity(events.len());
        for (index, (event, changes)) in events.iter().enumerate() {
            let place = if index == 0 { Place::First } else { Place::Later };
            let idem_key = changes.idem_key.as_ref().map(|key| key.as_str());
            let payload = event.to_payload_json().map_err(|error| error.to_string())?;
            let metadata = metadata_json(context, recorded_at, idem_key, place).map_err(|error| error.to_string())?;
            texts.push((payload, metadata));
        }
        let first_sequence = after.version().saturating_sub(i64::try_from(events.len()).unwrap_or(0));
        let mut receipts = Vec::with_capacity(events.len());
        for (sequence, ((event, changes), texts)) in
            (first_sequence.saturating_add(1)..).zip(events.into_iter().zip(texts))
        {
            let place = EventPlace { key, shard, sequence, recorded_at };
            let (event_id, position) = self.push_event(&place, &event, texts, context);
            receipts.push(ReceiptEvent { event_id, event_type: event.event_type().to_owned() });
            self.push_changes(&place, (event_id, position), event.event_type(), changes);
        }
        if let (Some(api_key), Some(chain)) = (&context.api_key, self.chains.get(&shard)) {
            let position = chain.position.saturating_sub(i64::try_from(receipts.len()).unwrap_or(1)).saturating_add(1);
            self.push_api_key(key, api_key, (shard, position, recorded_at));
        }
        if let Some(evidence) = &context.evidence
            && self.evidence.insert((shard, evidence.digest))
        {
            self.append.evidence.push((shard, Arc::clone(evidence)));
        }
        if let Some(working) = self.working.get_mut(key) {
            working.state = Ok(after);
            working.receipt = None;
        }
        Ok(receipts)
    }

    fn push_event(
        &mut self,
        place: &EventPlace<'_>,
        event: &LedgerEvent,
        (payload, metadata): (String, String),
        context: &CommandContext,
    ) -> (Uuid, i64) {
        let event_id = uuid_v7(self.now, self.append.events.len(), random());
        let (event_type, event_version) = (event.event_type(), event.event_version());
        if self.versions.insert((event_type, event_version)) {
            let first_seen_at = place.recorded_at;
            self.append.versions.push(VersionWrite { event_type, event_version, first_seen_at });
        }
        let Some(chain) = self.chains.get_mut(&place.shard) else { return (event_id, 0) };
        chain.position = chain.position.saturating_add(1);
        let mut row = EventRow {
            shard: place.shard,
            position: chain.position,
            event_id,
            aggregate_type: place.key.aggregate_type.to_owned(),
            aggregate_id: place.key.aggregate_id.clone(),
            sequence: place.sequence,
            event_type: event_type.to_owned(),
            event_version: event_version.to_owned(),
            payload,
            metadata,
            recorded_at: place.recorded_at,
            hash: hash_chain::GENESIS,
        };
        row.hash = hash_chain::link(&chain.hash, &row, context.evidence.as_ref().map(|evidence| &evidence.digest));
        chain.hash = row.hash;
        let position = row.position;
        self.append.events.push(row);
        (event_id, position)
    }

    fn push_changes(
        &mut self,
        place: &EventPlace<'_>,
        (event_id, position): (Uuid, i64),
        event_type: &str,
        changes: RowChanges,
    ) {
        let (shard, create_time) = (place.shard, place.recorded_at);
        if let Some(key) = changes.idem_key {
            self.append.keys.push(KeyWrite {
                idem_key: key.as_str().to_owned(),
                order_no: place.key.aggregate_id.clone(),
                create_time,
                shard,
                position,
                request_hash: None,
            });
        }
        if let (Some(row), Some(working)) = (changes.order, self.working.get_mut(place.key)) {
            working.row = Some(row);
        }
        self.append.flows.extend(changes.flows.into_iter().map(|row| FlowWrite { row, create_time, shard, position }));
        for change in changes.items {
            self.push_item(place, change);
        }
        let subscribers = Arc::clone(&self.subscribers);
        for subscriber in subscribers.iter().filter(|subscriber| subscriber.wants(event_type)) {
            self.push_effect(place, (event_id, position), subscriber.name.clone(), None);
        }
        for call in &changes.calls {
            self.push_effect(place, (event_id, position), call.lane(), Some(call));
        }
    }

    fn push_item(&mut self, place: &EventPlace<'_>, change: ItemChange) {
        match change {
            ItemChange::Opened { item_no, kind, detail, payment } => {
                let is_order = place.key.aggregate_type == ORDER;
                let id = place.key.aggregate_id.clone();
                self.items.insert(item_no.clone(), self.append.items_opened.len());
                self.append.items_opened.push(ItemWrite {
                    item_no,
                    kind: kind.as_str(),
                    order_no: is_order.then(|| id.clone()),
                    stray_id: (!is_order).then_some(id),
                    detail,
                    payment,
                    state: "open".to_owned(),
                    opened_at: place.recorded_at,
                    closed_at: None,
                    shard: place.shard,
                });
            }
            ItemChange::Closed { item_no, outcome } => {
                let opened = self.items.get(&item_no).and_then(|index| self.append.items_opened.get_mut(*index));
                if let Some(item) = opened {
                    item.state = outcome;
                    item.closed_at = Some(place.recorded_at);
                } else {
                    self.append.items_closed.push(ItemClose {
                        item_no,
                        state: outcome,
                        closed_at: place.recorded_at,
                        shard: place.shard,
                    });
                }
            }
        }
    }

    fn push_effect(
        &mut self,
        place: &EventPlace<'_>,
        (event_id, position): (Uuid, i64),
        subscriber: String,
        call: Option<&ChannelCall>,
    ) {
        let wait_ms = call.map_or(0, |call| first_wait_ms(call, self.first_due));
        self.append.effects.push(EffectWrite {
            effect_id: uuid_v7(self.now, self.append.effects.len(), random()),
            shard: place.shard,
            position,
            order_no: place.key.aggregate_id.clone(),
            subscriber,
            kind: call.map_or("deliver", ChannelCall::kind),
            event_id,
            call: call.and_then(|call| serde_json::to_string(call).ok()),
            created_at: place.recorded_at,
            due_at: place.recorded_at.plus_micros(wait_ms.saturating_mul(1_000)),
        });
    }

    fn push_api_key(&mut self, key: &AggregateKey, api_key: &ApiKey, (shard, position, at): (u16, i64, Timestamp)) {
        let idem_key = api_key.idem_key.as_str().to_owned();
        let stored = StoredKey {
            idem_key: idem_key.clone(),
            order_no: key.aggregate_id.clone(),
            request_hash: Some(api_key.request),
        };
        self.keys.insert(idem_key.clone(), stored);
        self.append.keys.push(KeyWrite {
            idem_key,
            order_no: key.aggregate_id.clone(),
            create_time: at,
            shard,
            position,
            request_hash: Some(api_key.request),
        });
    }

    fn finish(mut self, verdicts: Vec<Verdict>) -> Plan {
        let mut moved = Vec::new();
        for (key, working) in self.working {
            let Ok(state) = working.state else { continue };
            if state.version() == working.before.1 {
                continue;
            }
            let shard = shard_of(&key.aggregate_id);
            let at = self.chains.get(&shard).map_or(self.now, |chain| chain.recorded_at);
            if let Some(row) = working.row {
                let (expected_status, expected_version) = working.before;
                if expected_version == 0 {
                    self.append.orders_new.push(OrderWrite { row, shard, create_time: at, update_time: at });
                } else {
                    let update_time = at;
                    self.append.orders_moved.push(OrderMove {
                        row,
                        shard,
                        update_time,
                        expected_status,
                        expected_version,
                    });
                }
            }
            moved.push((key, state));
        }
        // Row locks are taken in one order by every writer.
        self.append.orders_new.sort_by(|a, b| a.row.order_no.cmp(&b.row.order_no));
        self.append.orders_moved.sort_by(|a, b| a.row.order_no.cmp(&b.row.order_no));
        self.append.heads = self
            .chains
            .into_iter()
            .filter(|(_, chain)| chain.position > chain.start)
            .map(|(shard, chain)| HeadWrite {
                shard,
                expected_position: chain.start,
                position: chain.position,
                hash: chain.hash,
                recorded_at: chain.recorded_at,
            })
            .collect();
        Plan { append: self.append, verdicts, moved }
    }
}

/// Where the events of one command stand.
struct EventPlace<'a> {
    key: &'a AggregateKey,
    shard: u16,
    sequence: i64,
    recorded_at: Timestamp,
}

/// Runs the rules for one command; the state is left as it is.
fn decide_all(work: &Work, key: &AggregateKey, state: &Arc<Aggregate>, faults: &Faults) -> Result<Decided, OrderError> {
    let events: Vec<LedgerEvent> = match (&work.target, state.as_ref()) {
        (Target::Order { order_no, command }, Aggregate::Order(order)) => {
            decide(order_no, order, command.clone())?.into_iter().map(LedgerEvent::Order).collect()
        }
        (Target::Stray { command, .. }, Aggregate::Stray(stray)) => {
            decide_stray(stray, command.clone())?.into_iter().map(LedgerEvent::Stray).collect()
        }
        (Target::Order { .. }, Aggregate::Stray(_)) | (Target::Stray { .. }, Aggregate::Order(_)) => Vec::new(),
    };
    let mut state = Arc::clone(state);
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        let mut after = Aggregate::clone(&state);
        after.apply(&event);
        faults.decide(&key.aggregate_id);
        let changes = project(&key.aggregate_id, &event, &state, &after);
        rows.push((event, changes));
        state = Arc::new(after);
    }
    Ok((rows, state))
}

/// How long after its event an effect is tried first. Units: milliseconds.
fn first_wait_ms(call: &ChannelCall, first_due: FirstDue) -> i64 {
    match call {
        ChannelCall::Poll => first_due.poll_ms,
        ChannelCall::Surplus { .. } => first_due.surplus_ms,
        ChannelCall::Refund { spacing_seconds, .. } => i64::from(*spacing_seconds).saturating_mul(1_000),
        ChannelCall::QueryPayment { .. }
        | ChannelCall::QueryRefund { .. }
        | ChannelCall::Close { .. }
        | ChannelCall::QueryShare { .. } => 0,
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Only the spread of ids hangs on this; uniqueness is guarded by the primary keys.
    if rand::fill(&mut bytes).is_err() {
        tracing::warn!("the system's random source failed");
    }
    u64::from_be_bytes(bytes)
}

/// The caller's answer when a job was set aside.
pub(super) fn quarantined(problem: &str) -> SubmitError {
    SubmitError::Quarantined(problem.to_owned())
}
