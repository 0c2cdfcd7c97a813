//! The log as others see it: stock readers, a rebuild of every projection, every statement prepared.

use cqrs_es::EventStore;
use cqrs_es::persist::PersistedEventStore;
use futures_util::future::join_all;
use paidonce_order::order::Order;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::conformance::{samples as s, whole_log};
use paidonce_store::rebuild::Rebuilt;
use paidonce_store::{PostgresStore, SqliteStore, Store, Work, postgres, sqlite};
use postgres_es::PostgresEventRepository;
use sqlite_es::SqliteEventRepository;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Connection, Executor, PgPool};

use crate::store_writer_kit::{Ledger, Place, fast};

/// A random history, the same for the same seed: openings, payments in both channels, refunds, closes, strays, repeats.
fn history(seed: u64, jobs: usize) -> Vec<Work> {
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..jobs)
        .map(|_| {
            let no = s::order_no(&format!("h-{}", next(25)));
            let trade = format!("T-{no}-{}", next(2));
            let refund = format!("R-{no}-{}", next(3));
            match next(10) {
                0 | 1 => s::with_api_key(s::open(&no), &format!("k-{no}"), "request"),
                2 => s::open_for(&no, 8_888 + i64::try_from(next(2)).unwrap()),
                3 | 4 => s::pay(&no, &trade),
                5 => s::pay_at(&no, &s::alipay(), &format!("A-{trade}"), 8_888),
                6 => s::request_refund(&no, &refund, 100),
                7 => s::refunded(&no, &trade, &refund, 100),
                8 => s::close(&no),
                _ => s::stray(&format!("KIND-{}", next(5))),
            }
        })
        .collect()
}

async fn with_history(place: Place) -> Ledger {
    let ledger = place.open(fast()).await;
    for chunk in history(7, 600).chunks(40) {
        for outcome in join_all(chunk.iter().map(|work| ledger.store.submit(work.clone()))).await {
            outcome.unwrap();
        }
    }
    ledger
}

/// `{t:column}` is the column's time in microseconds.
fn columns(place: &Place, sql: &str) -> String {
    let mut out = sql.to_owned();
    while let Some(start) = out.find("{t:") {
        let end = start + out[start..].find('}').unwrap();
        let column = out[start + 3..end].to_owned();
        let micros = match place {
            Place::Postgres(_) => format!("(extract(epoch FROM {column}) * 1000000)::bigint"),
            Place::Sqlite(_) => column,
        };
        out.replace_range(start..=end, &format!("coalesce(CAST({micros} AS text), '-')"));
    }
    out
}

const ORDERS: &str = "SELECT concat_ws('|', order_no, status, coalesce(currency, '-'), coalesce(CAST(amount_minor AS text), '-'),
    paid_minor, refunded_minor, surplus_minor, version, coalesce(channel, '-'), coalesce(account, '-'),
    coalesce(channel_trade_no, '-'), {t:pay_time}, {t:expires_at}, coalesce(description, '-'), coalesce(supersedes, '-'), shard,
    {t:create_time}, {t:update_time}) FROM t_order ORDER BY order_no";
const FLOWS: &str =
    "SELECT concat_ws('|', idem_key, order_no, trade_type, direction, channel, account, channel_trade_no,
    coalesce(refund_no, '-'), currency, amount_minor, {t:occurred_at}, {t:create_time}, shard, position)
    FROM t_order_flow ORDER BY idem_key";
const KEYS: &str = "SELECT concat_ws('|', idem_key, order_no, {t:create_time}, shard, position, HASH)
    FROM t_idempotent ORDER BY idem_key";
const ITEMS: &str = "SELECT concat_ws('|', item_no, kind, coalesce(order_no, '-'), coalesce(stray_id, '-'), detail,
    coalesce(payment, '-'), state, {t:opened_at}, {t:closed_at}, shard) FROM t_item WHERE kind <> 'quarantined' ORDER BY item_no";

fn opt<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn micros(at: Option<Timestamp>) -> String {
    opt(at.map(Timestamp::as_micros))
}

