//! An order from its stored events.

use paidonce_order::event::LedgerEvent;
use paidonce_order::order::Order;

use crate::store::{EventRow, StoreError};

/// Folds the events of one order, in sequence; `None` when there are none.
///
/// Errors: [`StoreError::Corrupt`] for an event that can't be decoded, or a gap in the sequence.
pub(crate) fn order(events: &[EventRow]) -> Result<Option<Order>, StoreError> {
    let mut order = Order::default();
    for (row, sequence) in events.iter().zip(1..) {
        if row.sequence != sequence {
            return Err(StoreError::Corrupt(format!("event {sequence} of order {} is missing", row.aggregate_id)));
        }
        let event = LedgerEvent::from_stored(&row.aggregate_type, &row.event_type, &row.event_version, &row.payload)
            .map_err(|error| StoreError::Corrupt(format!("event {sequence} of order {}: {error}", row.aggregate_id)))?;
        match event {
            LedgerEvent::Order(event) => order.apply(&event),
            LedgerEvent::Stray(_) => {
                return Err(StoreError::Corrupt(format!("order {} has an event of a stray", row.aggregate_id)));
            }
        }
    }
    Ok((!events.is_empty()).then_some(order))
}
