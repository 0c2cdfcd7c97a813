//! P1: one fact, one event, one key, one flow, one delivery, however often and through whichever door it is told.

use std::collections::BTreeMap;

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::signer;
use paidonce_tests::wire::Request;
use serde_json::json;

use super::{ALIPAY, WXPAY, counts, on_both, send_all, statuses};

/// Copies of one callback.
const COPIES: usize = 100;
/// Callbacks under way at the same time.
const AT_ONCE: usize = 20;

on_both! {
    /// P1, WeChat Pay: every copy is sealed and signed anew, as the platform does.
    async fn a_hundred_copies_of_a_wechat_payment_move_the_order_once(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("STORM-W", 8800, &[WXPAY]).await;
        let copies = (0..COPIES).map(|_| app.wx_payment("STORM-W", "42000001", 8800)).collect();
        let replies = send_all(&app, copies, AT_ONCE).await;
        assert_eq!(statuses(&replies), BTreeMap::from([(204, COPIES)]));
        app.settle().await;
        let order = app.order("STORM-W").await;
        assert_eq!((order["status"].as_str(), order["paid_minor"].as_i64()), (Some("PAID"), Some(8800)));
        assert_eq!(counts(&app, "STORM-W", "PaymentConfirmed"), [1, 1, 1, 1]);
        app.finish().await;
    }

    /// P1, Alipay.
    async fn a_hundred_copies_of_an_alipay_payment_move_the_order_once(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("STORM-A", 8800, &[ALIPAY]).await;
        let copies = (0..COPIES).map(|_| app.alipay_payment("STORM-A", "2026000001", "88.00")).collect();
        let replies = send_all(&app, copies, AT_ONCE).await;
        assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(|answer| answer.body == b"success")));
        app.settle().await;
        assert_eq!(app.order("STORM-A").await["status"], "PAID");
        assert_eq!(counts(&app, "STORM-A", "PaymentConfirmed"), [1, 1, 1, 1]);
        app.finish().await;
    }

    /// P1 for refunds: the money goes back once.
    async fn a_hundred_copies_of_a_refund_give_the_money_back_once(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("STORM-R", 1000, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("STORM-R", "42000002", 1000)).await.status, 204);
        let asked = app.post_as_shop("/v1/orders/STORM-R/refunds", &json!({ "refund_no": "R-1", "amount_minor": 400 })).await;
        assert_eq!(asked.status, 201, "{}", asked.text());
        let resource = signer::wx_refund("STORM-R", "42000002", "R-1", 1000, 400);
        let copies = (0..COPIES).map(|_| app.wx_push("REFUND.SUCCESS", "refund", &resource)).collect();
        let replies = send_all(&app, copies, AT_ONCE).await;
        assert_eq!(statuses(&replies), BTreeMap::from([(204, COPIES)]));
        app.settle().await;
        let order = app.order("STORM-R").await;
        assert_eq!((order["status"].as_str(), order["refunded_minor"].as_i64()), (Some("PAID"), Some(400)));
        assert_eq!(counts(&app, "STORM-R", "RefundConfirmed"), [1, 2, 2, 1]);
        app.finish().await;
    }

    /// P6: the second payment of an order is real money; it is booked, shown, and moves nothing.
    async fn a_second_payment_through_another_channel_is_a_surplus(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("TWICE", 500, &[WXPAY, ALIPAY]).await;
        assert_eq!(app.send(&app.wx_payment("TWICE", "42000003", 500)).await.status, 204);
        for _ in 0..3 {
            assert_eq!(app.send(&app.alipay_payment("TWICE", "2026000003", "5.00")).await.text(), "success");
            assert_eq!(app.send(&app.wx_payment("TWICE", "42000003", 500)).await.status, 204);
        }
        let order = app.order("TWICE").await;
        assert_eq!((order["paid_minor"].as_i64(), order["surplus_minor"].as_i64()), (Some(500), Some(500)));
        let items = app.get("/v1/items?kind=surplus").await.json();
        assert_eq!(items["items"].as_array().map(Vec::len), Some(1), "{items}");
        app.finish().await;
        }

    /// P6: a payment that comes before its order waits, and is booked once when the order is opened.
    async fn a_payment_before_its_order_waits_for_it(engine: Engine) {
        let app = TestApp::start(engine).await;
        for _ in 0..3 {
            assert_eq!(app.send(&app.wx_payment("EARLY", "42000004", 700)).await.status, 204);
        }
        assert_eq!(app.order("EARLY").await["status"], "UNOPENED");
        app.open("EARLY", 700, &[WXPAY]).await;
        assert_eq!(app.order("EARLY").await["status"], "PAID");
        app.settle().await;
        assert_eq!(counts(&app, "EARLY", "PaymentConfirmed"), [1, 2, 1, 1]);
        app.finish().await;
    }

    /// P3: orders in every shard, each told several times, all at once.
    async fn a_storm_over_many_orders_moves_each_once(engine: Engine) {
        let servers = if engine == Engine::Postgres { 2 } else { 1 };
        let app = TestApp::builder(engine).instances(servers).start().await;
        storm(app, 60, 10).await;
    }
}

/// Opens `orders`, sends `copies` of each payment in a mixed order over all servers, and counts.
async fn storm(app: TestApp, orders: usize, copies: usize) {
    let opens: Vec<Request> = (0..orders)
        .map(|number| {
            let body = json!({
                "order_no": format!("MANY-{number}"), "amount_minor": 100, "currency": "CNY", "accounts": [WXPAY]
            });
            paidonce_tests::app::shop_request("/v1/orders", &body)
        })
        .collect();
    assert_eq!(statuses(&send_all(&app, opens, AT_ONCE).await), BTreeMap::from([(201, orders)]));
    let callbacks: Vec<Request> = (0..orders * copies)
        .map(|number| {
            let order = number % orders;
            app.wx_payment(&format!("MANY-{order}"), &format!("4200MANY{order}"), 100)
        })
        .collect();
    let replies = send_all(&app, callbacks, AT_ONCE).await;
    let by_status = statuses(&replies);
    assert!(by_status.keys().all(|status| matches!(status, 204 | 503)), "{by_status:?}");
    // What was answered 503 comes again, as the platform would send it.
    for order in 0..orders {
        let again = app.wx_payment(&format!("MANY-{order}"), &format!("4200MANY{order}"), 100);
        assert_eq!(app.send(&again).await.status, 204);
    }
    app.settle().await;
    let expected = i64::try_from(orders).expect("a small number");
    for sql in [
        "SELECT count(*) FROM events WHERE event_type = 'PaymentConfirmed'",
        "SELECT count(*) FROM t_order WHERE status = 'PAID'",
        "SELECT count(*) FROM t_idempotent",
        "SELECT count(*) FROM t_order_flow",
        "SELECT count(*) FROM t_effect WHERE kind = 'deliver' AND state = 'delivered'",
    ] {
        assert_eq!(app.database.count(sql), expected, "{sql}");
    }
    assert_eq!(app.warehouse.accepted_events(), BTreeMap::from([("PaymentConfirmed".to_owned(), orders)]));
    app.finish().await;
}
