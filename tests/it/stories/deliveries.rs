//! P7: own retries, lane order, dead and requeued, and a receiver that is told at least once with the same id.

use std::collections::BTreeSet;

use paidonce_tests::app::{TestApp, json_request};
use paidonce_tests::config::OPERATOR_TOKEN;
use paidonce_tests::database::Engine;
use paidonce_tests::signer;
use paidonce_tests::warehouse::Plan;
use serde_json::json;

use super::{WXPAY, on_both};

on_both! {
    /// P7: 1 min, 5 min, 30 min, then dead and shown; a person sends it again.
    async fn a_failing_receiver_is_retried_on_schedule_then_dead_then_requeued(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.warehouse.always(Plan::status(500));
        app.open("RETRY", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("RETRY", "42000040", 100)).await.status, 204);
        for (tries, pause) in [(1, 60), (2, 300), (3, 1800)] {
            app.relay().await;
            app.warehouse.wait_until(|arrivals| arrivals >= tries).await;
            app.relay().await;
            assert_eq!(app.warehouse.arrivals(), tries, "nothing is due before its time");
            app.advance(pause - 5).await;
            app.relay().await;
            assert_eq!(app.warehouse.arrivals(), tries, "{pause} s are not over");
            app.advance(10).await;
        }
        app.relay().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 4).await;
        app.relay().await;
        let dead = app.get("/v1/effects?state=dead").await.json();
        assert_eq!(dead["effects"].as_array().map(Vec::len), Some(1), "{dead}");
        let effect = dead["effects"][0]["effect_id"].as_str().expect("an id").to_owned();
        app.warehouse.answer_at_once();
        let path = format!("/v1/effects/{effect}/requeue");
        let requeue = json_request("POST", &path, "{}").header("Authorization", &format!("Bearer {OPERATOR_TOKEN}"));
        assert_eq!(app.send(&requeue).await.status, 200);
        app.settle().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 5).await;
        let ids: BTreeSet<String> = app.warehouse.deliveries().into_iter().map(|delivery| delivery.webhook_id).collect();
        assert_eq!(ids.len(), 1, "the same webhook-id on every try");
        app.finish().await;
    }

    /// P7: inside a lane nothing overtakes: the refund is told after the payment, also when the payment failed first.
    async fn the_refund_is_never_told_before_the_payment(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.warehouse.plan([Plan::status(503)]);
        app.open("LANE", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("LANE", "42000041", 100)).await.status, 204);
        app.relay().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 1).await;
        let asked = app.post_as_shop("/v1/orders/LANE/refunds", &json!({ "refund_no": "R-L", "amount_minor": 100 })).await;
        assert_eq!(asked.status, 201, "{}", asked.text());
        let refund = signer::wx_refund("LANE", "42000041", "R-L", 100, 100);
        assert_eq!(app.send(&app.wx_push("REFUND.SUCCESS", "refund", &refund)).await.status, 204);
        app.relay().await;
        assert_eq!(app.warehouse.arrivals(), 1, "the payment waits for its retry, the refund waits for the payment");
        app.advance(61).await;
        app.settle().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 3).await;
        let told: Vec<(String, u16)> =
            app.warehouse.deliveries().iter().map(|it| (it.event_type().to_owned(), it.status)).collect();
        let expected = [("PaymentConfirmed", 503), ("PaymentConfirmed", 200), ("RefundConfirmed", 200)];
        assert_eq!(told, expected.map(|(event_type, status)| (event_type.to_owned(), status)));
        app.finish().await;
    }

    /// P7: the process dies before sending, and after the receiver answered: told at least once, with the same id.
    async fn a_crash_around_the_sending_tells_again_and_loses_nothing(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        for (number, point) in ["effect_before_send", "effect_after_send"].into_iter().enumerate() {
            let order_no = format!("SEND-{number}");
            app.open(&order_no, 100, &[WXPAY]).await;
            app.fault(0, point, "kill", 1).await;
            drop(app.try_send(&app.wx_payment(&order_no, &format!("4200SEND{number}"), 100)).await);
            drop(app.try_relay(0).await);
            assert!(!app.server_mut(0).wait().await.success());
            app.restart(0).await;
            // The payment's answer may have been lost with the process.
            assert_eq!(app.send(&app.wx_payment(&order_no, &format!("4200SEND{number}"), 100)).await.status, 204);
            app.pass_leases().await;
            app.settle().await;
            let told: Vec<String> = app
                .warehouse
                .deliveries()
                .into_iter()
                .filter(|delivery| delivery.mentions(&order_no))
                .map(|delivery| delivery.webhook_id)
                .collect();
            assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), 1, "{point}: one event, one id");
            assert_eq!(told.len(), if point == "effect_after_send" { 2 } else { 1 }, "{point}");
        }
        app.finish().await;
    }

    /// P7: a subscriber that comes later hears of the past, once, and of what comes.
    async fn a_new_subscriber_is_told_of_the_past(engine: Engine) {
        let app = TestApp::builder(engine).config(|config| config.warehouse_events.clear()).start().await;
        for number in 0..5 {
            let order_no = format!("PAST-{number}");
            app.open(&order_no, 100, &[WXPAY]).await;
            assert_eq!(app.send(&app.wx_payment(&order_no, &format!("4200PAST{number}"), 100)).await.status, 204);
        }
        let body = json!({ "events": ["PaymentConfirmed"], "url": app.warehouse.url(), "secret_ref": "warehouse" });
        let operator = format!("Bearer {OPERATOR_TOKEN}");
        let put = json_request("PUT", "/v1/subscribers/late", &body.to_string()).header("Authorization", &operator);
        let answer = app.send(&put).await;
        assert!(answer.status < 300, "{}", answer.text());
        for _ in 0..2 {
            assert_eq!(app.post("/v1/subscribers/late/backfill", &json!({})).await.status, 200);
        }
        app.settle().await;
        assert_eq!(app.warehouse.accepted_events().get("PaymentConfirmed"), Some(&5));
        assert_eq!(app.warehouse.arrivals(), 5);
        app.finish().await;
    }

    /// P7: a dead delivery blocks its lane until a person decides; discarding it frees the lane.
    async fn a_discarded_delivery_frees_its_lane(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.warehouse.plan([Plan::status(410)]);
        app.open("GONE", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("GONE", "42000042", 100)).await.status, 204);
        app.relay().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 1).await;
        app.relay().await;
        assert_eq!(app.send(&app.wx_payment("GONE", "42000043", 100)).await.status, 204);
        app.relay().await;
        assert_eq!(app.warehouse.arrivals(), 1, "410 Gone is dead at once and blocks what comes after it");
        let dead = app.get("/v1/effects?state=dead&order_no=GONE").await.json();
        let effect = dead["effects"][0]["effect_id"].as_str().unwrap_or_else(|| panic!("{dead}")).to_owned();
        assert_eq!(app.post(&format!("/v1/effects/{effect}/discard"), &json!({})).await.status, 200);
        app.settle().await;
        app.warehouse.wait_until(|arrivals| arrivals >= 2).await;
        app.finish().await;
    }
}
