//! The schemas themselves: append-only tables, migrations, and the move from one database to the other (promise P8).

use std::path::Path;
use std::sync::Mutex;

use paidonce_order::timestamp::Timestamp;
use paidonce_store::copy::copy_to_postgres;
use paidonce_store::store::{Attempt, Backfill, Store, TryResult};
use paidonce_store::{Outcome, PostgresStore, StoreError, StoreOptions};
use paidonce_tests::ledger::{Ledger, Place, account, open_work, order_no, pay_work, stray_work, subscriber};
use paidonce_tests::postgres;
use sqlx::{Connection, PgConnection, Row, SqliteConnection};

on_both_databases! {
    append_only_tables_refuse_every_change;
    attempts_are_written_and_old_ones_go;
}

async fn attempts_are_written_and_old_ones_go(ledger: Ledger) {
    let (id, at) = match &ledger.place {
        Place::Postgres(_) => ("'01900000-0000-7000-8000-000000000001'::uuid", "now()"),
        Place::Sqlite(..) => ("x'01900000000070008000000000000001'", "0"),
        Place::Memory => unreachable!("runs on databases"),
    };
    let row =
        format!("INSERT INTO t_attempt VALUES ({id}, {at}, 'wxpay', '1900000001', NULL, 'duplicate', 'of June 2024')");
    ledger.try_execute(&row).await.expect("insert");
    ledger.pay("A").await;
    let events = ledger.store.list_order_events(&order_no("A")).await.expect("list");
    ledger.store.note_attempt(attempt(events[0].recorded_at));
    ledger.store.shutdown().await;
    let dump = match &ledger.place {
        Place::Postgres(url) => dump_postgres(url).await,
        Place::Sqlite(path, _) => dump_sqlite(path).await,
        Place::Memory => unreachable!("runs on databases"),
    };
    let attempts: Vec<_> = dump.iter().filter(|row| row.starts_with("t_attempt:")).collect();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    assert!(attempts[0].contains("again"), "{attempts:?}");
}

fn attempt(at: Timestamp) -> Attempt {
    Attempt {
        at,
        account: account(),
        order_no: Some(order_no("LAST")),
        result: "duplicate".to_owned(),
        detail: "again".to_owned(),
    }
}

/// P8: what was written stays, whoever tries and however.
async fn append_only_tables_refuse_every_change(ledger: Ledger) {
    ledger.pay("A").await;
    let mut attempts = Vec::new();
    for table in ["events", "t_order_flow", "t_evidence", "t_seal"] {
        attempts.push(format!("UPDATE {table} SET shard = shard"));
        attempts.push(format!("DELETE FROM {table}"));
        if matches!(ledger.place, Place::Postgres(_)) {
            attempts.push(format!("TRUNCATE {table}"));
        }
    }
    // t_seal has no shard; on SQLite triggers fire by row, and it has none.
    attempts.retain(|sql| sql != "UPDATE t_seal SET shard = shard");
    if matches!(ledger.place, Place::Sqlite(..)) {
        attempts.retain(|sql| !sql.contains("t_seal"));
    }
    attempts.push("UPDATE events SET hash = hash WHERE sequence = 1".to_owned());
    for sql in attempts {
        let refused = ledger.try_execute(&sql).await.expect_err(&sql);
        assert!(refused.contains("append-only"), "{sql}: {refused}");
    }
    assert_eq!(ledger.store.list_order_events(&order_no("A")).await.expect("list").len(), 2);
}

/// Files of `migrations/postgres`, and of `migrations/sqlite`.
const MIGRATIONS: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_migrate_at_once_do_it_once() {
    let url = tokio::task::spawn_blocking(postgres::fresh_database).await.unwrap();
    let runs = (0..4).map(|_| paidonce_store::postgres::migrate(&url));
    let applied: Vec<u32> =
        futures_util::future::join_all(runs).await.into_iter().map(|run| run.expect("migrate").applied).collect();
    assert_eq!(applied.iter().sum::<u32>(), MIGRATIONS, "{applied:?}");

    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    assert_eq!(paidonce_store::sqlite::migrate(&path).await.expect("migrate"), MIGRATIONS);
    assert_eq!(paidonce_store::sqlite::migrate(&path).await.expect("migrate"), 0);
}

