//! What an operator does to a running ledger: a second server by mistake, a reload, an orderly stop, a flood.

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::keys::key;
use paidonce_tests::signer;
use paidonce_tests::wire::{self, Request};
use serde_json::json;

use super::{WXPAY, eventually, on_both};

/// P1 on the embedded database: a lock file refuses a second `serve`, and the first goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_serve_on_one_sqlite_file_is_refused() {
    let mut app = TestApp::start(Engine::Sqlite).await;
    let refused = app.start_another().await.expect_err("a second server on the same file");
    assert!(refused.contains("ended before it listened"), "{refused}");
    app.open("FIRST", 100, &[WXPAY]).await;
    assert_eq!(app.send(&app.wx_payment("FIRST", "42000060", 100)).await.status, 204);
    // The lock goes with its process, however that ends.
    app.kill(0);
    app.restart(0).await;
    assert_eq!(app.order("FIRST").await["status"], "PAID");
    app.pass_leases().await;
    app.finish().await;
}

on_both! {
    /// P5 and P6: what needs a person is shown, a named person decides with a reason, and nothing is decided twice.
    async fn a_person_decides_what_needs_one(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("WRONG", 100, &[WXPAY]).await;
        for (order_no, trade_no, total) in [("WRONG", "42000063", 99), ("EARLY", "42000064", 70)] {
            assert_eq!(app.send(&app.wx_payment(order_no, trade_no, total)).await.status, 204);
        }
        let surplus = item(&app, "surplus").await;
        let parked = item(&app, "parked").await;
        let act = async |item: &str, action: &str| {
            app.post(&format!("/v1/items/{item}/{action}"), &json!({ "reason": "asked the payer" })).await
        };
        let nobody = app.post(&format!("/v1/items/{surplus}/accept"), &json!({})).await;
        assert_eq!(nobody.status, 400, "without a reason: {}", nobody.text());
        let accepted = act(&surplus, "accept").await;
        assert_eq!(accepted.status, 200, "{}", accepted.text());
        assert_eq!(app.order("WRONG").await["status"], "PAID");
        let adopted = act(&parked, "adopt").await;
        assert!(adopted.status < 300, "{}", adopted.text());
        assert_eq!(app.order("EARLY").await["status"], "PAID");
        // The same decision again changes nothing; another one is refused.
        let events = app.database.count("SELECT count(*) FROM events");
        for (item, action, refused) in [
            (&surplus, "accept", false), (&parked, "adopt", false), (&surplus, "refund", true), (&parked, "accept", true),
        ] {
            let again = act(item, action).await;
            assert!(again.status < 500, "{action} again: {} {}", again.status, again.text());
            assert!(!refused || again.status >= 400, "{action} after another decision: {}", again.text());
        }
        assert_eq!(app.database.count("SELECT count(*) FROM events"), events, "decided twice");
        let open = app.get("/v1/items").await.json();
        assert_eq!(open["items"].as_array().map(Vec::len), Some(0), "{open}");
        app.finish().await;
    }

    /// P2: a stop finishes what was accepted, answers it, and ends with success.
    async fn an_orderly_stop_finishes_what_was_accepted(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        app.open("STOP", 100, &[WXPAY]).await;
        app.fault_delay(0, "db_commit", 1, 1).await;
        let (to, callback) = (app.addr(), app.wx_payment("STOP", "42000061", 100));
        let answering = tokio::spawn(async move { wire::send(to, &callback).await });
        eventually("the callback is being recorded", async || {
            let metrics = app.get("/v1/orders/STOP").await;
            metrics.status == 200 && in_flight(&app).await
        })
        .await;
        app.server(0).signal("TERM");
        let answer = answering.await.unwrap().expect("an answer before the end");
        assert_eq!(answer.status, 204, "{}", answer.text());
        let status = app.server_mut(0).wait().await;
        assert!(status.success(), "{status}: {}", app.server(0).log_tail());
        app.restart(0).await;
        assert_eq!(app.order("STOP").await["status"], "PAID");
        app.finish().await;
    }

    /// Keys reload without a restart; a broken configuration changes nothing.
    async fn a_reload_takes_new_keys_and_refuses_a_broken_file(engine: Engine) {
        let old = key("platform_cert_1");
        let new = key("platform_cert_2");
        let mut app = TestApp::builder(engine).config(|config| config.wxpay[0].keys = vec![old]).start().await;
        app.open("RELOAD", 100, &[WXPAY]).await;
        let signed_by = |app: &TestApp, key: &paidonce_tests::keys::TestKey| {
            let resource = signer::wx_payment("RELOAD", "42000062", 100);
            let body = signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "transaction", &resource);
            let headers = signer::wx_headers(key, app.now().unix_timestamp(), &body);
            Request::post("/callbacks/wxpay/1900000001", body).headers(headers)
        };
        assert_eq!(app.send(&signed_by(&app, new)).await.status, 401, "not configured yet");
        app.config.wxpay[0].keys = vec![old, new];
        app.write_config();
        app.server(0).signal("HUP");
        eventually("the new key is trusted", async || app.send(&signed_by(&app, new)).await.status == 204).await;
        assert_eq!(app.send(&signed_by(&app, old)).await.status, 204, "and so is the old one");
        let before = app.server(0).log_text().len();
        std::fs::write(app.dir().join("paidonce.toml"), "[server]\nlisten = 7\n").unwrap();
        app.server(0).signal("HUP");
        eventually("the broken file is reported", async || app.server(0).log_text().len() > before).await;
        assert_eq!(app.send(&signed_by(&app, new)).await.status, 204, "what was good stays");
        app.finish().await;
    }

    /// P2 and P6: the rules panic over one order. Its sender is told 503, a person is called, everybody else is served; the
    /// resend after the repair books it once.
    async fn a_panic_in_the_rules_calls_a_person_and_stops_nobody_else(engine: Engine) {
        let app = TestApp::start(engine).await;
        for order_no in ["BROKEN", "WHOLE"] {
            app.open(order_no, 100, &[WXPAY]).await;
        }
        app.fault(0, "decide:BROKEN", "panic", 2).await;
        for _ in 0..2 {
            let refused = app.send(&app.wx_payment("BROKEN", "42000067", 100)).await;
            assert_eq!(refused.status, 503, "{}", refused.text());
            assert_eq!(app.send(&app.wx_payment("WHOLE", "42000068", 100)).await.status, 204);
        }
        assert_eq!(item(&app, "quarantined").await, "QUARANTINED:BROKEN");
        let metrics = app.get("/metrics").await;
        assert!(metrics.text().contains("paidonce_items_open{kind=\"quarantined\"} 1"), "{}", metrics.text());
        let log = app.server(0).log_text();
        let alarm = log.lines().find(|line| line.contains("set aside: this needs a person"));
        assert!(alarm.is_some_and(|line| line.contains("ERROR") && line.contains("BROKEN")), "{log}");
        // Repaired: the platform's next try books it.
        assert_eq!(app.send(&app.wx_payment("BROKEN", "42000067", 100)).await.status, 204);
        assert_eq!(app.order("BROKEN").await["status"], "PAID");
        let resolved = app.post("/v1/items/QUARANTINED:BROKEN/resolve", &json!({ "reason": "upgraded" })).await;
        assert_eq!(resolved.status, 200, "{}", resolved.text());
        assert_eq!(app.get("/v1/items?kind=quarantined").await.json()["items"], json!([]));
        app.finish().await;
    }
}

/// The number of the only open item of that kind.
async fn item(app: &TestApp, kind: &str) -> String {
    let page = app.get(&format!("/v1/items?kind={kind}")).await.json();
    let items = page["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{page}");
    items[0]["item_no"].as_str().expect("a number").to_owned()
}

/// Whether the open tx of the delayed commit can be seen (PostgreSQL), or the writer's lock (SQLite).
async fn in_flight(app: &TestApp) -> bool {
    match app.database.engine() {
        Engine::Postgres => {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND state = 'idle in transaction'";
            app.database.count(sql) > 0
        }
        Engine::Sqlite => app.database.is_write_locked(),
    }
}
