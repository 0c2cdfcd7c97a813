//! Values from stored events: an order, and what was refunded of late.

use paidonce_order::command::RefundOrigin;
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::AccountRef;
use paidonce_order::money::Money;
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

/// Amounts of those `RefundRequested` that ask for a surplus payment of this account back.
pub(crate) fn surplus_refunds(events: &[EventRow], account: &AccountRef) -> Result<Vec<Money>, StoreError> {
    let mut amounts = Vec::new();
    for row in events {
        let event = LedgerEvent::from_stored(&row.aggregate_type, &row.event_type, &row.event_version, &row.payload)
            .map_err(|error| StoreError::Corrupt(format!("an event of order {}: {error}", row.aggregate_id)))?;
        if let LedgerEvent::Order(OrderEvent::RefundRequested { payment, amount, origin, .. }) = event
            && origin == RefundOrigin::Surplus
            && payment.account == *account
        {
            amounts.push(amount);
        }
    }
    Ok(amounts)
}
