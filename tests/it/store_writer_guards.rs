//! The guard matrix (promise P1): whatever guard of the log is taken away, and whatever two, the others hold every promise; with
//! chosen ones away, a named check fails, which proves that the checks see what the guards prevent.
//!
//! | guard | what it is | how a test takes it away |
//! |---|---|---|
//! | stream key | `events_stream_key` | ALTER TABLE .. DROP CONSTRAINT |
//! | position key | `events_position_key` | the same |
//! | idem key | `t_idempotent_pkey` | the same |
//! | conditional update | `UPDATE t_order .. WHERE status and version` | `WithoutGuards::conditional_update` |
//! | head lock | `FOR UPDATE` on the head before anything is decided | `WithoutGuards::head_lock` |
//! | head compare | `UPDATE t_log_head .. WHERE position` is what was decided on | `WithoutGuards::head_compare` |
//!
//! Lock and compare each make a shard's writers serial, so no pair of guards leaves a race open. What it takes:
//!
//! | away | what goes wrong, and the check that sees it |
//! |---|---|
//! | lock, compare, position key | two orders at one position: `positions_are_gapless` |
//! | all of them, and `t_order_flow_pkey` | one payment twice in the log and in the flows: `one_fact_one_row_of_each` |
//! | idem key | an API key opens two orders: they share no shard, so nothing else stands between them |
//!
//! Two nodes race on one PostgreSQL, where each decides on what it read before the other one committed: the first is held at
//! fault point `before_append` until the second has tried. SQLite has one writer (its lock file and BEGIN IMMEDIATE), so there
//! only the comparisons can be taken away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use paidonce_order::ids::OrderNo;
use paidonce_store::conformance::{is_retryable, samples as s};
use paidonce_store::fault::{Arm, Faults};
use paidonce_store::options::{StoreOptions, WithoutGuards};
use paidonce_store::store::{Backfill, Subscriber};
use paidonce_store::{Outcome, Store, SubmitError, Work};

use crate::store_writer_kit::{Place, fast};

/// What stands between two writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    StreamKey,
    PositionKey,
    IdemKey,
    ConditionalUpdate,
    HeadLock,
    HeadCompare,
}

use Guard::{ConditionalUpdate, HeadCompare, HeadLock, IdemKey, PositionKey, StreamKey};

const GUARDS: [Guard; 6] = [StreamKey, PositionKey, IdemKey, ConditionalUpdate, HeadLock, HeadCompare];
/// Races at the same time, in tests of many: a race mostly waits.
const RACES_AT_ONCE: usize = 5;

impl Guard {
    /// Takes a constraint away.
    const fn drop_constraint(self) -> Option<&'static str> {
        match self {
            Self::StreamKey => Some("ALTER TABLE events DROP CONSTRAINT events_stream_key"),
            Self::PositionKey => Some("ALTER TABLE events DROP CONSTRAINT events_position_key"),
            Self::IdemKey => Some("ALTER TABLE t_idempotent DROP CONSTRAINT t_idempotent_pkey"),
            Self::ConditionalUpdate | Self::HeadLock | Self::HeadCompare => None,
        }
    }
}

fn without(guards: &[Guard]) -> WithoutGuards {
    WithoutGuards {
        head_lock: guards.contains(&HeadLock),
        head_compare: guards.contains(&HeadCompare),
        conditional_update: guards.contains(&ConditionalUpdate),
    }
}

/// Two nodes on one ledger that lacks some guards.
struct Race {
    first: Arc<dyn Store>,
    second: Arc<dyn Store>,
    faults: Faults,
    place: Place,
}

impl Race {
    async fn start(missing: &[Guard]) -> Self {
        let place = Place::postgres();
        let faults = Faults::private();
        let options = StoreOptions { without: without(missing), read_connections_max: 2, ..fast() };
        let first = place.open(StoreOptions { faults: faults.clone(), ..options.clone() }).await.store;
        let second = place.open(options).await.store;
        let race = Self { first, second, faults, place };
        race.subscribe().await;
        for constraint in missing.iter().filter_map(|guard| guard.drop_constraint()) {
            race.place.execute(constraint).await;
        }
        race
    }

