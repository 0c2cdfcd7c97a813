//! RequestRefund and RecordRefund. The payment decides ceiling and state, not the order.
//!
//! What a channel says of a refund is one of two figures. An exact one is the refund's own amount. A cumulative one
//! (Alipay `refund_fee`) is the total of the payment so far, so that notices may overtake each other and may show two
//! refunds at once. The rules below keep one invariant, whatever the order of arrival:
//!
//! ```text
//! booked total = max(sum of exact figures, largest cumulative figure), at most the payment
//! ```
//!
//! | the channel says | booked |
//! |---|---|
//! | exact | first out of what was booked as a difference (RefundSplit, total unchanged), the rest as new money |
//! | cumulative, a number that we asked for | the amount that we asked for, out of a difference only as far as the figure has not grown since; the figure checks it: what neither booked nor open refunds explain is booked as a difference |
//! | cumulative, another number | the difference to what is booked, marked derived; a smaller figure is an older notice |
//!
//! An older notice leaves no trace. Whoever then asks us for the refund that it named (another system had made it) has an open
//! request that explains a part of later totals: that part is booked with the request's own answer.

use super::draft::{Draft, Note};
use crate::command::{PaymentRef, RefundAmount, RefundFact, RefundOrigin, RefundOutcome, RefundRequest};
use crate::error::OrderError;
use crate::event::{OrderEvent, SplitPart};
use crate::fact_key::FactKey;
use crate::ids::{Channel, OrderNo, RefundNo};
use crate::money::{Money, MoneyError};
use crate::order::{Item, Order, ParkedFact, Payment, PaymentRole, Refund, RefundState, Status};

pub(super) fn request_refund(draft: &mut Draft<'_>, request: RefundRequest) -> Result<(), OrderError> {
    let order_no = draft.order_no.clone();
    if draft.status() == Status::Unopened {
        return Err(OrderError::NotOpened { order_no });
    }
    let order = draft.order();
    let named = request.payment.as_ref();
    let payment = match named {
        Some(named) => order.find_payment(named).filter(|payment| payment.fact.payment == *named),
        None => order.settling_payment(),
    };
    let payment = payment.ok_or(OrderError::NoSuchPayment { order_no: order_no.clone() })?;
    let refund_no = number_as_known(&order_no, payment, &request.refund_no);
    check_amount(payment, request.amount)?;
    if let Some(asked) = find_number(order, &refund_no) {
        let (of_payment, refund) = asked;
        let is_repeat = of_payment.fact.payment == payment.fact.payment && refund.amount == request.amount;
        return if is_repeat { Ok(()) } else { Err(OrderError::RefundTermsDiffer { refund_no }) };
    }
    // A notice has named it as done: what the channel did under this number is in the totals already.
    if payment.numbers_of_totals.contains(&refund_no) || is_parked_elsewhere(order, payment, &refund_no) {
        return Err(OrderError::RefundTermsDiffer { refund_no });
    }
    if request.origin == RefundOrigin::Surplus && !is_open_surplus(order, payment) {
        let problem = "this payment is no open surplus any more: request a refund of the order if that is meant";
        return Err(OrderError::NotAllowed { problem: problem.to_owned() });
    }
    let refundable = Money::new(payment.refundable_minor(), payment.fact.amount.currency);
    if request.amount.amount_minor > refundable.amount_minor {
        return Err(OrderError::ExceedsPaid { amount: request.amount, refundable });
    }
    let RefundRequest { payment: _, refund_no: _, amount, reason, origin } = request;
    let payment = payment.fact.payment.clone();
    draft.emit(OrderEvent::RefundRequested { payment, refund_no, amount, reason, origin });
    Ok(())
}

fn check_amount(payment: &Payment, amount: Money) -> Result<(), OrderError> {
    if amount.currency != payment.fact.amount.currency {
        let (left, right) = (amount.currency, payment.fact.amount.currency);
        return Err(MoneyError::CurrencyDiffers { left, right }.into());
    }
    if amount.amount_minor <= 0 {
        let problem = "must be above zero, in minor units (fen for CNY)".to_owned();
        return Err(OrderError::InvalidTerms { field: "amount_minor", problem });
    }
    Ok(())
}

