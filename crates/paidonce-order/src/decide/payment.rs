//! RecordPayment: money that came in is always booked; the terms only decide what it does for the order.

use super::adopt;
use super::draft::{Draft, Note};
use crate::command::{PaymentFact, Terms};
use crate::event::{OrderEvent, SurplusReason};
use crate::order::{Order, ParkedFact, Status};

/// What a payment does for the order as it stands.
enum Verdict {
    Park,
    Settle,
    Surplus(SurplusReason),
}

pub(super) fn record_payment(draft: &mut Draft<'_>, fact: PaymentFact) {
    if fact.amount.amount_minor < 0 {
        let detail = format!("payment {} states {}", fact.payment.channel_trade_no, fact.amount);
        return draft.flag(note(&fact), "unusable_amount", detail);
    }
    if let Some(known) = known_fact(draft.order(), &fact) {
        return repeat(draft, &known, &fact);
    }
    if !fits(draft.order(), &fact) {
        let detail = format!("payment {} of {} makes a sum too large", fact.payment.channel_trade_no, fact.amount);
        return draft.flag(note(&fact), "amount_out_of_range", detail);
    }
    match verdict(draft.order(), &fact) {
        Verdict::Park => draft.emit(OrderEvent::PaymentParked(fact)),
        Verdict::Settle => adopt::emit_and_adopt(draft, OrderEvent::PaymentConfirmed(fact)),
        Verdict::Surplus(reason) => {
            adopt::emit_and_adopt(draft, OrderEvent::SurplusPaymentRecorded { fact, reason });
        }
    }
}

fn note(fact: &PaymentFact) -> Note<'_> {
    Note::new(&fact.payment, fact.occurred_at, fact.content)
}

/// The same payment as we already have it: booked, or parked while the order is not opened.
fn known_fact(order: &Order, fact: &PaymentFact) -> Option<PaymentFact> {
    if let Some(payment) = order.find_payment(&fact.payment) {
        return Some(payment.fact.clone());
    }
    if order.status != Status::Unopened {
        return None;
    }
    order.parked.iter().find_map(|entry| match &entry.fact {
        ParkedFact::Payment(parked) if parked.payment.is_same_trade(&fact.payment) => Some(parked.clone()),
        ParkedFact::Payment(_) | ParkedFact::Refund(_) | ParkedFact::Share(_) => None,
    })
}

/// Content of a payment = account, channel_trade_no, amount, currency; everything else may differ between its doors.
fn repeat(draft: &mut Draft<'_>, known: &PaymentFact, fact: &PaymentFact) {
    if known.payment == fact.payment && known.amount == fact.amount {
        return;
    }
    let detail = format!(
        "payment {} was {} through {}, now it is stated as {} through {}",
        fact.payment.channel_trade_no, known.amount, known.payment.account, fact.amount, fact.payment.account
    );
    draft.conflict(note(fact), "payment_differs", detail);
}

/// Whether the order's sums stay inside i64, with everything that is booked or waits to be.
fn fits(order: &Order, fact: &PaymentFact) -> bool {
    let booked = order.payments.iter().map(|payment| &payment.fact);
    let parked = order.parked.iter().filter_map(|entry| match &entry.fact {
        ParkedFact::Payment(parked) => Some(parked),
        ParkedFact::Refund(_) | ParkedFact::Share(_) => None,
    });
    let others = booked.chain(parked).filter(|other| !other.payment.is_same_trade(&fact.payment));
    let total = others.fold(i128::from(fact.amount.amount_minor), |sum, other| {
        sum.saturating_add(i128::from(other.amount.amount_minor))
    });
    i64::try_from(total).is_ok()
}

fn verdict(order: &Order, fact: &PaymentFact) -> Verdict {
    let Some(terms) = &order.terms else { return Verdict::Park };
    if let Some(reason) = mismatch(terms, fact) {
        return Verdict::Surplus(reason);
    }
    match order.status {
        Status::Unopened => Verdict::Park,
        Status::Pending => Verdict::Settle,
        Status::Paid | Status::Refunded => Verdict::Surplus(SurplusReason::SecondPayment),
        Status::Closed => Verdict::Surplus(SurplusReason::AfterClose),
    }
}

/// Who before how much: money at an account that this order doesn't use is not this order's money, whatever its amount.
fn mismatch(terms: &Terms, fact: &PaymentFact) -> Option<SurplusReason> {
    if !terms.accounts.contains(&fact.payment.account) {
        Some(SurplusReason::OtherAccount)
    } else if terms.amount != fact.amount {
        Some(SurplusReason::AmountMismatch)
    } else {
        None
    }
}