    /// The one node there can be, twice.
    async fn start_on_sqlite(missing: &[Guard]) -> Self {
        let place = Place::sqlite();
        let faults = Faults::private();
        let options = StoreOptions { without: without(missing), faults: faults.clone(), ..fast() };
        let store = place.open(options).await.store;
        let race = Self { first: Arc::clone(&store), second: store, faults, place };
        race.subscribe().await;
        race
    }

    async fn subscribe(&self) {
        let warehouse = Subscriber {
            name: "warehouse".to_owned(),
            events: vec!["PaymentConfirmed".to_owned()],
            url: "http://127.0.0.1:9/".to_owned(),
            secret_ref: "warehouse".to_owned(),
            paused: false,
        };
        self.first.put_subscriber(&warehouse, Backfill::No).await.unwrap();
    }

    /// The first node decides `one` and is held while the second node decides and writes `other`.
    async fn interleave(&self, one: Work, other: Work) {
        self.faults.arm("before_append", Arm::Delay { seconds: 1 }, 1);
        let first = Arc::clone(&self.first);
        let held = tokio::spawn(async move { until_answered(&*first, one).await });
        while self.faults.is_armed("before_append") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        until_answered(&*self.second, other).await;
        held.await.unwrap();
    }

    /// The same payment of some orders, many times, through both nodes at once.
    async fn storm(&self, orders: &[OrderNo]) {
        let submits = (0..40).flat_map(|copy| {
            let node = if copy % 2 == 0 { &self.first } else { &self.second };
            orders.iter().map(move |no| until_answered(&**node, s::pay(no, &format!("T-{no}"))))
        });
        join_all(submits).await;
    }

    /// What must hold afterwards. Each promise by its name, so that a test can say which one a missing pair breaks.
    async fn broken_promises(&self, orders: &[OrderNo]) -> Vec<&'static str> {
        let mut broken = Vec::new();
        for no in orders {
            let counts = self.first.count_rows(no).await.unwrap();
            if (counts.idempotent, counts.flows, counts.order, counts.deliveries) != (1, 1, 1, 1) || counts.events != 2
            {
                broken.push("one_fact_one_row_of_each");
            }
        }
        let settled = self.place.texts("SELECT aggregate_id FROM events WHERE event_type = 'PaymentConfirmed'").await;
        let booked = self.place.texts("SELECT order_no FROM t_order_flow WHERE trade_type = 'PAY'").await;
        let twice = |mut numbers: Vec<String>| {
            let all = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len() != all
        };
        if twice(settled) || twice(booked) {
            broken.push("one_payment_settles_an_order");
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
async fn broken_without(missing: &[Guard]) -> Vec<&'static str> {
    Race::start(missing).await.run().await
}

impl Race {
    async fn run(&self) -> Vec<&'static str> {
        let (one, other) = shard_mates();
        let mut orders = vec![s::order_no("same"), one.clone(), other.clone()];
        orders.extend((0..8).map(|n| s::order_no(&format!("storm-{n}"))));
        let rivals = s::order_no("rivals");
        for no in orders.iter().chain([&rivals]) {
            until_answered(&*self.first, s::open(no)).await;
            // Hot on both nodes.
            until_answered(&*self.second, s::open(no)).await;
        }
        let same = &orders[0];
        self.interleave(s::pay(same, "T-same"), s::pay(same, "T-same")).await;
        self.interleave(s::pay(&one, "T-one"), s::pay(&other, "T-other")).await;
        self.interleave(s::pay(&rivals, "T-rival-1"), s::pay(&rivals, "T-rival-2")).await;
        self.storm(&orders[3..]).await;
        self.broken_promises(&orders).await
    }
}

/// Guards P1: nothing missing.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_race_and_every_promise_holds() {
    assert!(broken_without(&[]).await.is_empty());
}

