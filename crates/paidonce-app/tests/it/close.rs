//! Closing asks the platforms first; money that is faster, or late, is never dropped.

use paidonce_app::close::CloseOrder;
use paidonce_app::ports::{ChannelEffects, EffectStep};
use paidonce_app::view::OrderView;
use paidonce_app::{AppError, Caller};
use paidonce_order::error::OrderError;

use crate::harness::*;
use crate::platform::{Says, ali_error, ok, wx_error};

async fn close(ledger: &Ledger) -> Result<OrderView, AppError> {
    let request = CloseOrder { reason: "the cart was emptied".to_owned() };
    ledger.app.close(&order_no(), request, &Caller::default()).await.map(|answer| answer.value)
}

#[tokio::test]
async fn an_order_is_closed_here_after_every_platform_said_so() {
    let ledger = ledger();
    ledger.open(&[WX, ALI]).await;
    ledger.platform.will_say([
        Says::NoContent,
        ok(wx_payment("CLOSED")),
        ali_error("ACQ.TRADE_NOT_EXIST"),
        ali_error("ACQ.TRADE_NOT_EXIST"),
    ]);
    let order = close(&ledger).await.unwrap();
    assert_eq!((order.status.as_str(), order.close_reason.as_deref()), ("CLOSED", Some("the cart was emptied")));
    assert_eq!(ledger.platform.asked().len(), 4);
    close(&ledger).await.unwrap();
    assert!(ledger.platform.asked().is_empty(), "a closed order asks nobody");
}

#[tokio::test]
async fn gotcha_22_order_paid_on_close_is_queried_and_booked_and_nothing_is_closed() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([wx_error(400, "ORDER_PAID"), ok(wx_payment("SUCCESS"))]);
    let refused = close(&ledger).await;
    assert!(matches!(refused, Err(AppError::Rejected(OrderError::AlreadyPaid { .. }))), "{refused:?}");
    assert_eq!(ledger.events().await, ["OrderOpened", "PaymentConfirmed"]);
    ledger.platform.asked();
}

#[tokio::test]
async fn gotcha_66_an_unknown_close_closes_nothing_and_the_same_again_is_right() {
    let ledger = ledger();
    ledger.open(&[ALI]).await;
    ledger.platform.will_say([ali_error("AQC.SYSTEM_ERROR"), ok(ali_payment("WAIT_BUYER_PAY"))]);
    assert!(matches!(close(&ledger).await, Err(AppError::ChannelUnknown { .. })));
    assert_eq!(ledger.status().await, "PENDING");
    // The close had arrived after all: the query says so.
    let closed = serde_json::json!({ "code": "10000", "msg": "Success", "out_trade_no": ORDER, "trade_no": ALI_TRADE,
        "trade_status": "TRADE_CLOSED", "total_amount": "88.88" });
    ledger.platform.will_say([Says::Timeout, ok(closed)]);
    assert_eq!(close(&ledger).await.unwrap().status.as_str(), "CLOSED");
    ledger.platform.asked();
}

#[tokio::test]
async fn a_close_that_only_a_person_can_make_possible_says_so() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([wx_error(403, "NO_AUTH"), ok(wx_payment("NOTPAY"))]);
    assert!(matches!(close(&ledger).await, Err(AppError::ChannelRefused { .. })));
    assert_eq!(ledger.status().await, "PENDING");
    ledger.platform.asked();
}

#[tokio::test]
async fn accounts_that_cant_ask_are_closed_here_alone() {
    let ledger = ledger();
    ledger.platform.mute(WX);
    ledger.open(&[WX]).await;
    assert_eq!(close(&ledger).await.unwrap().status.as_str(), "CLOSED");
    assert!(ledger.platform.asked().is_empty());
}

#[tokio::test]
async fn gotcha_21_a_payment_after_our_close_is_a_surplus_and_refunded_once() {
    let ledger = ledger();
    ledger.platform.mute(WX);
    ledger.open(&[WX]).await;
    close(&ledger).await.unwrap();
    ledger.platform.unmute();
    let mut late = wx_payment("SUCCESS");
    late["success_time"] = serde_json::json!("2099-01-08T12:34:56+08:00");
    ledger.platform.will_say([wx_error(400, "ORDER_PAID"), ok(late)]);
    assert_eq!(ledger.run("close").await, EffectStep::Done);
    assert_eq!(ledger.status().await, "CLOSED");
    assert_eq!(ledger.order().await.surplus_minor, 8888);
    assert_eq!(ledger.run("surplus").await, EffectStep::Done);
    assert_eq!(ledger.count_of("RefundRequested").await, 1);
    ledger.platform.asked();
}