/// A surplus that was accepted, or whose item a person has closed, must not go back by a decision that was made before.
fn is_open_surplus(order: &Order, payment: &Payment) -> bool {
    let is_surplus = match payment.role {
        PaymentRole::Surplus(_) => true,
        PaymentRole::Settling => false,
    };
    let item = order.items.get(&FactKey::of_surplus(&payment.fact.payment));
    is_surplus && item.is_some_and(Item::is_open)
}

/// A number is used once in an order, whichever payment it was used for.
fn find_number<'a>(order: &'a Order, refund_no: &RefundNo) -> Option<(&'a Payment, &'a Refund)> {
    let refunds = order.payments.iter().flat_map(|payment| payment.refunds.iter().map(move |refund| (payment, refund)));
    let mut named: Vec<_> = refunds.filter(|(_, refund)| refund.refund_no == *refund_no).collect();
    // The figure of its own stands before the differences booked on notices that named it.
    named.sort_by_key(|(_, refund)| refund.derived);
    named.first().copied()
}

/// WeChat has already told us of this number, for a payment that is still to come.
fn is_parked_elsewhere(order: &Order, payment: &Payment, refund_no: &RefundNo) -> bool {
    let own = &payment.fact.payment;
    own.account.channel == Channel::Wxpay
        && order.parked.iter().any(|entry| match &entry.fact {
            ParkedFact::Refund(fact) => fact.refund_no == *refund_no && fact.payment.account == own.account,
            ParkedFact::Payment(_) | ParkedFact::Share(_) => false,
        })
}

pub(super) fn record_refund(draft: &mut Draft<'_>, mut fact: RefundFact) {
    let order_no = draft.order_no;
    fact.refund_no = match draft.order().find_payment(&fact.payment) {
        Some(payment) => number_as_known(order_no, payment, &fact.refund_no),
        None => alias_as_trade_no(order_no, &fact.payment, &fact.refund_no),
    };
    if fact.amount.stated().amount_minor <= 0 {
        let detail = format!("refund {} states {}", fact.refund_no, fact.amount.stated());
        return draft.flag(note(&fact), "unusable_amount", detail);
    }
    let is_given_up = give_up_taken_number(draft, &fact);
    match draft.order().find_payment(&fact.payment).cloned() {
        Some(payment) => record_of_payment(draft, &payment, fact),
        // That event keeps the fact until its payment comes.
        None if is_given_up => {}
        None => park(draft, fact),
    }
}

fn note(fact: &RefundFact) -> Note<'_> {
    Note::new(&fact.payment, fact.occurred_at, fact.content)
}

/// Alipay repeats trade_no or out_trade_no for a refund that was given no number: both name one refund of the payment.
fn is_alias(order_no: &OrderNo, payment: &PaymentRef, refund_no: &RefundNo) -> bool {
    let number = refund_no.as_str();
    payment.account.channel == Channel::Alipay
        && (number == payment.channel_trade_no.as_str() || number == order_no.as_str())
}

/// The number under which the payment already has this refund, or the one it shall have.
fn number_as_known(order_no: &OrderNo, payment: &Payment, refund_no: &RefundNo) -> RefundNo {
    let named = &payment.fact.payment;
    if !is_alias(order_no, named, refund_no) {
        return refund_no.clone();
    }
    let known = payment.refunds.iter().find(|refund| is_alias(order_no, named, &refund.refund_no));
    known.map_or_else(|| refund_no.clone(), |refund| refund.refund_no.clone())
}

/// While the payment is not known, the alias is written one way, so that both spellings park once.
fn alias_as_trade_no(order_no: &OrderNo, payment: &PaymentRef, refund_no: &RefundNo) -> RefundNo {
    let canonical = RefundNo::parse(payment.channel_trade_no.as_str());
    match canonical {
        Ok(canonical) if is_alias(order_no, payment, refund_no) => canonical,
        Ok(_) | Err(_) => refund_no.clone(),
    }
}

