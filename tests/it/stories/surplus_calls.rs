//! P6 and P1: money that settles nothing goes back once, after its delay, within the breaker's limits; or stays for a person.

use std::collections::BTreeSet;

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::platform_stub::Then;
use paidonce_tests::platform_stub::answer::Prepared;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::platform_stub::world::RefundMode;
use serde_json::json;

use super::{WXPAY, on_both};

/// `[surplus] delay_seconds` by default.
const DELAY_SECONDS: i64 = 600;

on_both! {
    /// P6, gotcha 21: a payment after our close is a surplus; it is refunded once, after the delay, with one number even
    /// when the first call gets no answer and the server dies.
    async fn a_payment_after_our_close_is_refunded_once_after_the_delay(engine: Engine) {
        let mut app = TestApp::builder(engine).asking_by_hand().start().await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        app.open("LATE", 100, &[WXPAY]).await;
        let closed = app.post_as_shop("/v1/orders/LATE/close", &json!({ "reason": "the shop gave up" })).await;
        assert_eq!(closed.status, 200, "{}", closed.text());
        // The payer was later than the close by the platform's clock too, which has whole seconds.
        app.advance(5).await;
        app.platforms.world(|world| world.pay("LATE", "42000130", 100));
        for _ in 0..4 {
            assert_eq!(app.send(&late_payment(&app, "LATE", "42000130")).await.status, 204);
        }
        assert_eq!(app.order("LATE").await["surplus_minor"], 100);
        app.walk(DELAY_SECONDS - 20).await;
        assert_eq!(app.platforms.calls_of(Api::WechatRefund).len(), 0, "refunded before the delay");
        app.platforms.prepare(Api::WechatRefund, [Prepared::hang()], Then::World);
        app.walk(30).await;
        assert_eq!(app.platforms.calls_of(Api::WechatRefund).len(), 1);
        app.restart(0).await;
        app.pass_leases().await;
        app.walk(3600).await;
        let made = app.platforms.calls_of(Api::WechatRefund);
        let numbers: BTreeSet<&str> = made.iter().map(|call| call.asked.refund_no()).collect();
        assert_eq!(numbers.len(), 1, "{made:?}");
        let order = app.order("LATE").await;
        assert_eq!((order["status"].as_str(), order["refunded_minor"].as_i64()), (Some("CLOSED"), Some(100)), "{order}");
        let requested = "SELECT count(*) FROM events WHERE event_type = 'RefundRequested'";
        assert_eq!(app.database.count(requested), 1);
        assert_eq!(app.platforms.world(|world| world.order("LATE").expect("the order").refunded()), 100);
        let open = app.get("/v1/items").await.json();
        assert_eq!(open["items"].as_array().map(Vec::len), Some(0), "{open}");
        app.finish().await;
    }

    /// The breaker: more surplus than a normal hour has stays for a person, and the alarm is heard.
    async fn the_breaker_holds_automatic_refunds_beyond_its_limit(engine: Engine) {
        let app = TestApp::builder(engine)
            .asking_by_hand()
            .config(|config| config.more.push_str("\n[surplus]\nrefunds_per_hour_max = 3\n"))
            .start()
            .await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        for number in 0..5 {
            let order_no = format!("TWICE-{number}");
            app.open(&order_no, 100, &[WXPAY]).await;
            for copy in 0..2 {
                let trade_no = format!("42000131{number}{copy}");
                app.platforms.world(|world| world.pay(&order_no, &trade_no, 100));
                assert_eq!(app.send(&app.wx_payment(&order_no, &trade_no, 100)).await.status, 204);
            }
        }
        app.walk(DELAY_SECONDS + 60).await;
        let refunded: BTreeSet<String> =
            app.platforms.calls_of(Api::WechatRefund).iter().map(|call| call.asked.refund_no().to_owned()).collect();
        assert_eq!(refunded.len(), 3, "{refunded:?}");
        let open = app.get("/v1/items?kind=surplus").await.json();
        assert_eq!(open["items"].as_array().map(Vec::len), Some(2), "{open}");
        app.finish().await;
    }

    /// The default for a wrong amount is hold: no refund by itself, and the item stays.
    async fn a_payment_of_a_wrong_amount_is_held_for_a_person(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        app.open("WRONG-AMOUNT", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("WRONG-AMOUNT", "42000132", 99)).await.status, 204);
        app.walk(3 * 3600).await;
        assert_eq!(app.platforms.calls_of(Api::WechatRefund).len(), 0);
        let order = app.order("WRONG-AMOUNT").await;
        assert_eq!((order["status"].as_str(), order["surplus_minor"].as_i64()), (Some("PENDING"), Some(99)), "{order}");
        let open = app.get("/v1/items?kind=surplus").await.json();
        assert_eq!(open["items"].as_array().map(Vec::len), Some(1), "{open}");
        app.finish().await;
    }

    /// P1: what a person has refunded by hand is not refunded again when the delay is over.
    async fn what_a_person_refunds_first_is_not_refunded_again(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        app.open("BY-HAND", 100, &[WXPAY]).await;
        for trade_no in ["42000133", "42000134"] {
            app.platforms.world(|world| world.pay("BY-HAND", trade_no, 100));
            assert_eq!(app.send(&app.wx_payment("BY-HAND", trade_no, 100)).await.status, 204);
        }
        let items = app.get("/v1/items?kind=surplus").await.json();
        let item = items["items"][0]["item_no"].as_str().expect("an item").to_owned();
        let done = app.post(&format!("/v1/items/{item}/refund"), &json!({ "reason": "the payer called" })).await;
        assert!(done.status < 300, "{}", done.text());
        app.walk(DELAY_SECONDS + 3600).await;
        let made = app.platforms.calls_of(Api::WechatRefund);
        let numbers: BTreeSet<&str> = made.iter().map(|call| call.asked.refund_no()).collect();
        assert_eq!(numbers.len(), 1, "{made:?}");
        assert_eq!(app.order("BY-HAND").await["refunded_minor"], 100);
        app.finish().await;
    }
}

/// A payment that happened after the close, by its own time.
fn late_payment(app: &TestApp, order_no: &str, trade_no: &str) -> paidonce_tests::wire::Request {
    let mut resource = paidonce_tests::signer::wx_payment(order_no, trade_no, 100);
    let paid_at = app.now().to_offset(time::UtcOffset::from_hms(8, 0, 0).expect("+08:00"));
    let text = paid_at.format(&time::format_description::well_known::Rfc3339).expect("a time");
    resource["success_time"] = json!(format!("{}+08:00", &text[..19]));
    app.wx_push("TRANSACTION.SUCCESS", "transaction", &resource)
}
