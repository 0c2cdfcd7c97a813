//! What the writer does when the database, the network, a job or another node misbehaves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use paidonce_order::ids::OrderNo;
use paidonce_order::order::Status;
use paidonce_store::conformance::{commit, new_events, samples as s, submit};
use paidonce_store::fault::{Arm, Faults};
use paidonce_store::options::StoreOptions;
use paidonce_store::{Outcome, PostgresStore, Store, StoreError, SubmitError};
use sqlx::{Connection, Row};

use crate::store_writer_kit::{Ledger, Place, fast, options};

/// Looks until a condition holds; fails after ten seconds.
async fn wait_until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..1_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain: {what}")
}

async fn both() -> [Ledger; 2] {
    [Place::postgres().open(options()).await, Place::sqlite().open(options()).await]
}

/// A ledger with fault points in the test's hand.
async fn with_faults(place: &Place) -> (Ledger, Faults) {
    let faults = Faults::private();
    (place.open(StoreOptions { faults: faults.clone(), ..options() }).await, faults)
}

/// P1, P2: the connection is cut before COMMIT is sent, or after it was done and before its answer came.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_never_came_is_looked_up_and_not_repeated() {
    for place in [Place::postgres(), Place::sqlite()] {
        let (ledger, faults) = with_faults(&place).await;
        for (number, point) in ["db_commit", "after_commit"].into_iter().enumerate() {
            let no = s::order_no(&format!("cut-{number}"));
            commit(&*ledger.store, s::open(&no)).await;
            faults.arm(point, Arm::Disconnect, 1);
            let outcome = submit(&*ledger.store, s::pay(&no, &format!("T-cut-{number}"))).await;
            assert_eq!(new_events(&outcome), ["PaymentConfirmed"], "{point}");
            assert!(!faults.is_armed(point));
            let counts = ledger.store.count_rows(&no).await.unwrap();
            assert_eq!((counts.events, counts.idempotent, counts.flows), (2, 1, 1), "{point}");
        }
    }
}

/// P1, P2: the server ends the connection in the middle of COMMIT. A deferred trigger holds COMMIT open until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_during_commit_loses_and_doubles_nothing() {
    let place = Place::postgres();
    let Place::Postgres(url) = &place else { panic!("postgres") };
    let ledger = place.open(options()).await;
    let no = s::order_no("during");
    commit(&*ledger.store, s::open(&no)).await;
    place
        .execute(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION hold();",
        )
        .await;
    let mut holder = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(42)").execute(&mut holder).await.unwrap();
    let store = Arc::clone(&ledger.store);
    let pay = s::pay(&no, "T-during");
    let answer = tokio::spawn(async move { store.submit(pay).await });
    let waiting = "SELECT pid::text FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%COMMIT%'";
    wait_until("COMMIT waits", || async { !place.texts(waiting).await.is_empty() }).await;
    let pid = place.texts(waiting).await.remove(0);
    sqlx::query("SELECT pg_terminate_backend($1)")
        .bind(pid.parse::<i32>().unwrap())
        .execute(&mut holder)
        .await
        .unwrap();
    sqlx::query("SELECT pg_advisory_unlock(42)").execute(&mut holder).await.unwrap();
    let outcome = answer.await.unwrap().unwrap();
    assert_eq!(new_events(&outcome), ["PaymentConfirmed"]);
    let counts = ledger.store.count_rows(&no).await.unwrap();
    assert_eq!((counts.events, counts.idempotent, counts.flows), (2, 1, 1));
}

/// P2: while nobody can say what became of a COMMIT the answer is `unknown`, never `rejected`; the same again gets the truth.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_is_answered_with_503_and_forgets_nothing() {
    let cluster = paidonce_tests::postgres::Cluster::start();
    let url = cluster.fresh_database();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url, options()).await.unwrap());
    let no = s::order_no("away");
    commit(&*store, s::open(&no)).await;
    cluster.stop_immediately();
    let error = store.submit(s::pay(&no, "T-away")).await.unwrap_err();
    assert!(matches!(error, SubmitError::Unavailable(_)), "{error:?}");
    assert!(store.check_ready().await.is_err());
    cluster.start_again();
    let outcome = submit(&*store, s::pay(&no, "T-away")).await;
    assert_eq!(new_events(&outcome), ["PaymentConfirmed"]);
    store.check_ready().await.unwrap();
}

