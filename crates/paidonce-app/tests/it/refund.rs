//! A refund is sent once with one number, followed to a final answer, and never decided by doubt.

use paidonce_app::ports::EffectStep;
use paidonce_order::command::{OrderCommand, RefundOrigin, RefundRequest};
use paidonce_order::ids::RefundNo;
use paidonce_order::money::Money;
use paidonce_store::store::{CommandContext, Outcome, Target, Work};
use serde_json::json;

use crate::harness::*;
use crate::platform::{Says, ali_error, ok, wx_error};

async fn paid_at_wx() -> Ledger {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    ledger.request_refund("R1", 300).await;
    ledger
}

async fn paid_at_ali() -> Ledger {
    let ledger = ledger();
    ledger.open(&[ALI]).await;
    ledger.pay(ALI, ALI_TRADE, 8888).await;
    ledger.request_refund("R1", 300).await;
    ledger
}

#[tokio::test]
async fn gotcha_15_an_accepted_refund_is_not_done_until_the_query_says_so() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([ok(wx_refund("R1", "PROCESSING", 300))]);
    let step = ledger.run("refund").await;
    assert_eq!((pause(&step), ledger.refunds().await), (10, vec!["R1 300 REQUESTED".to_owned()]));
    ledger.platform.will_say([ok(wx_refund("R1", "SUCCESS", 300))]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 CONFIRMED"]);
    assert_eq!(ledger.platform.asked(), ["wxpay refund R1 300", "wxpay state of refund R1"]);
}

#[tokio::test]
async fn gotcha_16_after_a_timeout_the_query_comes_first_and_then_the_same_number_again() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([Says::Timeout]);
    assert_eq!(pause(&ledger.run("refund").await), 10);
    ledger.platform.will_say([wx_error(404, "RESOURCE_NOT_EXISTS"), ok(wx_refund("R1", "PROCESSING", 300))]);
    assert_eq!(pause(&ledger.run("refund").await), 30);
    let asked = ledger.platform.asked();
    assert_eq!(asked, ["wxpay refund R1 300", "wxpay state of refund R1", "wxpay refund R1 300"]);
    // The first request had arrived after all: the query finds it and nothing is sent.
    ledger.platform.will_say([Says::Timeout]);
    ledger.run("refund").await;
    ledger.platform.will_say([ok(wx_refund("R1", "SUCCESS", 300))]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.platform.asked(), ["wxpay state of refund R1", "wxpay state of refund R1"]);
    assert_eq!(ledger.count_of("RefundConfirmed").await, 1);
}

#[tokio::test]
async fn a_restart_in_the_middle_of_the_first_try_asks_before_it_sends() {
    let ledger = paid_at_wx().await;
    // Claimed, perhaps sent, and the process is gone: only the row knows of the try.
    let lost = ledger.claim("refund").await;
    assert_eq!(lost.effect.attempts, 1);
    let token = lost.effect.lease_token.unwrap();
    let again = paidonce_store::store::TryResult::RetryAfter { delay_ms: 0, error: "lease ran out".to_owned() };
    assert!(ledger.store.complete_effect(lost.effect.effect_id, token, &again).await.unwrap());
    let other = node(&ledger.store, settings());
    other.platform.will_say([ok(wx_refund("R1", "SUCCESS", 300))]);
    assert_eq!(other.run("refund").await, EffectStep::Done);
    assert_eq!(other.platform.asked(), ["wxpay state of refund R1"]);
}

#[tokio::test]
async fn two_nodes_that_run_one_refund_at_once_book_it_once() {
    let ledger = paid_at_wx().await;
    let other = node(&ledger.store, settings());
    let claimed = ledger.claim("refund").await;
    let mut stale = claimed.clone();
    stale.effect.attempts = 2;
    ledger.platform.will_say([ok(wx_refund("R1", "SUCCESS", 300))]);
    other.platform.will_say([ok(wx_refund("R1", "SUCCESS", 300))]);
    use paidonce_app::ports::ChannelEffects;
    let (first, second) = tokio::join!(ledger.app.run_channel_effect(&claimed), other.app.run_channel_effect(&stale));
    assert_eq!((first, second), (EffectStep::Done, EffectStep::Done));
    assert_eq!(ledger.count_of("RefundConfirmed").await, 1);
}

#[tokio::test]
async fn gotcha_14_an_abnormal_refund_is_an_open_item_and_may_still_succeed() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([ok(wx_refund("R1", "ABNORMAL", 300))]);
    ledger.run("refund").await;
    assert_eq!(ledger.refunds().await, ["R1 300 STALLED"]);
    assert!(ledger.items().await[0].starts_with("stalled open"));
    ledger.platform.will_say([ok(wx_refund("R1", "ABNORMAL", 300)), ok(wx_refund("R1", "SUCCESS", 300))]);
    ledger.run("refund").await;
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 CONFIRMED"]);
    assert!(ledger.items().await[0].starts_with("stalled refunded"));
    let asked = ledger.platform.asked();
    assert_eq!(asked.iter().filter(|call| call.starts_with("wxpay refund")).count(), 1, "never sent again: {asked:?}");
}

