//! A surplus payment is decided once, when it falls due, from the state of then.

use std::time::Duration;

use paidonce_app::channel_settings::Breaker;
use paidonce_app::items::OperatorNote;
use paidonce_app::ports::{ChannelEffects, EffectStep};
use paidonce_app::{AppError, Caller};

use crate::harness::*;

async fn paid_twice(ledger: &Ledger) {
    ledger.open(&[WX, ALI]).await;
    ledger.pay(WX, TRADE, 8888).await;
    ledger.pay(ALI, ALI_TRADE, 8888).await;
}

fn item_no() -> String {
    format!("ALIPAY:{ORDER}:SURPLUS:{ALI_TRADE}")
}

fn note() -> OperatorNote {
    OperatorNote { operator: Some("Lin".to_owned()), reason: "the customer called".to_owned() }
}

#[tokio::test]
async fn a_second_payment_is_refunded_exactly_once_however_often_it_is_decided() {
    let ledger = ledger();
    paid_twice(&ledger).await;
    let other = node(&ledger.store, settings());
    let claimed = ledger.claim("surplus").await;
    let both = tokio::join!(ledger.app.run_channel_effect(&claimed), other.app.run_channel_effect(&claimed));
    assert_eq!(both, (EffectStep::Done, EffectStep::Done));
    assert_eq!(ledger.app.run_channel_effect(&claimed).await, EffectStep::Done);
    assert_eq!(ledger.count_of("RefundRequested").await, 1);
    let refund = &ledger.order().await.refunds[0];
    assert_eq!((refund.amount_minor, refund.channel_trade_no.as_str()), (8888, ALI_TRADE));
    // A person who decides the same asks for the same refund.
    ledger.app.refund_item(&item_no(), note(), &Caller::default()).await.unwrap();
    assert_eq!(ledger.count_of("RefundRequested").await, 1);
}

#[tokio::test]
async fn what_a_person_decided_first_stays() {
    let resolved = ledger();
    paid_twice(&resolved).await;
    resolved.app.resolve_item(&item_no(), note(), &Caller::default()).await.unwrap();
    assert_eq!(resolved.run("surplus").await, EffectStep::Done);
    assert_eq!(resolved.count_of("RefundRequested").await, 0);
}

#[tokio::test]
async fn a_wrong_amount_is_held_for_a_person() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 1).await;
    assert_eq!(ledger.run("surplus").await, EffectStep::Done);
    assert_eq!((ledger.count_of("RefundRequested").await, ledger.status().await), (0, "PENDING"));
    assert!(ledger.items().await[0].starts_with("surplus open"));
}

/// The payer was in time, our close was the mistake: never refunded by itself.
#[tokio::test]
async fn money_paid_before_our_close_is_held() {
    let ledger = ledger();
    ledger.platform.mute(WX);
    ledger.open(&[WX]).await;
    let request = paidonce_app::close::CloseOrder { reason: "timeout".to_owned() };
    ledger.app.close(&order_no(), request, &Caller::default()).await.unwrap();
    ledger.pay(WX, TRADE, 8888).await;
    assert_eq!(ledger.run("surplus").await, EffectStep::Done);
    assert_eq!(ledger.count_of("RefundRequested").await, 0);
}

#[tokio::test]
async fn it_waits_for_its_delay() {
    let mut slow = settings();
    slow.surplus.delay = Duration::from_secs(600);
    let ledger = ledger_with(slow);
    paid_twice(&ledger).await;
    let left = pause(&ledger.run("surplus").await);
    assert!((590..=600).contains(&left), "{left}");
    assert_eq!(ledger.count_of("RefundRequested").await, 0);
}

#[tokio::test]
async fn the_breaker_turns_refunds_into_holds_and_a_restart_does_not_close_it() {
    for breaker in [
        Breaker { refunds_per_hour_max: 1, minor_per_hour_max: i64::MAX },
        Breaker { refunds_per_hour_max: 50, minor_per_hour_max: 9_999 },
    ] {
        let mut careful = settings();
        careful.surplus.breaker = breaker;
        let first = ledger_with(careful.clone());
        paid_twice(&first).await;
        assert_eq!(first.run("surplus").await, EffectStep::Done);
        assert_eq!(first.count_of("RefundRequested").await, 1);
        first.pay(ALI, "2025010822001400009999999999999", 8888).await;
        let restarted = node(&first.store, careful);
        assert_eq!(restarted.run("surplus").await, EffectStep::Done);
        assert_eq!(restarted.count_of("RefundRequested").await, 1, "held");
        assert_eq!(restarted.items().await.iter().filter(|item| item.starts_with("surplus open")).count(), 2);
    }
}

#[tokio::test]
async fn an_accepted_surplus_is_not_refunded() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 1).await;
    let item = format!("WXPAY:{ORDER}:SURPLUS:{TRADE}");
    let accepted = ledger.app.accept_item(&item, note(), &Caller::default()).await;
    assert!(!matches!(accepted, Err(AppError::Store(_))), "{accepted:?}");
    assert_eq!(ledger.run("surplus").await, EffectStep::Done);
    assert_eq!((ledger.count_of("RefundRequested").await, ledger.status().await), (0, "PAID"));
}
