//! Asking how a payment stands, for whoever asks us.

use std::sync::Arc;
use std::time::Duration;

use paidonce_app::ports::EffectStep;
use paidonce_app::query_payment::PaymentQuery;
use paidonce_app::{AppError, Caller};
use paidonce_order::command::{FlagFact, OrderCommand};
use serde_json::{Value, json};

use crate::harness::*;
use crate::platform::{Says, ali_error, ok, wx_error};

async fn ask(ledger: &Ledger) -> PaymentQuery {
    ledger.app.query_payment(&order_no(), &Caller::default()).await.unwrap()
}

fn outcomes(query: &PaymentQuery) -> Vec<String> {
    let word = |value: Value| value.as_str().unwrap().to_owned();
    query.results.iter().map(|result| word(serde_json::to_value(result.outcome).unwrap())).collect()
}

#[tokio::test]
async fn a_lost_callback_is_found_by_asking_and_booked_through_the_same_door() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([ok(wx_payment("SUCCESS"))]);
    let answer = ask(&ledger).await;
    assert_eq!(outcomes(&answer), ["paid"]);
    assert_eq!(answer.results[0].decided, ["PaymentConfirmed"]);
    assert_eq!(answer.results[0].platform_state.as_deref(), Some("SUCCESS"));
    assert!(answer.changed && answer.order.status.as_str() == "PAID");
    let events = ledger.app.list_order_events(&order_no()).await.unwrap();
    assert_eq!(events[1].source.as_deref(), Some("query"));
    assert!(events[1].evidence.is_some(), "P5: the signed answer is kept");
    // The callback after all: a duplicate.
    ledger.pay(WX, TRADE, 8888).await;
    assert_eq!(ledger.events().await, ["OrderOpened", "PaymentConfirmed"]);
    ledger.platform.asked();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_impatient_clicks_are_one_call_and_share_its_answer() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    *ledger.platform.takes.lock().unwrap() = Duration::from_millis(300);
    ledger.platform.will_say([ok(wx_payment("SUCCESS"))]);
    let clicks: Vec<_> = (0..100)
        .map(|_| {
            let app = Arc::clone(&ledger.app);
            tokio::spawn(async move { app.query_payment(&order_no(), &Caller::default()).await.unwrap() })
        })
        .collect();
    for click in clicks {
        let answer = click.await.unwrap();
        assert_eq!((outcomes(&answer), answer.status.as_str()), (vec!["paid".to_owned()], "PAID"));
    }
    assert_eq!(ledger.platform.asked().len(), 1);
    assert_eq!(ledger.count_of("PaymentConfirmed").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_click_that_goes_away_cancels_nothing() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    *ledger.platform.takes.lock().unwrap() = Duration::from_millis(200);
    ledger.platform.will_say([ok(wx_payment("SUCCESS"))]);
    let app = Arc::clone(&ledger.app);
    let gone =
        tokio::time::timeout(Duration::from_millis(50), app.query_payment(&order_no(), &Caller::default())).await;
    assert!(gone.is_err(), "it went away before the answer");
    let answer = ask(&ledger).await;
    assert_eq!((outcomes(&answer), ledger.platform.asked().len()), (vec!["paid".to_owned()], 1));
}

#[tokio::test]
async fn a_fresh_answer_is_reused_and_says_so_and_doubt_is_not() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([Says::Timeout, ok(wx_payment("NOTPAY"))]);
    assert_eq!(outcomes(&ask(&ledger).await), ["unknown"]);
    let first = ask(&ledger).await;
    let second = ask(&ledger).await;
    assert_eq!((outcomes(&first), first.results[0].reused), (vec!["unpaid".to_owned()], false));
    assert_eq!((outcomes(&second), second.results[0].reused, second.changed), (vec!["unpaid".to_owned()], true, false));
    assert_eq!(ledger.platform.asked().len(), 2);
    let mut impatient = settings();
    impatient.fresh = Duration::ZERO;
    let other = node(&ledger.store, impatient);
    other.platform.will_say([ok(wx_payment("NOTPAY")), ok(wx_payment("NOTPAY"))]);
    ask(&other).await;
    assert!(!ask(&other).await.results[0].reused);
    assert_eq!(other.platform.asked().len(), 2);
}