fn rebuilt_orders(rebuilt: &Rebuilt) -> Vec<String> {
    let line = |order: &paidonce_store::rebuild::RebuiltOrder| {
        let row = &order.row;
        [
            row.order_no.to_string(),
            row.status.as_str().to_owned(),
            opt(row.amount.map(|amount| amount.currency)),
            opt(row.amount.map(|amount| amount.amount_minor)),
            row.paid_minor.to_string(),
            row.refunded_minor.to_string(),
            row.surplus_minor.to_string(),
            row.version.to_string(),
            opt(row.account.as_ref().map(|account| account.channel)),
            opt(row.account.as_ref().map(|account| account.account.clone())),
            opt(row.channel_trade_no.clone()),
            micros(row.pay_time),
            micros(row.expires_at),
            opt(row.description.clone()),
            opt(row.supersedes.clone()),
            order.shard.to_string(),
            order.create_time.as_micros().to_string(),
            order.update_time.as_micros().to_string(),
        ]
        .join("|")
    };
    rebuilt.orders().into_values().map(line).collect()
}

fn rebuilt_flows(rebuilt: &Rebuilt) -> Vec<String> {
    let line = |flow: &paidonce_store::backend::FlowWrite| {
        let row = &flow.row;
        [
            row.idem_key.to_string(),
            row.order_no.to_string(),
            row.trade_type.as_str().to_owned(),
            row.direction.as_str().to_owned(),
            row.account.channel.to_string(),
            row.account.account.to_string(),
            row.channel_trade_no.to_string(),
            opt(row.refund_no.clone()),
            row.amount.currency.to_string(),
            row.amount.amount_minor.to_string(),
            row.occurred_at.as_micros().to_string(),
            flow.create_time.as_micros().to_string(),
            flow.shard.to_string(),
            flow.position.to_string(),
        ]
        .join("|")
    };
    rebuilt.flows().into_values().map(line).collect()
}

fn rebuilt_keys(rebuilt: &Rebuilt) -> Vec<String> {
    let line = |key: &paidonce_store::backend::KeyWrite| {
        let at = key.create_time.as_micros();
        format!("{}|{}|{at}|{}|{}|{}", key.idem_key, key.order_no, key.shard, key.position, opt(key.request_hash))
    };
    rebuilt.keys().into_values().map(line).collect()
}

fn rebuilt_items(rebuilt: &Rebuilt) -> Vec<String> {
    let line = |item: &paidonce_store::backend::ItemWrite| {
        [
            item.item_no.clone(),
            item.kind.to_owned(),
            opt(item.order_no.clone()),
            opt(item.stray_id.clone()),
            item.detail.clone(),
            opt(item.payment.clone()),
            item.state.clone(),
            item.opened_at.as_micros().to_string(),
            micros(item.closed_at),
            item.shard.to_string(),
        ]
        .join("|")
    };
    rebuilt.items().into_values().map(line).collect()
}

/// P4: the live tables are what the log says, row by row, after a random history.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_from_the_log_equals_the_live_tables() {
    for place in [Place::postgres(), Place::sqlite()] {
        let ledger = with_history(place.clone()).await;
        let mut rebuilt = Rebuilt::default();
        let events = whole_log(&*ledger.store).await;
        assert!(events.len() > 150, "{} events", events.len());
        events.iter().for_each(|event| rebuilt.fold(event).unwrap());
        let hash = match &place {
            Place::Postgres(_) => "coalesce(encode(request_hash, 'hex'), '-')",
            Place::Sqlite(_) => "coalesce(nullif(lower(hex(request_hash)), ''), '-')",
        };
        let live = |sql: &'static str| place.texts(columns(&place, sql).replace("HASH", hash).leak());
        assert_eq!(live(ORDERS).await, rebuilt_orders(&rebuilt));
        assert_eq!(live(FLOWS).await, rebuilt_flows(&rebuilt));
        assert_eq!(live(KEYS).await, rebuilt_keys(&rebuilt));
        assert_eq!(live(ITEMS).await, rebuilt_items(&rebuilt));
        assert!([ORDERS, FLOWS, KEYS, ITEMS].len() == 4 && !rebuilt.items().is_empty() && !rebuilt.keys().is_empty());
    }
}

