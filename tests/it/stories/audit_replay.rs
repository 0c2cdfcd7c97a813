//! P4: replay proves that the live tables are what the log says, and names every row that is not.

use std::sync::Arc;

use paidonce_app::audit::replay::{ReplayPlan, replay};
use paidonce_app::audit::walk::WalkLimits;
use paidonce_store::audit::{AuditSource, connect_postgres, open_sqlite};
use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::database::{Database, Engine};
use serde_json::{Value, json};

use super::audit::{audit, text};
use super::{ALIPAY, WXPAY, on_both};

/// Reads the ledger as the audit does.
async fn source(app: &TestApp) -> Arc<dyn AuditSource> {
    Arc::from(match &app.database {
        Database::Sqlite(path) => open_sqlite(path).await.expect("open for reading"),
        Database::Postgres(url) => connect_postgres(url).await.expect("connect for reading"),
    })
}

/// Orders in every state, with repeats, refunds, a surplus and a parked payment.
pub(super) async fn history(app: &TestApp) {
    for number in 0..12 {
        let order_no = format!("AUDIT-{number:02}");
        let accounts = if number % 2 == 0 { [WXPAY] } else { [ALIPAY] };
        if number != 11 {
            app.open(&order_no, 100 + number, &accounts).await;
        }
        let trade_no = format!("2026010822{number:04}");
        for _ in 0..if number == 10 { 0 } else { 2 } {
            let yuan = format!("1.{number:02}");
            let notice = match accounts {
                [WXPAY] => app.wx_payment(&order_no, &trade_no, 100 + number),
                _ => app.alipay_payment(&order_no, &trade_no, &yuan),
            };
            assert!(app.send(&notice).await.status < 300);
        }
    }
    assert_eq!(app.send(&app.wx_payment("AUDIT-00", "20260108229999", 100)).await.status, 204);
    let refund = json!({ "refund_no": "AUDIT-02-R", "amount_minor": 30 });
    assert_eq!(app.send(&shop_request("/v1/orders/AUDIT-02/refunds", &refund)).await.status, 201);
    let close = json!({ "reason": "given up" });
    assert_eq!(app.send(&shop_request("/v1/orders/AUDIT-10/close", &close)).await.status, 200);
}

/// Runs SQL on append-only tables as somebody with the owner's rights would who has no fear of triggers.
pub(super) fn tamper(app: &TestApp, sql: &str) {
    let tables = ["events", "t_order_flow", "t_evidence", "t_seal"];
    match &app.database {
        Database::Postgres(_) => {
            let switch = |how: &str| tables.map(|table| format!("ALTER TABLE {table} {how} TRIGGER ALL;")).concat();
            app.database.execute(&format!("{} {sql}; {}", switch("DISABLE"), switch("ENABLE")));
        }
        Database::Sqlite(_) => {
            let saved = app.database.texts("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name");
            let dropped: String = saved.iter().map(|row| format!("DROP TRIGGER {};", row[0])).collect();
            let made: String = saved.iter().map(|row| format!("{};", row[1])).collect();
            app.database.execute(&format!("{dropped} {sql}; {made}"));
        }
    }
}