/// P2, P4: a node whose memory is ahead of a database that was restored from a backup answers from the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_ahead_of_a_restored_database_is_forgotten() {
    let restore = "
        DELETE FROM events; DELETE FROM t_idempotent; DELETE FROM t_order; DELETE FROM t_order_flow; DELETE FROM t_item;
        DELETE FROM t_event_version; DELETE FROM t_effect;";
    for ledger in both().await {
        let no = s::order_no("restored");
        commit(&*ledger.store, s::open(&no)).await;
        commit(&*ledger.store, s::pay(&no, "T-restored")).await;
        match &ledger.place {
            Place::Postgres(_) => {
                let triggers =
                    "ALTER TABLE events DISABLE TRIGGER USER; ALTER TABLE t_order_flow DISABLE TRIGGER USER;";
                let heads = "UPDATE t_log_head SET position = 0, hash = decode(repeat('00', 32), 'hex');";
                ledger.place.execute(&format!("{triggers}{restore}{heads}")).await;
            }
            Place::Sqlite(_) => {
                let triggers = "DROP TRIGGER events_no_delete; DROP TRIGGER t_order_flow_no_delete;";
                let heads = "UPDATE t_log_head SET position = 0, hash = zeroblob(32);";
                ledger.place.execute(&format!("{triggers}{restore}{heads}")).await;
            }
        }
        // From memory this would be a duplicate, and money would be acknowledged that no table knows.
        let outcome = submit(&*ledger.store, s::pay(&no, "T-restored")).await;
        assert_eq!(new_events(&outcome), ["PaymentParked"]);
        assert_eq!(ledger.place.texts("SELECT event_type FROM t_event_version").await, ["PaymentParked"]);
    }
}

/// P1: what another node wrote is applied to the hot orders of this one.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_another_node_are_applied_before_anything_is_decided() {
    let place = Place::postgres();
    let (one, other) = (place.open(fast()).await.store, place.open(fast()).await.store);
    let no = s::order_no("nodes");
    commit(&*one, s::open(&no)).await;
    commit(&*other, s::pay(&no, "T-nodes")).await;
    assert!(matches!(submit(&*one, s::close(&no)).await, Outcome::Rejected(_)), "the first node still saw PENDING");
    let Outcome::Duplicate(receipt) = submit(&*one, s::pay(&no, "T-nodes")).await else {
        panic!("expected a duplicate")
    };
    assert_eq!(receipt.order.unwrap().status, Status::Paid);
    // More than is worth reading: the shard's memory starts afresh.
    let mates = (0..).map(|n| s::order_no(&format!("many-{n}"))).filter(|mate| mate.shard() == no.shard()).take(1_100);
    let opened = mates.map(|mate| other.submit(s::open(&mate)));
    assert!(join_all(opened).await.into_iter().all(|outcome| outcome.is_ok()));
    commit(&*other, s::request_refund(&no, "R-nodes", 8_888)).await;
    assert!(matches!(submit(&*one, s::request_refund(&no, "R-more", 1)).await, Outcome::Rejected(_)));
}

/// A job that the database refuses is set aside with an item; its neighbours of the same batch are written.
#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_job_does_not_stop_its_neighbours() {
    for place in [Place::postgres(), Place::sqlite()] {
        let (ledger, faults) = with_faults(&place).await;
        let poison = match &place {
            Place::Postgres(_) => {
                "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN RAISE EXCEPTION 'poison'; END $$;
                 CREATE TRIGGER poison BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.aggregate_id = 'n-13')
                     EXECUTE FUNCTION poison();"
            }
            Place::Sqlite(_) => {
                "CREATE TRIGGER poison BEFORE INSERT ON events WHEN NEW.aggregate_id = 'n-13'
                 BEGIN SELECT RAISE(ABORT, 'poison'); END;"
            }
        };
        ledger.place.execute(poison).await;
        // The first batch waits a moment, so that all others queue behind it as one.
        faults.arm("before_append", Arm::Delay { seconds: 1 }, 2);
        let orders: Vec<_> = (0..40).map(|n| s::order_no(&format!("n-{n}"))).collect();
        let outcomes = join_all(orders.iter().map(|no| ledger.store.submit(s::open(no)))).await;
        for (no, outcome) in orders.iter().zip(outcomes) {
            match outcome {
                Err(SubmitError::Quarantined(problem)) => {
                    assert_eq!(no.as_str(), "n-13");
                    assert!(problem.contains("poison"), "{problem}");
                }
                outcome => assert_eq!(new_events(&outcome.unwrap()), ["OrderOpened"], "{no}"),
            }
        }
        let item = ledger.store.find_item("QUARANTINED:n-13").await.unwrap().unwrap();
        assert_eq!((item.state.as_str(), item.order_no.as_deref()), ("open", Some("n-13")));
        ledger.store.resolve_quarantined("QUARANTINED:n-13", "op").await.unwrap();
    }
}

