//! The projections, made anew from the log alone (promise P4): what the live tables must be, row by row.
//!
//! Pure: events in, rows out. The audit compares them with the tables; a repair writes them.

use std::collections::{BTreeMap, HashMap};

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

/// All rows that are functions of the log, by key.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// `t_order`.
    pub orders: BTreeMap<String, RebuiltOrder>,
    /// `t_order_flow`.
    pub flows: BTreeMap<String, FlowWrite>,
    /// `t_idempotent`.
    pub keys: BTreeMap<String, KeyWrite>,
    /// `t_item`, but for quarantined ones.
    pub items: BTreeMap<String, ItemWrite>,
    aggregates: HashMap<(String, String), Aggregate>,
}

impl Rebuilt {
    /// Folds the next event. Events of one aggregate come in sequence; otherwise any order will do.
    ///
    /// Errors: [`RebuildError`], and then the log needs a person.
    pub fn fold(&mut self, event: &EventRow) -> Result<(), RebuildError> {
        let decoded = decode(event)?;
        let out_of_sequence = || RebuildError::OutOfSequence {
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
            sequence: event.sequence,
        };
        let key = (event.aggregate_type.clone(), event.aggregate_id.clone());
        let before = match self.aggregates.remove(&key) {
            Some(state) => state,
            None => Aggregate::empty(&event.aggregate_type).ok_or_else(out_of_sequence)?,
        };
        let mut after = before.clone();
        after.apply(&decoded);
        if after.version() != event.sequence {
            return Err(out_of_sequence());
        }
        self.take(event, project(&event.aggregate_id, &decoded, &before, &after))?;
        self.aggregates.insert(key, after);
        Ok(())
    }

    fn take(&mut self, event: &EventRow, changes: RowChanges) -> Result<(), RebuildError> {
        let (shard, position, create_time) = (event.shard, event.position, event.recorded_at);
        let own = changes.idem_key.map(|key| (key.as_str().to_owned(), None));
        let of_caller = api_key_of(&metadata_of(event)?).map(|(key, request)| (key, Some(request)));
        for (idem_key, request_hash) in own.into_iter().chain(of_caller) {
            let order_no = event.aggregate_id.clone();
            let row = KeyWrite { idem_key: idem_key.clone(), order_no, create_time, shard, position, request_hash };
            self.keys.insert(idem_key, row);
        }
        for row in changes.flows {
            self.flows.insert(row.idem_key.as_str().to_owned(), FlowWrite { row, create_time, shard, position });
        }
        if let Some(row) = changes.order {
            let created = self.orders.get(&event.aggregate_id).map_or(create_time, |order| order.create_time);
            let order = RebuiltOrder { row, shard, create_time: created, update_time: create_time };
            self.orders.insert(event.aggregate_id.clone(), order);
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
                let item = ItemWrite {
                    item_no: item_no.clone(),
                    kind: kind.as_str(),
                    order_no: is_order.then(|| event.aggregate_id.clone()),
                    stray_id: (!is_order).then(|| event.aggregate_id.clone()),
                    detail,
                    payment,
                    state: "open".to_owned(),
                    opened_at: event.recorded_at,
                    closed_at: None,
                    shard: event.shard,
                };
                self.items.insert(item_no, item);
            }
            ItemChange::Closed { item_no, outcome } => {
                if let Some(item) = self.items.get_mut(&item_no).filter(|item| item.state == "open") {
                    item.state = outcome;
                    item.closed_at = Some(event.recorded_at);
                }
            }
        }
    }
}