/// WeChat refund numbers are merchant-wide: when the channel knows ours for another payment, our request will never be
/// done under it. Says whether a request was given up.
fn give_up_taken_number(draft: &mut Draft<'_>, fact: &RefundFact) -> bool {
    if fact.payment.account.channel != Channel::Wxpay {
        return false;
    }
    let meant = draft.order().payments.iter().find_map(|payment| {
        let own = &payment.fact.payment;
        let is_other = own.account == fact.payment.account && !payment.is_named_by(&fact.payment);
        payment.find_refund(&fact.refund_no).filter(|refund| is_other && is_ours(refund) && is_open(refund))?;
        Some(own.clone())
    });
    let is_given_up = meant.is_some();
    if let Some(payment) = meant {
        let refund_no = fact.refund_no.clone();
        draft.emit(OrderEvent::RefundNumberTaken { payment, refund_no, fact: fact.clone() });
    }
    is_given_up
}

const fn is_open(refund: &Refund) -> bool {
    matches!(refund.state, RefundState::Requested | RefundState::Stalled)
}

const fn is_ours(refund: &Refund) -> bool {
    matches!(refund.origin, RefundOrigin::Request | RefundOrigin::Surplus)
}

/// Keeps what the payment is needed for. The same fact again is known; another exact figure contradicts it; another
/// cumulative one is a later notice.
fn park(draft: &mut Draft<'_>, fact: RefundFact) {
    let waiting = draft.order().parked.iter().filter_map(|entry| match &entry.fact {
        ParkedFact::Refund(parked) => Some(parked),
        ParkedFact::Payment(_) | ParkedFact::Share(_) => None,
    });
    let of_same = waiting.filter(|parked| {
        parked.payment == fact.payment && parked.refund_no == fact.refund_no && parked.outcome == fact.outcome
    });
    let figures: Vec<RefundAmount> = of_same.map(|parked| parked.amount).collect();
    if figures.contains(&fact.amount) {
        return;
    }
    let is_exact = |figure: &RefundAmount| matches!(figure, RefundAmount::Exact(_));
    if let (true, Some(known)) = (is_exact(&fact.amount), figures.iter().find(|figure| is_exact(figure))) {
        let detail = differs(&fact, &format!("waits with {}", known.stated()));
        return draft.conflict(note(&fact), "refund_differs", detail);
    }
    draft.emit(OrderEvent::RefundParked(fact));
}

fn differs(fact: &RefundFact, known: &str) -> String {
    let outcome = match fact.outcome {
        RefundOutcome::Succeeded => "done",
        RefundOutcome::Failed => "failed",
        RefundOutcome::Stalled => "stuck",
    };
    format!("refund {} {known}, now it is stated as {outcome} with {}", fact.refund_no, fact.amount.stated())
}

fn record_of_payment(draft: &mut Draft<'_>, payment: &Payment, fact: RefundFact) {
    let own = &payment.fact;
    if own.payment != fact.payment {
        let detail = format!(
            "refund {} is stated for {}, the payment is of {}",
            fact.refund_no, fact.payment.account, own.payment.account
        );
        return draft.flag(note(&fact), "refund_account_differs", detail);
    }
    if own.amount.currency != fact.amount.stated().currency {
        let detail = format!("refund {} of {} for a payment of {}", fact.refund_no, fact.amount.stated(), own.amount);
        return draft.flag(note(&fact), "refund_currency_differs", detail);
    }
    match fact.outcome {
        RefundOutcome::Succeeded => succeeded(draft, payment, &fact),
        RefundOutcome::Failed => failed(draft, payment, fact),
        RefundOutcome::Stalled => stalled(draft, payment, fact),
    }
}

