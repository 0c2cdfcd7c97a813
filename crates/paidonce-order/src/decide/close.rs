//! Closing: by our own decision, or because the last way to pay is closed at its channel.

use super::draft::Draft;
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::order::Status;

/// Reason of an order that its channels closed.
const CLOSED_AT_CHANNELS: &str = "closed unpaid at every channel";

pub(super) fn close_order(draft: &mut Draft<'_>, reason: String) -> Result<(), OrderError> {
    let order_no = draft.order_no.clone();
    match draft.status() {
        Status::Unopened => Err(OrderError::NotOpened { order_no }),
        Status::Pending => {
            draft.emit(OrderEvent::OrderClosed { reason });
            Ok(())
        }
        Status::Paid | Status::Refunded => Err(OrderError::AlreadyPaid { order_no }),
        Status::Closed => Ok(()),
    }
}

/// OrderClosed only when the last account is closed.
pub(super) fn close_when_all_closed(draft: &mut Draft<'_>) {
    let order = draft.order();
    let all_closed = order
        .terms
        .as_ref()
        .is_some_and(|terms| terms.accounts.iter().all(|account| order.attempts_closed.contains(account)));
    if all_closed {
        draft.emit(OrderEvent::OrderClosed { reason: CLOSED_AT_CHANNELS.to_owned() });
    }
}
