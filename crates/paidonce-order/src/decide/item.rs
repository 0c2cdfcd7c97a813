//! What a person does about an item: accept a surplus, or close the item without moving money. And what opens an item
//! without booking anything: a flag.

use super::adopt;
use super::draft::Draft;
use crate::command::{CLOSED_WITHOUT_REFUND, FlagFact, Operator, PaymentRef};
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::fact_key::FactKey;
use crate::ids::AccountRef;
use crate::order::{Order, Payment, PaymentRole, RefundState, Status};

/// Lets a surplus payment settle the order. A closed order may be settled too: its close undid no money, and a named
/// person may decide to take a late payment after all. It is the only way out of CLOSED.
pub(super) fn accept_surplus(draft: &mut Draft<'_>, payment: &PaymentRef, by: Operator) -> Result<(), OrderError> {
    by.check()?;
    let not_allowed = |problem: &str| Err(OrderError::NotAllowed { problem: problem.to_owned() });
    let status = draft.status();
    let order = draft.order();
    let known = order.find_payment(payment).filter(|known| known.fact.payment == *payment);
    let Some(known) = known else {
        return Err(OrderError::NoSuchPayment { order_no: draft.order_no.clone() });
    };
    if known.role == PaymentRole::Settling {
        return Ok(());
    }
    match status {
        Status::Unopened | Status::Pending | Status::Closed => {}
        Status::Paid | Status::Refunded => {
            return not_allowed("the order is already settled by another payment: refund this one instead");
        }
    }
    if has_refunds(known) {
        return not_allowed("this payment was refunded or is being refunded: it can't settle the order any more");
    }
    let amount = known.fact.amount;
    if order.terms.as_ref().is_some_and(|terms| terms.amount.currency != amount.currency) {
        return not_allowed("this payment is in another currency than the order: refund it instead");
    }
    let event = OrderEvent::SurplusAccepted { payment: payment.clone(), amount, by };
    adopt::emit_and_adopt(draft, event);
    Ok(())
}

fn has_refunds(payment: &Payment) -> bool {
    payment.refunds.iter().any(|refund| match refund.state {
        RefundState::Requested | RefundState::Stalled | RefundState::Confirmed => true,
        RefundState::Failed | RefundState::NumberTaken => false,
    })
}

/// Closing an item twice is one closing. A parked fact stays parked, so that it is still decided when its turn comes.
pub(super) fn resolve_item(draft: &mut Draft<'_>, item_no: String, by: Operator) -> Result<(), OrderError> {
    by.check()?;
    let order_no = draft.order_no.clone();
    let key = FactKey::from_whole(&item_no).filter(|key| key.in_order(&order_no).as_str() == item_no);
    match key.and_then(|key| draft.order().items.get(&key).map(|item| item.is_open())) {
        None => Err(OrderError::NoSuchItem { order_no, item_no }),
        Some(false) => Ok(()),
        Some(true) => {
            draft.emit(OrderEvent::ItemResolved { item_no, by });
            Ok(())
        }
    }
}

/// One flag per content. What the booked refunds explain needs nobody.
pub(super) fn record_flag(draft: &mut Draft<'_>, fact: FlagFact) {
    let is_explained = fact.code == CLOSED_WITHOUT_REFUND && is_all_back(draft.order(), &fact.account);
    if !is_explained && !draft.order().flagged_contents.contains(&fact.content) {
        draft.emit(OrderEvent::FactFlagged(fact));
    }
}

/// Everything that came in through this account went back, or is on its way and followed.
fn is_all_back(order: &Order, account: &AccountRef) -> bool {
    let mut of_account = order.payments.iter().filter(|payment| payment.fact.payment.account == *account).peekable();
    of_account.peek().is_some()
        && of_account.all(|payment| {
            let back_minor = payment.refunded_minor().saturating_add(payment.open_refunds_minor());
            back_minor >= payment.fact.amount.amount_minor
        })
}
