//! What shall become of a surplus: pure answers.

use super::support::*;
use paidonce_order::OrderNo;
use paidonce_order::event::SurplusReason;
use paidonce_order::policy::{SurplusAction, SurplusCase, SurplusPolicy, surplus_refund_no};

fn action(reason: SurplusReason, paid: i64, closed: Option<i64>) -> SurplusAction {
    SurplusPolicy::default().action(SurplusCase { reason, occurred_at: at(paid), closed_at: closed.map(at) })
}

#[test]
fn the_defaults_refund_what_is_clear_and_hold_what_is_not() {
    assert_eq!(action(SurplusReason::SecondPayment, 0, None), SurplusAction::Refund);
    assert_eq!(action(SurplusReason::AmountMismatch, 0, None), SurplusAction::Hold);
    assert_eq!(action(SurplusReason::OtherAccount, 0, None), SurplusAction::Hold);
    assert_eq!(action(SurplusReason::AfterClose, 11, Some(10)), SurplusAction::Refund);
}

#[test]
fn a_payer_who_was_in_time_is_never_refunded_by_itself() {
    assert_eq!(action(SurplusReason::AfterClose, 9, Some(10)), SurplusAction::Hold);
    let keen = SurplusPolicy { after_close: SurplusAction::Accept, ..SurplusPolicy::default() };
    let case = SurplusCase { reason: SurplusReason::AfterClose, occurred_at: at(9), closed_at: Some(at(10)) };
    assert_eq!(keen.action(case), SurplusAction::Hold);
}

#[test]
fn the_number_of_an_automatic_refund_comes_from_the_surplus_alone() {
    let long = OrderNo::parse(&"o".repeat(64)).unwrap();
    for order in [order_no(), long] {
        let number = surplus_refund_no(&order, &payment_ref(WX, "T1"));
        assert_eq!(number, surplus_refund_no(&order, &payment_ref(WX, "T1")));
        assert_ne!(number, surplus_refund_no(&order, &payment_ref(WX, "T2")));
        assert!(paidonce_order::RefundNo::parse(number.as_str()).is_ok());
        assert!(order.as_str().starts_with(number.as_str().split("-S").next().unwrap()));
    }
}
