//! P1 for money that goes out: one number, one refund, whatever the platform answers; and never more than was paid.

use std::collections::{BTreeMap, BTreeSet};

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::database::Engine;
use paidonce_tests::platform_stub::answer::Prepared;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::platform_stub::world::RefundMode;
use paidonce_tests::platform_stub::{Call, Then};
use paidonce_tests::signer;
use serde_json::{Value, json};

use super::{ALIPAY, WXPAY, on_both, send_all, statuses};

/// Clients that want a refund of one order at the same time.
const CLIENTS: i64 = 64;

on_both! {
    /// P1: sixty-four refunds of 300 race for a payment of 1000: three are accepted, and the platform moves 900.
    async fn parallel_refunds_never_exceed_what_was_paid(engine: Engine) {
        let nodes = if engine == Engine::Postgres { 2 } else { 1 };
        let app = TestApp::builder(engine).instances(nodes).asking_by_hand().start().await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        paid(&app, "CEILING", WXPAY, "42000120", 1000).await;
        let wishes = (0..CLIENTS).map(|number| {
            shop_request("/v1/orders/CEILING/refunds", &json!({ "refund_no": format!("R-{number}"), "amount_minor": 300 }))
        });
        let replies = send_all(&app, wishes.collect(), 64).await;
        assert_eq!(statuses(&replies)[&201], 3, "{:?}", statuses(&replies));
        assert!(statuses(&replies).keys().all(|status| matches!(status, 201 | 409 | 422)), "{:?}", statuses(&replies));
        app.walk(3600).await;
        let order = app.order("CEILING").await;
        assert_eq!(order["refunded_minor"], 900, "{order}");
        let moved = app.platforms.world(|world| world.order("CEILING").expect("the order").refunded());
        assert_eq!(moved, 900);
        app.finish().await;
    }

    /// P1, gotchas 16, 54, 56, 66: after an answer that says nothing the ledger asks with the same number, and only then
    /// repeats the same refund: same number, same amount.
    async fn a_refund_without_a_clear_answer_is_asked_about_and_repeated_with_its_number(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        paid(&app, "UNCLEAR-W", WXPAY, "42000121", 1000).await;
        paid(&app, "UNCLEAR-A", ALIPAY, "2026000121", 1000).await;
        let wechat = [Prepared::hang(), Prepared::code(500, "SYSTEM_ERROR"), Prepared::bare(502)];
        let alipay = [
            Prepared::json(200, json!({ "code": "20000", "msg": "Service Currently Unavailable" })),
            Prepared::sub_code("AQC.SYSTEM_ERROR"),
            Prepared::cut(),
        ];
        app.platforms.prepare(Api::WechatRefund, wechat, Then::World);
        app.platforms.prepare(Api::AlipayRefund, alipay, Then::World);
        for order_no in ["UNCLEAR-W", "UNCLEAR-A"] {
            refund(&app, order_no, &json!({ "amount_minor": 300 })).await;
        }
        app.walk(3600).await;
        for (order_no, make, ask) in [
            ("UNCLEAR-W", Api::WechatRefund, Api::WechatRefundQuery),
            ("UNCLEAR-A", Api::AlipayRefund, Api::AlipayRefundQuery),
        ] {
            let made = app.platforms.calls_about(make, order_no);
            assert_eq!(made.len(), 4, "{order_no}: {made:?}");
            assert_eq!(numbers_and_amounts(&made).len(), 1, "{order_no}: {made:?}");
            let number = made[0].asked.refund_no().to_owned();
            let about: Vec<Api> = app.platforms.calls().iter()
                .filter(|call| call.asked.refund_no() == number).map(|call| call.asked.api).collect();
            for pair in about.windows(2) {
                assert_ne!(pair, [make, make], "{order_no}: repeated without a question in between: {about:?}");
            }
            assert!(about.contains(&ask), "{order_no}: {about:?}");
            assert_eq!(app.order(order_no).await["refunded_minor"], 300, "{order_no}");
        }
        app.finish().await;
    }

    /// P6, gotchas 14 and 15: accepted is not refunded; a short balance and an abnormal refund are shown to a person, and
    /// both can still succeed with the same number.
    async fn a_short_balance_and_an_abnormal_refund_are_shown_and_can_still_succeed(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        paid(&app, "SHORT", WXPAY, "42000122", 1000).await;
        paid(&app, "ABNORMAL", WXPAY, "42000123", 1000).await;
        app.platforms.prepare_for(Api::WechatRefund, "SHORT", [Prepared::code(403, "NOT_ENOUGH")], Then::RepeatLast);
        refund(&app, "SHORT", &json!({ "refund_no": "R-SHORT", "amount_minor": 300 })).await;
        refund(&app, "ABNORMAL", &json!({ "refund_no": "R-ABNORMAL", "amount_minor": 300 })).await;
        app.walk(5).await;
        for order_no in ["SHORT", "ABNORMAL"] {
            assert_eq!(app.order(order_no).await["refunded_minor"], 0, "{order_no}: accepted is not refunded");
        }
        app.platforms.world(|world| world.set_refund("ABNORMAL", "R-ABNORMAL", "ABNORMAL"));
        app.walk(120).await;
        let items = app.get("/v1/items?kind=stalled").await.json();
        let shown = items["items"].to_string();
        assert!(shown.contains("SHORT") && shown.contains("ABNORMAL"), "{items}");
        app.platforms.forget_prepared();
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        app.platforms.world(|world| world.set_refund("ABNORMAL", "R-ABNORMAL", "SUCCESS"));
        app.walk(2 * 3600).await;
        for order_no in ["SHORT", "ABNORMAL"] {
            assert_eq!(app.order(order_no).await["refunded_minor"], 300, "{order_no}");
            let made = app.platforms.calls_about(Api::WechatRefund, order_no);
            assert_eq!(numbers_and_amounts(&made).len(), 1, "{order_no}: {made:?}");
        }
        let open = app.get("/v1/items").await.json();
        assert_eq!(open["items"].as_array().map(Vec::len), Some(0), "{open}");
        app.finish().await;
    }

    /// P1 across a crash: the server dies between the request and the answer, the number stays.
    async fn a_refund_keeps_its_number_over_a_crash(engine: Engine) {
        let mut app = TestApp::builder(engine).asking_by_hand().start().await;
        app.platforms.world(|world| world.refunds = RefundMode::Success);
        paid(&app, "CRASH", WXPAY, "42000124", 1000).await;
        app.platforms.prepare(Api::WechatRefund, [Prepared::hang()], Then::World);
        refund(&app, "CRASH", &json!({ "amount_minor": 1000 })).await;
        let (to, request) = (app.addr(), TestApp::relay_request());
        let calling = tokio::spawn(async move { paidonce_tests::wire::send(to, &request).await });
        app.platforms.wait_for_calls(|calls| calls.iter().any(|call| call.asked.api == Api::WechatRefund)).await;
        app.kill(0);
        drop(calling.await);
        app.restart(0).await;
        app.pass_leases().await;
        app.walk(3600).await;
        let made = app.platforms.calls_about(Api::WechatRefund, "CRASH");
        assert!(made.len() >= 2, "{made:?}");
        assert_eq!(numbers_and_amounts(&made).len(), 1, "{made:?}");
        let order = app.order("CRASH").await;
        assert_eq!((order["status"].as_str(), order["refunded_minor"].as_i64()), (Some("REFUNDED"), Some(1000)), "{order}");
        app.finish().await;
    }

    /// Gotcha 40: Alipay may tell nobody about a refund: the ledger finds it by asking.
    async fn a_silent_alipay_refund_is_found_by_asking(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        paid(&app, "SILENT", ALIPAY, "2026000125", 1000).await;
        refund(&app, "SILENT", &json!({ "refund_no": "R-SILENT", "amount_minor": 250 })).await;
        app.walk(5).await;
        assert_eq!(app.order("SILENT").await["refunded_minor"], 0);
        app.platforms.world(|world| world.set_refund("SILENT", "R-SILENT", "SUCCESS"));
        app.walk(3600).await;
        assert_eq!(app.order("SILENT").await["refunded_minor"], 250);
        app.finish().await;
    }
}

