//! What every store must do, whatever it is made of: checks that the tests run against PostgreSQL, SQLite and memory.
//!
//! Each check names its orders after itself, so that all of them can run on one ledger in any order. A check that fails
//! panics with its reason.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "test code: a failed check panics with its reason"
)]

pub mod samples;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use paidonce_order::order::Status;
use paidonce_order::project::TradeType;

use self::samples as s;
use crate::codec::{evidence_of, metadata_of};
use crate::hash_chain;
use crate::store::{EventRow, Outcome, Receipt, Store, SubmitError, Work};

/// A check, by its name.
pub type Check = (&'static str, fn(Arc<dyn Store>) -> BoxFuture<'static, ()>);

/// Every check of the writer.
pub const WRITER_CHECKS: &[Check] = &[
    ("a_hundred_copies_move_an_order_once", |store| Box::pin(a_hundred_copies_move_an_order_once(store))),
    ("several_events_of_one_order_fit_into_one_batch", |store| {
        Box::pin(several_events_of_one_order_fit_into_one_batch(store))
    }),
    ("a_payment_before_its_order_waits_for_it", |store| Box::pin(a_payment_before_its_order_waits_for_it(store))),
    ("a_second_payment_is_booked_beside_the_first", |store| {
        Box::pin(a_second_payment_is_booked_beside_the_first(store))
    }),
    ("a_rejection_writes_nothing", |store| Box::pin(a_rejection_writes_nothing(store))),
    ("an_api_key_gives_the_same_answer_again", |store| Box::pin(an_api_key_gives_the_same_answer_again(store))),
    ("an_api_key_of_another_order_or_request_is_refused", |store| {
        Box::pin(an_api_key_of_another_order_or_request_is_refused(store))
    }),
    ("a_stray_is_kept_once", |store| Box::pin(a_stray_is_kept_once(store))),
    ("the_log_is_gapless_and_chained", |store| Box::pin(the_log_is_gapless_and_chained(store))),
];

/// Submits and expects an outcome.
pub async fn submit(store: &dyn Store, work: Work) -> Outcome {
    store.submit(work).await.unwrap_or_else(|error| panic!("no outcome: {error}"))
}

/// Submits and expects new events.
pub async fn commit(store: &dyn Store, work: Work) -> Receipt {
    match submit(store, work).await {
        Outcome::Committed(receipt) => receipt,
        other @ (Outcome::Duplicate(_) | Outcome::Rejected(_) | Outcome::ApiKeyReused) => {
            panic!("expected new events, got {other:?}")
        }
    }
}

/// Types of the events that an outcome made; empty unless it is `Committed`.
#[must_use]
pub fn new_events(outcome: &Outcome) -> Vec<&str> {
    match outcome {
        Outcome::Committed(receipt) => receipt.events.iter().map(|event| event.event_type.as_str()).collect(),
        Outcome::Duplicate(_) | Outcome::Rejected(_) | Outcome::ApiKeyReused => Vec::new(),
    }
}

/// P1.
async fn a_hundred_copies_move_an_order_once(store: Arc<dyn Store>) {
    let no = s::order_no("copies");
    commit(&*store, s::open(&no)).await;
    let copies = (0..100).map(|_| store.submit(s::pay(&no, "T-copies")));
    let outcomes: Vec<Outcome> = join_all(copies).await.into_iter().collect::<Result<_, _>>().unwrap();
    let committed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Committed(_))).count();
    let duplicates = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Duplicate(_))).count();
    assert_eq!((committed, duplicates), (1, 99));
    for outcome in &outcomes {
        if let Outcome::Committed(receipt) | Outcome::Duplicate(receipt) = outcome {
            assert_eq!(receipt.order.as_ref().unwrap().status, Status::Paid, "no answer before the fact is durable");
        }
    }
    let counts = store.count_rows(&no).await.unwrap();
    assert_eq!((counts.events, counts.idempotent, counts.order, counts.flows), (2, 1, 1, 1));
}

