//! P2 when the database is away or the queue is full: 503 with Retry-After in time, nothing acknowledged is missing, and
//! the same callbacks are accepted afterwards.

use std::time::Duration;

use paidonce_tests::app::TestApp;
use paidonce_tests::database::{Database, Engine};
use paidonce_tests::postgres::Cluster;
use paidonce_tests::wire::{Answer, Request};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{ALIPAY, WXPAY, eventually, on_both, send_all, statuses};

/// Within this WeChat Pay must have its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Orders paid around the outage.
const ORDERS: usize = 12;

/// The server is cut off from PostgreSQL as by a power cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_postgres_is_answered_503_and_loses_nothing() {
    let cluster = Cluster::start();
    let database = Database::Postgres(cluster.fresh_database());
    let app = TestApp::builder(Engine::Postgres).database(database).start().await;
    open_orders(&app).await;
    let half = ORDERS / 2;
    for number in 0..half {
        assert_eq!(app.send(&payment(&app, number)).await.status, 204);
    }
    cluster.stop_immediately();
    for number in 0..3 {
        assert_refused_in_time(&app.send(&payment(&app, half + number)).await);
    }
    let alipay = app.send(&app.alipay_payment("AWAY-A", "2026000020", "1.00")).await;
    assert_refused_in_time(&alipay);
    assert_ne!(alipay.text(), "success");
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 503, "not ready without a database: {}", ready.text());
    cluster.start_again();
    accepted_after_all(&app).await;
    app.pass_leases().await;
    app.finish().await;
}

/// Somebody else holds the write lock of the embedded database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_sqlite_is_answered_503_and_loses_nothing() {
    let app = TestApp::start(Engine::Sqlite).await;
    open_orders(&app).await;
    assert_eq!(app.send(&payment(&app, 0)).await.status, 204);
    let Database::Sqlite(path) = app.database.clone() else { panic!("not SQLite") };
    let mut thief = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut thief).await.unwrap();
    assert_refused_in_time(&app.send(&payment(&app, 1)).await);
    assert_refused_in_time(&app.send(&app.alipay_payment("AWAY-A", "2026000020", "1.00")).await);
    sqlx::raw_sql("ROLLBACK").execute(&mut thief).await.unwrap();
    thief.close().await.unwrap();
    accepted_after_all(&app).await;
    app.pass_leases().await;
    app.finish().await;
}

on_both! {
    /// A commit that is slower than the platform waits: refused in time, and whatever it did, the resend is right.
    async fn a_slow_commit_is_answered_503_in_time(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("SLOW", 100, &[WXPAY]).await;
        app.fault_delay(0, "db_commit", 7, 1).await;
        assert_refused_in_time(&app.send(&app.wx_payment("SLOW", "42000021", 100)).await);
        eventually("the resend is accepted", async || {
            let again = app.wx_payment("SLOW", "42000021", 100);
            app.try_send(&again).await.is_ok_and(|answer| answer.status == 204)
        })
        .await;
        assert_eq!(app.database.count("SELECT count(*) FROM t_order_flow"), 1);
        app.finish().await;
    }

    /// A flood: what finds no room is refused at once, what was accepted is written, and the resend of all is accepted.
    async fn a_full_queue_is_answered_503_at_once(engine: Engine) {
        let app = TestApp::builder(engine)
            .config(|config| {
                config.writers = 1;
                config.queue_jobs_max = 4;
            })
            .start()
            .await;
        open_orders(&app).await;
        app.fault_delay(0, "db_commit", 2, 1).await;
        let flood = (0..5 * ORDERS).map(|copy| payment(&app, copy % ORDERS)).collect();
        let replies = send_all(&app, flood, 5 * ORDERS).await;
        let by_status = statuses(&replies);
        assert!(by_status.keys().all(|status| matches!(status, 204 | 503)), "{by_status:?}");
        assert!(by_status.get(&503).is_some_and(|refused| *refused > ORDERS), "{by_status:?}");
        replies.iter().flatten().filter(|answer| answer.status == 503).for_each(assert_refused_in_time);
        accepted_after_all(&app).await;
        app.finish().await;
    }

    /// Every write is refused for a while, as with a full disk.
    async fn a_database_that_refuses_writes_is_answered_503(engine: Engine) {
        let app = TestApp::start(engine).await;
        open_orders(&app).await;
        app.fault(0, "before_append", "error", 1_000_000).await;
        for number in 0..3 {
            assert_refused_in_time(&app.send(&payment(&app, number)).await);
        }
        app.clear_faults(0).await;
        accepted_after_all(&app).await;
        app.finish().await;
    }
}

async fn open_orders(app: &TestApp) {
    for number in 0..ORDERS {
        app.open(&format!("AWAY-{number}"), 100, &[WXPAY]).await;
    }
    app.open("AWAY-A", 100, &[ALIPAY]).await;
}

fn payment(app: &TestApp, number: usize) -> Request {
    app.wx_payment(&format!("AWAY-{number}"), &format!("4200AWAY{number}"), 100)
}

fn assert_refused_in_time(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some(), "503 without Retry-After");
    assert!(answer.after < ANSWER_LIMIT, "answered after {:?}", answer.after);
}

/// The platforms send everything again; every order is paid once.
async fn accepted_after_all(app: &TestApp) {
    eventually("the first resend is accepted", async || {
        app.try_send(&payment(app, 0)).await.is_ok_and(|answer| answer.status == 204)
    })
    .await;
    let requests = (0..ORDERS).map(|number| payment(app, number)).collect();
    for reply in send_all(app, requests, 4).await {
        assert_eq!(reply.expect("an answer").status, 204);
    }
    assert_eq!(app.send(&app.alipay_payment("AWAY-A", "2026000020", "1.00")).await.text(), "success");
    let orders = i64::try_from(ORDERS).unwrap() + 1;
    assert_eq!(app.database.count("SELECT count(*) FROM t_order WHERE status = 'PAID'"), orders);
    assert_eq!(app.database.count("SELECT count(*) FROM t_order_flow"), orders);
}