on_both! {
    /// P4: an untouched ledger is equal and complete, and its sums are those of the flows; of a day before it there is nothing.
    async fn an_untouched_ledger_replays_equal_and_complete(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let done = audit(&app, &["replay", "--json"]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done));
        let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!((&report["is_equal"], &report["is_complete"]), (&json!(true), &json!(true)));
        for (field, sql) in [
            ("events", "SELECT count(*) FROM events"),
            ("orders", "SELECT count(*) FROM t_order"),
            ("flows", "SELECT count(*) FROM t_order_flow"),
            ("keys", "SELECT count(*) FROM t_idempotent"),
        ] {
            assert_eq!(report[field], json!(app.database.count(sql)), "{field}");
        }
        let sum = |of: &str| -> i64 {
            let totals = report["totals"].as_array().expect("totals").iter().filter(|total| total["trade_type"] == of);
            totals.map(|total| total["amount_minor"].as_str().expect("text").parse::<i64>().expect("a sum")).sum()
        };
        let paid = "SELECT CAST(sum(amount_minor) AS bigint) FROM t_order_flow WHERE trade_type = ";
        for kind in ["PAY", "SURPLUS"] {
            assert_eq!(sum(kind), app.database.count(&format!("{paid}'{kind}'")), "{kind}");
        }
        let shown = text(&audit(&app, &["replay"]));
        assert!(shown.contains("EQUAL and COMPLETE"), "{shown}");
        let one = audit(&app, &["replay", "--order", "AUDIT-02"]);
        assert_eq!(one.status.code(), Some(0), "{}", text(&one));
        let before = audit(&app, &["replay", "--as-of", "2020-01-31", "--json"]);
        let report: Value = serde_json::from_slice(&before.stdout).expect("JSON");
        assert_eq!((&report["events"], &report["orders_compared"]), (&json!(0), &json!(false)));
        let nobody = audit(&app, &["replay", "--order", "NOBODY"]);
        assert_eq!(nobody.status.code(), Some(2), "{}", text(&nobody));
        let odd = audit(&app, &["replay", "--as-of", "yesterday"]);
        assert_eq!(odd.status.code(), Some(2), "{}", text(&odd));
        app.finish().await;
    }

    /// However few orders are kept in memory, and however small the pages, the verdict and the sums are the same: also for a
    /// moment of the past.
    async fn memory_bounds_change_nothing_in_the_verdict(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let source = source(&app).await;
        let plan = |limits| ReplayPlan { limits, ..ReplayPlan::default() };
        let nothing = Arc::new(|_| {});
        let usual = replay(Arc::clone(&source), &plan(WalkLimits::default()), nothing.clone()).await.expect("a report");
        assert!(usual.is_proof(), "{usual:?}");
        for (page, states) in [(1, 0), (2, 1), (3, 0), (1_000, 0)] {
            let tight = plan(WalkLimits { page, states });
            let report = replay(Arc::clone(&source), &tight, nothing.clone()).await.expect("a report");
            assert!(report.is_proof(), "{page} {states}: {report:?}");
            assert_eq!((report.events, report.flows, &report.totals), (usual.events, usual.flows, &usual.totals));
        }
        app.finish().await;
    }

    /// P4, P8: every damage is named with its order, its column, what is there and what should be; the exit code says so.
    async fn every_damage_to_a_live_row_is_named(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let pay = "idem_key = 'WXPAY:AUDIT-04:PAY'";
        for (what, damage, repair, named) in [
            (
                "a changed sum",
                "UPDATE t_order SET paid_minor = paid_minor + 1 WHERE order_no = 'AUDIT-04'".to_owned(),
                "UPDATE t_order SET paid_minor = paid_minor - 1 WHERE order_no = 'AUDIT-04'".to_owned(),
                ["AUDIT-04", "t_order", "paid_minor", "105", "104"],
            ),
            (
                "a changed status",
                "UPDATE t_order SET status = 'REFUNDED' WHERE order_no = 'AUDIT-04'".to_owned(),
                "UPDATE t_order SET status = 'PAID' WHERE order_no = 'AUDIT-04'".to_owned(),
                ["AUDIT-04", "t_order", "status", "REFUNDED", "PAID"],
            ),
            (
                "a changed flow",
                format!("UPDATE t_order_flow SET amount_minor = 999 WHERE {pay}"),
                format!("UPDATE t_order_flow SET amount_minor = 104 WHERE {pay}"),
                ["AUDIT-04", "t_order_flow", "amount_minor", "999", "104"],
            ),
            (
                "a flow that vanished",
                format!("UPDATE t_order_flow SET order_no = 'ELSEWHERE' WHERE {pay}"),
                format!("UPDATE t_order_flow SET order_no = 'AUDIT-04' WHERE {pay}"),
                ["AUDIT-04", "t_order_flow", "row", "ELSEWHERE", "no event made"],
            ),
            (
                "a key that vanished",
                format!("UPDATE t_idempotent SET idem_key = 'FORGED' WHERE {pay}"),
                "UPDATE t_idempotent SET idem_key = 'WXPAY:AUDIT-04:PAY' WHERE idem_key = 'FORGED'".to_owned(),
                ["AUDIT-04", "t_idempotent", "row", "FORGED", "WXPAY:AUDIT-04:PAY"],
            ),
            (
                "an order that no event made",
                "INSERT INTO t_order (order_no, status, paid_minor, refunded_minor, surplus_minor, version, create_time,
                   update_time, shard) SELECT 'PLANTED', status, 0, 0, 0, 1, create_time, update_time, 1
                   FROM t_order WHERE order_no = 'AUDIT-04'".to_owned(),
                "DELETE FROM t_order WHERE order_no = 'PLANTED'".to_owned(),
                ["PLANTED", "t_order", "row", "no event made", "differences"],
            ),
        ] {
            tamper(&app, &damage);
            let found = audit(&app, &["replay"]);
            assert_eq!(found.status.code(), Some(1), "{what}: {}", text(&found));
            for word in named.into_iter().chain(["NOT EQUAL"]) {
                assert!(text(&found).contains(word), "{what}: {word} in {}", text(&found));
            }
            tamper(&app, &repair);
            assert_eq!(audit(&app, &["replay"]).status.code(), Some(0), "{what} was repaired");
        }
        app.abandon();
    }

    /// P8: a log with a hole, without its tail, or with an event that can't be read is never a green line.
    async fn a_damaged_log_is_an_error_that_names_the_event(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let place = app.database.texts(
            "SELECT CAST(shard AS text), CAST(position AS text) FROM events WHERE aggregate_id = 'AUDIT-04'
             AND event_type = 'PaymentConfirmed'",
        );
        let (shard, position) = (&place[0][0], &place[0][1]);
        let of = format!("shard = {shard} AND position = {position}");
        for (what, damage, repair, problem) in [
            (
                "a hole",
                format!("UPDATE events SET position = 100000 WHERE {of}"),
                format!("UPDATE events SET position = {position} WHERE shard = {shard} AND position = 100000"),
                "is missing below the head",
            ),
            (
                "an unknown type",
                format!("UPDATE events SET event_type = 'PaymentImagined' WHERE {of}"),
                format!("UPDATE events SET event_type = 'PaymentConfirmed' WHERE {of}"),
                "PaymentImagined",
            ),
            (
                "an event of another order's sequence",
                format!("UPDATE events SET sequence = 7 WHERE {of}"),
                format!("UPDATE events SET sequence = 2 WHERE {of}"),
                "does not follow",
            ),
        ] {
            tamper(&app, &damage);
            let found = audit(&app, &["replay"]);
            assert_eq!(found.status.code(), Some(1), "{what}: {}", text(&found));
            let named = format!("event {position} of shard {shard}");
            assert!(text(&found).contains(problem) && text(&found).contains(&named), "{what}: {}", text(&found));
            tamper(&app, &repair);
            assert_eq!(audit(&app, &["replay"]).status.code(), Some(0), "{what} was repaired");
        }
        app.abandon();
    }
}
