//! A ledger without the program around it: each store, opened fresh for one test, and the jobs that tests give it.

use std::path::PathBuf;
use std::sync::Arc;

use paidonce_order::command::{
    OrderCommand, PaymentFact, PaymentRef, RefundOrigin, RefundRequest, StrayCommand, StrayFact, Terms,
};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::stray::stray_id;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::clock::ClockOffset;
use paidonce_store::store::{EvidenceRow, Store, Subscriber, Target, Work};
use paidonce_store::{CommandContext, MemoryStore, Migrations, Outcome, PostgresStore, SqliteStore, StoreOptions};
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::postgres;

/// Where a ledger keeps its rows.
#[derive(Debug)]
pub enum Place {
    /// Database URL.
    Postgres(String),
    /// File, in a directory that goes with the test.
    Sqlite(PathBuf, TempDir),
    /// Nowhere.
    Memory,
}

/// One open store with its own clock.
pub struct Ledger {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// Pushes its "now".
    pub clock: ClockOffset,
    /// Its database.
    pub place: Place,
}

impl Ledger {
    /// A fresh PostgreSQL ledger.
    pub async fn postgres() -> Self {
        let url = tokio::task::spawn_blocking(postgres::migrated_database).await.unwrap();
        let clock = ClockOffset::default();
        let store = PostgresStore::connect(&url, options(&clock)).await.expect("connect");
        Self { store: Arc::new(store), clock, place: Place::Postgres(url) }
    }

    /// A fresh SQLite ledger.
    pub async fn sqlite() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ledger.db");
        let clock = ClockOffset::default();
        let options = StoreOptions { migrations: Migrations::Apply, ..options(&clock) };
        let store = SqliteStore::open(&path, options).await.expect("open");
        Self { store: Arc::new(store), clock, place: Place::Sqlite(path, home) }
    }

    /// A ledger in memory: the model.
    pub fn memory() -> Self {
        let clock = ClockOffset::default();
        Self { store: Arc::new(MemoryStore::new(&options(&clock))), clock, place: Place::Memory }
    }

    /// A second node on the same database, where the store allows one.
    pub async fn second_node(&self) -> Option<Arc<dyn Store>> {
        match &self.place {
            Place::Postgres(url) => {
                Some(Arc::new(PostgresStore::connect(url, options(&self.clock)).await.expect("connect")))
            }
            Place::Sqlite(..) | Place::Memory => None,
        }
    }

    /// Moves "now" of the store by so many milliseconds.
    pub fn advance_ms(&self, milliseconds: i64) {
        self.clock.set_micros(self.clock.micros() + milliseconds * 1_000);
    }

    /// Runs one statement behind the store's back. Errors: the database's words.
    pub async fn try_execute(&self, sql: &str) -> Result<(), String> {
        let done = match &self.place {
            Place::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::query(sql).execute(&mut connection).await.map(|_| ())
            }
            Place::Sqlite(path, _) => {
                let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
                sqlx::query(sql).execute(&mut connection).await.map(|_| ())
            }
            Place::Memory => return Err("a ledger in memory has no SQL".to_owned()),
        };
        done.map_err(|error| error.to_string())
    }

    /// Does a job that must commit something.
    pub async fn commit(&self, work: Work) {
        let outcome = self.store.submit(work).await.expect("the job has an outcome");
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }

    /// Opens an order and pays it: two events of one lane.
    pub async fn pay(&self, order_no: &str) {
        self.commit(open_work(order_no)).await;
        self.commit(pay_work(order_no)).await;
    }

    /// Adds a subscriber that hears everything from now on.
    pub async fn subscribe(&self, name: &str) {
        let made = self.store.put_subscriber(&subscriber(name), paidonce_store::store::Backfill::No).await;
        assert_eq!(made.expect("put"), 0);
    }
}

fn options(clock: &ClockOffset) -> StoreOptions {
    StoreOptions { clock: clock.clone(), ..StoreOptions::default() }
}

/// One that hears everything.
pub fn subscriber(name: &str) -> Subscriber {
    Subscriber {
        name: name.to_owned(),
        events: vec!["*".to_owned()],
        url: "http://127.0.0.1:9/hook".to_owned(),
        secret_ref: name.to_owned(),
        paused: false,
    }
}

/// The account that all jobs use.
pub fn account() -> AccountRef {
    AccountRef::parse("wxpay:1900000001").unwrap()
}

/// An order number from a text that is one.
pub fn order_no(text: &str) -> OrderNo {
    OrderNo::parse(text).unwrap()
}

/// The channel's number of the payment that [`pay_work`] records.
pub fn trade_no(order_no: &str) -> ChannelTradeNo {
    ChannelTradeNo::parse(&format!("4200{order_no}")).unwrap()
}

/// Opens an order of 88.88 yuan.
pub fn open_work(number: &str) -> Work {
    let terms = Terms {
        amount: Money::fen(8_888),
        accounts: vec![account()],
        description: None,
        expires_at: None,
        supersedes: None,
        sub_mchid: None,
        combine: None,
    };
    job(number, OrderCommand::OpenOrder(terms))
}

/// Pays an order of 88.88 yuan.
pub fn pay_work(number: &str) -> Work {
    let fact = PaymentFact {
        payment: PaymentRef { account: account(), channel_trade_no: trade_no(number) },
        amount: Money::fen(8_888),
        payer_amount: None,
        occurred_at: Timestamp::parse("2025-01-08T12:34:56+08:00").unwrap(),
        channel_trade_type: None,
        content: Digest([7; 32]),
    };
    let work = job(number, OrderCommand::RecordPayment(fact));
    let evidence = Some(Arc::new(evidence(number)));
    Work { context: CommandContext { evidence, ..work.context }, ..work }
}

/// Asks for one yuan of the payment of [`pay_work`] back.
pub fn refund_work(number: &str, refund_no: &str) -> Work {
    let request = RefundRequest {
        payment: None,
        refund_no: RefundNo::parse(refund_no).unwrap(),
        amount: Money::fen(100),
        reason: None,
        origin: RefundOrigin::Request,
    };
    job(number, OrderCommand::RequestRefund(request))
}

/// Signed bytes that nobody signed: the store keeps them and does not read them.
fn evidence(number: &str) -> EvidenceRow {
    let body = format!("{{\"out_trade_no\":\"{number}\"}}").into_bytes();
    EvidenceRow {
        digest: Digest(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &body).as_ref().try_into().unwrap()),
        account: account(),
        source: "callback".to_owned(),
        headers: vec![("Wechatpay-Serial".to_owned(), "TEST-SERIAL".to_owned())],
        body,
        key_id: "TEST-SERIAL".to_owned(),
        received_at: Timestamp::parse("2025-01-08T12:34:57+08:00").unwrap(),
    }
}

/// Any command to an order.
pub fn job(number: &str, command: OrderCommand) -> Work {
    Work { target: Target::Order { order_no: order_no(number), command }, context: context() }
}

/// Keeps a stray; `seed` makes its content.
pub fn stray_work(seed: u8) -> Work {
    let content = Digest([seed; 32]);
    let fact = StrayFact {
        account: account(),
        code: "unknown_type".to_owned(),
        detail: "a type that nobody knows".to_owned(),
        channel_event_type: None,
        occurred_at: Timestamp::parse("2025-01-08T12:34:56+08:00").unwrap(),
        content,
    };
    let command = StrayCommand::RecordStray(fact);
    Work { target: Target::Stray { stray_id: stray_id(&account(), &content), command }, context: context() }
}

fn context() -> CommandContext {
    CommandContext { source: "callback".to_owned(), ..CommandContext::default() }
}
