//! RecordProfitShare: shared money that moved. It waits until the order is paid and its payment is known.
//! FollowProfitShare: the merchant has started a share, and the channel tells only its receivers of it, so we ask.

use super::draft::{Draft, Note};
use crate::command::{PaymentRef, ShareFact, ShareKind};
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::fact_key::FactKey;
use crate::idem_key::escape;
use crate::order::{Order, ParkedFact, Status};

/// Longest out_order_no / out_return_no and receiver type, in bytes as they stand in a key. Source: WeChat (64) and the
/// longest known type (PERSONAL_SUB_OPENID, 19); together they keep every key under 255 bytes.
const SHARE_NO_BYTES_MAX: usize = 64;
const RECEIVER_TYPE_BYTES_MAX: usize = 32;

pub(super) fn record_share(draft: &mut Draft<'_>, fact: ShareFact) {
    if let Some((code, detail)) = unusable(&fact) {
        return draft.flag(note(&fact), code, detail);
    }
    if let Some(known) = known_share(draft.order(), &fact) {
        if known.payment != fact.payment || known.amount != fact.amount {
            let detail = format!("share {} was {}, now it is stated as {}", fact.share_no, known.amount, fact.amount);
            draft.conflict(note(&fact), "share_differs", detail);
        }
        return;
    }
    if draft.order().must_wait(&ParkedFact::Share(fact.clone())) {
        return draft.emit(OrderEvent::ProfitShareParked(fact));
    }
    if draft.status() == Status::Closed {
        let detail = format!("share {} of {} on an order that is closed unpaid", fact.share_no, fact.amount);
        return draft.flag(note(&fact), "share_of_closed_order", detail);
    }
    let is_of_payment = draft.order().payments.iter().any(|payment| payment.fact.payment == fact.payment);
    if !is_of_payment {
        let detail = format!("share {} is stated for {}", fact.share_no, fact.payment.account);
        return draft.flag(note(&fact), "share_account_differs", detail);
    }
    draft.emit(match fact.kind {
        ShareKind::Shared => OrderEvent::ProfitShareConfirmed(fact),
        ShareKind::Returned => OrderEvent::ProfitShareReturned(fact),
    });
}

/// Following twice is one following. An unpaid order has nothing to share.
pub(super) fn follow_share(
    draft: &mut Draft<'_>,
    payment: Option<PaymentRef>,
    out_order_no: String,
) -> Result<(), OrderError> {
    let order_no = draft.order_no.clone();
    let is_usable = (1..=SHARE_NO_BYTES_MAX).contains(&out_order_no.len())
        && out_order_no.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-|*@".contains(&byte));
    if !is_usable {
        let problem = format!("must have 1 to {SHARE_NO_BYTES_MAX} letters, digits and _-|*@");
        return Err(OrderError::InvalidTerms { field: "out_order_no", problem });
    }
    if draft.status() == Status::Unopened {
        return Err(OrderError::NotOpened { order_no });
    }
    let order = draft.order();
    let known = match &payment {
        Some(named) => order.find_payment(named).filter(|known| known.fact.payment == *named),
        None => order.settling_payment(),
    };
    let payment = known.ok_or(OrderError::NoSuchPayment { order_no })?.fact.payment.clone();
    if !order.shares_followed.contains(&(payment.clone(), out_order_no.clone())) {
        draft.emit(OrderEvent::ProfitShareFollowed { payment, out_order_no });
    }
    Ok(())
}

fn note(fact: &ShareFact) -> Note<'_> {
    Note::new(&fact.payment, fact.occurred_at, fact.content)
}

fn unusable(fact: &ShareFact) -> Option<(&'static str, String)> {
    let (share_no, receiver_type) = (escape(&fact.share_no).len(), escape(&fact.receiver_type).len());
    let is_number_usable = (1..=SHARE_NO_BYTES_MAX).contains(&share_no) && receiver_type <= RECEIVER_TYPE_BYTES_MAX;
    if !is_number_usable {
        let text: String = fact.share_no.chars().take(SHARE_NO_BYTES_MAX).collect();
        return Some(("unusable_number", format!("share {text:?} can't be booked under its number")));
    }
    if fact.amount.amount_minor < 0 {
        return Some(("unusable_amount", format!("share {} states {}", fact.share_no, fact.amount)));
    }
    None
}

fn known_share(order: &Order, fact: &ShareFact) -> Option<ShareFact> {
    let key = FactKey::of_share(fact);
    let parked = order.parked.iter().find_map(|entry| match &entry.fact {
        ParkedFact::Share(parked) if FactKey::of_share(parked) == key => Some(parked),
        ParkedFact::Share(_) | ParkedFact::Payment(_) | ParkedFact::Refund(_) => None,
    });
    order.shares.get(&key).or(parked).cloned()
}
