//! Money that settles nothing, and what a person does about it. Guards P6.

use super::support::*;
use paidonce_order::command::{OrderCommand, RefundOrigin, RefundRequest};
use paidonce_order::event::SurplusReason;
use paidonce_order::order::{PaymentRole, Status};

const T1: (&str, &str) = (WX, "T1");
const T2: (&str, &str) = (ALI, "T2");

fn reason_of(ledger: &Ledger, trade: (&str, &str)) -> SurplusReason {
    match ledger.order.find_payment(&payment_ref(trade.0, trade.1)).unwrap().role {
        PaymentRole::Surplus(reason) => reason,
        PaymentRole::Settling => panic!("it settled the order"),
    }
}

#[test]
fn every_reason_is_told() {
    let second = Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888)]);
    assert_eq!(reason_of(&second, T2), SurplusReason::SecondPayment);
    let late = Ledger::after(vec![open(), close(), pay(ALI, "T2", 8888)]);
    assert_eq!(reason_of(&late, T2), SurplusReason::AfterClose);
    let wrong = Ledger::after(vec![open(), pay(ALI, "T2", 1)]);
    assert_eq!(reason_of(&wrong, T2), SurplusReason::AmountMismatch);
    let elsewhere = Ledger::after(vec![open(), pay(WX2, "T2", 1)]);
    assert_eq!(reason_of(&elsewhere, (WX2, "T2")), SurplusReason::OtherAccount);
    let late_and_wrong = Ledger::after(vec![open(), close(), pay(ALI, "T2", 1)]);
    assert_eq!(reason_of(&late_and_wrong, T2), SurplusReason::AmountMismatch);
}

#[test]
fn a_surplus_is_money_in_the_books_and_an_item_for_a_person() {
    let ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888)]);
    let sums = ledger.order.sums();
    assert_eq!((sums.paid_minor, sums.surplus_minor), (8888, 8888));
    assert_eq!(ledger.open_items(), [("ALIPAY:2025010812345678:SURPLUS:T2".to_owned(), "surplus")]);
    let types: Vec<_> = ledger.flows().iter().map(|row| row.trade_type.as_str()).collect();
    assert_eq!(types, ["PAY", "SURPLUS"]);
}

#[test]
fn the_item_closes_when_the_surplus_is_fully_back() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888)]);
    ledger.tell(request(Some(T2), "S1", 8888)).unwrap();
    ledger.tell(refunded(T2, "S1", 8888)).unwrap();
    assert_eq!(ledger.open_items(), []);
    assert_eq!(ledger.status(), Status::Paid, "a surplus that went back does not move the order");
}

/// The refund of a surplus is decided a moment before it is asked for: what a person did meanwhile wins.
#[test]
fn what_is_no_open_surplus_any_more_is_not_refunded_as_one() {
    for decision in [accept(T1), resolve("WXPAY:2025010812345678:SURPLUS:T1")] {
        let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 100)]);
        ledger.tell(decision).unwrap();
        assert_eq!(ledger.hear(surplus_request(T1, "S1", 100)), "rejected not_allowed");
        assert!(ledger.order.find_payment(&payment_ref(T1.0, T1.1)).unwrap().refunds.is_empty());
    }
}

#[test]
fn the_refund_of_a_surplus_may_be_asked_for_again_while_it_is_open_and_when_it_is_done() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888)]);
    assert_eq!(ledger.hear(surplus_request(T2, "S1", 8888)), "RefundRequested");
    assert_eq!(ledger.hear(surplus_request(T2, "S1", 8888)), "nothing");
    ledger.tell(refunded(T2, "S1", 8888)).unwrap();
    assert_eq!(ledger.hear(surplus_request(T2, "S1", 8888)), "nothing");
}

fn surplus_request(trade: (&str, &str), number: &str, fen: i64) -> OrderCommand {
    OrderCommand::RequestRefund(RefundRequest {
        payment: Some(payment_ref(trade.0, trade.1)),
        refund_no: refund_no(number),
        amount: paidonce_order::Money::fen(fen),
        reason: None,
        origin: RefundOrigin::Surplus,
    })
}

#[test]
fn an_accepted_surplus_moves_from_surplus_to_paid_and_is_counted_once() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 100), share(T1, "P1", "A", 10)]);
    assert_eq!(ledger.hear(accept(T1)), "SurplusAccepted + ProfitShareConfirmed");
    let sums = ledger.order.sums();
    assert_eq!((sums.paid_minor, sums.surplus_minor), (100, 0));
    assert_eq!(ledger.flows().iter().filter(|row| row.trade_type.as_str() != "SHARE").count(), 1);
    assert_eq!(ledger.open_items(), []);
    assert_eq!(ledger.hear(pay(ALI, "T2", 8888)), "SurplusPaymentRecorded", "the order is settled");
    ledger.tell(refunded(T1, "R1", 100)).unwrap();
    assert_eq!(ledger.status(), Status::Refunded);
}

#[test]
fn nobody_accepts_without_a_name_and_a_reason() {
    use paidonce_order::command::{Operator, OrderCommand};
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 100)]);
    for (name, reason) in [("", "because"), ("Lin", " ")] {
        let by = Operator { name: name.to_owned(), reason: reason.to_owned() };
        let command = OrderCommand::AcceptSurplus { payment: payment_ref(WX, "T1"), by };
        assert_eq!(ledger.hear(command), "rejected not_allowed");
    }
}

#[test]
fn a_surplus_in_another_currency_is_shown_but_not_added() {
    use paidonce_order::{Currency, Money, OrderCommand};
    let mut fact = payment(WX, "T1", 8888);
    fact.amount = Money::new(8888, Currency::parse("USD").unwrap());
    let mut ledger = Ledger::after(vec![open()]);
    assert_eq!(ledger.hear(OrderCommand::RecordPayment(fact)), "SurplusPaymentRecorded");
    assert_eq!(ledger.order.sums().surplus_minor, 0);
    assert_eq!(ledger.flows()[0].amount.currency.as_str(), "USD");
    assert_eq!(ledger.hear(accept(T1)), "rejected not_allowed");
}

#[test]
fn an_item_is_closed_once_and_only_where_it_is() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 100)]);
    let item_no = "WXPAY:2025010812345678:SURPLUS:T1";
    assert_eq!(ledger.hear(resolve("WXPAY:OTHER:SURPLUS:T1")), "rejected no_such_item");
    assert_eq!(ledger.hear(resolve("WXPAY:2025010812345678:SURPLUS:T7")), "rejected no_such_item");
    assert_eq!(ledger.hear(resolve(item_no)), "ItemResolved");
    assert_eq!(ledger.hear(resolve(item_no)), "nothing");
    assert_eq!(ledger.open_items(), []);
}

#[test]
fn a_conflict_is_kept_once_per_content() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888)]);
    assert_eq!(ledger.hear(pay(WX, "T1", 1)), "FactConflicted");
    assert_eq!(ledger.hear(pay(WX, "T1", 1)), "nothing");
    assert_eq!(ledger.hear(pay(WX, "T1", 2)), "FactConflicted");
    assert_eq!(ledger.open_items().len(), 2);
    assert_eq!(ledger.order.sums().paid_minor, 8888);
}

#[test]
fn sums_never_leave_their_range() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", i64::MAX)]);
    assert_eq!(ledger.hear(pay(WX, "T2", 1)), "FactFlagged");
    assert_eq!(ledger.hear(pay(WX, "T3", -1)), "FactFlagged");
    assert_eq!(ledger.order.sums().surplus_minor, i64::MAX);
}