/// Opens an order and pays it, at the platform and here.
async fn paid(app: &TestApp, order_no: &str, account: &str, trade_no: &str, amount: i64) {
    app.open(order_no, amount, &[account]).await;
    app.platforms.world(|world| world.pay(order_no, trade_no, amount));
    let callback = if account == ALIPAY {
        app.alipay_signed(&signer::alipay_payment(order_no, trade_no, &format!("{}.{:02}", amount / 100, amount % 100)))
    } else {
        app.wx_payment(order_no, trade_no, amount)
    };
    let status = app.send(&callback).await.status;
    assert!(matches!(status, 200 | 204), "{order_no}: {status}");
}

async fn refund(app: &TestApp, order_no: &str, body: &Value) {
    let answer = app.post_as_shop(&format!("/v1/orders/{order_no}/refunds"), body).await;
    assert_eq!(answer.status, 201, "refund of {order_no}: {}", answer.text());
}

fn numbers_and_amounts(calls: &[Call]) -> BTreeMap<String, BTreeSet<String>> {
    let mut different: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for call in calls {
        let members = &call.asked.members;
        let amount = members.get("amount").or_else(|| members.get("refund_amount"));
        let amount = amount.map(Value::to_string).unwrap_or_default();
        different.entry(format!("{} {amount}", call.asked.refund_no())).or_default().insert(amount);
    }
    different
}
