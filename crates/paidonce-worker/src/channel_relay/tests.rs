//! Guards that a channel-call effect is tried until it is done, by one relay at a time, beside the deliveries.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::Clock;
use paidonce_app::ports::{ChannelEffects, EffectStep, RelayDriver as _, RelayReport};
use paidonce_channel::payment_fact;
use paidonce_order::command::{OrderCommand, PaymentRef, Terms};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::clock::ClockOffset;
use paidonce_store::fault::{Arm, Faults};
use paidonce_store::options::{Durability, StoreOptions};
use paidonce_store::store::{
    Backfill, CHANNEL_KINDS, ClaimedEffect, CommandContext, EffectRow, Store, Subscriber, Target, Work,
};
use paidonce_store::{Migrations, SqliteStore};
use tokio::sync::{Semaphore, watch};

use super::{ChannelRelay, ChannelRelaySettings, Relays};
use crate::deliver::{Deliverer, Secrets};
use crate::relay::{Relay, RelaySettings};

/// Longer than anything here takes, shorter than a person's patience.
const DEADLINE: Duration = Duration::from_secs(20);
/// Of a poll after opening.
const POLL_SECONDS: i64 = 15;

/// The use cases as these tests want them: steps as scripted, then done.
struct Platform {
    steps: Mutex<VecDeque<EffectStep>>,
    /// Order numbers of the tries begun.
    begun: watch::Sender<Vec<String>>,
    /// A try takes one of these; a closed one panics.
    gate: Semaphore,
}

#[async_trait]
impl ChannelEffects for Platform {
    async fn run_channel_effect(&self, claimed: &ClaimedEffect) -> EffectStep {
        self.begun.send_modify(|begun| begun.push(claimed.effect.order_no.clone()));
        self.gate.acquire().await.expect("the gate is open").forget();
        self.steps.lock().unwrap().pop_front().unwrap_or(EffectStep::Done)
    }
}

struct Bench {
    store: Arc<dyn Store>,
    clock: ClockOffset,
    faults: Faults,
    platform: Arc<Platform>,
    relays: Relays,
    commits: watch::Sender<()>,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Self {
        Self::with(ChannelRelaySettings::default()).await
    }

    async fn with(settings: ChannelRelaySettings) -> Self {
        // A second install in this process is refused, and the first one is the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let (clock, faults) = (ClockOffset::default(), Faults::private());
        let options = StoreOptions {
            migrations: Migrations::Apply,
            durability: Durability::Scratch,
            clock: clock.clone(),
            ..StoreOptions::default()
        };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("t.db"), options).await.unwrap());
        let platform = Arc::new(Platform {
            steps: Mutex::default(),
            begun: watch::Sender::default(),
            gate: Semaphore::new(1_000),
        });
        let commits = watch::Sender::new(());
        let settings = ChannelRelaySettings { jitter_percent: 0, faults: faults.clone(), ..settings };
        let effects: Arc<dyn ChannelEffects> = Arc::<Platform>::clone(&platform);
        let calls = ChannelRelay::new(Arc::clone(&store), effects, settings, commits.subscribe());
        let secrets = Arc::new(Secrets::new(BTreeMap::new()));
        let deliverer = Deliverer::try_new(secrets, Clock::new(clock.clone()), Duration::from_millis(500)).unwrap();
        let relay_settings = RelaySettings { faults: faults.clone(), ..RelaySettings::default() };
        let deliveries = Relay::new(Arc::clone(&store), deliverer, relay_settings, commits.subscribe());
        Self { store, clock, faults, platform, relays: Relays { deliveries, calls }, commits, _folder: folder }
    }

    fn then(&self, steps: &[EffectStep]) {
        self.platform.steps.lock().unwrap().extend(steps.iter().cloned());
    }

    async fn submit(&self, order_no: &str, command: OrderCommand) {
        let target = Target::Order { order_no: OrderNo::parse(order_no).unwrap(), command };
        let context = CommandContext { source: "callback".to_owned(), ..CommandContext::default() };
        self.store.submit(Work { target, context }).await.unwrap();
        self.commits.send_replace(());
    }

    async fn open(&self, order_no: &str) {
        let terms = Terms {
            amount: Money::fen(8888),
            accounts: vec![account()],
            description: None,
            expires_at: None,
            supersedes: None,
            sub_mchid: None,
            combine: None,
        };
        self.submit(order_no, OrderCommand::OpenOrder(terms)).await;
    }

    async fn pay(&self, order_no: &str) {
        let channel_trade_no = ChannelTradeNo::parse(&format!("T-{order_no}")).unwrap();
        let payment = PaymentRef { account: account(), channel_trade_no };
        let fact = payment_fact(payment, Money::fen(8888), Timestamp::from_micros(0));
        self.submit(order_no, OrderCommand::RecordPayment(fact)).await;
    }

    fn advance(&self, seconds: i64) {
        self.clock.set_micros(self.clock.micros() + seconds * 1_000_000);
    }

    async fn run(&self) -> RelayReport {
        tokio::time::timeout(DEADLINE, self.relays.run_until_idle(20)).await.expect("it becomes idle").unwrap()
    }

    fn begun(&self) -> usize {
        self.platform.begun.borrow().len()
    }

    async fn wait_for_begun(&self, count: usize) {
        let mut begun = self.platform.begun.subscribe();
        let reached = begun.wait_for(|begun| begun.len() >= count);
        tokio::time::timeout(DEADLINE, reached).await.expect("it is begun in time").unwrap();
    }

    async fn poll_of(&self, order_no: &str) -> EffectRow {
        let effects = self.store.list_effects(None, Some(order_no), None, 100).await.unwrap();
        effects.into_iter().find(|effect| effect.kind == "poll").expect("a poll")
    }

    async fn wait_for_state(&self, order_no: &str, state: &str) {
        let reached = async {
            while self.poll_of(order_no).await.state != state {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, reached).await.expect("it is reported in time");
    }
}