/// P4: the same history gives the same rows in memory, on SQLite and on PostgreSQL, but for times and ids.
#[tokio::test(flavor = "multi_thread")]
async fn every_store_tells_the_same_story() {
    let mut stories = Vec::new();
    let memory = crate::store_writer_kit::memory();
    for work in history(11, 300) {
        memory.submit(work).await.unwrap();
    }
    stories.push(story(&*memory).await);
    for place in [Place::postgres(), Place::sqlite()] {
        let ledger = place.open(fast()).await;
        for work in history(11, 300) {
            ledger.store.submit(work).await.unwrap();
        }
        stories.push(story(&*ledger.store).await);
    }
    assert_eq!(stories[0], stories[1]);
    assert_eq!(stories[1], stories[2]);
}

/// Everything but times, ids and hashes.
async fn story(store: &dyn Store) -> Vec<String> {
    let mut lines: Vec<String> = whole_log(store)
        .await
        .into_iter()
        .map(|row| {
            format!("{:02} {:05} {} {} {}", row.shard, row.position, row.aggregate_id, row.sequence, row.payload)
        })
        .collect();
    for number in 0..25 {
        let no = s::order_no(&format!("h-{number}"));
        lines.push(format!("{:?}", store.find_order_row(&no).await.unwrap()));
        lines.push(format!("{:?}", store.list_order_flows(&no).await.unwrap()));
        lines.push(format!("{:?}", store.count_rows(&no).await.unwrap()));
    }
    let items = store.list_items(None, paidonce_store::store::OnlyOpen::No, None, 1_000).await.unwrap();
    lines.extend(
        items.into_iter().map(|item| format!("{} {:?} {} {}", item.item_no, item.kind, item.state, item.detail)),
    );
    lines.sort();
    lines
}

/// The audit's second reader: postgres-es and sqlite-es as they come load what we wrote, to the same state.
#[tokio::test(flavor = "multi_thread")]
async fn stock_readers_load_what_we_wrote_to_the_same_state() {
    let postgres = with_history(Place::postgres()).await;
    let Place::Postgres(url) = &postgres.place else { panic!("postgres") };
    let pool = PgPool::connect(url).await.unwrap();
    let stock = PersistedEventStore::<_, Order>::new_event_store(PostgresEventRepository::new(pool));
    compare(&*postgres.store, &stock).await;
    let sqlite = with_history(Place::sqlite()).await;
    let Place::Sqlite(folder) = &sqlite.place else { panic!("sqlite") };
    let file = format!("sqlite://{}", folder.path().join("ledger.db").display());
    let pool = SqlitePoolOptions::new().connect(&file).await.unwrap();
    let stock = PersistedEventStore::<_, Order>::new_event_store(SqliteEventRepository::new(pool));
    compare(&*sqlite.store, &stock).await;
}

async fn compare<S: EventStore<Order>>(ours: &dyn Store, stock: &S)
where
    S::AC: cqrs_es::AggregateContext<Order>,
{
    use cqrs_es::AggregateContext;
    let mut found = 0;
    for number in 0..25 {
        let no = s::order_no(&format!("h-{number}"));
        let mut loaded = stock.load_aggregate(no.as_str()).await.unwrap();
        let order = ours.find_order(&no).await.unwrap();
        found += usize::from(order.is_some());
        assert_eq!(*loaded.aggregate(), order.unwrap_or_default(), "{no}");
    }
    assert!(found > 20);
}

/// No statement waits for its first use to fail.
#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_the_writer_can_be_prepared() {
    let Place::Postgres(url) = Place::postgres() else { panic!("postgres") };
    PostgresStore::connect(&url, fast()).await.unwrap().shutdown().await;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    for statement in postgres::WRITER_STATEMENTS {
        connection.prepare(&statement.replace("{}", "1, 2")).await.unwrap_or_else(|e| panic!("{e}: {statement}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    SqliteStore::open(&file, fast()).await.unwrap().shutdown().await;
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    for statement in sqlite::WRITER_STATEMENTS {
        connection.prepare(statement).await.unwrap_or_else(|e| panic!("{e}: {statement}"));
    }
    // Whoever scans a table of the ledger in a batch is slow once it is large.
    for statement in sqlite::WRITER_STATEMENTS {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(&format!("EXPLAIN QUERY PLAN {statement}")).fetch_all(&mut connection).await.unwrap();
        for (_, _, _, step) in plan {
            let scans =
                ["events", "t_order", "t_idempotent", "t_item"].iter().any(|table| step == format!("SCAN {table}"));
            assert!(!scans && step != "SCAN e", "{step}: {statement}");
        }
    }
}
