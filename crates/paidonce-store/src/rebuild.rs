//! The projections, made anew from the log alone (promise P4): what the live tables must be, row by row.
//!
//! Pure: events in, rows out. The audit compares them with the tables; a repair writes them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use paidonce_order::event::DecodeError;
use paidonce_order::project::{Aggregate, ItemChange, OrderRow, RowChanges, project};
use paidonce_order::timestamp::Timestamp;

use crate::backend::{FlowWrite, ItemWrite, KeyWrite, ORDER};
use crate::codec::{api_key_of, decode, metadata_of};
use crate::store::EventRow;

/// Why the log can't be folded.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// An event can't be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Metadata is not an object of strings.
    #[error("the metadata of an event can't be read")]
    Metadata(#[from] serde_json::Error),
    /// An event is not the next of its aggregate, or its aggregate is of no known type.
    #[error("event {sequence} of {aggregate_type} {aggregate_id} does not follow the one before")]
    OutOfSequence {
        /// `Order` or `Stray`.
        aggregate_type: String,
        /// order_no or stray id.
        aggregate_id: String,
        /// Its sequence.
        sequence: i64,
    },
}

/// A row of `t_order` with its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltOrder {
    /// The row.
    pub row: OrderRow,
    /// 0..64.
    pub shard: u16,
    /// recorded_at of the first event.
    pub create_time: Timestamp,
    /// recorded_at of the last event.
    pub update_time: Timestamp,
}

/// One aggregate, folded as far as its events were given, and the rows that they make.
#[derive(Debug, Clone)]
pub struct Folded {
    state: Aggregate,
    /// Position of the last event.
    pub position: i64,
    /// `t_order`; `None` for a stray.
    pub order: Option<RebuiltOrder>,
    /// `t_order_flow`, in booking order.
    pub flows: Vec<FlowWrite>,
    /// `t_idempotent`, in the order of the events.
    pub keys: Vec<KeyWrite>,
    /// `t_item`, but for quarantined ones.
    pub items: Vec<ItemWrite>,
}

impl Folded {
    /// Before the first event. `None`: no such type of aggregate.
    #[must_use]
    pub fn empty(aggregate_type: &str) -> Option<Self> {
        let state = Aggregate::empty(aggregate_type)?;
        Some(Self { state, position: 0, order: None, flows: Vec::new(), keys: Vec::new(), items: Vec::new() })
    }

    /// Sequence of the last event.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.state.version()
    }

    /// The state that the events give.
    #[must_use]
    pub const fn state(&self) -> &Aggregate {
        &self.state
    }

    /// Folds the next event of this aggregate. Errors: [`RebuildError`], and then the log needs a person.
    pub fn fold(&mut self, event: &EventRow) -> Result<(), RebuildError> {
        let decoded = decode(event)?;
        let before = self.state.clone();
        self.state.apply(&decoded);
        if self.state.version() != event.sequence {
            self.state = before;
            return Err(RebuildError::OutOfSequence {
                aggregate_type: event.aggregate_type.clone(),
                aggregate_id: event.aggregate_id.clone(),
                sequence: event.sequence,
            });
        }
        self.position = event.position;
        self.take(event, project(&event.aggregate_id, &decoded, &before, &self.state))
    }

    fn take(&mut self, event: &EventRow, changes: RowChanges) -> Result<(), RebuildError> {
        let (shard, position, create_time) = (event.shard, event.position, event.recorded_at);
        let own = changes.idem_key.map(|key| (key.as_str().to_owned(), None));
        let of_caller = api_key_of(&metadata_of(event)?).map(|(key, request)| (key, Some(request)));
        for (idem_key, request_hash) in own.into_iter().chain(of_caller) {
            let order_no = event.aggregate_id.clone();
            self.keys.push(KeyWrite { idem_key, order_no, create_time, shard, position, request_hash });
        }
        let flows = changes.flows.into_iter().map(|row| FlowWrite { row, create_time, shard, position });
        self.flows.extend(flows);
        if let Some(row) = changes.order {
            let created = self.order.as_ref().map_or(create_time, |order| order.create_time);
            self.order = Some(RebuiltOrder { row, shard, create_time: created, update_time: create_time });
        }
        for change in changes.items {
            self.take_item(event, change);
        }
        Ok(())
    }

    fn take_item(&mut self, event: &EventRow, change: ItemChange) {
        match change {
            ItemChange::Opened { item_no, kind, detail, payment } => {
                let is_order = event.aggregate_type == ORDER;
                self.items.push(ItemWrite {
                    item_no,
                    kind: kind.as_str(),
                    order_no: is_order.then(|| event.aggregate_id.clone()),
                    stray_id: (!is_order).then(|| event.aggregate_id.clone()),
                    detail,
                    payment,
                    state: "open".to_owned(),
                    opened_at: event.recorded_at,
                    closed_at: None,
                    shard: event.shard,
                });
            }
            ItemChange::Closed { item_no, outcome } => {
                let open = self.items.iter_mut().find(|item| item.item_no == item_no && item.state == "open");
                if let Some(item) = open {
                    item.state = outcome;
                    item.closed_at = Some(event.recorded_at);
                }
            }
        }
    }
}

/// All rows that are functions of the log: for a ledger that fits into memory.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// By type and id.
    aggregates: BTreeMap<(String, String), Folded>,
}

impl Rebuilt {
    /// Folds the next event. Events of one aggregate come in sequence; otherwise any order will do.
    ///
    /// Errors: [`RebuildError`], and then the log needs a person.
    pub fn fold(&mut self, event: &EventRow) -> Result<(), RebuildError> {
        let key = (event.aggregate_type.clone(), event.aggregate_id.clone());
        let folded = match self.aggregates.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(Folded::empty(&event.aggregate_type).ok_or_else(|| RebuildError::OutOfSequence {
                    aggregate_type: event.aggregate_type.clone(),
                    aggregate_id: event.aggregate_id.clone(),
                    sequence: event.sequence,
                })?)
            }
        };
        folded.fold(event)
    }

    /// `t_order`, by key.
    #[must_use]
    pub fn orders(&self) -> BTreeMap<&str, &RebuiltOrder> {
        let orders = self.aggregates.values().filter_map(|folded| folded.order.as_ref());
        orders.map(|order| (order.row.order_no.as_str(), order)).collect()
    }

    /// `t_order_flow`, by key.
    #[must_use]
    pub fn flows(&self) -> BTreeMap<&str, &FlowWrite> {
        let flows = self.aggregates.values().flat_map(|folded| &folded.flows);
        flows.map(|flow| (flow.row.idem_key.as_str(), flow)).collect()
    }

    /// `t_idempotent`, by key.
    #[must_use]
    pub fn keys(&self) -> BTreeMap<&str, &KeyWrite> {
        let keys = self.aggregates.values().flat_map(|folded| &folded.keys);
        keys.map(|key| (key.idem_key.as_str(), key)).collect()
    }

    /// `t_item`, by key, but for quarantined ones.
    #[must_use]
    pub fn items(&self) -> BTreeMap<&str, &ItemWrite> {
        let items = self.aggregates.values().flat_map(|folded| &folded.items);
        items.map(|item| (item.item_no.as_str(), item)).collect()
    }
}
