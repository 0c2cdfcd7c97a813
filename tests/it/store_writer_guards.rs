//! The guard matrix (promise P1): whatever single guard of the log is taken away, the others hold every promise; with a chosen
//! pair away, a named check fails, which proves that the checks see what the guards prevent.
//!
//! | guard | what it is | how a test takes it away |
//! |---|---|---|
//! | stream key | `events_stream_key` | ALTER TABLE .. DROP CONSTRAINT |
//! | position key | `events_position_key` | the same |
//! | idem key | `t_idempotent_pkey` | the same |
//! | conditional update | `UPDATE t_order .. WHERE status and version` | `WithoutGuards::conditional_update` |
//! | head lock | `FOR UPDATE` on the head, and the comparison when it is moved | `WithoutGuards::head_lock`, `head_compare` |
//!
//! Two nodes race on one PostgreSQL, where each decides on what it read before the other one committed: the first is held at
//! fault point `before_append` until the second has tried.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use paidonce_order::ids::OrderNo;
use paidonce_store::conformance::{is_retryable, samples as s};
use paidonce_store::fault::{Arm, Faults};
use paidonce_store::options::{StoreOptions, WithoutGuards};
use paidonce_store::store::{Backfill, Subscriber};
use paidonce_store::{Outcome, Store, SubmitError, Work};

use crate::store_writer_kit::{Ledger, Place, fast};

/// Guards that a database or the writer can lack.
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    constraints: &'static [&'static str],
    options: WithoutGuards,
}

const STREAM_KEY: &str = "ALTER TABLE events DROP CONSTRAINT events_stream_key";
const POSITION_KEY: &str = "ALTER TABLE events DROP CONSTRAINT events_position_key";
const IDEM_KEY: &str = "ALTER TABLE t_idempotent DROP CONSTRAINT t_idempotent_pkey";
const ALL: WithoutGuards = WithoutGuards { head_lock: false, head_compare: false, conditional_update: false };
const NO_HEAD: WithoutGuards = WithoutGuards { head_lock: true, head_compare: true, conditional_update: false };

/// Two nodes on one ledger that lacks some guards.
struct Race {
    first: Ledger,
    second: Ledger,
    faults: Faults,
    place: Place,
}

impl Race {
    async fn start(missing: Missing) -> Self {
        let place = Place::postgres();
        let faults = Faults::private();
        let options = StoreOptions { without: missing.options, ..fast() };
        let first = place.open(StoreOptions { faults: faults.clone(), ..options.clone() }).await;
        let second = place.open(options).await;
        let warehouse = Subscriber {
            name: "warehouse".to_owned(),
            events: vec!["PaymentConfirmed".to_owned()],
            url: "http://127.0.0.1:9/".to_owned(),
            secret_ref: "warehouse".to_owned(),
            paused: false,
        };
        first.store.put_subscriber(&warehouse, Backfill::No).await.unwrap();
        for constraint in missing.constraints {
            place.execute(constraint).await;
        }
        Self { first, second, faults, place }
    }

    /// The first node decides `one` and is held while the second node decides and writes `other`.
    async fn interleave(&self, one: Work, other: Work) {
        self.faults.arm("before_append", Arm::Delay { seconds: 1 }, 1);
        let first = Arc::clone(&self.first.store);
        let held = tokio::spawn(async move { until_answered(&*first, one).await });
        while self.faults.is_armed("before_append") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        until_answered(&*self.second.store, other).await;
        held.await.unwrap();
    }

    /// The same payment of some orders, many times, through both nodes at once.
    async fn storm(&self, orders: &[OrderNo]) {
        let submits = (0..40).flat_map(|copy| {
            let node = if copy % 2 == 0 { &self.first.store } else { &self.second.store };
            orders.iter().map(move |no| until_answered(&**node, s::pay(no, &format!("T-{no}"))))
        });
        join_all(submits).await;
    }

    /// What must hold afterwards. Each promise by its name, so that a test can say which one a missing pair breaks.
    async fn broken_promises(&self, orders: &[OrderNo]) -> Vec<&'static str> {
        let mut broken = Vec::new();
        for no in orders {
            let counts = self.first.store.count_rows(no).await.unwrap();
            if (counts.idempotent, counts.flows, counts.order, counts.deliveries) != (1, 1, 1, 1) || counts.events != 2
            {
                broken.push("one_fact_one_row_of_each");
            }
        }
        let drifted = self
            .place
            .texts(
                "SELECT order_no FROM t_order o WHERE version <> (SELECT count(*) FROM events WHERE aggregate_id = o.order_no)",
            )
            .await;
        if !drifted.is_empty() {
            broken.push("the_projection_is_what_the_log_says");
        }
        let mut next: BTreeMap<String, i64> = BTreeMap::new();
        for row in self.place.texts("SELECT shard || ' ' || position FROM events ORDER BY shard, position").await {
            let (shard, position) = row.split_once(' ').unwrap();
            let expected = next.entry(shard.to_owned()).or_insert(1);
            if *expected != position.parse::<i64>().unwrap() {
                broken.push("positions_are_gapless");
            }
            *expected += 1;
        }
        broken.sort_unstable();
        broken.dedup();
        broken
    }
}

