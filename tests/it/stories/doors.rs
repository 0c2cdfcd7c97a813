//! Our own API: money fields, repeats, `Idempotency-Key`, scopes, superseding, closing, the feed.

use std::collections::BTreeSet;

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::config::{FINANCE_TOKEN, OPERATOR_TOKEN, SERVICE_TOKEN};
use paidonce_tests::database::Engine;
use paidonce_tests::wire::{Answer, Request};
use serde_json::{Value, json};

use super::{ALIPAY, WXPAY, on_both, send_all, statuses};

on_both! {
    /// The money fields that outsiders rely on, word for word.
    async fn an_order_shows_its_money(engine: Engine) {
        let app = TestApp::start(engine).await;
        let terms = json!({
            "order_no": "MONEY", "amount_minor": 1999, "currency": "CNY", "accounts": [WXPAY, ALIPAY],
            "description": "two mugs"
        });
        let opened = app.post_as_shop("/v1/orders", &terms).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        assert_eq!(app.post_as_shop("/v1/orders", &terms).await.status, 200, "the same terms again");
        assert_eq!(app.send(&app.wx_payment("MONEY", "42000050", 1999)).await.status, 204);
        assert_eq!(app.send(&app.alipay_payment("MONEY", "2026000050", "19.99")).await.text(), "success");
        let order = app.order("MONEY").await;
        for (field, value) in [
            ("order_no", json!("MONEY")), ("status", json!("PAID")), ("amount_minor", json!(1999)),
            ("currency", json!("CNY")), ("paid_minor", json!(1999)), ("refunded_minor", json!(0)),
            ("surplus_minor", json!(1999)), ("version", json!(3)), ("description", json!("two mugs")),
            ("channel_trade_no", json!("42000050")),
        ] {
            assert_eq!(order[field], value, "{field}");
        }
        assert_eq!(order["payments"].as_array().map(Vec::len), Some(2));
        let flows = app.get("/v1/orders/MONEY/flows").await.json();
        let told: Vec<(&str, &str, i64)> = flows["flows"].as_array().expect("flows").iter()
            .map(|flow| {
                let text = |name: &str| flow[name].as_str().unwrap_or_default();
                (text("trade_type"), text("direction"), flow["amount_minor"].as_i64().unwrap_or(0))
            })
            .collect();
        assert_eq!(told, [("PAY", "IN", 1999), ("SURPLUS", "IN", 1999)]);
        assert_eq!(flows["flows"][0]["idem_key"], "WXPAY:MONEY:PAY");
        let events = app.get("/v1/orders/MONEY/events").await.json();
        assert_eq!(events["events"].as_array().map(Vec::len), Some(3));
        app.finish().await;
    }

    /// The largest amount that i64 holds goes in and comes out unchanged: no float is on the way.
    async fn the_largest_amount_is_exact(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("LARGE", i64::MAX, &[WXPAY]).await;
        assert_eq!(app.order("LARGE").await["amount_minor"], json!(i64::MAX));
        assert_eq!(app.send(&app.wx_payment("LARGE", "42000051", i64::MAX)).await.status, 204);
        assert_eq!(app.order("LARGE").await["paid_minor"], json!(i64::MAX));
        // A second one would leave i64: it is kept for a person, not added.
        assert_eq!(app.send(&app.wx_payment("LARGE", "42000052", i64::MAX)).await.status, 204);
        let order = app.order("LARGE").await;
        assert_eq!((&order["paid_minor"], &order["surplus_minor"]), (&json!(i64::MAX), &json!(0)));
        app.finish().await;
    }

    /// Other terms under the same number are a conflict that names the field.
    async fn other_terms_are_a_conflict(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("TERMS", 100, &[WXPAY]).await;
        let other = json!({ "order_no": "TERMS", "amount_minor": 101, "currency": "CNY", "accounts": [WXPAY] });
        let answer = app.post_as_shop("/v1/orders", &other).await;
        assert_eq!((answer.status, code(&answer).as_str()), (409, "order_terms_differ"));
        assert!(answer.text().contains("amount"), "{}", answer.text());
        app.finish().await;
    }

    /// P1 for callers: the same key and body give the same answer; another body is 422; fifty at once are one.
    async fn an_idempotency_key_belongs_to_one_request(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("KEY", 1000, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("KEY", "42000053", 1000)).await.status, 204);
        let refund = |amount: i64, key: &str| {
            shop_request("/v1/orders/KEY/refunds", &json!({ "amount_minor": amount })).header("Idempotency-Key", key)
        };
        let first = app.send(&refund(300, "K1")).await;
        assert_eq!(first.status, 201, "{}", first.text());
        let again = app.send(&refund(300, "K1")).await;
        assert!(matches!(again.status, 200 | 201), "{}", again.text());
        assert_eq!(again.json()["refund_no"], first.json()["refund_no"], "the same answer");
        let other = app.send(&refund(500, "K1")).await;
        assert_eq!((other.status, code(&other).as_str()), (422, "idempotency_key_reused"));
        let replies = send_all(&app, vec![refund(100, "K2"); 50], 20).await;
        assert!(statuses(&replies).keys().all(|status| matches!(status, 200 | 201)), "{:?}", statuses(&replies));
        let asked = "SELECT count(*) FROM events WHERE event_type = 'RefundRequested'";
        assert_eq!(app.database.count(asked), 2);
        assert_eq!(app.database.count("SELECT count(*) FROM t_idempotent WHERE idem_key LIKE 'API:%'"), 2);
        app.finish().await;
    }

    /// Never refunded more than a payment, also by fifty callers at once.
    async fn refunds_never_exceed_the_payment(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("CEILING", 1000, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("CEILING", "42000054", 1000)).await.status, 204);
        let refunds = (0..50)
            .map(|number| {
                let body = json!({ "refund_no": format!("R-{number}"), "amount_minor": 30 });
                shop_request("/v1/orders/CEILING/refunds", &body)
            })
            .collect();
        let by_status = statuses(&send_all(&app, refunds, 20).await);
        assert_eq!(by_status.get(&201), Some(&33), "{by_status:?}");
        assert_eq!(by_status.get(&409), Some(&17), "{by_status:?}");
        app.finish().await;
    }

    /// Tokens do what their scope says, no more.
    async fn a_token_may_do_what_its_scope_says(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("SCOPE", 100, &[WXPAY]).await;
        let get = |path: &str, token: &str| Request::get(path).header("Authorization", &format!("Bearer {token}"));
        for (path, token, expected) in [
            ("/v1/orders/SCOPE", SERVICE_TOKEN, 200), ("/v1/orders/SCOPE", FINANCE_TOKEN, 200),
            ("/v1/orders/SCOPE", OPERATOR_TOKEN, 200), ("/v1/events", FINANCE_TOKEN, 200),
            ("/v1/events", SERVICE_TOKEN, 403), ("/v1/items", SERVICE_TOKEN, 403),
            ("/v1/effects", FINANCE_TOKEN, 200), ("/v1/subscribers", OPERATOR_TOKEN, 200),
        ] {
            assert_eq!(app.send(&get(path, token)).await.status, expected, "{path}");
        }
        let close = |token: &str| {
            paidonce_tests::app::json_request("POST", "/v1/orders/SCOPE/close", r#"{"reason":"test"}"#)
                .header("Authorization", &format!("Bearer {token}"))
        };
        assert_eq!(app.send(&close(FINANCE_TOKEN)).await.status, 403);
        assert_eq!(app.order("SCOPE").await["status"], "PENDING");
        assert_eq!(app.send(&close(SERVICE_TOKEN)).await.status, 200);
        for path in ["/healthz", "/readyz", "/openapi.json", "/metrics"] {
            assert_eq!(app.send(&Request::get(path)).await.status, 200, "{path} without a token");
        }
        app.finish().await;
    }

    /// A new attempt at another price: the old one is closed first, money on it is a surplus, and a paid one is kept.
    async fn a_superseding_order_closes_the_old_one_first(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("PRICE-1", 1000, &[WXPAY]).await;
        let second = json!({
            "order_no": "PRICE-2", "amount_minor": 500, "currency": "CNY", "accounts": [WXPAY], "supersedes": "PRICE-1"
        });
        assert_eq!(app.post_as_shop("/v1/orders", &second).await.status, 201);
        assert_eq!(app.post_as_shop("/v1/orders", &second).await.status, 200);
        assert_eq!(app.order("PRICE-1").await["status"], "CLOSED");
        assert_eq!(app.send(&app.wx_payment("PRICE-1", "42000055", 1000)).await.status, 204);
        assert_eq!(app.order("PRICE-1").await["surplus_minor"], 1000);
        assert_eq!(app.send(&app.wx_payment("PRICE-2", "42000056", 500)).await.status, 204);
        let third = json!({
            "order_no": "PRICE-3", "amount_minor": 400, "currency": "CNY", "accounts": [WXPAY], "supersedes": "PRICE-2"
        });
        assert_eq!(app.post_as_shop("/v1/orders", &third).await.status, 409, "a paid order is not superseded");
        assert_eq!(app.get("/v1/orders/PRICE-3").await.status, 404, "and nothing was opened");
        app.finish().await;
    }

    /// The feed gives every event once, each shard in its order, while others write.
    async fn the_feed_gives_every_event_once_while_others_write(engine: Engine) {
        let servers = if engine == Engine::Postgres { 2 } else { 1 };
        let app = TestApp::builder(engine).instances(servers).start().await;
        let writing = async {
            let opens = (0..150)
                .map(|number| {
                    let body = json!({
                        "order_no": format!("FEED-{number}"), "amount_minor": 1, "currency": "CNY", "accounts": [WXPAY]
                    });
                    shop_request("/v1/orders", &body)
                })
                .collect();
            send_all(&app, opens, 10).await
        };
        let reading = async {
            let mut reader = FeedReader::default();
            while reader.events.len() < 100 {
                reader.read(&app).await;
            }
            reader
        };
        let (replies, mut reader) = futures_util::future::join(writing, reading).await;
        assert_eq!(statuses(&replies).get(&201), Some(&150));
        while reader.read(&app).await > 0 {}
        let different: BTreeSet<&String> = reader.events.iter().collect();
        assert_eq!((reader.events.len(), different.len()), (150, 150));
        app.finish().await;
    }
}

/// Follows `GET /v1/events`.
#[derive(Default)]
struct FeedReader {
    cursor: Option<String>,
    events: Vec<String>,
}

impl FeedReader {
    /// One page; how many events it had.
    async fn read(&mut self, app: &TestApp) -> usize {
        let cursor = self.cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let answer = app.get(&format!("/v1/events?limit=40{cursor}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page: Value = answer.json();
        let events = page["events"].as_array().expect("events");
        self.events.extend(events.iter().map(|event| event["event_id"].as_str().expect("an id").to_owned()));
        self.cursor = page["next_cursor"].as_str().map(str::to_owned);
        events.len()
    }
}

fn code(answer: &Answer) -> String {
    answer.json()["code"].as_str().unwrap_or_default().to_owned()
}
