//! An order that is a part of a combine payment is asked about, and closed, as a part of the whole.

use paidonce_app::close::CloseOrder;
use paidonce_app::open::OpenOrder;
use paidonce_app::{AppError, Caller};
use paidonce_order::ids::OrderNo;
use serde_json::{Value, json};

use crate::harness::*;
use crate::platform::{Says, ok, wx_error};

const SIBLING: &str = "2025010812345679";
const WX2: &str = "wxpay:1900000002";

fn request(order_no: &str, account: &str, of: &str) -> OpenOrder {
    let combine = json!({ "account": of, "combine_out_trade_no": "COMBINE1" });
    let request = json!({ "order_no": order_no, "amount_minor": 8888, "currency": "CNY", "accounts": [account],
                          "combine": combine });
    serde_json::from_value(request).unwrap()
}

/// Two parts, each of another of our accounts; the whole is the first account's.
async fn opened() -> Ledger {
    let ledger = ledger();
    for (order_no, account) in [(ORDER, WX2), (SIBLING, WX)] {
        ledger.app.open(request(order_no, account, WX), &Caller::default()).await.unwrap();
    }
    ledger
}

fn part(order_no: &str, mchid: &str, state: &str) -> Value {
    let mut part = json!({ "mchid": mchid, "out_trade_no": order_no, "trade_state": state,
                           "amount": { "total_amount": 8888, "currency": "CNY" } });
    if state == "SUCCESS" {
        part["transaction_id"] = json!(format!("4200{order_no}"));
        part["trade_type"] = json!("JSAPI");
        part["success_time"] = json!("2025-01-08T12:34:56.120+08:00");
        part["amount"]["payer_amount"] = json!(8888);
    }
    part
}

fn whole(state: &str) -> Says {
    ok(json!({ "combine_appid": "wx0000000000000001", "combine_mchid": "1900000001",
               "combine_out_trade_no": "COMBINE1",
               "sub_orders": [part(ORDER, "1900000002", state), part(SIBLING, "1900000001", state)] }))
}

async fn status_of(ledger: &Ledger, order_no: &str) -> &'static str {
    ledger.app.get_order(&OrderNo::parse(order_no).unwrap()).await.unwrap().status.as_str()
}

#[tokio::test]
async fn a_part_is_found_by_the_number_of_the_whole_and_its_answer_books_every_part() {
    let ledger = opened().await;
    ledger.platform.will_say([whole("SUCCESS")]);
    let answer = ledger.app.query_payment(&order_no(), &Caller::default()).await.unwrap();
    assert_eq!(ledger.platform.asked(), ["wxpay:1900000001 combine COMBINE1"], "at the account of the whole");
    let result = &answer.results[0];
    assert_eq!((result.account.as_str(), result.platform_state.as_deref()), (WX2, Some("SUCCESS")));
    assert_eq!((status_of(&ledger, ORDER).await, status_of(&ledger, SIBLING).await), ("PAID", "PAID"));
    let flows = ledger.app.get_order(&order_no()).await.unwrap().payments;
    assert_eq!(flows[0].account, WX2, "the money is the part's account's");
}

#[tokio::test]
async fn a_part_that_is_not_paid_or_not_known_yet_is_pending() {
    for (says, outcome) in [(whole("NOTPAY"), "unpaid"), (wx_error(404, "ORDER_NOT_EXIST"), "not_found")] {
        let ledger = opened().await;
        ledger.platform.will_say([says]);
        let answer = ledger.app.query_payment(&order_no(), &Caller::default()).await.unwrap();
        assert_eq!(serde_json::to_value(answer.results[0].outcome).unwrap(), json!(outcome));
        assert_eq!(ledger.status().await, "PENDING");
        ledger.platform.asked();
    }
}

#[tokio::test]
async fn a_whole_without_our_part_is_no_answer() {
    let ledger = opened().await;
    // The number is known with another order of ours: nothing is said about this one.
    ledger.platform.will_say([ok(json!({ "combine_appid": "wx0000000000000001", "combine_mchid": "1900000001",
        "combine_out_trade_no": "COMBINE1", "sub_orders": [part(ORDER, "1900000001", "CLOSED")] }))]);
    let answer = ledger.app.query_payment(&order_no(), &Caller::default()).await.unwrap();
    let detail = answer.results[0].detail.clone().unwrap();
    assert!(detail.starts_with("not_ours") && detail.contains("COMBINE1"), "{detail}");
    assert_eq!(ledger.status().await, "PENDING");
    ledger.platform.asked();
}

#[tokio::test]
async fn closing_a_part_closes_the_whole_and_every_part_hears_of_it() {
    let ledger = opened().await;
    ledger.platform.will_say([whole("NOTPAY"), Says::NoContent, whole("CLOSED")]);
    let close = CloseOrder { reason: "the cart was emptied".to_owned() };
    let order = ledger.app.close(&order_no(), close, &Caller::default()).await.unwrap().value;
    assert_eq!((order.status.as_str(), order.close_reason.as_deref()), ("CLOSED", Some("the cart was emptied")));
    assert_eq!(
        ledger.platform.asked(),
        [
            "wxpay:1900000001 combine COMBINE1".to_owned(),
            format!("wxpay:1900000001 close combine COMBINE1 of {ORDER} {SIBLING}"),
            "wxpay:1900000001 combine COMBINE1".to_owned(),
        ]
    );
    assert_eq!(status_of(&ledger, SIBLING).await, "CLOSED", "its last way to pay is closed too");
}

#[tokio::test]
async fn a_whole_that_was_paid_meanwhile_is_booked_and_nothing_is_closed() {
    let ledger = opened().await;
    ledger.platform.will_say([whole("NOTPAY"), wx_error(400, "ORDER_PAID"), whole("SUCCESS")]);
    let close = CloseOrder { reason: "the cart was emptied".to_owned() };
    let refused = ledger.app.close(&order_no(), close, &Caller::default()).await;
    assert!(matches!(refused, Err(AppError::Rejected(_))), "{refused:?}");
    assert_eq!((status_of(&ledger, ORDER).await, status_of(&ledger, SIBLING).await), ("PAID", "PAID"));
    ledger.platform.asked();
}

#[tokio::test]
async fn an_unknown_answer_about_the_whole_closes_nothing() {
    let ledger = opened().await;
    ledger.platform.will_say([Says::Timeout, Says::Timeout]);
    let close = CloseOrder { reason: "the cart was emptied".to_owned() };
    let refused = ledger.app.close(&order_no(), close, &Caller::default()).await;
    assert!(matches!(refused, Err(AppError::ChannelUnknown { .. })), "{refused:?}");
    assert_eq!(ledger.status().await, "PENDING");
    ledger.platform.asked();
}

#[tokio::test]
async fn a_whole_whose_account_is_not_ours_or_can_not_ask_is_told() {
    let ledger = opened().await;
    let refused = ledger.app.open(request("A-1", WX, "wxpay:1999999999"), &Caller::default()).await;
    assert!(matches!(refused, Err(AppError::Invalid { field: "combine", .. })), "{refused:?}");
    ledger.platform.mute(WX);
    let refused = ledger.app.query_payment(&order_no(), &Caller::default()).await;
    let Err(AppError::ChannelNotConfigured { problem }) = refused else { panic!("{refused:?}") };
    assert!(problem.contains(WX) && !problem.contains(WX2), "the account of the whole lacks something: {problem}");
}