fn account() -> AccountRef {
    AccountRef::parse("wxpay:1900000001").unwrap()
}

fn again(seconds: u64) -> EffectStep {
    EffectStep::Again { after: Duration::from_secs(seconds), why: "the payer has not paid".to_owned() }
}

fn calls(calls_done: u64, calls_again: u64) -> RelayReport {
    RelayReport { calls_done, calls_again, ..RelayReport::default() }
}

#[tokio::test]
async fn a_call_comes_again_when_the_use_case_says_and_ends_when_it_is_done() {
    let bench = Bench::start().await;
    bench.then(&[again(30), again(3600)]);
    bench.open("A-1").await;
    assert_eq!(bench.run().await, calls(0, 0), "nothing is due yet");
    bench.advance(POLL_SECONDS + 1);
    assert_eq!(bench.run().await, calls(0, 1));
    let waiting = bench.poll_of("A-1").await;
    assert_eq!((waiting.state.as_str(), waiting.attempts), ("pending", 1));
    assert_eq!(waiting.last_error.as_deref(), Some("the payer has not paid"));
    bench.advance(25);
    assert_eq!(bench.run().await, calls(0, 0));
    bench.advance(6);
    assert_eq!(bench.run().await, calls(0, 1));
    bench.advance(3601);
    assert_eq!(bench.run().await, calls(1, 0));
    assert_eq!(bench.poll_of("A-1").await.state, "delivered");
    bench.advance(24 * 3600);
    assert_eq!((bench.run().await, bench.begun()), (calls(0, 0), 3));
}

#[tokio::test]
async fn a_call_is_never_given_up_however_often_it_fails() {
    let bench = Bench::start().await;
    bench.then(&vec![again(3600); 200]);
    bench.open("A-1").await;
    for _ in 0..200 {
        bench.advance(3601);
        assert_eq!(bench.run().await, calls(0, 1));
    }
    bench.advance(3601);
    assert_eq!(bench.run().await, calls(1, 0));
}

#[tokio::test]
async fn a_relay_that_dies_before_or_after_its_call_leaves_it_to_the_next_when_its_lease_ends() {
    for point in ["effect_before_send", "effect_after_send"] {
        let bench = Bench::start().await;
        bench.faults.arm(point, Arm::Error, 1);
        bench.open("A-1").await;
        bench.advance(POLL_SECONDS + 1);
        assert_eq!(bench.run().await, calls(0, 0), "{point}: nothing is reported");
        assert_eq!(bench.poll_of("A-1").await.state, "leased", "{point}");
        bench.advance(90);
        assert_eq!(bench.run().await, calls(0, 0), "{point}: the lease covers the longest try");
        bench.advance(31);
        assert_eq!(bench.run().await, calls(1, 0), "{point}");
        let tries = if point == "effect_after_send" { 2 } else { 1 };
        assert_eq!((bench.begun(), bench.poll_of("A-1").await.attempts), (tries, 2), "{point}: the crash counts");
    }
}

