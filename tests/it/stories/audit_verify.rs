//! P5, P8: verify proves that nobody has changed the log, and that the platforms signed what it says.

use paidonce_sandbox::{Channel, ConsoleRefund, OrderName, Pay, Wish};
use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use serde_json::{Value, json};

use super::audit::{audit, text};
use super::audit_replay::{history, tamper};
use super::town::Town;
use super::{ALIPAY, WXPAY, on_both};

/// The report, and the exit code.
fn verify(app: &TestApp, args: &[&str]) -> (Value, Option<i32>) {
    let done = audit(app, &[&["verify", "--json"], args].concat());
    let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done)));
    (report, done.status.code())
}

on_both! {
    /// P5: every payment, refund and share, whether it was told or asked for, is proven by what its platform signed.
    async fn callbacks_and_answers_of_both_platforms_are_verified_again(engine: Engine) {
        let town = Town::start(engine, |_| {}, |_| {}).await;
        for (order_no, channel, account, callback) in [
            ("TOLD-W", Channel::Wxpay, WXPAY, Wish::AsUsual),
            ("TOLD-A", Channel::Alipay, ALIPAY, Wish::AsUsual),
            ("ASKED-W", Channel::Wxpay, WXPAY, Wish::Lost),
            ("ASKED-A", Channel::Alipay, ALIPAY, Wish::Lost),
        ] {
            let pay = Pay { callback, ..Pay::new(channel, order_no, 1_000) };
            // Told before it is opened: it waits, and its evidence is that of the wait.
            if callback == Wish::AsUsual {
                town.sandbox.play(|platforms, now| platforms.pay(&pay, now)).expect("pay");
                town.sandbox.deliver_now().await;
            }
            town.open(&json!({ "order_no": order_no, "amount_minor": 1_000, "currency": "CNY", "accounts": [account] })).await;
            if callback == Wish::Lost {
                town.sandbox.play(|platforms, now| platforms.pay(&pay, now)).expect("pay");
            }
            town.tick(20).await;
            assert_eq!(town.app.order(order_no).await["status"], "PAID", "{order_no}");
            let name = OrderName::new(channel, order_no);
            let refund = ConsoleRefund { name, amount_minor: Some(77), refund_no: None };
            town.sandbox.play(|platforms, now| platforms.console_refund(&refund, now)).expect("refund");
        }
        for _ in 0..8 {
            town.tick(60).await;
        }
        let sealed = verify(&town.app, &[]);
        let opened = verify(&town.app, &["--apiv3-key"]);
        let count = |report: &Value, what: &str| report["evidence"][what].as_i64().expect("a count");
        let flows = town.app.database.count("SELECT count(*) FROM t_order_flow");
        assert!(flows >= 8, "{flows} flows");
        assert_eq!((count(&opened.0, "verified") >= flows, opened.1), (true, Some(0)), "{}", opened.0);
        assert!(count(&sealed.0, "not_opened") > 0 && count(&sealed.0, "verified") > 0, "{}", sealed.0);
        assert_eq!((&sealed.0["has_integrity"], &sealed.0["is_complete"]), (&json!(true), &json!(false)));
        assert_eq!(sealed.1, Some(1), "not everything was looked at");
        town.finish().await;
    }

    /// P8: whatever is changed in the log or its evidence, without or with a new hash, is found and named.
    async fn every_change_of_the_log_is_found_and_named(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        assert_eq!(verify(&app, &["--apiv3-key"]).1, Some(0));
        let places = app.database.texts(
            "SELECT CAST(shard AS text), CAST(position AS text) FROM events WHERE aggregate_id = 'AUDIT-04' ORDER BY sequence",
        );
        let (shard, first, second) = (&places[0][0], &places[0][1], &places[1][1]);
        let hex = |value: &str| match app.database.engine() {
            Engine::Sqlite => format!("x'{value}'"),
            Engine::Postgres => format!("decode('{value}', 'hex')"),
        };
        let payload = "replace(CAST(payload AS text), '\"amount_minor\":104', '\"amount_minor\":99')";
        let payload = match app.database.engine() {
            Engine::Sqlite => payload.to_owned(),
            Engine::Postgres => format!("{payload}::json"),
        };
        let at = format!("shard = {shard} AND position = {second}");
        let body = app.database.texts(&format!(
            "SELECT {} FROM t_evidence WHERE shard = {shard} LIMIT 1",
            match app.database.engine() {
                Engine::Sqlite => "hex(body)",
                Engine::Postgres => "encode(body, 'hex')",
            }
        ));
        for (what, damage, repair, problem) in [
            (
                "a hand-edited amount",
                format!("UPDATE events SET payload = {payload} WHERE {at}"),
                None,
                "its hash does not follow from its content",
            ),
            (
                "another hash",
                format!("UPDATE events SET hash = {} WHERE {at}", hex(&"ab".repeat(32))),
                None,
                "its hash does not follow from its content",
            ),
            (
                "a hole",
                format!("UPDATE events SET position = 99999 WHERE {at}"),
                Some(format!("UPDATE events SET position = {second} WHERE shard = {shard} AND position = 99999")),
                "is missing below the head",
            ),
            (
                "a head that names another event",
                format!("UPDATE t_log_head SET hash = {} WHERE shard = {shard}", hex(&"cd".repeat(32))),
                None,
                "is not the event that the head names",
            ),
            (
                "evidence with other bytes",
                format!("UPDATE t_evidence SET body = {} WHERE shard = {shard}", hex(&"00".repeat(40))),
                Some(format!("UPDATE t_evidence SET body = {} WHERE shard = {shard}", hex(&body[0][0]))),
                "its evidence was changed",
            ),
        ] {
            let before = app.database.texts(&format!(
                "SELECT CAST(payload AS text), {} FROM events WHERE {at}",
                match app.database.engine() {
                    Engine::Sqlite => "hex(hash)",
                    Engine::Postgres => "encode(hash, 'hex')",
                }
            ));
            let head = app.database.texts(&format!(
                "SELECT {} FROM t_log_head WHERE shard = {shard}",
                match app.database.engine() {
                    Engine::Sqlite => "hex(hash)",
                    Engine::Postgres => "encode(hash, 'hex')",
                }
            ));
            tamper(&app, &damage);
            let (report, code) = verify(&app, &["--apiv3-key"]);
            assert_eq!((code, &report["has_integrity"]), (Some(1), &json!(false)), "{what}: {report}");
            let problems = report["problems"].as_array().expect("problems");
            let is_named = |found: &Value| {
                found["problem"].as_str().is_some_and(|text| text.contains(problem))
                    && found["shard"].to_string() == *shard
            };
            assert!(problems.iter().any(is_named), "{what}: {report}");
            tamper(&app, &repair.unwrap_or_else(|| {
                format!(
                    "UPDATE events SET payload = '{}', hash = {} WHERE {at}; UPDATE t_log_head SET hash = {} WHERE shard = {shard}",
                    before[0][0],
                    hex(&before[0][1]),
                    hex(&head[0][0])
                )
            }));
            assert_eq!(verify(&app, &["--apiv3-key"]).1, Some(0), "{what} was repaired");
        }
        assert!(first < second);
        // Evidence that is gone was removed, as may be done when its time is over: integrity holds, completeness does not.
        tamper(&app, &format!("DELETE FROM t_evidence WHERE shard = {shard}"));
        let (report, code) = verify(&app, &["--apiv3-key"]);
        assert_eq!((&report["has_integrity"], &report["is_complete"], code), (&json!(true), &json!(false), Some(1)));
        assert!(report["evidence"]["expired"].as_i64() > Some(0), "{report}");
        app.abandon();
    }
}
