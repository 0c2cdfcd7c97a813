//! The cqrs-es side: handle and apply are the same rules.

use cqrs_es::test::TestFramework;
use paidonce_order::aggregate::Addressed;
use paidonce_order::command::OrderCommand;
use paidonce_order::{Order, OrderError, OrderEvent};

use super::support::*;

fn addressed(command: OrderCommand) -> Addressed {
    Addressed { order_no: order_no(), command }
}

#[test]
fn the_framework_sees_a_payment_settle_an_order() {
    let opened = Ledger::after(vec![open()]).events;
    TestFramework::<Order>::with(())
        .given(opened)
        .when(addressed(pay(WX, "T1", 8888)))
        .then_expect_events(vec![OrderEvent::PaymentConfirmed(payment(WX, "T1", 8888))]);
}

#[test]
fn the_framework_sees_parked_facts_decided_with_the_order() {
    let parked = Ledger::after(vec![pay(WX, "T1", 8888)]).events;
    let expected = Ledger::after(vec![pay(WX, "T1", 8888), open()]).events[1..].to_vec();
    TestFramework::<Order>::with(()).given(parked).when(addressed(open())).then_expect_events(expected);
}

#[test]
fn the_framework_sees_a_rejection() {
    let paid = Ledger::after(vec![open(), pay(WX, "T1", 8888)]).events;
    TestFramework::<Order>::with(())
        .given(paid)
        .when(addressed(close()))
        .then_expect_error(OrderError::AlreadyPaid { order_no: order_no() });
}

#[test]
fn a_state_survives_json() {
    let ledger = Ledger::after(vec![
        share((WX, "T9"), "P1", "A", 1),
        open(),
        closed_at(ALI),
        pay(WX, "T1", 8888),
        pay(WX, "T1", 1),
        refunded_in_all((WX, "T1"), "R1", 5),
        share((WX, "T1"), "P1", "B", 1),
    ]);
    let json = serde_json::to_string(&ledger.order).unwrap();
    assert_eq!(serde_json::from_str::<Order>(&json).unwrap(), ledger.order);
}
