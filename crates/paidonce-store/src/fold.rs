//! Values from stored events: an order, and what was refunded of late.

use paidonce_order::command::RefundOrigin;
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::AccountRef;
use paidonce_order::money::Money;
use paidonce_order::order::Order;

use crate::store::{EventRow, SURPLUS_REFUNDS_MAX, StoreError};

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

/// Amounts of those `RefundRequested` that ask for a surplus payment of this account back; `None` when the page is full, so
/// that there may be more of them than were read.
pub(crate) fn surplus_refunds(events: &[EventRow], account: &AccountRef) -> Result<Option<Vec<Money>>, StoreError> {
    if u32::try_from(events.len()).unwrap_or(u32::MAX) >= SURPLUS_REFUNDS_MAX {
        return Ok(None);
    }
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
    Ok(Some(amounts))
}

#[cfg(test)]
mod tests {
    use paidonce_order::ids::Digest;
    use paidonce_order::timestamp::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn row() -> EventRow {
        EventRow {
            shard: 0,
            position: 1,
            event_id: Uuid::nil(),
            aggregate_type: "Order".to_owned(),
            aggregate_id: "A".to_owned(),
            sequence: 1,
            event_type: "RefundRequested".to_owned(),
            event_version: "1".to_owned(),
            payload: "{}".to_owned(),
            metadata: "{}".to_owned(),
            recorded_at: Timestamp::from_micros(0),
            hash: Digest([0; 32]),
        }
    }

    /// Guards the breaker: refunds behind the page's end must not count as none.
    #[test]
    fn a_full_page_of_requests_is_not_taken_for_all_of_them() {
        let account = AccountRef::parse("wxpay:1900000001").expect("account");
        let page = vec![row(); usize::try_from(SURPLUS_REFUNDS_MAX).expect("small")];
        assert_eq!(surplus_refunds(&page, &account).expect("read"), None);
        assert_eq!(surplus_refunds(&[], &account).expect("read"), Some(Vec::new()));
    }
}