async fn several_events_of_one_order_fit_into_one_batch(store: Arc<dyn Store>) {
    let no = s::order_no("several");
    let works = [
        s::open(&no),
        s::pay(&no, "T-several"),
        s::request_refund(&no, "R-several-1", 100),
        s::refunded(&no, "T-several", "R-several-1", 100),
        s::request_refund(&no, "R-several-2", 8_788),
        s::refunded(&no, "T-several", "R-several-2", 8_788),
    ];
    let outcomes = join_all(works.map(|work| store.submit(work))).await;
    let types: Vec<Vec<String>> = outcomes
        .into_iter()
        .map(|outcome| new_events(&outcome.unwrap()).into_iter().map(str::to_owned).collect())
        .collect();
    let types: Vec<&str> = types.iter().flatten().map(String::as_str).collect();
    let expected =
        ["OrderOpened", "PaymentConfirmed", "RefundRequested", "RefundConfirmed", "RefundRequested", "RefundConfirmed"];
    assert_eq!(types, expected);
    let row = store.find_order_row(&no).await.unwrap().unwrap();
    assert_eq!((row.status, row.version, row.refunded_minor), (Status::Refunded, 6, 8_888));
    let flows = store.list_order_flows(&no).await.unwrap();
    let trade_types: Vec<TradeType> = flows.iter().map(|flow| flow.trade_type).collect();
    assert_eq!(trade_types, [TradeType::Pay, TradeType::Refund, TradeType::Refund]);
}

/// P6.
async fn a_payment_before_its_order_waits_for_it(store: Arc<dyn Store>) {
    let no = s::order_no("parked");
    let parked = commit(&*store, s::pay(&no, "T-parked")).await;
    assert_eq!(parked.events[0].event_type, "PaymentParked");
    assert_eq!(store.find_order_row(&no).await.unwrap().unwrap().status, Status::Unopened);
    let opened = commit(&*store, s::open(&no)).await;
    assert_eq!(opened.order.unwrap().status, Status::Paid);
    let types: Vec<&str> = opened.events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(types, ["OrderOpened", "PaymentConfirmed"]);
    assert!(new_events(&submit(&*store, s::pay(&no, "T-parked")).await).is_empty());
    assert_eq!(store.count_rows(&no).await.unwrap().flows, 1);
}

/// P6.
async fn a_second_payment_is_booked_beside_the_first(store: Arc<dyn Store>) {
    let no = s::order_no("surplus");
    commit(&*store, s::open(&no)).await;
    commit(&*store, s::pay(&no, "T-surplus-1")).await;
    let second = commit(&*store, s::pay_at(&no, &s::alipay(), "T-surplus-2", 8_888)).await;
    assert!(second.events.iter().any(|event| event.event_type == "SurplusPaymentRecorded"));
    let row = store.find_order_row(&no).await.unwrap().unwrap();
    assert_eq!((row.status, row.paid_minor, row.surplus_minor), (Status::Paid, 8_888, 8_888));
}

async fn a_rejection_writes_nothing(store: Arc<dyn Store>) {
    let no = s::order_no("rejected");
    for work in [s::close(&no), s::request_refund(&no, "R-rejected", 1)] {
        assert!(matches!(submit(&*store, work).await, Outcome::Rejected(_)));
    }
    assert_eq!(store.count_rows(&no).await.unwrap().events, 0);
    commit(&*store, s::open(&no)).await;
    let outcome = submit(&*store, s::with_api_key(s::open_for(&no, 1), "rejected", "r")).await;
    assert!(matches!(outcome, Outcome::Rejected(_)));
    let counts = store.count_rows(&no).await.unwrap();
    assert_eq!((counts.events, counts.idempotent), (1, 0));
}

