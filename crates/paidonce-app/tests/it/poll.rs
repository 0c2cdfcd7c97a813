//! An unpaid order is followed until it is paid, closed or expired, whatever becomes of its callbacks.

use paidonce_app::ports::EffectStep;

use crate::harness::*;
use crate::platform::{Says, ali_error, ok, wx_error};

#[tokio::test]
async fn gotcha_20_a_callback_that_never_comes_is_found_by_the_poll() {
    let ledger = ledger();
    ledger.open(&[WX, ALI]).await;
    ledger.platform.will_say([wx_error(404, "ORDER_NOT_EXIST"), ali_error("ACQ.TRADE_NOT_EXIST")]);
    assert_eq!(pause(&ledger.run("poll").await), 30);
    ledger.platform.will_say([ok(wx_payment("SUCCESS"))]);
    assert_eq!(ledger.run("poll").await, EffectStep::Done);
    assert_eq!((ledger.status().await, ledger.count_of("PaymentConfirmed").await), ("PAID", 1));
    ledger.platform.asked();
}

#[tokio::test]
async fn the_pauses_grow_and_the_order_stays_pending_whatever_is_answered() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([
        wx_error(404, "ORDER_NOT_EXIST"),
        ok(wx_payment("NOTPAY")),
        Says::Timeout,
        wx_error(500, "SYSTEM_ERROR"),
        wx_error(429, "FREQUENCY_LIMITED"),
        ok(wx_payment("USERPAYING")),
    ]);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        pauses.push(pause(&ledger.run("poll").await));
    }
    assert_eq!(pauses, [30, 60, 300, 1_800, 3_600, 3_600]);
    assert_eq!((ledger.status().await, ledger.events().await.len()), ("PENDING", 1));
    ledger.platform.asked();
}

#[tokio::test]
async fn a_paid_order_is_not_asked_for() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    assert_eq!(ledger.run("poll").await, EffectStep::Done);
    assert!(ledger.platform.asked().is_empty());
}

#[tokio::test]
async fn an_expired_order_is_closed_at_its_platforms_and_then_here() {
    let ledger = ledger();
    ledger.open_expired(&[WX]).await;
    ledger.platform.will_say([Says::NoContent, ok(wx_payment("CLOSED"))]);
    assert_eq!(ledger.run("poll").await, EffectStep::Done);
    let order = ledger.order().await;
    assert_eq!((order.status.as_str(), order.close_reason.as_deref()), ("CLOSED", Some("expired")));
    assert_eq!(ledger.platform.asked(), [format!("wxpay close {ORDER}"), format!("wxpay payment {ORDER}")]);
}

#[tokio::test]
async fn a_payment_found_at_expiry_wins() {
    let ledger = ledger();
    ledger.open_expired(&[WX]).await;
    ledger.platform.will_say([wx_error(400, "ORDER_PAID"), ok(wx_payment("SUCCESS"))]);
    assert_eq!(ledger.run("poll").await, EffectStep::Done);
    assert_eq!(ledger.status().await, "PAID");
    ledger.platform.asked();
}

#[tokio::test]
async fn doubt_at_expiry_closes_nothing_and_comes_again() {
    let ledger = ledger();
    ledger.open_expired(&[WX]).await;
    ledger.platform.will_say([Says::Timeout, Says::Timeout]);
    assert_eq!(pause(&ledger.run("poll").await), 30);
    assert_eq!(ledger.status().await, "PENDING");
    ledger.platform.will_say([Says::NoContent, ok(wx_payment("CLOSED"))]);
    assert_eq!(ledger.run("poll").await, EffectStep::Done);
    assert_eq!(ledger.status().await, "CLOSED");
    ledger.platform.asked();
}

#[tokio::test]
async fn an_order_whose_accounts_cant_ask_waits_and_is_closed_here_when_it_expires() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.mute(WX);
    let step = ledger.run("poll").await;
    assert_eq!(pause(&step), 3_600);
    assert!(why(&step).contains("can't ask"), "{}", why(&step));
    let expired = crate::harness::ledger();
    expired.platform.mute(WX);
    expired.open_expired(&[WX]).await;
    assert_eq!(expired.run("poll").await, EffectStep::Done);
    assert_eq!(expired.status().await, "CLOSED");
}
