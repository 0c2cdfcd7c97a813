//! What finance and auditors ask of a ledger, with the program itself.

use std::process::{Command, Output};

use paidonce_tests::app::TestApp;
use paidonce_tests::config::OPERATOR_TOKEN;
use paidonce_tests::database::Engine;
use paidonce_tests::process::program;
use serde_json::Value;

use super::{WXPAY, eventually, on_both};

/// Runs `paidonce audit ..` beside the server, with its configuration.
pub(super) fn audit(app: &TestApp, args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("audit").args(args).arg("--config").arg(app.dir().join("paidonce.toml")).current_dir(app.dir());
    command.env_remove("DATABASE_URL").env("NO_COLOR", "1");
    command.env("PAIDONCE_SERVER", format!("http://{}", app.addr())).env("PAIDONCE_TOKEN", OPERATOR_TOKEN);
    command.output().expect("run audit")
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

on_both! {
    /// "Why is this order paid?" The signed callback, what was decided, what followed, and the copies that changed nothing.
    async fn an_order_is_explained_with_its_copies_decisions_and_effects(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("WHY", 8888, &[WXPAY]).await;
        for _ in 0..3 {
            assert_eq!(app.send(&app.wx_payment("WHY", "42000070", 8888)).await.status, 204);
        }
        app.settle().await;
        let explained = async || app.get("/v1/audit/orders/WHY/timeline").await.json();
        let of_kind = |timeline: &Value, kind: &str| -> Vec<Value> {
            let entries = timeline["entries"].as_array().expect("entries");
            entries.iter().filter(|entry| entry["kind"] == kind).cloned().collect()
        };
        let copies = |timeline: &Value| {
            let attempts = of_kind(timeline, "attempt");
            assert!(attempts.iter().all(|attempt| attempt["result"] == "duplicate"), "{timeline}");
            attempts.iter().filter_map(|attempt| attempt["count"].as_i64()).sum::<i64>()
        };
        eventually("both copies are kept", async || copies(&explained().await) == 2).await;
        let timeline = explained().await;
        assert_eq!((&timeline["status"], &timeline["complete"]), (&"PAID".into(), &true.into()), "{timeline}");
        let events = of_kind(&timeline, "event");
        assert_eq!(events.len(), 2, "{timeline}");
        let paid = &events[1];
        assert_eq!(paid["event"]["event_type"], "PaymentConfirmed");
        assert_eq!((&paid["amount_minor"], &paid["currency"]), (&8888.into(), &"CNY".into()));
        assert!(paid["channel_time"].is_string() && paid["event"]["evidence"].is_string(), "{paid}");
        let stored = app.database.texts(
            "SELECT CAST(position AS text), CAST(shard AS text) FROM events WHERE event_type = 'PaymentConfirmed'",
        );
        let place = [paid["event"]["position"].to_string(), paid["event"]["shard"].to_string()];
        assert_eq!(stored, [place.to_vec()]);
        let delivered = of_kind(&timeline, "effect").iter().any(|entry| {
            entry["effect"]["state"] == "delivered" && entry["effect"]["event_id"] == paid["event"]["event_id"]
        });
        assert!(delivered, "{timeline}");
        let shown = audit(&app, &["explain", "WHY"]);
        assert!(shown.status.success(), "{}", text(&shown));
        for part in ["order WHY is PAID", "PaymentConfirmed", "88.88 CNY", "deliver delivered", "duplicate", "position"] {
            assert!(text(&shown).contains(part), "{part} in {}", text(&shown));
        }
        let unknown = audit(&app, &["explain", "NOBODY"]);
        assert_eq!(unknown.status.code(), Some(4), "{}", text(&unknown));
        app.finish().await;
    }
}
