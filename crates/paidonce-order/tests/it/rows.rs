//! Events to rows: the writer, the rebuild and the audit get the same rows from here. Guards P4.

use super::support::*;
use paidonce_order::project::{Aggregate, ChannelCall, ItemChange, project};
use paidonce_order::{LedgerEvent, OrderNo};

const T1: (&str, &str) = (WX, "T1");

#[test]
fn an_order_opened_and_paid_once_has_one_key_and_one_flow() {
    let ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888)]);
    assert_eq!(ledger.keys(), ["WXPAY:2025010812345678:PAY"]);
    let flows = ledger.flows();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].idem_key.as_str(), "WXPAY:2025010812345678:PAY");
    assert_eq!((flows[0].trade_type.as_str(), flows[0].direction.as_str()), ("PAY", "IN"));
    assert_eq!(flows[0].amount.amount_minor, 8888);
}

#[test]
fn the_order_row_tells_who_paid_what_and_when() {
    let ledger = Ledger::after(vec![open(), pay(ALI, "T2", 5), pay(WX, "T1", 8888), refunded(T1, "R1", 100)]);
    let row = ledger.changes.last().unwrap().order.clone().unwrap();
    assert_eq!((row.paid_minor, row.surplus_minor, row.refunded_minor), (8888, 5, 100));
    assert_eq!(row.status.as_str(), "PAID");
    assert_eq!(row.version, 4);
    assert_eq!(row.account, Some(account(WX)));
    assert_eq!(row.channel_trade_no.unwrap().as_str(), "T1");
    assert_eq!(row.pay_time, Some(at(0)));
}

#[test]
fn each_kind_of_money_has_its_direction() {
    let ledger = Ledger::after(vec![
        open(),
        pay(WX, "T1", 8888),
        pay(ALI, "T2", 8888),
        refunded(T1, "R1", 1),
        share(T1, "P1", "A", 2),
        share_back(T1, "B1", 2),
    ]);
    let told: Vec<_> = ledger.flows().iter().map(|row| (row.trade_type.as_str(), row.direction.as_str())).collect();
    assert_eq!(told, [("PAY", "IN"), ("SURPLUS", "IN"), ("REFUND", "OUT"), ("SHARE", "OUT"), ("SHARE_RETURN", "IN")]);
}

#[test]
fn channels_are_called_for_what_an_event_leaves_open() {
    let calls_of = |ledger: &Ledger| -> Vec<ChannelCall> { ledger.changes.last().unwrap().calls.clone() };
    let parked = Ledger::after(vec![open(), refunded(T1, "R1", 1)]);
    assert_eq!(calls_of(&parked), [ChannelCall::QueryPayment { account: account(WX) }]);
    let asked = Ledger::after(vec![open(), pay(WX, "T1", 8888), request(None, "R1", 1)]);
    assert_eq!(calls_of(&asked), [ChannelCall::Refund { account: account(WX), refund_no: "R1".to_owned() }]);
    let closed = Ledger::after(vec![open(), closed_at(ALI), close()]);
    assert_eq!(calls_of(&closed), [ChannelCall::Close { account: account(WX) }], "the other one is closed already");
    let doubtful = Ledger::after(vec![open(), pay(WX, "T1", 8888), closed_at(WX)]);
    assert_eq!(calls_of(&doubtful), [ChannelCall::QueryPayment { account: account(WX) }]);
    let flagged = Ledger::after(vec![open(), flag("trade_state_disagrees")]);
    assert_eq!(calls_of(&flagged), []);
}

#[test]
fn an_item_opens_once_and_closes_once_and_its_number_is_the_key_of_its_event() {
    let ledger =
        Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888), refunded((ALI, "T2"), "R1", 8888)]);
    let items: Vec<ItemChange> = ledger.changes.iter().flat_map(|changes| changes.items.clone()).collect();
    let told: Vec<String> = items
        .iter()
        .map(|change| match change {
            ItemChange::Opened { item_no, kind, payment, .. } => {
                format!("{item_no} {} {}", kind.as_str(), payment.as_deref().unwrap_or("-"))
            }
            ItemChange::Closed { item_no, outcome } => format!("{item_no} {outcome}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            "ALIPAY:2025010812345678:SURPLUS:T2 surplus alipay:2088000000000001:T2",
            "ALIPAY:2025010812345678:REFUND:R1 flagged alipay:2088000000000001:T2",
            "ALIPAY:2025010812345678:SURPLUS:T2 refunded",
        ]
    );
}

#[test]
fn an_aggregate_is_found_by_its_type_and_counts_its_events() {
    let mut aggregate = Aggregate::empty("Order").unwrap();
    assert_eq!(aggregate.version(), 0);
    for event in Ledger::after(vec![open(), pay(WX, "T1", 8888)]).events {
        aggregate.apply(&LedgerEvent::Order(event));
    }
    assert_eq!(aggregate.version(), 2);
    assert!(Aggregate::empty("Stray").is_some());
    assert!(Aggregate::empty("Invoice").is_none());
}

#[test]
fn the_same_events_give_the_same_rows() {
    let ledger = Ledger::after(vec![pay(WX, "T1", 8888), refunded(T1, "R1", 1), open()]);
    let mut state = Aggregate::empty("Order").unwrap();
    for (event, live) in ledger.events.iter().zip(&ledger.changes) {
        let event = LedgerEvent::Order(event.clone());
        let before = state.clone();
        state.apply(&event);
        assert_eq!(&project(order_no().as_str(), &event, &before, &state), live);
    }
}

#[test]
fn order_numbers_are_compared_byte_for_byte() {
    let (lower, upper) = (OrderNo::parse("aBc123").unwrap(), OrderNo::parse("AbC123").unwrap());
    assert_ne!(lower, upper);
}
