//! Idempotency keys, as in the table of DESIGN section 3. Guards P1.

use super::support::*;
use paidonce_order::command::{OrderCommand, ShareKind};
use paidonce_order::idem_key::{IDEM_KEY_BYTES_MAX, IdemKey};
use paidonce_order::{AccountRef, ChannelTradeNo, OrderNo, RefundNo};

const T1: (&str, &str) = (WX, "T1");

fn last_key(commands: Vec<OrderCommand>) -> String {
    Ledger::after(commands).keys().last().unwrap().clone()
}

#[test]
fn every_fact_has_the_key_of_the_table() {
    let paid = |more: OrderCommand| last_key(vec![open(), pay(WX, "T1", 8888), more]);
    let short = |text: &str| digest(text).short();
    assert_eq!(last_key(vec![open(), pay(WX, "T1", 8888)]), "WXPAY:2025010812345678:PAY");
    assert_eq!(paid(pay(ALI, "T2", 8888)), "ALIPAY:2025010812345678:SURPLUS:T2");
    assert_eq!(paid(refunded(T1, "R1", 1)), "WXPAY:2025010812345678:REFUND:R1");
    assert_eq!(paid(refund_stalled(T1, "R1", 1)), "WXPAY:2025010812345678:REFUND:R1:STALLED");
    assert_eq!(paid(refund_failed(T1, "R1", 1)), "WXPAY:2025010812345678:REFUND:R1:FAILED");
    let receiver = short("A");
    assert_eq!(paid(share(T1, "P1", "A", 1)), format!("WXPAY:2025010812345678:SHARE:P1:MERCHANT_ID-{receiver}"));
    assert_eq!(paid(share_back(T1, "B1", 1)), "WXPAY:2025010812345678:SHARE-RETURN:B1");
    assert_eq!(last_key(vec![pay(WX, "T1", 1)]), "WXPAY:2025010812345678:PARKED:PAY:T1");
    assert_eq!(last_key(vec![refunded(T1, "R1", 1)]), "WXPAY:2025010812345678:PARKED:REFUND:R1");
    let parked_share = format!("WXPAY:2025010812345678:PARKED:SHARE:P1:MERCHANT_ID-{receiver}");
    assert_eq!(last_key(vec![share(T1, "P1", "A", 1)]), parked_share);
    let conflict = format!("WXPAY:2025010812345678:CONFLICT:{}", short(&format!("{WX}/T1/7")));
    assert_eq!(paid(pay(WX, "T1", 7)), conflict);
    assert_eq!(paid(flag("x")), format!("WXPAY:2025010812345678:FLAG:{}", short("x")));
    assert_eq!(last_key(vec![open(), closed_at(WX)]), "WXPAY:2025010812345678:CLOSED:1900000001");
}

#[test]
fn requests_of_our_own_have_no_natural_key() {
    let ledger = Ledger::after(vec![open(), pay(WX, "T1", 100), accept(T1), request(None, "R1", 1)]);
    assert_eq!(ledger.keys(), ["WXPAY:2025010812345678:SURPLUS:T1"]);
    assert_eq!(Ledger::after(vec![open(), close()]).keys(), [""; 0]);
}

#[test]
fn foreign_parts_can_not_forge_another_key() {
    assert_eq!(IdemKey::from_parts(&["API", "a:b", "c%d"]).as_str(), "API:a%3Ab:c%25d");
    assert_ne!(IdemKey::from_parts(&["a", "b:c"]), IdemKey::from_parts(&["a:b", "c"]));
    assert_ne!(IdemKey::from_parts(&["a:b"]), IdemKey::from_parts(&["a%3Ab"]));
}

#[test]
fn no_key_is_longer_than_its_column() {
    let order = OrderNo::parse(&"o".repeat(64)).unwrap();
    let longest = "9".repeat(64);
    let account = AccountRef::parse(&format!("alipay:{}", "2".repeat(32))).unwrap();
    let mut share = share_fact((WX, "T1"), &longest, "A", 1);
    share.payment.account = account.clone();
    share.payment.channel_trade_no = ChannelTradeNo::parse(&longest).unwrap();
    share.receiver_type = "R".repeat(32);
    let mut refund = refund_fact(
        (ALI, "T1"),
        &longest,
        paidonce_order::command::RefundOutcome::Succeeded,
        paidonce_order::command::RefundAmount::Cumulative(paidonce_order::Money::fen(i64::MAX)),
    );
    refund.payment = share.payment.clone();
    let back = paidonce_order::command::ShareFact { kind: ShareKind::Returned, ..share.clone() };
    let facts = [
        OrderCommand::RecordProfitShare(share),
        OrderCommand::RecordProfitShare(back),
        OrderCommand::RecordRefund(refund),
    ];
    for fact in facts {
        let events = paidonce_order::decide::decide(&order, &paidonce_order::Order::default(), fact).unwrap();
        for event in events {
            let key = paidonce_order::Order::default().key_of(&event).unwrap().in_order(&order);
            assert!(key.as_str().len() <= IDEM_KEY_BYTES_MAX, "{key} has {} bytes", key.as_str().len());
        }
    }
}

#[test]
fn a_number_is_measured_as_it_stands_in_a_key() {
    assert!(ChannelTradeNo::parse(&":".repeat(21)).is_ok());
    assert!(ChannelTradeNo::parse(&":".repeat(22)).is_err());
    assert!(RefundNo::parse("a:b").is_err());
}

#[test]
fn a_share_whose_number_fits_no_key_goes_to_a_person() {
    let mut ledger = Ledger::after(vec![open(), pay(WX, "T1", 8888)]);
    assert_eq!(ledger.hear(share(T1, &"9".repeat(65), "A", 1)), "FactFlagged");
    assert_eq!(ledger.hear(share(T1, "", "A", 1)), "FactFlagged");
    assert_eq!(ledger.hear(share(T1, "P1", "A", -1)), "FactFlagged");
}