#[tokio::test]
async fn a_database_without_or_with_another_schema_is_refused_with_a_reason() {
    let url = tokio::task::spawn_blocking(postgres::fresh_database).await.unwrap();
    let open = async || match PostgresStore::connect(&url, StoreOptions::default()).await {
        Ok(_) => panic!("it must be refused"),
        Err(StoreError::Invalid(reason)) => reason,
        Err(other) => panic!("{other}"),
    };
    assert!(open().await.contains("paidonce migrate"));
    paidonce_store::postgres::migrate(&url).await.expect("migrate");
    let change = async |sql: &str| {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    };
    change("INSERT INTO t_migration (version, name, checksum, applied_at) VALUES (99, 'future', '\\x00', now())").await;
    assert!(open().await.contains("newer release"));
    change("DELETE FROM t_migration WHERE version = 99").await;
    change("UPDATE t_migration SET checksum = '\\x00'").await;
    assert!(open().await.contains("never be edited"));
}

const TABLES: &[(&str, &str)] = &[
    ("events", "shard, position"),
    ("t_log_head", "shard"),
    ("t_event_version", "event_type, event_version"),
    ("t_idempotent", "idem_key"),
    ("t_order", "order_no"),
    ("t_order_flow", "idem_key"),
    ("t_evidence", "shard, digest"),
    ("t_item", "item_no"),
    ("t_subscriber", "name"),
    ("t_effect", "effect_id"),
    ("t_attempt", "attempt_id"),
];

/// All rows of all tables as text that both databases spell alike: times as microseconds, bytes as hex.
async fn dump_postgres(url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let mut rows = Vec::new();
    for (table, key) in TABLES {
        let columns: Vec<(String, String)> = sqlx::query_as(
            "SELECT column_name::text, udt_name::text FROM information_schema.columns WHERE table_name = $1 ORDER BY column_name",
        )
        .bind(table)
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let spelled: Vec<String> = columns
            .iter()
            .map(|(name, kind)| match kind.as_str() {
                "timestamptz" => format!("(extract(epoch FROM {name}) * 1000000)::bigint::text"),
                "bytea" => format!("encode({name}, 'hex')"),
                "uuid" => format!("replace({name}::text, '-', '')"),
                "bool" => format!("({name}::int)::text"),
                _ => format!("{name}::text"),
            })
            .collect();
        let sql = format!("SELECT concat_ws('|', {}) FROM {table} ORDER BY {key}", coalesced(&spelled));
        rows.extend(spelled_rows(table, sqlx::query(&sql).fetch_all(&mut connection).await.unwrap(), |row| row.get(0)));
    }
    rows
}

async fn dump_sqlite(path: &Path) -> Vec<String> {
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let mut rows = Vec::new();
    for (table, key) in TABLES {
        let columns: Vec<(String, String)> =
            sqlx::query_as("SELECT name, type FROM pragma_table_info($1) ORDER BY name")
                .bind(table)
                .fetch_all(&mut connection)
                .await
                .unwrap();
        let spelled: Vec<String> = columns
            .iter()
            .map(
                |(name, kind)| {
                    if kind == "BLOB" { format!("lower(hex({name}))") } else { format!("CAST({name} AS TEXT)") }
                },
            )
            .collect();
        let sql = format!("SELECT concat_ws('|', {}) FROM {table} ORDER BY {key}", coalesced(&spelled));
        rows.extend(spelled_rows(table, sqlx::query(&sql).fetch_all(&mut connection).await.unwrap(), |row| row.get(0)));
    }
    rows
}

fn coalesced(columns: &[String]) -> String {
    columns.iter().map(|column| format!("coalesce(nullif({column}, ''), '-')")).collect::<Vec<_>>().join(", ")
}