/// Guards P1: the head lock stands before the stream key.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_stream_key_every_promise_holds() {
    assert!(broken_without(&[StreamKey]).await.is_empty());
}

/// Guards P1 and P8: the head lock stands before the position key.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_position_key_every_promise_holds() {
    assert!(broken_without(&[PositionKey]).await.is_empty());
}

/// Guards P1: the head lock and the state decide before the idem key is needed.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_idem_key_every_promise_holds() {
    assert!(broken_without(&[IdemKey]).await.is_empty());
}

/// Guards P1 and P4: keys stop the loser before its update counts.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_conditional_update_every_promise_holds() {
    assert!(broken_without(&[ConditionalUpdate]).await.is_empty());
}

/// Guards P1 and P8: whoever decided on an old head moves none, and decides again.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_head_lock_every_promise_holds() {
    assert!(broken_without(&[HeadLock]).await.is_empty());
}

/// Guards P1 and P8: nobody decides on an old head, because the lock is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_head_compare_every_promise_holds() {
    assert!(broken_without(&[HeadCompare]).await.is_empty());
}

/// Guards P1, P4 and P8: any two of them away. Without lock and compare, the position key stops whoever decided on an old head.
#[tokio::test(flavor = "multi_thread")]
async fn without_any_two_guards_every_promise_holds() {
    let pairs =
        GUARDS.iter().enumerate().flat_map(|(n, one)| GUARDS.iter().skip(n + 1).map(move |other| [*one, *other]));
    let races = pairs.map(|pair| async move { (pair, broken_without(&pair).await) });
    let mut races = futures_util::stream::iter(races).buffer_unordered(RACES_AT_ONCE);
    let mut pairs_played = 0;
    while let Some((pair, broken)) = races.next().await {
        assert!(broken.is_empty(), "without {pair:?}: {broken:?}");
        pairs_played += 1;
    }
    assert_eq!(pairs_played, 15);
}

/// Guards P1 and P4 on SQLite, where one writer holds the file: the comparisons have nothing to find.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_comparisons_the_one_sqlite_writer_keeps_every_promise() {
    let race = Race::start_on_sqlite(&[ConditionalUpdate, HeadCompare]).await;
    assert!(race.run().await.is_empty());
}

/// The checks see what the guards prevent: without lock, compare and position key two orders get one position.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_guards_of_the_head_and_the_position_key_the_gapless_check_fails() {
    let broken = broken_without(&[HeadLock, HeadCompare, PositionKey]).await;
    assert_eq!(broken, ["positions_are_gapless"]);
}

/// The checks see what the guards prevent: with nothing but the flow's key left in the log, facts are in it twice.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_guards_of_the_head_and_all_keys_of_the_log_a_fact_is_written_twice() {
    let race = Race::start(&[HeadLock, HeadCompare, PositionKey, StreamKey, IdemKey, ConditionalUpdate]).await;
    race.place.execute("ALTER TABLE t_order_flow DROP CONSTRAINT t_order_flow_pkey").await;
    let broken = race.run().await;
    for check in ["one_fact_one_row_of_each", "one_payment_settles_an_order", "positions_are_gapless"] {
        assert!(broken.contains(&check), "{check}: {broken:?}");
    }
}

/// The checks see what the guards prevent: an API key used for two orders at once rests on the idem key alone, since the two
/// orders share no lock, stream or position.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_idem_key_one_api_key_opens_two_orders() {
    for (missing, opened) in [(&[][..], 1), (&[IdemKey][..], 2)] {
        let race = Race::start(missing).await;
        let one = s::order_no("api-0");
        let other = (1..).map(|n| s::order_no(&format!("api-{n}"))).find(|no| no.shard() != one.shard()).unwrap();
        race.interleave(s::with_api_key(s::open(&one), "k", "r"), s::with_api_key(s::open(&other), "k", "r")).await;
        assert_eq!(race.place.texts("SELECT order_no FROM t_order").await.len(), opened, "{missing:?}");
    }
}