/// P4: an order whose `t_order` row is not what its events say is set aside; its neighbours are written.
#[tokio::test(flavor = "multi_thread")]
async fn a_drifted_order_row_does_not_stop_its_neighbours() {
    for ledger in both().await {
        let orders: Vec<_> = (0..20).map(|n| s::order_no(&format!("d-{n}"))).collect();
        join_all(orders.iter().map(|no| ledger.store.submit(s::open(no)))).await;
        ledger.place.execute("UPDATE t_order SET version = 7 WHERE order_no = 'd-3'").await;
        let pays = orders.iter().map(|no| ledger.store.submit(s::pay(no, &format!("T-{no}"))));
        for (no, outcome) in orders.iter().zip(join_all(pays).await) {
            if no.as_str() == "d-3" {
                assert!(matches!(outcome, Err(SubmitError::Quarantined(_))), "{outcome:?}");
            } else {
                assert_eq!(new_events(&outcome.unwrap()), ["PaymentConfirmed"], "{no}");
            }
        }
        assert_eq!(ledger.store.count_rows(&orders[3]).await.unwrap().flows, 0);
        assert!(ledger.store.find_item("QUARANTINED:d-3").await.unwrap().is_some());
        // Repaired, the resend books it.
        ledger.place.execute("UPDATE t_order SET version = 1 WHERE order_no = 'd-3'").await;
        let outcome = submit(&*ledger.store, s::pay(&orders[3], "T-d-3")).await;
        assert_eq!(new_events(&outcome), ["PaymentConfirmed"]);
    }
}

/// P1, P4: the rules panic over one order of a batch, with its event half applied. Its neighbours commit in that same batch,
/// it alone is set aside, and what the writer remembers of all of them is still what the log says.
///
/// On one thread, so that all payments are queued before the writer takes the first: one batch.
#[tokio::test]
async fn a_panic_in_the_rules_sets_one_job_aside_and_damages_nothing() {
    for place in [Place::postgres(), Place::sqlite()] {
        let faults = Faults::private();
        let ledger = place.open(StoreOptions { faults: faults.clone(), writers: 1, ..options() }).await;
        let store = &*ledger.store;
        let orders: Vec<_> = (0..12).map(|n| s::order_no(&format!("p-{n}"))).collect();
        let (guilty, trade_no) = (&orders[5], |no: &OrderNo| format!("T-{no}"));
        join_all(orders.iter().map(|no| commit(store, s::open(no)))).await;
        faults.arm("decide:p-5", Arm::Panic, 1);
        let outcomes = join_all(orders.iter().map(|no| store.submit(s::pay(no, &trade_no(no))))).await;
        for (no, outcome) in orders.iter().zip(outcomes) {
            match outcome {
                Err(SubmitError::Quarantined(problem)) => {
                    assert_eq!((no, problem.contains("panicked")), (guilty, true))
                }
                outcome => assert_eq!(new_events(&outcome.unwrap()), ["PaymentConfirmed"], "{no}"),
            }
        }
        assert!(!faults.is_armed("decide:p-5"));
        let paid_at = "SELECT DISTINCT CAST(recorded_at AS text) FROM events WHERE event_type = 'PaymentConfirmed'";
        let batches = ledger.place.texts(paid_at).await;
        assert_eq!(batches.len(), 1, "the neighbours were in one batch: {batches:?}");
        let item = store.find_item("QUARANTINED:p-5").await.unwrap().unwrap();
        assert_eq!(
            (item.kind.as_str(), item.state.as_str(), item.order_no.as_deref()),
            ("quarantined", "open", Some("p-5"))
        );
        let counts = store.count_rows(guilty).await.unwrap();
        assert_eq!((counts.events, counts.idempotent, counts.flows), (1, 0, 0), "nothing of it is left behind");
        // The same again, and more: every order is decided on what it really is.
        let again = submit(store, s::pay(guilty, &trade_no(guilty))).await;
        assert_eq!(new_events(&again), ["PaymentConfirmed"]);
        for no in &orders {
            let repeated = submit(store, s::pay(no, &trade_no(no))).await;
            assert!(matches!(repeated, Outcome::Duplicate(_)), "{no}: {repeated:?}");
            commit(store, s::request_refund(no, &format!("R-{no}"), 8_888)).await;
            let counts = store.count_rows(no).await.unwrap();
            assert_eq!((counts.events, counts.idempotent, counts.flows), (3, 1, 1), "{no}");
        }
    }
}

