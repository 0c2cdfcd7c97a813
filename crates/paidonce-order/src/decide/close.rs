//! Closing: by our own decision, or because the last way to pay is closed at its channel.

use super::draft::{Draft, Note};
use crate::command::{AttemptFact, CLOSED_AFTER_PAYMENT};
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

/// A channel says that one way to pay is closed unpaid. On a paid order that is news only at an account that brought
/// money: that the other ways to pay close after the payment is how it should be, and is only noted.
pub(super) fn record_attempt_closed(draft: &mut Draft<'_>, fact: AttemptFact) {
    if draft.order().attempts_closed.contains(&fact.account) {
        return;
    }
    match draft.status() {
        Status::Closed => {}
        Status::Unopened => draft.emit(OrderEvent::AttemptClosed(fact)),
        Status::Pending => {
            draft.emit(OrderEvent::AttemptClosed(fact));
            close_when_all_closed(draft);
        }
        Status::Paid | Status::Refunded => {
            let mut payments = draft.order().payments.iter();
            if payments.any(|payment| payment.fact.payment.account == fact.account) {
                let note = Note::at_account(&fact.account, fact.occurred_at, fact.content);
                let detail = format!("{} says closed unpaid, but its payment is booked", fact.account);
                draft.flag(note, CLOSED_AFTER_PAYMENT, detail);
            } else {
                draft.emit(OrderEvent::AttemptClosed(fact));
            }
        }
    }
}
