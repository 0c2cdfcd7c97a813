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
        let victim = Victim::find(&app);
        for (what, damage, problem) in victim.damages() {
            tamper(&app, &damage);
            let (report, code) = verify(&app, &["--apiv3-key"]);
            assert_eq!((code, &report["has_integrity"]), (Some(1), &json!(false)), "{what}: {report}");
            let problems = report["problems"].as_array().expect("problems");
            let is_named = |found: &Value| {
                found["problem"].as_str().is_some_and(|text| text.contains(problem))
                    && found["shard"].as_i64() == Some(victim.shard)
            };
            assert!(problems.iter().any(is_named), "{what}: {report}");
            tamper(&app, &victim.repair);
            assert_eq!(verify(&app, &["--apiv3-key"]).1, Some(0), "{what} was repaired");
        }
        // Evidence that is gone was removed, as may be done when its time is over: integrity holds, completeness does not.
        tamper(&app, &format!("DELETE FROM t_evidence WHERE shard = {}", victim.shard));
        let (report, code) = verify(&app, &["--apiv3-key"]);
        assert_eq!((&report["has_integrity"], &report["is_complete"], code), (&json!(true), &json!(false), Some(1)));
        assert!(report["evidence"]["expired"].as_i64() > Some(0), "{report}");
        app.abandon();
    }
}

/// An event that gets hurt, and how to heal it.
struct Victim {
    engine: Engine,
    shard: i64,
    position: i64,
    repair: String,
}

impl Victim {
    fn find(app: &TestApp) -> Self {
        let engine = app.database.engine();
        let (hex, payload) = match engine {
            Engine::Sqlite => (["hex(", ")"], "CAST(payload AS text)"),
            Engine::Postgres => (["encode(", ", 'hex')"], "CAST(payload AS text)"),
        };
        let hex = |column: &str| format!("{}{column}{}", hex[0], hex[1]);
        let row = app.database.texts(&format!(
            "SELECT CAST(shard AS text), CAST(position AS text), {payload}, {} FROM events
             WHERE aggregate_id = 'AUDIT-04' AND event_type = 'PaymentConfirmed'",
            hex("hash")
        ));
        let [shard, position, payload, hash] = row[0].as_slice() else { panic!("{row:?}") };
        let head = app.database.texts(&format!("SELECT {} FROM t_log_head WHERE shard = {shard}", hex("hash")));
        let of_digest = app.database.texts(&format!(
            "SELECT {}, {} FROM t_evidence WHERE shard = {shard}",
            hex("digest"),
            hex("body")
        ));
        let bodies: String = of_digest
            .iter()
            .map(|row| {
                let (digest, body) = (bytes(engine, &row[0]), bytes(engine, &row[1]));
                format!("UPDATE t_evidence SET body = {body} WHERE shard = {shard} AND digest = {digest};")
            })
            .collect();
        let repair = format!(
            "UPDATE events SET position = {position} WHERE shard = {shard} AND position = 99999;
             UPDATE events SET payload = '{payload}', hash = {} WHERE shard = {shard} AND position = {position};
             UPDATE t_log_head SET hash = {} WHERE shard = {shard}; {bodies}",
            bytes(engine, hash),
            bytes(engine, &head[0][0])
        );
        let number = |text: &String| text.parse().expect("a number");
        Self { engine, shard: number(shard), position: number(position), repair }
    }

    /// What is done, how, and what is said of it.
    fn damages(&self) -> [(&'static str, String, &'static str); 5] {
        let Self { engine, shard, position, .. } = self;
        let at = format!("shard = {shard} AND position = {position}");
        let edited = "replace(CAST(payload AS text), '\"amount_minor\":104', '\"amount_minor\":99')";
        let json = if *engine == Engine::Postgres { "::json" } else { "" };
        let of = |byte: &str, count: usize| bytes(*engine, &byte.repeat(count));
        let no_chain = "its hash does not follow from its content";
        [
            ("a hand-edited amount", format!("UPDATE events SET payload = {edited}{json} WHERE {at}"), no_chain),
            ("another hash", format!("UPDATE events SET hash = {} WHERE {at}", of("ab", 32)), no_chain),
            ("a hole", format!("UPDATE events SET position = 99999 WHERE {at}"), "is missing below the head"),
            (
                "a head that names another event",
                format!("UPDATE t_log_head SET hash = {} WHERE shard = {shard}", of("cd", 32)),
                "is not the event that the head names",
            ),
            (
                "evidence with other bytes",
                format!("UPDATE t_evidence SET body = {} WHERE shard = {shard}", of("00", 40)),
                "its evidence was changed",
            ),
        ]
    }
}

fn bytes(engine: Engine, hex: &str) -> String {
    match engine {
        Engine::Sqlite => format!("x'{hex}'"),
        Engine::Postgres => format!("decode('{hex}', 'hex')"),
    }
}
