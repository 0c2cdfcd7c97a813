//! P1 and P2 when processes and connections die at the worst moment: nothing acknowledged is missing, and the resend of
//! everything makes each fact exactly once.

use std::time::Duration;

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::signer;
use paidonce_tests::wire::{self, Request};
use serde_json::{Value, json};

use super::{WXPAY, eventually, on_both, send_all};

/// Orders that are paid while the server dies.
const ORDERS: usize = 40;

on_both! {
    /// P2: kill -9 in the middle of many callbacks.
    async fn what_was_acknowledged_survives_kill_9(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        for number in 0..ORDERS {
            app.open(&format!("KILL-{number}"), 100, &[WXPAY]).await;
        }
        let sent: Vec<(usize, Request)> = (0..ORDERS).map(|number| (number, payment(&app, number))).collect();
        let to = app.addr();
        let (first_acks, mut acked) = tokio::sync::mpsc::unbounded_channel();
        let sending = tokio::spawn(async move {
            let sends = sent.into_iter().map(|(number, request)| {
                let first_acks = first_acks.clone();
                async move {
                    if wire::send(to, &request).await.is_ok_and(|answer| answer.status == 204) {
                        let _ = first_acks.send(number);
                    }
                }
            });
            futures_util::future::join_all(sends).await
        });
        let first = acked.recv().await.expect("at least one acknowledgement");
        app.kill(0);
        sending.await.unwrap();
        let mut acknowledged = vec![first];
        while let Ok(number) = acked.try_recv() {
            acknowledged.push(number);
        }
        app.restart(0).await;
        for number in acknowledged {
            assert_eq!(app.order(&format!("KILL-{number}")).await["status"], "PAID", "acknowledged, then lost");
        }
        resend_all(&app).await;
        assert_eq!(paid_once(&app), i64::try_from(ORDERS).unwrap());
        app.pass_leases().await;
        app.finish().await;
    }

    /// P1: the process dies just before COMMIT, and just after it with nobody told; the resend decides right both times.
    async fn a_crash_around_the_commit_books_once(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        for point in ["before_append", "db_commit", "after_commit"] {
            let order_no = format!("CRASH-{point}");
            let order_no = order_no.replace('_', "-");
            app.open(&order_no, 100, &[WXPAY]).await;
            app.fault(0, point, "kill", 1).await;
            let callback = app.wx_payment(&order_no, &format!("42{point}"), 100);
            assert!(app.try_send(&callback).await.is_err(), "{point}: the server should be gone");
            app.restart(0).await;
            let committed = app.order(&order_no).await["status"] == "PAID";
            assert_eq!(committed, point == "after_commit", "{point}");
            assert_eq!(app.send(&app.wx_payment(&order_no, &format!("42{point}"), 100)).await.status, 204);
            assert_eq!(app.order(&order_no).await["status"], "PAID", "{point}");
        }
        assert_eq!(paid_once(&app), 3);
        app.pass_leases().await;
        app.finish().await;
    }

    /// P2 for one message about several orders in several shards: acknowledged only when all of it is durable.
    async fn a_combine_payment_survives_a_kill_between_its_parts(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        let sub_orders = 8;
        for number in 0..sub_orders {
            app.open(&format!("PART-{number}"), 100 + number, &[WXPAY]).await;
        }
        let combine = combine_payment(sub_orders);
        let push = |app: &TestApp| app.wx_push("TRANSACTION.SUCCESS", "transaction", &combine);
        // The first part that commits is the last thing this process does.
        app.fault(0, "after_commit", "kill", 1).await;
        assert!(app.try_send(&push(&app)).await.is_err(), "acknowledged by a dead server");
        app.restart(0).await;
        for _ in 0..2 {
            assert_eq!(app.send(&push(&app)).await.status, 204);
        }
        assert_eq!(paid_once(&app), sub_orders);
        app.pass_leases().await;
        app.finish().await;
    }

    /// P1: actix drops a handler when its client resets the connection; that must not tear a commit.
    async fn a_connection_reset_in_the_middle_of_a_commit_tears_nothing(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("RESET", 100, &[WXPAY]).await;
        app.fault_delay(0, "db_commit", 1, 1).await;
        let mut callback = app.wx_payment("RESET", "42000010", 100);
        callback.close_after = Some(Duration::from_millis(200));
        assert!(app.try_send(&callback).await.is_err());
        eventually("the job of the client that went away is committed", async || {
            app.order("RESET").await["status"] == "PAID"
        })
        .await;
        assert_eq!(app.send(&app.wx_payment("RESET", "42000010", 100)).await.status, 204);
        assert_eq!(paid_once(&app), 1);
        app.finish().await;
    }

    /// The connection to the database breaks around COMMIT: what the sender is told is never wrong.
    async fn a_database_connection_cut_around_the_commit_books_once(engine: Engine) {
        let app = TestApp::start(engine).await;
        for point in ["before_append", "db_commit", "after_commit"] {
            let order_no = format!("CUT-{point}").replace('_', "-");
            app.open(&order_no, 100, &[WXPAY]).await;
            app.fault(0, point, "disconnect", 1).await;
            let answer = app.send(&app.wx_payment(&order_no, &format!("42{point}"), 100)).await;
            assert!(matches!(answer.status, 204 | 503), "{point}: {}", answer.status);
            if answer.status == 204 {
                assert_eq!(app.order(&order_no).await["status"], "PAID", "{point}: acknowledged, not written");
            }
            accepted_in_the_end(&app, &order_no, &format!("42{point}")).await;
        }
        assert_eq!(paid_once(&app), 3);
        app.finish().await;
    }

    /// A panic inside the writer ends the process: half-known state decides nothing more.
    async fn a_panic_in_the_writer_ends_the_process_and_loses_nothing(engine: Engine) {
        let mut app = TestApp::start(engine).await;
        app.open("PANIC", 100, &[WXPAY]).await;
        app.fault(0, "before_append", "panic", 1).await;
        let refused = app.try_send(&app.wx_payment("PANIC", "42000011", 100)).await;
        assert!(refused.as_ref().map_or(true, |answer| answer.status >= 500), "{refused:?}");
        let status = app.server_mut(0).wait().await;
        assert!(!status.success(), "a writer panic is a failure");
        app.restart(0).await;
        assert_eq!(app.send(&app.wx_payment("PANIC", "42000011", 100)).await.status, 204);
        assert_eq!(paid_once(&app), 1);
        app.finish().await;
    }
}