fn succeeded(draft: &mut Draft<'_>, payment: &Payment, fact: &RefundFact) {
    let known = payment.find_refund(&fact.refund_no);
    match (known.map(|refund| (refund.state, refund)), fact.amount) {
        (Some((RefundState::Failed | RefundState::NumberTaken, _)), figure) => {
            if is_older_total(payment, figure) {
                return;
            }
            draft.conflict(note(fact), "refund_differs", differs(fact, "had failed for good"));
        }
        (Some((RefundState::Confirmed, refund)), RefundAmount::Exact(amount)) => {
            if refund.amount != amount {
                let detail = differs(fact, &format!("was booked with {}", refund.amount));
                draft.conflict(note(fact), "refund_differs", detail);
            }
        }
        (Some((RefundState::Requested | RefundState::Stalled, refund)), RefundAmount::Exact(amount)) => {
            let known_minor = amount.amount_minor;
            book_exact(draft, payment, fact, Booking { amount, origin: refund.origin, known_minor });
            if refund.amount != amount {
                draft.flag(
                    note(fact),
                    "refund_amount_differs",
                    differs(fact, &format!("was asked for with {}", refund.amount)),
                );
            }
            book_unexplained(draft, &fact.payment);
        }
        (Some((RefundState::Requested | RefundState::Stalled, refund)), RefundAmount::Cumulative(total))
            if is_ours(refund) =>
        {
            let known_minor = known_of_total(payment, refund.amount, total);
            book_exact(draft, payment, fact, Booking { amount: refund.amount, origin: refund.origin, known_minor });
            book_unexplained(draft, &fact.payment);
        }
        (None, RefundAmount::Exact(amount)) => {
            let known_minor = amount.amount_minor;
            book_exact(draft, payment, fact, Booking { amount, origin: RefundOrigin::Platform, known_minor });
        }
        (
            None | Some((RefundState::Confirmed | RefundState::Requested | RefundState::Stalled, _)),
            RefundAmount::Cumulative(total),
        ) => {
            book_difference(draft, payment, fact, total);
        }
    }
}

/// What a refund with a figure of its own books.
struct Booking {
    amount: Money,
    origin: RefundOrigin,
    /// How much of it may have been booked as a difference before.
    known_minor: i64,
}

/// Of a refund that was done when `total` was back: how much of it the largest total so far may hold already. What that total
/// grew by since is new money.
fn known_of_total(payment: &Payment, amount: Money, total: Money) -> i64 {
    let grown_minor = total.amount_minor.saturating_sub(payment.cumulative_minor()).max(0);
    amount.amount_minor.saturating_sub(grown_minor).max(0)
}

fn book_exact(draft: &mut Draft<'_>, payment: &Payment, fact: &RefundFact, booking: Booking) {
    let Booking { amount, origin, known_minor } = booking;
    let parts = parts_of_derived(payment, &fact.refund_no, Money::new(known_minor, amount.currency));
    let named_minor = parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.amount.amount_minor));
    let rest_minor = amount.amount_minor.saturating_sub(named_minor);
    let new_minor = rest_minor.min(left_minor(payment));
    let is_split = !parts.is_empty();
    if is_split {
        draft.emit(OrderEvent::RefundSplit { fact: fact.clone(), parts, origin });
    }
    // Done is done, even when nothing is left to book: the number must leave its open state and be known from now on.
    if new_minor > 0 || !is_split {
        let amount = Money::new(new_minor, amount.currency);
        draft.emit(OrderEvent::RefundConfirmed { fact: fact.clone(), amount, origin, derived: false });
    }
    if new_minor < rest_minor {
        flag_excess(draft, payment, fact);
    }
}

/// Takes `amount` out of the derived refunds: what was booked under this very number first, then the oldest.
fn parts_of_derived(payment: &Payment, refund_no: &RefundNo, amount: Money) -> Vec<SplitPart> {
    let mut derived: Vec<&Refund> = payment.refunds.iter().filter(|refund| refund.derived).collect();
    derived.sort_by_key(|refund| refund.refund_no != *refund_no);
    let mut wanted_minor = amount.amount_minor;
    let mut parts = Vec::new();
    for refund in derived {
        let taken_minor = refund.amount.amount_minor.min(wanted_minor);
        if taken_minor > 0 {
            wanted_minor = wanted_minor.saturating_sub(taken_minor);
            parts.push(SplitPart { from: refund.refund_no.clone(), amount: Money::new(taken_minor, amount.currency) });
        }
    }
    parts
}

