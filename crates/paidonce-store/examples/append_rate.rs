//! How many orders a second the writer opens and settles, beside plain SQL with one tx per order.
//!
//! ```text
//! DATABASE_URL=postgres://.. cargo run --release -p paidonce-store --features conformance --example append_rate
//! ```
//!
//! Without `DATABASE_URL` only SQLite is measured, in a temporary folder. With it, use a scratch database: its schema is made
//! and its tables are filled. `ORDERS` and `CLIENTS` change the load. Both sides wait for the disk (fsync) on every commit.
//!
//! The baseline is the classic hand-written design: insert the idempotency key, move the order where it is still PENDING,
//! insert the flow, COMMIT; three narrow tables, no log, no chain, no evidence, no effects.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::as_conversions,
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measuring program for people: it prints, reads the clock and may fail loudly"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use paidonce_order::ids::OrderNo;
use paidonce_store::conformance::samples as s;
use paidonce_store::{Migrations, Outcome, PostgresStore, SqliteStore, Store, StoreOptions, Work};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, PgPool, SqliteConnection};

/// Load of one run.
#[derive(Clone, Copy)]
struct Load {
    orders: usize,
    clients: usize,
}

#[tokio::main]
async fn main() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let load = Load { orders: number("ORDERS", 20_000), clients: number("CLIENTS", 256) };
    println!("{} orders, {} clients at once", load.orders, load.clients);
    let folder = tempfile::tempdir().unwrap();
    let options = || StoreOptions { migrations: Migrations::Apply, ..StoreOptions::default() };
    let store = SqliteStore::open(&folder.path().join("ledger.db"), options()).await.unwrap();
    let writer = measure_writer("SQLite", Arc::new(store), load).await;
    let baseline = measure_sqlite(&folder.path().join("plain.db"), load).await;
    println!("SQLite      ratio                {:>9.2}", writer / baseline);
    if let Ok(url) = std::env::var("DATABASE_URL") {
        let store = PostgresStore::connect(&url, options()).await.unwrap();
        let writer = measure_writer("PostgreSQL", Arc::new(store), load).await;
        let baseline = measure_postgres(&url, load).await;
        println!("PostgreSQL  ratio                {:>9.2}", writer / baseline);
    }
}

/// Opens all orders, then settles all; the rate of settling, which is what the baseline does.
async fn measure_writer(name: &str, store: Arc<dyn Store>, load: Load) -> f64 {
    let run = format!("{:x}", std::process::id());
    let no = move |number: usize| s::order_no(&format!("rate-{run}-{number}"));
    let open = |no: &OrderNo| s::open(no);
    let opened = submit_all(&store, load, no.clone(), open).await;
    println!("{name:<11} writer, open         {opened:>9.0} /s");
    let settled = submit_all(&store, load, no, |no| s::pay(no, &format!("T-{no}"))).await;
    println!("{name:<11} writer, settle       {settled:>9.0} /s");
    store.shutdown().await;
    settled
}

async fn submit_all(
    store: &Arc<dyn Store>,
    load: Load,
    no: impl Fn(usize) -> OrderNo + Clone + Send + 'static,
    work: impl Fn(&OrderNo) -> Work + Copy + Send + 'static,
) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let clients = (0..load.clients).map(|_| {
        let (store, next, no) = (Arc::clone(store), Arc::clone(&next), no.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.orders {
                    return;
                }
                let outcome = store.submit(work(&no(number))).await.unwrap();
                assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            }
        })
    });
    join_all(clients).await;
    load.orders as f64 / started.elapsed().as_secs_f64()
}

const PLAIN_TABLES: &str = "
    CREATE TABLE plain_idempotent (idem_key varchar(255) PRIMARY KEY, order_no varchar(64) NOT NULL);
    CREATE TABLE plain_order (order_no varchar(64) PRIMARY KEY, status varchar(16) NOT NULL, pay_time bigint);
    CREATE TABLE plain_order_flow (idem_key varchar(255) PRIMARY KEY, order_no varchar(64) NOT NULL, amount bigint NOT NULL);";
const PLAIN_KEY: &str = "INSERT INTO plain_idempotent VALUES ($1, $2)";
const PLAIN_MOVE: &str =
    "UPDATE plain_order SET status = 'PAID', pay_time = 1 WHERE order_no = $1 AND status = 'PENDING'";
const PLAIN_FLOW: &str = "INSERT INTO plain_order_flow VALUES ($1, $2, 8888)";

/// One connection for each of up to 32 clients: more were slower on this design.
async fn measure_postgres(url: &str, load: Load) -> f64 {
    let clients = load.clients.min(32);
    let pool: PgPool = sqlx::postgres::PgPoolOptions::new().max_connections(clients as u32).connect(url).await.unwrap();
    let drop = "DROP TABLE IF EXISTS plain_idempotent, plain_order, plain_order_flow;";
    sqlx::raw_sql(&format!("{drop}{PLAIN_TABLES}")).execute(&pool).await.unwrap();
    sqlx::raw_sql(&format!(
        "INSERT INTO plain_order SELECT 'p-' || n, 'PENDING' FROM generate_series(0, {}) n",
        load.orders
    ))
    .execute(&pool)
    .await
    .unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let tasks = (0..clients).map(|_| {
        let (pool, next) = (pool.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.orders {
                    return;
                }
                let (no, key) = (format!("p-{number}"), format!("WXPAY:p-{number}:PAY"));
                let mut tx = pool.begin().await.unwrap();
                sqlx::query(PLAIN_KEY).bind(&key).bind(&no).execute(&mut *tx).await.unwrap();
                sqlx::query(PLAIN_MOVE).bind(&no).execute(&mut *tx).await.unwrap();
                sqlx::query(PLAIN_FLOW).bind(&key).bind(&no).execute(&mut *tx).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
    });
    join_all(tasks).await;
    let rate = load.orders as f64 / started.elapsed().as_secs_f64();
    println!("PostgreSQL  plain SQL            {rate:>9.0} /s");
    rate
}

/// One connection: SQLite has one writer.
async fn measure_sqlite(file: &std::path::Path, load: Load) -> f64 {
    let mut connection: SqliteConnection = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await
        .unwrap();
    let orders = load.orders.min(4_000);
    sqlx::raw_sql(PLAIN_TABLES).execute(&mut connection).await.unwrap();
    for number in 0..orders {
        let insert = "INSERT INTO plain_order VALUES ($1, 'PENDING', NULL)";
        if number % 1_000 == 0 {
            sqlx::raw_sql(if number == 0 { "BEGIN" } else { "COMMIT; BEGIN" }).execute(&mut connection).await.unwrap();
        }
        sqlx::query(insert).bind(format!("p-{number}")).execute(&mut connection).await.unwrap();
    }
    sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();
    let started = Instant::now();
    for number in 0..orders {
        let (no, key) = (format!("p-{number}"), format!("WXPAY:p-{number}:PAY"));
        let mut tx = connection.begin().await.unwrap();
        sqlx::query(PLAIN_KEY).bind(&key).bind(&no).execute(&mut *tx).await.unwrap();
        sqlx::query(PLAIN_MOVE).bind(&no).execute(&mut *tx).await.unwrap();
        sqlx::query(PLAIN_FLOW).bind(&key).bind(&no).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    let rate = orders as f64 / started.elapsed().as_secs_f64();
    println!("SQLite      plain SQL            {rate:>9.0} /s");
    rate
}