/// P1 on two machines: one process is stopped while it holds the locks of a shard; the other one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_that_holds_a_lock_does_not_stop_the_others() {
    let app = TestApp::builder(Engine::Postgres).instances(2).start().await;
    app.open("STOPPED", 100, &[WXPAY]).await;
    app.fault_delay(0, "db_commit", 2, 1).await;
    let (to, callback) = (app.addr_of(0), app.wx_payment("STOPPED", "42000012", 100));
    let held = tokio::spawn(async move { wire::send(to, &callback).await });
    let open_tx = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND state = 'idle in transaction'";
    eventually("the first process holds an open tx", async || app.database.count(open_tx) > 0).await;
    app.server(0).signal("STOP");
    eventually("the second process accepts the same payment", async || {
        let copy = app.wx_payment("STOPPED", "42000012", 100);
        wire::send(app.addr_of(1), &copy).await.is_ok_and(|answer| answer.status == 204)
    })
    .await;
    app.server(0).signal("CONT");
    drop(held.await);
    eventually("the first process accepts it again too", async || {
        let copy = app.wx_payment("STOPPED", "42000012", 100);
        wire::send(app.addr_of(0), &copy).await.is_ok_and(|answer| answer.status == 204)
    })
    .await;
    assert_eq!(paid_once(&app), 1);
    app.finish().await;
}

fn payment(app: &TestApp, number: usize) -> Request {
    app.wx_payment(&format!("KILL-{number}"), &format!("4200KILL{number}"), 100)
}

/// The platform sends everything again.
async fn resend_all(app: &TestApp) {
    let requests = (0..ORDERS).map(|number| payment(app, number)).collect();
    for reply in send_all(app, requests, 10).await {
        assert_eq!(reply.expect("an answer").status, 204);
    }
}

/// Sends the payment again until it is acknowledged.
async fn accepted_in_the_end(app: &TestApp, order_no: &str, trade_no: &str) {
    eventually("the resend is accepted", async || {
        let again = app.wx_payment(order_no, trade_no, 100);
        app.try_send(&again).await.is_ok_and(|answer| answer.status == 204)
    })
    .await;
}

/// Orders paid, when every fact has exactly one event, key and flow; -1 otherwise.
fn paid_once(app: &TestApp) -> i64 {
    let count = |sql: &str| app.database.count(sql);
    let figures = [
        count("SELECT count(*) FROM t_order WHERE status = 'PAID'"),
        count("SELECT count(*) FROM events WHERE event_type = 'PaymentConfirmed'"),
        count("SELECT count(*) FROM t_idempotent"),
        count("SELECT count(*) FROM t_order_flow"),
    ];
    if figures.iter().all(|figure| *figure == figures[0]) { figures[0] } else { -1 }
}

fn combine_payment(sub_orders: i64) -> Value {
    let parts: Vec<Value> = (0..sub_orders)
        .map(|number| {
            json!({
                "mchid": "1900000001", "trade_type": "JSAPI", "trade_state": "SUCCESS", "bank_type": "OTHERS",
                "amount": {
                    "total_amount": 100 + number, "payer_amount": 100 + number, "currency": "CNY",
                    "payer_currency": "CNY"
                },
                "success_time": "2026-01-15T09:59:58.120+08:00",
                "transaction_id": format!("4200PART{number}"), "out_trade_no": format!("PART-{number}")
            })
        })
        .collect();
    json!({
        "combine_appid": "wx0000000000000001", "combine_mchid": "1900000001",
        "combine_out_trade_no": format!("COMBINE-{}", signer::fresh_text(6)),
        "combine_payer_info": { "openid": "oTEST0000000000000000000001" }, "sub_orders": parts
    })
}
