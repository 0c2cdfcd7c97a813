//! Terms of an order that is a part of a combine payment.

use paidonce_order::command::{Combine, OrderCommand, Terms};
use paidonce_order::decide::decide;
use paidonce_order::ids::CombineNo;
use paidonce_order::order::Order;
use paidonce_order::{Money, OrderError, OrderEvent};

use crate::support::*;

fn part_of(accounts: &[&str], of: &str) -> Terms {
    let combine_out_trade_no = CombineNo::parse("COMBINE1").unwrap();
    let combine = Some(Combine { account: account(of), combine_out_trade_no });
    Terms { combine, ..terms(Money::fen(8888), accounts) }
}

fn field_of(result: Result<Vec<OrderEvent>, OrderError>) -> &'static str {
    match result {
        Err(OrderError::InvalidTerms { field, .. } | OrderError::OrderTermsDiffer { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_part_has_one_wxpay_account_and_its_whole_one_that_may_be_another() {
    let open = |terms| decide(&order_no(), &Order::default(), OrderCommand::OpenOrder(terms));
    for good in [part_of(&[WX], WX), part_of(&[WX], WX2), part_of(&[WX, ALI], WX2)] {
        assert_eq!(open(good).unwrap().len(), 1);
    }
    // The whole's answer names the account of each part: with two it could be mistaken, with none it would never be found.
    for bad in [part_of(&[WX, WX2], WX), part_of(&[ALI], WX), part_of(&[WX], ALI)] {
        assert_eq!(field_of(open(bad)), "combine");
    }
}

#[test]
fn another_whole_is_another_opening() {
    let mut ledger = Ledger::after(vec![OrderCommand::OpenOrder(part_of(&[WX], WX))]);
    let mut again = |terms| ledger.tell(OrderCommand::OpenOrder(terms));
    assert!(again(part_of(&[WX], WX)).unwrap().is_empty(), "the same terms change nothing");
    assert_eq!(field_of(again(part_of(&[WX], WX2))), "combine");
    assert_eq!(field_of(again(terms(Money::fen(8888), &[WX]))), "combine");
}
