//! Refunds: reservations, cumulative figures, splits, taken numbers. Guards P1, P5 and P6.

use super::support::*;
use paidonce_order::order::{RefundState, Status};

const T1: (&str, &str) = (WX, "T1");
const A1: (&str, &str) = (ALI, "2025010822001");

fn paid() -> Ledger {
    Ledger::after(vec![open(), pay(WX, "T1", 8888)])
}

fn paid_at_alipay() -> Ledger {
    Ledger::after(vec![open(), pay(ALI, A1.1, 8888)])
}

fn refunded_minor(ledger: &Ledger) -> i64 {
    let flows = ledger.flows();
    let from_flows: i64 =
        flows.iter().filter(|row| row.trade_type.as_str() == "REFUND").map(|row| row.amount.amount_minor).sum();
    assert_eq!(from_flows, ledger.order.sums().refunded_minor, "flows and state agree");
    from_flows
}

#[test]
fn a_failed_refund_gives_its_reservation_back() {
    let mut ledger = paid();
    ledger.tell(request(None, "R1", 8888)).unwrap();
    assert_eq!(ledger.hear(request(None, "R2", 1)), "rejected exceeds_paid");
    ledger.tell(refund_failed(T1, "R1", 8888)).unwrap();
    assert_eq!(ledger.hear(request(None, "R2", 8888)), "RefundRequested");
    assert_eq!(ledger.hear(refunded(T1, "R2", 8888)), "RefundConfirmed");
    assert_eq!(ledger.refunds_of(T1), ["R1 8888 Failed", "R2 8888 Confirmed"]);
    assert_eq!(refunded_minor(&ledger), 8888);
}

#[test]
fn a_stuck_refund_keeps_its_reservation_and_its_item_until_the_channel_decides() {
    let mut ledger = paid();
    ledger.tell(request(None, "R1", 8000)).unwrap();
    ledger.tell(refund_stalled(T1, "R1", 8000)).unwrap();
    assert_eq!(ledger.hear(request(None, "R2", 889)), "rejected exceeds_paid");
    assert_eq!(ledger.open_items(), [("WXPAY:2025010812345678:REFUND:R1:STALLED".to_owned(), "stalled")]);
    ledger.tell(refunded(T1, "R1", 8000)).unwrap();
    assert_eq!(ledger.open_items(), []);
}

#[test]
fn a_refund_that_we_never_asked_for_is_booked_and_flagged() {
    let mut ledger = paid();
    assert_eq!(ledger.hear(refunded(T1, "CONSOLE1", 2500)), "RefundConfirmed");
    assert_eq!(ledger.open_items(), [("WXPAY:2025010812345678:REFUND:CONSOLE1".to_owned(), "flagged")]);
    assert_eq!(ledger.hear(refunded(T1, "CONSOLE1", 2500)), "nothing");
    assert_eq!(refunded_minor(&ledger), 2500);
}

#[test]
fn one_number_is_one_refund_of_one_payment() {
    let mut ledger = paid();
    ledger.tell(pay(ALI, A1.1, 8888)).unwrap();
    ledger.tell(request(None, "R1", 100)).unwrap();
    assert_eq!(ledger.hear(request(Some(A1), "R1", 100)), "rejected refund_terms_differ");
}

#[test]
fn another_currency_can_not_be_asked_for() {
    use paidonce_order::command::{OrderCommand, RefundOrigin, RefundRequest};
    let amount = paidonce_order::Money::new(1, paidonce_order::Currency::parse("USD").unwrap());
    let request = RefundRequest {
        payment: None,
        refund_no: refund_no("R1"),
        amount,
        reason: None,
        origin: RefundOrigin::Request,
    };
    assert_eq!(paid().hear(OrderCommand::RequestRefund(request)), "rejected amount_out_of_range");
}

#[test]
fn cumulative_figures_are_booked_as_differences() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, "R1", 3000)).unwrap();
    ledger.tell(refunded_in_all(A1, "R2", 5000)).unwrap();
    assert_eq!(ledger.hear(refunded_in_all(A1, "R1", 3000)), "nothing", "a repeat");
    assert_eq!(ledger.refunds_of(A1), ["R1 3000 Confirmed derived", "R2 2000 Confirmed derived"]);
    assert_eq!(refunded_minor(&ledger), 5000);
}

#[test]
fn a_smaller_cumulative_figure_is_an_older_notice() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, "R2", 5000)).unwrap();
    assert_eq!(ledger.hear(refunded_in_all(A1, "R1", 3000)), "nothing");
    assert_eq!(refunded_minor(&ledger), 5000);
}

#[test]
fn an_exact_figure_splits_a_derived_one_and_the_total_stays() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, "R2", 5000)).unwrap();
    assert_eq!(ledger.hear(refunded(A1, "R1", 3000)), "RefundSplit");
    assert_eq!(ledger.refunds_of(A1), ["R2 2000 Confirmed derived", "R1 3000 Confirmed"]);
    assert_eq!(ledger.hear(refunded(A1, "R2", 2000)), "RefundSplit");
    assert_eq!(ledger.refunds_of(A1), ["R1 3000 Confirmed", "R2 2000 Confirmed"]);
    assert_eq!(refunded_minor(&ledger), 5000);
    assert_eq!(ledger.hear(refunded(A1, "R3", 100)), "RefundConfirmed", "nothing derived is left to split");
    assert_eq!(refunded_minor(&ledger), 5100);
}