#[tokio::test]
async fn each_account_answers_for_itself() {
    let ledger = ledger();
    ledger.open(&[WX, ALI]).await;
    ledger.platform.mute(ALI);
    ledger.platform.will_say([wx_error(403, "NO_AUTH")]);
    let answer = ask(&ledger).await;
    assert_eq!(outcomes(&answer), ["refused", "not_asked"]);
    assert!(answer.results[1].detail.as_deref().unwrap().contains("app_private_key_file"));
    assert_eq!(answer.results[0].platform_state.as_deref(), Some("NO_AUTH"));
    assert!(!answer.changed);
    ledger.platform.mute(WX);
    let refused = ledger.app.query_payment(&order_no(), &Caller::default()).await;
    assert!(matches!(refused, Err(AppError::ChannelNotConfigured { .. })), "{refused:?}");
    ledger.platform.asked();
}

#[tokio::test]
async fn gotcha_23_the_query_counts_and_not_what_the_payers_bank_says() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([ok(wx_payment("NOTPAY"))]);
    assert_eq!(outcomes(&ask(&ledger).await), ["unpaid"]);
    assert_eq!((ledger.status().await, ledger.platform.asked().len()), ("PENDING", 1));
}

#[tokio::test]
async fn gotcha_13_a_state_of_refund_says_nothing_about_how_much_so_the_refunds_are_asked_about() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    ledger.request_refund("R1", 300).await;
    ledger.platform.will_say([ok(wx_payment("REFUND")), ok(wx_refund("R1", "SUCCESS", 300))]);
    let answer = ask(&ledger).await;
    assert_eq!(outcomes(&answer), ["paid_with_refunds"]);
    assert_eq!(answer.results[0].decided, ["RefundConfirmed"]);
    assert_eq!(ledger.refunds().await, ["R1 300 CONFIRMED"]);
    assert_eq!(ledger.platform.asked(), [format!("wxpay payment {ORDER}"), "wxpay state of refund R1".to_owned()]);
}

#[tokio::test]
async fn refunds_that_only_the_platform_knows_are_an_open_item() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.platform.will_say([ok(wx_payment("REFUND"))]);
    let answer = ask(&ledger).await;
    assert_eq!(answer.order.status.as_str(), "PAID");
    assert!(ledger.items().await[0].starts_with("flagged open: refunds_not_known"), "{:?}", ledger.items().await);
    ledger.platform.asked();
}

#[tokio::test]
async fn a_doubtful_notice_is_followed_by_a_query() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger
        .tell(OrderCommand::RecordFlag(FlagFact {
            account: account(WX),
            code: "trade_state_disagrees".to_owned(),
            detail: "TRANSACTION.SUCCESS says NOTPAY".to_owned(),
            occurred_at: paidonce_order::Timestamp::from_micros(0),
            content: paidonce_order::Digest([3; 32]),
        }))
        .await;
    ledger.platform.will_say([Says::Timeout, ok(wx_payment("SUCCESS"))]);
    assert_eq!(pause(&ledger.run("query_payment").await), 10);
    assert_eq!(ledger.run("query_payment").await, EffectStep::Done);
    assert_eq!(ledger.status().await, "PAID");
    ledger.platform.asked();
}

#[tokio::test]
async fn gotcha_50_an_unknown_trade_right_after_opening_is_pending() {
    let ledger = ledger();
    ledger.open(&[ALI]).await;
    ledger.platform.will_say([ali_error("ACQ.TRADE_NOT_EXIST")]);
    let answer = ask(&ledger).await;
    assert_eq!((outcomes(&answer), answer.status.as_str()), (vec!["not_found".to_owned()], "PENDING"));
    assert_eq!(serde_json::to_value(&answer).unwrap()["results"][0]["reused"], json!(false));
    ledger.platform.asked();
}
