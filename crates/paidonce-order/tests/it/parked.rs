//! What comes before its order or its payment waits, and is decided in the command that ends the wait. Guards P6.

use super::support::*;
use paidonce_order::OrderEvent;
use paidonce_order::project::ChannelCall;

const T1: (&str, &str) = (WX, "T1");

fn names(events: &[OrderEvent]) -> Vec<&'static str> {
    events.iter().map(OrderEvent::event_type).collect()
}

#[test]
fn a_payment_before_its_order_settles_it_when_it_is_opened() {
    let mut ledger = Ledger::after(vec![pay(WX, "T1", 8888)]);
    assert_eq!(ledger.flows(), vec![], "a parked payment is not a flow");
    assert_eq!(ledger.open_items(), [("WXPAY:2025010812345678:PARKED:PAY:T1".to_owned(), "parked")]);
    assert_eq!(names(&ledger.tell(open()).unwrap()), ["OrderOpened", "PaymentConfirmed"]);
    assert_eq!(ledger.open_items(), []);
    assert_eq!(ledger.flows().len(), 1);
}

#[test]
fn everything_that_waited_is_decided_in_one_command_and_in_a_sensible_order() {
    let mut ledger = Ledger::after(vec![
        share(T1, "P1", "A", 10),
        refunded(T1, "R1", 300),
        pay(ALI, "T2", 8888),
        pay(WX, "T1", 8888),
        refunded((ALI, "T2"), "R2", 8888),
    ]);
    let events = ledger.tell(open()).unwrap();
    assert_eq!(
        names(&events),
        [
            "OrderOpened",
            "PaymentConfirmed", // T1: the same second as T2, so the order of the accounts decides
            "RefundConfirmed",
            "ProfitShareConfirmed",
            "SurplusPaymentRecorded", // T2
            "RefundConfirmed",
        ]
    );
    assert_eq!(ledger.order.parked, []);
    assert!(ledger.open_items().iter().all(|(_, kind)| *kind != "parked"));
}

#[test]
fn a_refund_before_its_payment_never_makes_a_negative_balance() {
    let mut ledger = Ledger::after(vec![open(), refunded(T1, "R1", 300)]);
    assert_eq!(ledger.order.sums().refunded_minor, 0);
    assert_eq!(ledger.hear(pay(WX, "T1", 8888)), "PaymentConfirmed + RefundConfirmed");
    let sums = ledger.order.sums();
    assert_eq!((sums.paid_minor, sums.refunded_minor), (8888, 300));
}

#[test]
fn a_stuck_and_then_done_refund_may_both_wait() {
    let mut ledger = Ledger::after(vec![open(), refund_stalled(T1, "R1", 300), refunded(T1, "R1", 300)]);
    assert_eq!(ledger.order.parked.len(), 2);
    ledger.tell(pay(WX, "T1", 8888)).unwrap();
    assert_eq!(ledger.refunds_of(T1), ["R1 300 Confirmed"]);
}

#[test]
fn cumulative_figures_that_waited_are_booked_smallest_first() {
    let t2 = (ALI, "T2");
    let mut ledger = Ledger::after(vec![refunded_in_all(t2, "R2", 50), refunded_in_all(t2, "R1", 30), open()]);
    ledger.tell(pay(ALI, "T2", 8888)).unwrap();
    assert_eq!(ledger.refunds_of(t2), ["R1 30 Confirmed derived", "R2 20 Confirmed derived"]);
}

#[test]
fn both_spellings_of_a_refund_without_a_number_wait_once() {
    let t2 = (ALI, "2025010822001");
    let first = refunded_in_all(t2, "2025010822001", 8888);
    let mut ledger = Ledger::after(vec![open(), first]);
    assert_eq!(ledger.hear(refunded_in_all(t2, order_no().as_str(), 8888)), "nothing");
}

#[test]
fn an_order_whose_ways_to_pay_were_all_closed_before_is_closed_when_opened() {
    let mut ledger = Ledger::after(vec![closed_at(WX), closed_at(ALI)]);
    assert_eq!(ledger.hear(open()), "OrderOpened + OrderClosed");
    let calls: Vec<_> = ledger.changes.iter().flat_map(|changes| changes.calls.clone()).collect();
    assert_eq!(
        calls,
        [ChannelCall::Poll],
        "there is nothing left to close at the channels; the poll ends at its first look"
    );
}

#[test]
fn money_outweighs_closes_that_came_before_the_order() {
    let mut ledger = Ledger::after(vec![closed_at(WX), closed_at(ALI), pay(WX, "T1", 8888)]);
    assert_eq!(ledger.hear(open()), "OrderOpened + PaymentConfirmed");
}

#[test]
fn a_parked_item_that_a_person_closed_is_still_decided_when_its_turn_comes() {
    let mut ledger = Ledger::after(vec![pay(WX, "T1", 8888), resolve("WXPAY:2025010812345678:PARKED:PAY:T1")]);
    assert_eq!(ledger.hear(open()), "OrderOpened + PaymentConfirmed");
}

#[test]
fn shares_that_waited_on_a_closed_order_go_to_a_person() {
    let mut ledger = Ledger::after(vec![share(T1, "P1", "A", 10), open(), close()]);
    assert_eq!(ledger.hear(pay(WX, "T1", 8888)), "SurplusPaymentRecorded + FactFlagged");
    assert_eq!(ledger.order.parked, []);
}