#[test]
fn an_exact_figure_beyond_the_derived_ones_books_the_rest() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, "R1", 2000)).unwrap();
    assert_eq!(ledger.hear(refunded(A1, "R2", 3000)), "RefundSplit + RefundConfirmed");
    assert_eq!(ledger.refunds_of(A1), ["R2 3000 Confirmed"]);
    assert_eq!(refunded_minor(&ledger), 3000);
}

#[test]
fn a_number_that_we_asked_for_books_its_own_amount_whatever_the_cumulative_figure_says() {
    let mut ledger = paid_at_alipay();
    ledger.tell(request(None, "R1", 3000)).unwrap();
    ledger.tell(request(None, "R2", 2000)).unwrap();
    ledger.tell(refunded_in_all(A1, "R2", 5000)).unwrap();
    assert_eq!(ledger.refunds_of(A1), ["R1 3000 Requested", "R2 2000 Confirmed"], "R1 explains the rest");
    assert_eq!(ledger.hear(refunded_in_all(A1, "R2", 5000)), "nothing", "a repeat");
    ledger.tell(refunded_in_all(A1, "R1", 3000)).unwrap();
    assert_eq!(ledger.refunds_of(A1), ["R1 3000 Confirmed", "R2 2000 Confirmed"]);
    assert_eq!(refunded_minor(&ledger), 5000);
}

#[test]
fn what_no_refund_of_ours_explains_is_booked_as_a_difference() {
    let mut ledger = paid_at_alipay();
    ledger.tell(request(None, "R1", 3000)).unwrap();
    assert_eq!(ledger.hear(refunded_in_all(A1, "R1", 4000)), "RefundConfirmed + RefundConfirmed");
    assert_eq!(ledger.refunds_of(A1), ["R1 3000 Confirmed", "R1 1000 Confirmed derived"]);
    assert_eq!(ledger.keys().last().unwrap(), "ALIPAY:2025010812345678:REFUND:R1:2", "a second booking, a second key");
    assert_eq!(refunded_minor(&ledger), 4000);
}

#[test]
fn a_failure_lets_an_earlier_cumulative_figure_speak() {
    let facts = [refund_failed(A1, "R1", 3000), refunded_in_all(A1, "R2", 5000)];
    for order in [[0, 1], [1, 0]] {
        let mut ledger = paid_at_alipay();
        ledger.tell(request(None, "R1", 3000)).unwrap();
        ledger.tell(request(None, "R2", 2000)).unwrap();
        for i in order {
            ledger.tell(facts[i].clone()).unwrap();
        }
        assert_eq!(refunded_minor(&ledger), 5000, "{order:?}: somebody refunded 30.00 under another number");
    }
}

#[test]
fn trade_no_and_out_trade_no_are_one_refund_number_at_alipay() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, A1.1, 8888)).unwrap();
    assert_eq!(ledger.hear(refunded(A1, order_no().as_str(), 8888)), "RefundSplit");
    assert_eq!(ledger.refunds_of(A1), [format!("{} 8888 Confirmed", A1.1)]);

    let mut asked = paid_at_alipay();
    asked.tell(request(None, order_no().as_str(), 8888)).unwrap();
    asked.tell(refunded_in_all(A1, A1.1, 8888)).unwrap();
    assert_eq!(asked.refunds_of(A1), [format!("{} 8888 Confirmed", order_no())]);
    assert_eq!(asked.status(), Status::Refunded);
}

#[test]
fn they_are_two_numbers_at_wechat() {
    let mut ledger = paid();
    ledger.tell(refunded(T1, "T1", 100)).unwrap();
    assert_eq!(ledger.hear(refunded(T1, order_no().as_str(), 100)), "RefundConfirmed");
}

/// Found by `requests_of_ours_change_nothing_in_what_went_back`: an older total leaves no trace, so that a request of its
/// number stays open and could explain money that went back for another one.
#[test]
fn what_a_total_grew_by_is_new_money_and_not_a_difference_that_was_booked_before() {
    let mut ledger = paid_at_alipay();
    let trade = (ALI, "2025010822001");
    ledger.tell(refunded_in_all(trade, "R-B", 177)).unwrap();
    assert_eq!(ledger.hear(refunded_in_all(trade, "R-A", 89)), "nothing", "older: R-A is a part of the 177");
    ledger.tell(request(Some(trade), "R-C", 98)).unwrap();
    ledger.tell(request(Some(trade), "R-A", 89)).unwrap();
    ledger.tell(refunded_in_all(trade, "R-C", 275)).unwrap();
    assert_eq!(refunded_minor(&ledger), 275);
    // R-A's own call ends its request and moves no money.
    ledger.tell(refunded(trade, "R-A", 89)).unwrap();
    assert_eq!(refunded_minor(&ledger), 275);
}