#[tokio::test]
async fn a_short_balance_is_an_open_item_and_the_same_number_goes_on_after_the_top_up() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([wx_error(403, "NOT_ENOUGH")]);
    ledger.run("refund").await;
    assert!(ledger.items().await[0].starts_with("stalled open"), "{:?}", ledger.items().await);
    ledger.platform.will_say([wx_error(404, "RESOURCE_NOT_EXISTS"), wx_error(403, "NOT_ENOUGH")]);
    ledger.run("refund").await;
    assert_eq!(ledger.count_of("RefundStalled").await, 1, "said once");
    ledger.platform.will_say([wx_error(404, "RESOURCE_NOT_EXISTS"), ok(wx_refund("R1", "SUCCESS", 300))]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert!(ledger.items().await[0].starts_with("stalled refunded"));
    let asked = ledger.platform.asked();
    assert!(asked.iter().all(|call| call.ends_with("R1") || call.ends_with("R1 300")), "{asked:?}");
}

#[tokio::test]
async fn a_refusal_that_needs_a_person_is_flagged_once_and_tried_hourly() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([wx_error(403, "NO_AUTH")]);
    assert_eq!(pause(&ledger.run("refund").await), 3_600);
    ledger.platform.will_say([wx_error(404, "RESOURCE_NOT_EXISTS"), wx_error(403, "NO_AUTH")]);
    assert_eq!(pause(&ledger.run("refund").await), 3_600);
    let items = ledger.items().await;
    assert_eq!(items.len(), 1, "{items:?}");
    assert!(items[0].starts_with("flagged open: refund_refused: refund R1 of"), "{items:?}");
    assert_eq!(ledger.refunds().await, ["R1 300 REQUESTED"], "money stays reserved");
    ledger.platform.asked();
}

#[tokio::test]
async fn a_closed_refund_is_final_and_releases_the_money() {
    let ledger = paid_at_wx().await;
    ledger.platform.will_say([ok(wx_refund("R1", "PROCESSING", 300)), ok(wx_refund("R1", "CLOSED", 300))]);
    ledger.run("refund").await;
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 FAILED"]);
    ledger.request_refund("R2", 8888).await;
    ledger.platform.asked();
}