fn spelled_rows<R>(table: &str, rows: Vec<R>, text: impl Fn(&R) -> String) -> Vec<String> {
    rows.iter().map(|row| format!("{table}: {}", text(row))).collect()
}

/// A ledger with a row in every table that the product writes.
async fn fill(ledger: &Ledger) {
    for number in 0..30 {
        ledger.pay(&format!("ORDER-{number}")).await;
    }
    ledger.store.put_subscriber(&subscriber("warehouse"), Backfill::All).await.expect("put");
    ledger.pay("LAST").await;
    ledger.commit(pay_work("EARLY")).await;
    ledger.commit(stray_work(3)).await;
    let claimed = ledger.store.claim_effects(&["deliver"], 30_000, 3).await.expect("claim");
    let results = [TryResult::Delivered, TryResult::Dead { error: "410".to_owned() }];
    for (one, result) in claimed.iter().zip(results) {
        let token = one.effect.lease_token.expect("leased");
        assert!(ledger.store.complete_effect(one.effect.effect_id, token, &result).await.expect("complete"));
    }
    ledger.store.note_attempt(attempt(claimed[0].event.recorded_at));
    ledger.store.shutdown().await;
}

/// P8: a copied ledger is the same ledger: every row, every position, every hash; and its writers go on where it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_ledger_has_equal_tables_and_goes_on() {
    let ledger = Ledger::sqlite().await;
    fill(&ledger).await;
    let Ledger { store, place: Place::Sqlite(path, _home), .. } = ledger else { unreachable!("it is SQLite") };
    let url = tokio::task::spawn_blocking(postgres::fresh_database).await.unwrap();
    let busy = copy_to_postgres(&path, &url, &|_| {}).await;
    assert!(matches!(busy, Err(StoreError::Unavailable(_))), "the store still has the file: {busy:?}");
    drop(store);

    let calls = Mutex::new(Vec::new());
    let report = copy_to_postgres(&path, &url, &|progress| calls.lock().unwrap().push(progress)).await.expect("copy");
    assert_eq!(report.tables[0], ("events", 64));
    assert!(calls.lock().unwrap().iter().all(|progress| progress.rows <= progress.rows_total));
    let (source, target) = (dump_sqlite(&path).await, dump_postgres(&url).await);
    assert_eq!(source.len(), target.len());
    for (one, other) in source.iter().zip(&target) {
        assert_eq!(one, other);
    }

    let again = copy_to_postgres(&path, &url, &|_| {}).await;
    assert!(matches!(again, Err(StoreError::Invalid(_))), "the target is not empty any more: {again:?}");
    let store = PostgresStore::connect(&url, StoreOptions::default()).await.expect("connect");
    let duplicate = store.submit(pay_work("LAST")).await.expect("submit");
    assert!(matches!(duplicate, Outcome::Duplicate(_)), "{duplicate:?}");
    let new = store.submit(open_work("NEW")).await.expect("submit");
    assert!(matches!(new, Outcome::Committed(_)), "{new:?}");
    assert_eq!(store.read_feed("", 1_000).await.expect("read").events.len(), 65);
}

/// P8: one changed byte in the source, and nothing at all is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_with_a_broken_chain_is_not_copied() {
    let ledger = Ledger::sqlite().await;
    fill(&ledger).await;
    ledger.try_execute("DROP TRIGGER events_no_update").await.expect("by force");
    ledger
        .try_execute(
            "UPDATE events SET payload = replace(payload, '8888', '8889') WHERE aggregate_id = 'LAST' AND sequence = 2",
        )
        .await
        .expect("by force");
    let Ledger { store, place: Place::Sqlite(path, _home), .. } = ledger else { unreachable!("it is SQLite") };
    drop(store);
    let url = tokio::task::spawn_blocking(postgres::fresh_database).await.unwrap();
    let refused = copy_to_postgres(&path, &url, &|_| {}).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    let counted =
        tokio::task::spawn_blocking(move || postgres::count(&url, "SELECT count(*) FROM events")).await.unwrap();
    assert_eq!(counted, 0);
}