/// P2: two orders of one notification in different shards, and a crash between their commits: the resend does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_combine_payment_that_crashed_half_way_is_completed_by_the_resend() {
    for place in [Place::postgres(), Place::sqlite()] {
        let one = s::order_no("combine-0");
        let other =
            (1..).map(|n| s::order_no(&format!("combine-{n}"))).find(|no| no.shard() % 2 != one.shard() % 2).unwrap();
        {
            let (ledger, faults) = with_faults(&place).await;
            commit(&*ledger.store, s::open(&one)).await;
            commit(&*ledger.store, s::open(&other)).await;
            commit(&*ledger.store, s::pay(&one, "T-one")).await;
            // The process dies before the second order is written.
            faults.arm("before_append", Arm::Error, 2);
            assert!(ledger.store.submit(s::pay(&other, "T-other")).await.is_err(), "not acknowledged");
            ledger.store.shutdown().await;
        }
        let ledger = place.open(options()).await;
        assert!(matches!(submit(&*ledger.store, s::pay(&one, "T-one")).await, Outcome::Duplicate(_)));
        assert_eq!(new_events(&submit(&*ledger.store, s::pay(&other, "T-other")).await), ["PaymentConfirmed"]);
    }
}

/// A caller that goes away (actix drops a handler when the client resets) does not tear its commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_does_not_tear_its_commit() {
    for place in [Place::postgres(), Place::sqlite()] {
        let (ledger, faults) = with_faults(&place).await;
        let no = s::order_no("gone");
        commit(&*ledger.store, s::open(&no)).await;
        faults.arm("db_commit", Arm::Delay { seconds: 1 }, 1);
        let (store, pay) = (Arc::clone(&ledger.store), s::pay(&no, "T-gone"));
        let caller = tokio::spawn(async move { store.submit(pay).await });
        wait_until("the commit is under way", || async { !faults.is_armed("db_commit") }).await;
        caller.abort();
        // Finishes what was accepted.
        let store = Arc::clone(&ledger.store);
        let again = submit(&*store, s::pay(&no, "T-gone")).await;
        assert!(matches!(again, Outcome::Duplicate(_)), "{again:?}");
        store.shutdown().await;
        assert!(matches!(store.submit(s::pay(&no, "T-gone")).await, Err(SubmitError::Stopping)));
    }
}

/// A full queue says so at once, and what was accepted is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once() {
    let faults = Faults::private();
    let small = StoreOptions { queue_jobs_max: 2, writers: 1, faults: faults.clone(), ..fast() };
    let ledger = Place::sqlite().open(small).await;
    faults.arm("before_append", Arm::Delay { seconds: 1 }, 1);
    let store = Arc::clone(&ledger.store);
    let first = tokio::spawn(async move { store.submit(s::open(&s::order_no("q-first"))).await });
    wait_until("the first batch is held", || async { !faults.is_armed("before_append") }).await;
    let orders: Vec<_> = (0..10).map(|n| s::order_no(&format!("q-{n}"))).collect();
    let outcomes = join_all(orders.iter().map(|no| ledger.store.submit(s::open(no)))).await;
    let full = outcomes.iter().filter(|outcome| matches!(outcome, Err(SubmitError::QueueFull))).count();
    assert_eq!((outcomes.len() - full, full), (2, 8));
    assert!(first.await.unwrap().is_ok());
    assert_eq!(ledger.store.gauges().await.unwrap().queue_depth, 0);
}