/// A cumulative figure that does not exceed the largest one says nothing new.
const fn is_older_total(payment: &Payment, figure: RefundAmount) -> bool {
    match figure {
        RefundAmount::Exact(_) => false,
        RefundAmount::Cumulative(total) => total.amount_minor <= payment.cumulative_minor(),
    }
}

fn book_difference(draft: &mut Draft<'_>, payment: &Payment, fact: &RefundFact, total: Money) {
    if is_older_total(payment, RefundAmount::Cumulative(total)) {
        return;
    }
    let paid_minor = payment.fact.amount.amount_minor;
    let difference_minor = total.amount_minor.min(paid_minor).saturating_sub(payment.refunded_minor());
    if difference_minor > 0 {
        let amount = Money::new(difference_minor, total.currency);
        let origin = RefundOrigin::Platform;
        draft.emit(OrderEvent::RefundConfirmed { fact: fact.clone(), amount, origin, derived: true });
    }
    if total.amount_minor > paid_minor {
        flag_excess(draft, payment, fact);
    }
}

/// Checks the largest cumulative figure: what neither booked refunds nor open ones of ours explain has
/// gone back all the same.
fn book_unexplained(draft: &mut Draft<'_>, payment: &PaymentRef) {
    let Some(payment) = draft.order().find_payment(payment) else { return };
    let Some(fact) = payment.cumulative.clone() else { return };
    let paid = payment.fact.amount;
    let stated_minor = payment.cumulative_minor().min(paid.amount_minor);
    let asked = payment.refunds.iter().filter(|refund| is_ours(refund) && is_open(refund));
    let asked_minor = asked.fold(0_i64, |sum, refund| sum.saturating_add(refund.amount.amount_minor));
    let explained_minor = payment.refunded_minor().saturating_add(asked_minor);
    let difference_minor = stated_minor.saturating_sub(explained_minor);
    if difference_minor > 0 {
        let amount = Money::new(difference_minor, paid.currency);
        draft.emit(OrderEvent::RefundConfirmed { fact, amount, origin: RefundOrigin::Platform, derived: true });
    }
}

fn left_minor(payment: &Payment) -> i64 {
    payment.fact.amount.amount_minor.saturating_sub(payment.refunded_minor()).max(0)
}

/// More went back than came in, says the channel: all of the payment is booked as back, the rest is for a person.
fn flag_excess(draft: &mut Draft<'_>, payment: &Payment, fact: &RefundFact) {
    let detail =
        format!("refund {} of {} exceeds the payment of {}", fact.refund_no, fact.amount.stated(), payment.fact.amount);
    draft.flag(note(fact), "refund_exceeds_payment", detail);
}

fn failed(draft: &mut Draft<'_>, payment: &Payment, fact: RefundFact) {
    let known = payment.find_refund(&fact.refund_no).map(|refund| refund.state);
    match known {
        Some(RefundState::Failed | RefundState::NumberTaken) => {}
        Some(RefundState::Confirmed) => {
            draft.conflict(note(&fact), "refund_differs", differs(&fact, "was booked as done"));
        }
        None if payment.numbers_of_totals.contains(&fact.refund_no) => {
            draft.conflict(note(&fact), "refund_differs", differs(&fact, "was named by a notice as done"));
        }
        Some(RefundState::Requested | RefundState::Stalled) | None => {
            let payment = fact.payment.clone();
            draft.emit(OrderEvent::RefundFailed { fact });
            book_unexplained(draft, &payment);
        }
    }
}

/// A stuck refund may be done or failed later, so an older notice never wins over those.
fn stalled(draft: &mut Draft<'_>, payment: &Payment, fact: RefundFact) {
    match payment.find_refund(&fact.refund_no).map(|refund| refund.state) {
        None if payment.numbers_of_totals.contains(&fact.refund_no) => {}
        Some(RefundState::Requested) | None => draft.emit(OrderEvent::RefundStalled { fact }),
        Some(RefundState::Stalled | RefundState::Confirmed | RefundState::Failed | RefundState::NumberTaken) => {}
    }
}
