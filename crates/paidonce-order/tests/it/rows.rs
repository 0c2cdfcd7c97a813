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
    let opened = Ledger::after(vec![open()]);
    assert_eq!(calls_of(&opened), [ChannelCall::Poll]);
    let surplus = Ledger::after(vec![open(), pay(WX, "T1", 8888), pay(ALI, "T2", 8888)]);
    let trade_no = payment_ref(ALI, "T2").channel_trade_no;
    assert_eq!(
        calls_of(&surplus),
        [ChannelCall::Surplus { account: account(ALI), channel_trade_no: trade_no.clone() }]
    );
    let closed = Ledger::after(vec![open(), closed_at(ALI), close()]);
    assert_eq!(calls_of(&closed), [ChannelCall::Close { account: account(WX) }], "the other one is closed already");
    let doubtful = Ledger::after(vec![open(), pay(WX, "T1", 8888), closed_at(WX)]);
    assert_eq!(calls_of(&doubtful), [ChannelCall::QueryPayment { account: account(WX) }]);
    let disagrees = Ledger::after(vec![open(), flag("trade_state_disagrees")]);
    assert_eq!(calls_of(&disagrees), [ChannelCall::QueryPayment { account: account(WX) }]);
    let flagged = Ledger::after(vec![open(), flag("attempt_failed")]);
    assert_eq!(calls_of(&flagged), []);
}

#[test]
fn refunds_of_one_payment_are_spaced_as_their_platform_wants() {
    let spacing_of = |ledger: &Ledger| match ledger.changes.last().unwrap().calls.as_slice() {
        [ChannelCall::Refund { spacing_seconds, .. }] => *spacing_seconds,
        other => panic!("{other:?}"),
    };
    for (at_account, seconds) in [(WX, 60), (ALI, 3)] {
        let mut ledger = Ledger::after(vec![open(), pay(at_account, "T1", 8888)]);
        for (count, number) in (0..).zip(["R1", "R2", "R3"]) {
            ledger.tell(request(None, number, 100)).unwrap();
            assert_eq!(spacing_of(&ledger), count * seconds, "{at_account} {number}");
        }
        ledger.tell(refunded((at_account, "T1"), "R1", 100)).unwrap();
        ledger.tell(request(None, "R4", 100)).unwrap();
        assert_eq!(spacing_of(&ledger), 2 * seconds, "a refund that is done asks for no distance");
    }
}

#[test]
fn a_refund_of_ours_is_followed_by_its_own_call_and_one_of_the_platform_by_a_query() {
    let calls_of = |ledger: &Ledger| -> Vec<ChannelCall> { ledger.changes.last().unwrap().calls.clone() };
    let query = |at_account: &str, number: &str| ChannelCall::QueryRefund {
        account: account(at_account),
        refund_no: number.to_owned(),
    };
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888), request(None, "R1", 1)]);
    ledger.tell(refund_stalled(T1, "R1", 1)).unwrap();
    assert_eq!(calls_of(&ledger), [], "the refund call is still at it");
    ledger.tell(refund_stalled(T1, "CONSOLE", 1)).unwrap();
    assert_eq!(calls_of(&ledger), [query(WX, "CONSOLE")]);
    let mut ledger = Ledger::after(vec![open(), pay(ALI, "T1", 8888)]);
    ledger.tell(refunded_in_all((ALI, "T1"), "CONSOLE", 100)).unwrap();
    assert_eq!(calls_of(&ledger), [query(ALI, "CONSOLE")], "only the query has an exact figure");
}

#[test]
fn every_call_has_a_lane_and_lanes_of_different_matters_differ() {
    let (number, trade_no) = ("R1".to_owned(), payment_ref(WX, "T1").channel_trade_no);
    let calls = [
        (ChannelCall::Poll, "poll", "channel:poll"),
        (ChannelCall::QueryPayment { account: account(WX) }, "query_payment", "channel:wxpay:1900000001:query"),
        (
            ChannelCall::Refund { account: account(WX), refund_no: number.clone(), spacing_seconds: 60 },
            "refund",
            "channel:wxpay:1900000001:refund:R1",
        ),
        (
            ChannelCall::QueryRefund { account: account(WX), refund_no: number },
            "query_refund",
            "channel:wxpay:1900000001:refund:R1",
        ),
        (ChannelCall::Close { account: account(WX) }, "close", "channel:wxpay:1900000001:close"),
        (
            ChannelCall::Surplus { account: account(WX), channel_trade_no: trade_no.clone() },
            "surplus",
            "channel:wxpay:1900000001:surplus:T1",
        ),
        (
            ChannelCall::QueryShare { account: account(WX), channel_trade_no: trade_no, out_order_no: "P1".to_owned() },
            "query_share",
            "channel:wxpay:1900000001:share:P1",
        ),
    ];
    for (call, kind, lane) in calls {
        assert_eq!((call.kind(), call.lane().as_str()), (kind, lane));
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<ChannelCall>(&text).unwrap(), call, "{text}");
    }
}

#[test]
fn a_refund_call_of_an_earlier_release_has_no_spacing() {
    let text = r#"{"call":"refund","account":"wxpay:1900000001","refund_no":"R1"}"#;
    let read: ChannelCall = serde_json::from_str(text).unwrap();
    assert_eq!(read, ChannelCall::Refund { account: account(WX), refund_no: "R1".to_owned(), spacing_seconds: 0 });
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