/// Sends again as a platform does, until there is an outcome.
async fn until_answered(store: &dyn Store, work: Work) -> Outcome {
    for _ in 0..50 {
        match store.submit(work.clone()).await {
            Ok(outcome) => return outcome,
            Err(error) if is_retryable(&error) || matches!(error, SubmitError::Quarantined(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no outcome after 50 sendings")
}

/// Two order numbers of one shard.
fn shard_mates() -> (OrderNo, OrderNo) {
    let one = s::order_no("mate-0");
    let other = (1..).map(|n| s::order_no(&format!("mate-{n}"))).find(|no| no.shard() == one.shard()).unwrap();
    (one, other)
}

/// Every race there is, then the promises.
async fn broken_without(missing: Missing) -> Vec<&'static str> {
    let race = Race::start(missing).await;
    let (one, other) = shard_mates();
    let mut orders = vec![s::order_no("same"), one.clone(), other.clone()];
    orders.extend((0..8).map(|n| s::order_no(&format!("storm-{n}"))));
    for no in &orders {
        until_answered(&*race.first.store, s::open(no)).await;
        // Hot on both nodes.
        until_answered(&*race.second.store, s::open(no)).await;
    }
    let same = &orders[0];
    race.interleave(s::pay(same, "T-same"), s::pay(same, "T-same")).await;
    race.interleave(s::pay(&one, "T-one"), s::pay(&other, "T-other")).await;
    race.storm(&orders[3..]).await;
    race.broken_promises(&orders).await
}

/// Guards P1: nothing missing.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_race_and_every_promise_holds() {
    assert!(broken_without(Missing::default()).await.is_empty());
}

/// Guards P1: the head lock stands before the stream key.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_stream_key_every_promise_holds() {
    assert!(broken_without(Missing { constraints: &[STREAM_KEY], options: ALL }).await.is_empty());
}

/// Guards P1 and P8: the head lock stands before the position key.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_position_key_every_promise_holds() {
    assert!(broken_without(Missing { constraints: &[POSITION_KEY], options: ALL }).await.is_empty());
}

/// Guards P1: the head lock and the state decide before the idem key is needed.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_idem_key_every_promise_holds() {
    assert!(broken_without(Missing { constraints: &[IDEM_KEY], options: ALL }).await.is_empty());
}

/// Guards P1 and P4: keys stop the loser before its update counts.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_conditional_update_every_promise_holds() {
    let options = WithoutGuards { conditional_update: true, ..ALL };
    assert!(broken_without(Missing { constraints: &[], options }).await.is_empty());
}

/// Guards P1 and P8: keys and conditional updates stop whoever decided on an old head.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_head_lock_every_promise_holds() {
    assert!(broken_without(Missing { constraints: &[], options: NO_HEAD }).await.is_empty());
}

/// The checks see what the guards prevent: without lock and position key two orders get one position.
#[tokio::test(flavor = "multi_thread")]
async fn without_head_lock_and_position_key_the_gapless_check_fails() {
    let broken = broken_without(Missing { constraints: &[POSITION_KEY], options: NO_HEAD }).await;
    assert!(broken.contains(&"positions_are_gapless"), "{broken:?}");
}

/// The checks see what the guards prevent: an API key used for two orders at once rests on the idem key alone, since the two
/// orders share no lock, stream or position.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_idem_key_one_api_key_opens_two_orders() {
    for (missing, opened) in [(Missing::default(), 1), (Missing { constraints: &[IDEM_KEY], options: ALL }, 2)] {
        let race = Race::start(missing).await;
        let one = s::order_no("api-0");
        let other = (1..).map(|n| s::order_no(&format!("api-{n}"))).find(|no| no.shard() != one.shard()).unwrap();
        race.interleave(s::with_api_key(s::open(&one), "k", "r"), s::with_api_key(s::open(&other), "k", "r")).await;
        assert_eq!(race.place.texts("SELECT order_no FROM t_order").await.len(), opened, "{missing:?}");
    }
}
