//! P8: a seal that was kept outside proves what the ledger once said, whatever happens to the database.

use std::path::PathBuf;

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use serde_json::Value;

use super::audit::{audit, text};
use super::audit_replay::{history, tamper};
use super::{WXPAY, eventually, on_both};

/// Keys and copies of an auditor.
struct Auditor {
    key: String,
    public: String,
    copies: PathBuf,
}

impl Auditor {
    fn new(app: &TestApp) -> Self {
        let key = app.dir().join("seal.pem").display().to_string();
        let made = audit(app, &["seal", "--new-key", &key]);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made));
        let shown = text(&made);
        let public = shown.split("public key:").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a key");
        Self { key, public: public.to_owned(), copies: app.dir().join("auditor") }
    }

    fn seal(&self, app: &TestApp) -> String {
        let made = audit(app, &["seal", "--key", &self.key, "--copies", &self.copies.display().to_string()]);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made));
        text(&made)
    }

    fn copy(&self, number: u32) -> String {
        self.copies.join(format!("seal-{number:06}.json")).display().to_string()
    }

    /// Exit code and report.
    fn verify(&self, app: &TestApp, number: u32) -> (Option<i32>, Value) {
        let args = ["verify", "--apiv3-key", "--json", "--seal-key", &self.public, "--seal", &self.copy(number)];
        let done = audit(app, &args);
        let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done)));
        (done.status.code(), report)
    }
}

fn names(report: &Value, problem: &str) -> bool {
    let problems = report["problems"].as_array().expect("problems");
    problems.iter().any(|found| found["problem"].as_str().is_some_and(|text| text.contains(problem)))
}

on_both! {
    /// P8: seals follow each other, each over what is new, and all are verified against the log.
    async fn seals_follow_each_other_and_hold(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let auditor = Auditor::new(&app);
        assert!(auditor.seal(&app).contains("seal 1 over"), "the first seal");
        app.open("LATER", 500, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("LATER", "42000999", 500)).await.status, 204);
        assert!(auditor.seal(&app).contains("seal 2 over 2 new events"), "the second seal");
        app.open("LAST", 500, &[WXPAY]).await;
        for number in [1, 2] {
            let (code, report) = auditor.verify(&app, number);
            assert_eq!((code, &report["seals"]["verified"]), (Some(0), &2.into()), "{report}");
            assert_eq!(report["seals"]["outside"], 1, "{report}");
        }
        let no_key = audit(&app, &["verify", "--apiv3-key"]);
        assert_eq!(no_key.status.code(), Some(1), "unchecked signatures are not complete: {}", text(&no_key));
        let again = audit(&app, &["seal", "--new-key", &auditor.key]);
        assert_eq!(again.status.code(), Some(2), "a key is never overwritten: {}", text(&again));
        app.finish().await;
    }

    /// P8: the log without its tail, and without the seals over it, is consistent in itself; the outside seal says what is lost.
    async fn a_tail_that_was_cut_is_found_against_the_outside_seal(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let auditor = Auditor::new(&app);
        auditor.seal(&app);
        let last = app.database.texts(
            "SELECT CAST(shard AS text), CAST(position AS text) FROM events WHERE aggregate_id = 'AUDIT-04'
             AND event_type = 'PaymentConfirmed'",
        );
        let (shard, position) = (&last[0][0], &last[0][1]);
        // As the owner would who wants a payment never to have been: the event, its rows, the head and the seal.
        tamper(&app, &format!(
            "DELETE FROM t_seal; DELETE FROM events WHERE shard = {shard} AND position >= {position};
             DELETE FROM t_order_flow WHERE shard = {shard} AND position >= {position};
             DELETE FROM t_idempotent WHERE shard = {shard} AND position >= {position};
             UPDATE t_log_head SET position = {position} - 1,
               hash = (SELECT hash FROM events WHERE shard = {shard} AND position = {position} - 1) WHERE shard = {shard}"
        ));
        let alone = audit(&app, &["verify", "--apiv3-key"]);
        assert_eq!(alone.status.code(), Some(0), "consistent in itself: {}", text(&alone));
        let (code, report) = auditor.verify(&app, 1);
        assert_eq!(code, Some(1), "{report}");
        assert!(names(&report, "events are lost"), "{report}");
        assert!(names(&report, "the ledger has no such seal"), "{report}");
        app.abandon();
    }

    /// P8: a seal of another key, and one that was edited, are no seals.
    async fn a_forged_seal_is_named(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let auditor = Auditor::new(&app);
        auditor.seal(&app);
        let path = auditor.copy(1);
        let whole = std::fs::read_to_string(&path).expect("the copy");
        std::fs::write(&path, whole.replace("\\\"events\\\":", "\\\"events\\\":1")).expect("edit the copy");
        let (code, report) = auditor.verify(&app, 1);
        assert_eq!(code, Some(1), "{report}");
        assert!(names(&report, "it is not signed with the key"), "{report}");
        std::fs::write(&path, whole).expect("put it back");
        assert_eq!(auditor.verify(&app, 1).0, Some(0));
        let stranger = Auditor { public: "ab".repeat(32), ..auditor };
        let (code, report) = stranger.verify(&app, 1);
        assert_eq!((code, &report["seals"]["failed"]), (Some(1), &1.into()), "{report}");
        app.finish().await;
    }

    /// A broken log is not sealed: a seal over it would be a lie.
    async fn a_broken_log_is_not_sealed(engine: Engine) {
        let app = TestApp::start(engine).await;
        history(&app).await;
        let auditor = Auditor::new(&app);
        tamper(&app, "UPDATE events SET event_version = '9' WHERE aggregate_id = 'AUDIT-04' AND sequence = 2");
        let refused = audit(&app, &["seal", "--key", &auditor.key]);
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
        assert!(text(&refused).contains("a broken log is not sealed"), "{}", text(&refused));
        assert_eq!(app.database.count("SELECT count(*) FROM t_seal"), 0);
        app.abandon();
    }

    /// The server seals by itself when its configuration says so, and writes the copies.
    async fn the_server_seals_by_itself(engine: Engine) {
        let first = TestApp::start(engine).await;
        let auditor = Auditor::new(&first);
        let copies = auditor.copies.display().to_string();
        let lines = format!("\n[audit]\nseal_key_file = {:?}\nseal_every_hours = 24\nseal_copies = {copies:?}\n", auditor.key);
        let app = TestApp::builder(engine).config(|config| config.more.push_str(&lines)).start().await;
        eventually("a seal", async || app.database.count("SELECT count(*) FROM t_seal") == 1).await;
        eventually("its copy", async || std::path::Path::new(&auditor.copy(1)).exists()).await;
        let (code, report) = auditor.verify(&app, 1);
        assert_eq!((code, &report["seals"]["outside"]), (Some(0), &1.into()), "{report}");
        app.finish().await;
        first.finish().await;
    }
}