#[tokio::test]
async fn a_try_that_finds_no_end_is_cut_within_its_lease_and_begun_again_later() {
    let settings = ChannelRelaySettings { try_timeout: Duration::from_millis(50), ..ChannelRelaySettings::default() };
    let bench = Bench::with(settings).await;
    bench.platform.gate.forget_permits(1_000);
    bench.open("A-1").await;
    bench.advance(POLL_SECONDS + 1);
    assert_eq!(bench.run().await, calls(0, 1));
    assert!(bench.poll_of("A-1").await.last_error.unwrap().contains("took longer"));
    bench.platform.gate.add_permits(1);
    bench.advance(61);
    assert_eq!(bench.run().await, calls(1, 0));
}

#[tokio::test]
async fn a_silent_platform_does_not_hold_deliveries_up_and_a_dead_subscriber_does_not_hold_calls_up() {
    let bench = Bench::start().await;
    bench.platform.gate.forget_permits(1_000);
    let subscriber = Subscriber {
        name: "warehouse".to_owned(),
        events: vec!["PaymentConfirmed".to_owned()],
        url: "http://127.0.0.1:9/hook".to_owned(),
        secret_ref: "none".to_owned(),
        paused: false,
    };
    bench.store.put_subscriber(&subscriber, Backfill::No).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    for index in 0..40 {
        bench.open(&format!("A-{index}")).await;
    }
    bench.advance(POLL_SECONDS + 1);
    let running = tokio::spawn(bench.relays.clone().run(stopped));
    bench.wait_for_begun(32).await;
    assert_eq!(bench.begun(), 32, "no more at once than there are places");
    bench.pay("A-39").await;
    let delivered = async {
        loop {
            let effects = bench.store.list_effects(None, Some("A-39"), None, 100).await.unwrap();
            if effects
                .iter()
                .any(|effect| effect.kind == "deliver" && effect.attempts == 1 && effect.state == "pending")
            {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, delivered).await.expect("the delivery is tried while every call hangs");
    bench.platform.gate.add_permits(1_000);
    bench.wait_for_begun(40).await;
    stop.send_replace(true);
    tokio::time::timeout(DEADLINE, running).await.expect("the relays end in time").unwrap();
}

#[tokio::test]
async fn a_stop_finishes_the_call_that_is_under_way_and_begins_no_other() {
    let bench = Bench::start().await;
    bench.platform.gate.forget_permits(1_000);
    bench.open("A-1").await;
    bench.advance(POLL_SECONDS + 1);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(bench.relays.clone().run(stopped));
    bench.wait_for_begun(1).await;
    stop.send_replace(true);
    bench.open("B-1").await;
    bench.advance(POLL_SECONDS + 1);
    assert!(!running.is_finished(), "it waits for the call");
    bench.platform.gate.add_permits(1);
    tokio::time::timeout(DEADLINE, running).await.expect("the relays end in time").unwrap();
    bench.wait_for_state("A-1", "delivered").await;
    assert_eq!((bench.poll_of("B-1").await.state.as_str(), bench.begun()), ("pending", 1));
}

#[tokio::test]
async fn two_relays_on_one_ledger_never_try_one_effect_at_once() {
    let bench = Bench::start().await;
    for index in 0..50 {
        bench.open(&format!("A-{index}")).await;
    }
    bench.advance(POLL_SECONDS + 1);
    let (one, two) = (bench.relays.clone(), bench.relays.clone());
    let (first, second) = tokio::join!(one.calls.run_until_idle(20), two.calls.run_until_idle(20));
    first.unwrap();
    second.unwrap();
    let mut begun = bench.platform.begun.borrow().clone();
    begun.sort_unstable();
    begun.dedup();
    assert_eq!((begun.len(), bench.begun()), (50, 50));
}

#[test]
fn every_kind_of_call_is_claimed_and_no_delivery() {
    assert!(!CHANNEL_KINDS.contains(&"deliver"));
    for kind in ["poll", "query_payment", "query_refund", "refund", "close", "surplus", "query_share"] {
        assert!(CHANNEL_KINDS.contains(&kind), "{kind}");
    }
}