#[test]
fn a_number_that_is_somebody_elses_at_wechat_is_given_up() {
    let mut ledger = paid();
    ledger.tell(request(None, "R1", 8888)).unwrap();
    assert_eq!(ledger.hear(refunded((WX, "T9"), "R1", 500)), "RefundNumberTaken");
    assert_eq!(ledger.order.payments[0].refunds[0].state, RefundState::NumberTaken);
    assert_eq!(refunded_minor(&ledger), 0, "somebody else's refund is not ours");
    assert_eq!(ledger.hear(request(None, "R2", 8888)), "RefundRequested", "the reservation is free");
    assert_eq!(ledger.hear(refunded(T1, "R1", 8888)), "FactConflicted", "final");
}

/// The platform may know our number for a payment of the same order that we hear of later: its money went back. Fails when
/// the fact is given up together with the number.
#[test]
fn the_refund_that_took_our_number_is_booked_when_its_payment_comes() {
    let mut ledger = paid();
    ledger.tell(request(None, "R1", 8888)).unwrap();
    assert_eq!(ledger.hear(refunded((WX, "T9"), "R1", 500)), "RefundNumberTaken");
    assert_eq!(ledger.hear(refunded((WX, "T9"), "R1", 500)), "nothing");
    assert_eq!(ledger.hear(pay(WX, "T9", 8888)), "SurplusPaymentRecorded + RefundConfirmed");
    assert_eq!(ledger.hear(refunded((WX, "T9"), "R1", 500)), "nothing");
    assert_eq!((refunded_minor(&ledger), ledger.refunds_of((WX, "T9"))), (500, vec!["R1 500 Confirmed".to_owned()]));
}

/// The platform has done it before we asked: an open request would be taken for the reason of a total that grew. Fails when
/// the number may be asked for again.
#[test]
fn a_number_that_a_total_has_named_is_not_asked_for_again() {
    let mut ledger = paid_at_alipay();
    ledger.tell(refunded_in_all(A1, "R-A", 36)).unwrap();
    assert_eq!(ledger.hear(refunded(A1, "R-B", 77)), "RefundSplit + RefundConfirmed");
    assert!(ledger.tell(request(None, "R-A", 36)).is_err(), "36 of the total are R-A's");
    ledger.tell(request(None, "R-C", 117)).unwrap();
    assert_eq!(ledger.hear(refunded_in_all(A1, "R-C", 230)), "RefundConfirmed + RefundConfirmed");
    assert_eq!(refunded_minor(&ledger), 230);
}

#[test]
fn alipay_numbers_belong_to_their_trade_so_none_is_taken() {
    let mut ledger = paid_at_alipay();
    ledger.tell(request(None, "R1", 8888)).unwrap();
    assert_eq!(ledger.hear(refunded((ALI, "T9"), "R1", 500)), "RefundParked");
}

#[test]
fn never_more_goes_back_than_came_in() {
    let mut ledger = paid();
    ledger.tell(refunded(T1, "R1", 6000)).unwrap();
    assert_eq!(ledger.hear(refunded(T1, "R2", 6000)), "RefundConfirmed + FactFlagged");
    assert_eq!(ledger.refunds_of(T1), ["R1 6000 Confirmed", "R2 2888 Confirmed"]);
    assert_eq!(ledger.hear(refunded(T1, "R2", 6000)), "nothing");
    assert_eq!(ledger.hear(refunded(T1, "R3", 1)), "RefundConfirmed + FactFlagged");
    assert_eq!(ledger.hear(refunded(T1, "R3", 1)), "nothing");
    assert_eq!((refunded_minor(&ledger), ledger.status()), (8888, Status::Refunded));
}

#[test]
fn a_refund_stated_for_another_account_or_currency_books_nothing() {
    use paidonce_order::command::{OrderCommand, RefundAmount, RefundOutcome};
    use paidonce_order::{Currency, Money};
    let mut ledger = paid();
    assert_eq!(ledger.hear(refunded((WX2, "T1"), "R1", 100)), "FactFlagged");
    let dollars = RefundAmount::Exact(Money::new(100, Currency::parse("USD").unwrap()));
    let fact = refund_fact(T1, "R1", RefundOutcome::Succeeded, dollars);
    assert_eq!(ledger.hear(OrderCommand::RecordRefund(fact)), "FactFlagged");
    assert_eq!(ledger.hear(refunded(T1, "R1", 0)), "FactFlagged");
    assert_eq!(refunded_minor(&ledger), 0);
}

#[test]
fn another_amount_than_asked_for_is_booked_as_the_channel_states_it_and_flagged() {
    let mut ledger = paid();
    ledger.tell(request(None, "R1", 100)).unwrap();
    assert_eq!(ledger.hear(refunded(T1, "R1", 90)), "RefundConfirmed + FactFlagged");
    assert_eq!(ledger.hear(refunded(T1, "R1", 90)), "nothing");
    assert_eq!(refunded_minor(&ledger), 90);
}