/// P4: a log that this release can't decode is not opened; a node that meets a newer event stops writing.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_newer_release_stops_this_one() {
    let place = Place::postgres();
    let ledger = place.open(fast()).await;
    let no = s::order_no("newer");
    commit(&*ledger.store, s::open(&no)).await;
    place
        .execute(
            "WITH e AS (INSERT INTO events
                 SELECT aggregate_type, aggregate_id, sequence + 1, 'PaymentDreamt', '2', payload, metadata, shard,
                        position + 1, gen_random_uuid(), recorded_at, sha256('x') FROM events RETURNING *)
             UPDATE t_log_head h SET position = e.position, hash = e.hash FROM e WHERE h.shard = e.shard;
             INSERT INTO t_event_version VALUES ('PaymentDreamt', '2', now())",
        )
        .await;
    let error = ledger.store.submit(s::pay(&no, "T-newer")).await.unwrap_err();
    assert!(matches!(error, SubmitError::TooOld(_)), "{error:?}");
    let elsewhere = ledger.store.submit(s::open(&s::order_no("elsewhere"))).await.unwrap_err();
    assert!(matches!(elsewhere, SubmitError::TooOld(_)), "it stops writing altogether: {elsewhere:?}");
    assert!(ledger.store.check_ready().await.is_err());
    let Place::Postgres(url) = &place else { panic!("postgres") };
    let refused = PostgresStore::connect(url, options()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Corrupt(text) if text.contains("PaymentDreamt version 2")), "{refused}");
}

/// P2: another process that was stopped (SIGSTOP) while it holds a head lock delays us only until its session ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_head_lock_is_waited_for_and_then_answered() {
    let place = Place::postgres();
    let Place::Postgres(url) = &place else { panic!("postgres") };
    let ledger = place.open(fast()).await;
    let no = s::order_no("locked");
    commit(&*ledger.store, s::open(&no)).await;
    let mut foreign = sqlx::PgConnection::connect(url).await.unwrap();
    // What our own sessions have: an idle tx is ended by the server.
    sqlx::raw_sql("SET idle_in_transaction_session_timeout = '1s'; BEGIN; SELECT * FROM t_log_head FOR UPDATE")
        .execute(&mut foreign)
        .await
        .unwrap();
    assert_eq!(new_events(&submit(&*ledger.store, s::pay(&no, "T-locked")).await), ["PaymentConfirmed"]);
}

/// P2: start refuses a server that does not write what it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_fsync_is_refused() {
    let cluster = paidonce_tests::postgres::Cluster::start();
    let url = cluster.fresh_database();
    let mut admin = sqlx::PgConnection::connect(&url).await.unwrap();
    for (name, off, on) in [("fsync", "off", "on"), ("full_page_writes", "off", "on")] {
        sqlx::query(&format!("ALTER SYSTEM SET {name} = {off}")).execute(&mut admin).await.unwrap();
        sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
        wait_until("the setting is seen by new sessions", || async {
            let mut fresh = sqlx::PgConnection::connect(&url).await.unwrap();
            let row = sqlx::query("SELECT current_setting($1)").bind(name).fetch_one(&mut fresh).await.unwrap();
            row.get::<String, _>(0) == off
        })
        .await;
        let refused = PostgresStore::connect(&url, options()).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Invalid(text) if text.contains(name)), "{refused}");
        sqlx::query(&format!("ALTER SYSTEM SET {name} = {on}")).execute(&mut admin).await.unwrap();
        sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
    }
}

/// One file, one process.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_serve_on_one_sqlite_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let first = paidonce_store::SqliteStore::open(&file, options()).await.unwrap();
    let refused = paidonce_store::SqliteStore::open(&file, options()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unavailable(text) if text.contains("another process")), "{refused}");
    first.shutdown().await;
    drop(first);
    paidonce_store::SqliteStore::open(&file, options()).await.unwrap();
}
