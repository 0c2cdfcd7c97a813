//! Least privilege as an operator meets it (promise P8): a served ledger works as the writer and says so, and a login that can't
//! is told what somebody must run.

use std::process::{Command, Output};

use paidonce_tests::app::TestApp;
use paidonce_tests::database::{Database, Engine};
use paidonce_tests::postgres::{self, Cluster};
use paidonce_tests::process::program;

/// What the writers write, and what the pool for everything else writes.
const WHO: &[&str] = &["events", "t_effect", "t_subscriber"];

/// Writers, relay and pool; at first, and after all connections broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_a_served_ledger_is_written_as_the_writers_role() {
    let url = tokio::task::spawn_blocking(postgres::migrated_database).await.unwrap();
    for table in WHO {
        postgres::execute(&url, &format!("ALTER TABLE {table} ADD COLUMN written_by text DEFAULT current_user"));
    }
    let app = TestApp::builder(Engine::Postgres).database(Database::Postgres(url.clone())).start().await;
    assert!(app.server(0).log_text().contains("sessions run as paidonce_writer"), "{}", app.server(0).log_tail());
    pay(&app, "ROLE-1").await;
    assert!(postgres::shared().terminate_backends(&url) > 0);
    pay(&app, "ROLE-2").await;
    for table in WHO {
        let others = format!("SELECT count(*) FROM {table} WHERE written_by <> 'paidonce_writer'");
        assert_eq!(postgres::count(&url, &others), 0, "{table}");
        assert!(postgres::count(&url, &format!("SELECT count(*) FROM {table}")) > 0, "{table}");
    }
    assert_eq!(owner_rights(&app).await, "0");
    // A delivery that was under way when its connection broke is sent again after its lease.
    app.settle().await;
    app.pass_leases().await;
    app.finish().await;
}

/// Opens and pays; a connection that was cut may cost the first tries.
async fn pay(app: &TestApp, order_no: &str) {
    let trade_no = format!("42{order_no}");
    for _ in 0..200 {
        if app.send(&app.wx_payment(order_no, &trade_no, 8888)).await.status == 204 {
            app.open(order_no, 8888, &["wxpay:1900000001"]).await;
            return;
        }
    }
    panic!("{order_no} is never acknowledged");
}

async fn owner_rights(app: &TestApp) -> String {
    let metrics = app.get("/metrics").await.text();
    let line = metrics.lines().find(|line| line.starts_with("paidonce_owner_rights ")).expect("the metric");
    line.rsplit(' ').next().unwrap().to_owned()
}

fn migrate(url: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.arg("migrate").current_dir(folder.path()).env("DATABASE_URL", url).env("NO_COLOR", "1");
    command.output().expect("run migrate")
}

/// A login that may make no roles: told what to run, warned of everywhere until it was run, and then served as the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_may_not_make_roles_is_told_what_to_run_and_warned_of_until_then() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let superuser = cluster.fresh_database();
    let name = superuser.rsplit('/').next().unwrap();
    postgres::execute(&superuser, &format!("CREATE ROLE shop LOGIN; ALTER DATABASE {name} OWNER TO shop"));
    let url = superuser.replacen("://postgres@", "://shop@", 1);

    let told = migrate(&url);
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(1), "{text}");
    assert!(text.contains("applied to the PostgreSQL database"), "{text}");
    let sql: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let all = [
        "CREATE ROLE paidonce_writer NOLOGIN;",
        "CREATE ROLE paidonce_reader NOLOGIN;",
        "GRANT paidonce_writer TO shop;",
    ];
    assert_eq!(sql, all, "{text}");

    let mut app = TestApp::builder(Engine::Postgres).database(Database::Postgres(url.clone())).start().await;
    let log = app.server(0).log_text();
    let warned =
        log.lines().any(|line| line.contains("WARN") && line.contains("append-only rests on the triggers alone"));
    assert!(warned, "{}", app.server(0).log_tail());
    assert_eq!(owner_rights(&app).await, "1");
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("append-only rests on the triggers alone"), "{}", ready.text());
    pay(&app, "BEFORE").await;

    for statement in sql {
        postgres::execute(&superuser, statement);
    }
    let done = migrate(&url);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stdout));
    app.restart(0).await;
    let log = app.server(0).log_text();
    assert!(log.contains("sessions run as paidonce_writer"), "{}", app.server(0).log_tail());
    assert_eq!(owner_rights(&app).await, "0");
    assert!(!app.get("/readyz").await.text().contains("warning"));
    pay(&app, "AFTER").await;
    app.finish().await;
}