async fn an_api_key_gives_the_same_answer_again(store: Arc<dyn Store>) {
    let no = s::order_no("apikey");
    let work = || s::with_api_key(s::open(&no), "apikey", "request");
    let copies = join_all((0..10).map(|_| store.submit(work()))).await;
    let committed = copies.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Committed(_)))).count();
    assert_eq!(committed, 1);
    assert!(copies.iter().all(|outcome| matches!(outcome, Ok(Outcome::Committed(_) | Outcome::Duplicate(_)))));
    let Outcome::Duplicate(receipt) = submit(&*store, work()).await else { panic!("expected a duplicate") };
    assert_eq!(receipt.order.unwrap().status, Status::Pending);
    let counts = store.count_rows(&no).await.unwrap();
    assert_eq!((counts.events, counts.idempotent), (1, 1));
}

async fn an_api_key_of_another_order_or_request_is_refused(store: Arc<dyn Store>) {
    let (no, other) = (s::order_no("reused"), other_shard("reused-other", "reused"));
    commit(&*store, s::with_api_key(s::open(&no), "reused", "request")).await;
    for work in [
        s::with_api_key(s::open(&no), "reused", "another request"),
        s::with_api_key(s::close(&no), "reused", "another request"),
        s::with_api_key(s::open(&other), "reused", "request"),
    ] {
        assert!(matches!(submit(&*store, work).await, Outcome::ApiKeyReused));
    }
    assert_eq!(store.count_rows(&other).await.unwrap().events, 0);
    assert_eq!(store.find_order(&no).await.unwrap().unwrap().status, Status::Pending);
}

/// An order number in another shard, and with any number of writers served by another one, than `than`.
fn other_shard(prefix: &str, than: &str) -> paidonce_order::ids::OrderNo {
    let than = s::order_no(than).shard();
    let numbers = (0..).map(|number| s::order_no(&format!("{prefix}-{number}")));
    numbers.into_iter().find(|no| (no.shard() ^ than) & 1 == 1).unwrap()
}

/// P6.
async fn a_stray_is_kept_once(store: Arc<dyn Store>) {
    let outcomes = join_all((0..10).map(|_| store.submit(s::stray("UNKNOWN.THING")))).await;
    let committed = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Committed(_)))).count();
    assert_eq!(committed, 1);
    let items = store.list_items(None, crate::store::OnlyOpen::Yes, None, 1_000).await.unwrap();
    let strays: Vec<_> = items.iter().filter(|item| item.detail.contains("UNKNOWN.THING")).collect();
    assert_eq!(strays.len(), 1);
    assert!(strays[0].stray_id.is_some() && strays[0].order_no.is_none());
}

/// P8. Reads the whole log: run it last, or beside writers that do nothing wrong.
async fn the_log_is_gapless_and_chained(store: Arc<dyn Store>) {
    let no = s::order_no("chained");
    commit(&*store, s::open(&no)).await;
    let events = whole_log(&*store).await;
    assert!(!events.is_empty());
    let mut chains: BTreeMap<u16, (i64, paidonce_order::ids::Digest)> = BTreeMap::new();
    let mut times = BTreeMap::new();
    for row in &events {
        let (position, hash) = chains.entry(row.shard).or_insert((0, hash_chain::GENESIS));
        assert_eq!(row.position, *position + 1, "a hole in shard {}", row.shard);
        let evidence = evidence_of(&metadata_of(row).unwrap());
        assert_eq!(row.hash, hash_chain::link(hash, row, evidence.as_ref()), "shard {} at {}", row.shard, row.position);
        (*position, *hash) = (row.position, row.hash);
        let earlier = times.insert(row.shard, row.recorded_at);
        assert!(earlier.is_none_or(|earlier| earlier <= row.recorded_at), "time went back in shard {}", row.shard);
    }
}

/// All events, by the feed.
pub async fn whole_log(store: &dyn Store) -> Vec<EventRow> {
    let mut events = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = store.read_feed(&cursor, 1_000).await.unwrap();
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
        cursor = page.next_cursor;
    }
}

/// Is it the error that says "nothing was written, try again"?
#[must_use]
pub fn is_retryable(error: &SubmitError) -> bool {
    match error {
        SubmitError::QueueFull | SubmitError::Unavailable(_) | SubmitError::Unknown => true,
        SubmitError::Quarantined(_) | SubmitError::TooOld(_) | SubmitError::Stopping => false,
    }
}