/// An Alipay trade is made when the payer scans, and a code lives for two hours: a payment of then, whose callback is lost, is
/// found by the last question.
#[tokio::test]
async fn a_platform_that_does_not_know_the_order_is_asked_again_when_no_code_can_be_paid_any_more() {
    let ledger = ledger();
    ledger.platform.mute(ALI);
    ledger.open(&[ALI]).await;
    close(&ledger).await.unwrap();
    ledger.platform.unmute();
    let mut claimed = ledger.claim("close").await;
    ledger.platform.will_say(std::iter::repeat_n(ali_error("ACQ.TRADE_NOT_EXIST"), 4));
    let step = ledger.app.run_channel_effect(&claimed).await;
    assert!((7_700..=7_800).contains(&pause(&step)), "{step:?}");
    claimed.event.recorded_at = claimed.event.recorded_at.plus_micros(-7_800_000_000);
    assert_eq!(ledger.app.run_channel_effect(&claimed).await, EffectStep::Done);
    ledger.platform.will_say([ali_error("ACQ.REASON_TRADE_STATUS_INVALID"), ok(ali_payment("TRADE_SUCCESS"))]);
    assert_eq!(ledger.app.run_channel_effect(&claimed).await, EffectStep::Done);
    assert_eq!(ledger.order().await.surplus_minor, 8888);
    ledger.platform.asked();
}

/// The platform refuses a number that comes again with another amount (268498688). A number is opened here once: other terms
/// are rejected before anything is asked.
#[tokio::test]
async fn gotcha_32_an_order_number_is_never_reused_with_another_amount() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    let other = serde_json::json!({ "order_no": ORDER, "amount_minor": 9999, "currency": "CNY", "accounts": [WX] });
    let refused = ledger.app.open(serde_json::from_value(other).unwrap(), &Caller::default()).await;
    assert!(matches!(refused, Err(AppError::Rejected(OrderError::OrderTermsDiffer { .. }))), "{refused:?}");
    assert!(ledger.platform.asked().is_empty());
}

/// Alipay calls a paid trade closed once all of it went back: it was paid, and a close must not hide that.
#[tokio::test]
async fn a_closed_trade_that_was_paid_and_refunded_is_booked_and_not_closed() {
    let ledger = ledger();
    ledger.open(&[ALI]).await;
    ledger.platform.will_say([
        ali_error("ACQ.REASON_TRADE_STATUS_INVALID"),
        ok(ali_payment("TRADE_CLOSED")),
        ok(ali_refund_state(ORDER, Some("88.88"))),
    ]);
    let refused = close(&ledger).await;
    assert!(matches!(refused, Err(AppError::Rejected(OrderError::AlreadyPaid { .. }))), "{refused:?}");
    assert_eq!((ledger.status().await, ledger.order().await.surplus_minor), ("REFUNDED", 0));
    assert!(!ledger.events().await.contains(&"OrderClosed".to_owned()), "{:?}", ledger.events().await);
    ledger.platform.asked();
}

/// Paid, says the platform, but the answer lacks what a booking needs: nobody may call that unpaid.
#[tokio::test]
async fn a_payment_that_cant_be_booked_keeps_the_order_open() {
    let ledger = ledger();
    ledger.open_expired(&[WX]).await;
    let mut paid = wx_payment("SUCCESS");
    paid.as_object_mut().unwrap().remove("success_time");
    ledger.platform.will_say([wx_error(400, "ORDER_PAID"), ok(paid.clone())]);
    assert!(matches!(close(&ledger).await, Err(AppError::ChannelUnknown { .. })));
    ledger.platform.will_say([wx_error(400, "ORDER_PAID"), ok(paid)]);
    assert!(matches!(ledger.run("poll").await, EffectStep::Again { .. }));
    assert_eq!((ledger.status().await, ledger.events().await), ("PENDING", vec!["OrderOpened".to_owned()]));
    ledger.platform.asked();
}

/// Every order that such a ledger closes leaves this call behind: it must not come back every hour for ever.
#[tokio::test]
async fn a_ledger_that_only_listens_gives_its_closes_up_after_a_day() {
    let ledger = ledger();
    ledger.platform.mute(WX);
    ledger.open(&[WX]).await;
    close(&ledger).await.unwrap();
    for _ in 1..24 {
        assert_eq!(pause(&ledger.run("close").await), 3_600);
    }
    assert_eq!(ledger.run("close").await, EffectStep::Done);
    assert!(ledger.platform.asked().is_empty());
}