#[tokio::test]
async fn gotcha_51_fund_change_n_is_no_proof_and_no_status_means_not_refunded() {
    let ledger = paid_at_ali().await;
    ledger.platform.will_say([ok(ali_refund("N", "3.00"))]);
    ledger.run("refund").await;
    assert_eq!(ledger.refunds().await, ["R1 300 REQUESTED"]);
    ledger.platform.will_say([ok(ali_refund_state("R1", None)), ok(ali_refund("Y", "3.00"))]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 CONFIRMED"]);
    assert_eq!(ledger.platform.asked(), ["alipay refund R1 300", "alipay state of refund R1", "alipay refund R1 300"]);
}

#[tokio::test]
async fn gotcha_52_alipay_is_not_asked_about_a_refund_within_ten_seconds() {
    let mut hasty = settings();
    hasty.refund_follow_seconds = vec![1];
    let ledger = ledger_with(hasty);
    ledger.open(&[ALI]).await;
    ledger.pay(ALI, ALI_TRADE, 8888).await;
    ledger.request_refund("R1", 300).await;
    ledger.platform.will_say([Says::Timeout]);
    assert_eq!(pause(&ledger.run("refund").await), 10);
    ledger.platform.asked();
}

#[tokio::test]
async fn gotcha_66_a_system_error_on_a_refund_is_unknown_so_it_is_asked_for_then_sent_with_its_number() {
    let ledger = paid_at_ali().await;
    for doubt in [ali_error("ACQ.SYSTEM_ERROR"), ok(json!({ "code": "20000", "msg": "Service Currently Unavailable" }))]
    {
        ledger.platform.will_say([doubt]);
        ledger.run("refund").await;
        assert_eq!(ledger.refunds().await, ["R1 300 REQUESTED"]);
    }
    ledger.platform.will_say([ok(ali_refund_state("R1", None)), ok(ali_refund("Y", "3.00"))]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(
        ledger.platform.asked(),
        ["alipay refund R1 300", "alipay state of refund R1", "alipay state of refund R1", "alipay refund R1 300"]
    );
}

#[tokio::test]
async fn gotcha_40_a_refund_that_sends_no_notice_is_found_by_its_query() {
    let ledger = paid_at_ali().await;
    ledger.platform.will_say([ok(ali_refund("N", "3.00")), ok(ali_refund_state("R1", Some("3.00")))]);
    ledger.run("refund").await;
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 CONFIRMED"]);
    ledger.platform.asked();
}

#[tokio::test]
async fn a_number_that_belongs_to_another_payment_there_is_given_up_for_a_person() {
    let ledger = paid_at_wx().await;
    let mut foreign = wx_refund("R1", "SUCCESS", 300);
    foreign["transaction_id"] = json!("4200009999");
    foreign["out_trade_no"] = json!("SOMEBODY-ELSE");
    ledger.platform.will_say([ok(foreign)]);
    assert_eq!(ledger.run("refund").await, EffectStep::Done);
    assert_eq!(ledger.refunds().await, ["R1 300 NUMBER_TAKEN"]);
    ledger.platform.asked();
}

#[tokio::test]
async fn an_account_without_credentials_waits_and_says_what_to_configure() {
    let ledger = paid_at_wx().await;
    ledger.platform.mute(WX);
    let step = ledger.run("refund").await;
    assert_eq!(pause(&step), 3_600);
    assert!(why(&step).contains("merchant_private_key_file"), "{}", why(&step));
    assert!(ledger.platform.asked().is_empty());
}

#[tokio::test]
async fn the_refund_query_of_the_api_tells_and_books_but_never_sends() {
    let ledger = paid_at_wx().await;
    let refund_no = RefundNo::parse("R1").unwrap();
    let ask = async || ledger.app.query_refund(&order_no(), &refund_no, &paidonce_app::Caller::default()).await;
    ledger.platform.will_say([
        wx_error(404, "RESOURCE_NOT_EXISTS"),
        Says::Timeout,
        ok(wx_refund("R1", "SUCCESS", 300)),
    ]);
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let answer = serde_json::to_value(ask().await.unwrap()).unwrap();
        outcomes.push((answer["results"][0]["outcome"].as_str().unwrap().to_owned(), answer["changed"].clone()));
    }
    let expected = [("not_found", false), ("unknown", false), ("succeeded", true)];
    assert_eq!(outcomes, expected.map(|(outcome, changed)| (outcome.to_owned(), json!(changed))));
    assert!(ledger.platform.asked().iter().all(|call| call.contains("state of")));
}

/// 64 clients ask at once for parts of one payment: what is accepted never exceeds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_refund_requests_never_exceed_the_payment() {
    let ledger = ledger();
    ledger.open(&[WX]).await;
    ledger.pay(WX, TRADE, 8888).await;
    let mut clients = Vec::new();
    for client in 0..64_i64 {
        let store = ledger.store.clone();
        clients.push(tokio::spawn(async move {
            let amount = Money::fen(100 + client * 37);
            let request = RefundRequest {
                payment: None,
                refund_no: RefundNo::parse(&format!("RACE{client}")).unwrap(),
                amount,
                reason: None,
                origin: RefundOrigin::Request,
            };
            let command = OrderCommand::RequestRefund(request);
            let target = Target::Order { order_no: order_no(), command };
            match store.submit(Work { target, context: CommandContext::default() }).await.unwrap() {
                Outcome::Committed(_) => amount.amount_minor,
                Outcome::Rejected(_) => 0,
                other @ (Outcome::Duplicate(_) | Outcome::ApiKeyReused) => panic!("{other:?}"),
            }
        }));
    }
    let mut accepted = 0;
    for client in clients {
        accepted += client.await.unwrap();
    }
    let requested: i64 = ledger.order().await.refunds.iter().map(|refund| refund.amount_minor).sum();
    assert_eq!(accepted, requested);
    assert!(accepted <= 8888 && accepted > 8888 - 2600, "{accepted}");
}

/// trade.cancel refunds a paid order under a number of its own (gotcha 62). We never call it; one that was made at the
/// platform is a refund like any other.
#[tokio::test]
async fn gotcha_62_a_refund_made_by_a_cancel_is_recorded_as_a_refund() {
    use paidonce_order::command::{RefundAmount, RefundFact, RefundOutcome};
    let ledger = ledger();
    ledger.open(&[ALI]).await;
    ledger.pay(ALI, ALI_TRADE, 8888).await;
    ledger
        .tell(OrderCommand::RecordRefund(RefundFact {
            payment: payment_ref(ALI, ALI_TRADE),
            refund_no: RefundNo::parse(ALI_TRADE).unwrap(),
            channel_refund_no: None,
            outcome: RefundOutcome::Succeeded,
            amount: RefundAmount::Cumulative(Money::fen(8888)),
            payer_amount: None,
            occurred_at: paidonce_order::Timestamp::parse("2025-01-08T13:00:00+08:00").unwrap(),
            content: paidonce_order::Digest([9; 32]),
        }))
        .await;
    assert_eq!(ledger.status().await, "REFUNDED");
    // Only its own query has an exact figure; a refund without a number is asked for under the order's.
    ledger.platform.will_say([ok(ali_refund_state(ORDER, Some("88.88")))]);
    assert_eq!(ledger.run("query_refund").await, EffectStep::Done);
    assert_eq!(ledger.platform.asked(), [format!("alipay state of refund {ORDER}")]);
    assert_eq!(ledger.count_of("RefundSplit").await, 1);
}
