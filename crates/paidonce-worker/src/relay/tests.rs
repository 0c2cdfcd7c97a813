//! Guards P7: own retries, lanes in order, nothing lost and one webhook-id per event, whatever dies between two steps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paidonce_app::Clock;
use paidonce_app::ports::{RelayDriver as _, RelayReport};
use paidonce_channel::{payment_fact, refund_fact};
use paidonce_order::command::{OrderCommand, PaymentRef, RefundAmount, RefundOutcome, Terms};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::clock::ClockOffset;
use paidonce_store::fault::{Arm, Faults};
use paidonce_store::options::{Durability, StoreOptions};
use paidonce_store::store::{Backfill, CommandContext, EffectRow, Store, Subscriber, Target, TryResult, Work};
use paidonce_store::{Migrations, SqliteStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{KINDS, Relay, RelaySettings};
use crate::backoff::Schedule;
use crate::deliver::{Deliverer, Secrets};
use crate::sign::{SigningSecret, signature};

/// The example secret of the Standard Webhooks documentation.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Longer than anything here takes, shorter than a person's patience.
const DEADLINE: Duration = Duration::from_secs(10);

/// What the receiver does with the next request.
#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// Takes the request and says nothing.
    Silence,
}

/// One request as the receiver saw it.
#[derive(Clone, Debug)]
struct Seen {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Seen {
    fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn event_type(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        body["type"].as_str().unwrap().to_owned()
    }
}

/// A warehouse on the loopback: answers as scripted, then 200.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<watch::Sender<Vec<Seen>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), answers: Arc::default(), seen: Arc::default() };
        let serving = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        receiver
    }

    fn answers(&self, answers: &[Answer]) {
        self.answers.lock().unwrap().extend(answers);
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    async fn wait_for(&self, count: usize) -> Vec<Seen> {
        let mut seen = self.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.len() >= count);
        tokio::time::timeout(DEADLINE, reached).await.expect("the receiver is reached in time").unwrap().clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Some(seen) = read_request(&mut stream, &mut bytes).await {
            self.seen.send_modify(|all| all.push(seen));
            let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200));
            match answer {
                Answer::Status(status) => {
                    let elsewhere = format!("location: http://{}/elsewhere\r\n", self.address);
                    let head = format!("HTTP/1.1 {status} x\r\n{elsewhere}content-length: 2\r\n\r\nok");
                    stream.write_all(head.as_bytes()).await.unwrap();
                }
                Answer::Silence => std::future::pending().await,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> =
                pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let length: usize = headers["content-length"].parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Some(Seen { headers, body });
            }
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A ledger in a folder of its own, with a movable clock, one subscriber and a relay.
struct Bench {
    store: Arc<dyn Store>,
    clock: ClockOffset,
    faults: Faults,
    relay: Relay,
    committed: watch::Sender<()>,
    receiver: Receiver,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Self {
        Self::with_secrets(BTreeMap::from([("warehouse".to_owned(), vec![SigningSecret::parse(SECRET).unwrap()])]))
            .await
    }

    async fn with_secrets(secrets: BTreeMap<String, Vec<SigningSecret>>) -> Self {
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
        let receiver = Receiver::start().await;
        let url = format!("http://{}/hook", receiver.address);
        let subscriber = Subscriber {
            name: "warehouse".to_owned(),
            events: vec!["PaymentConfirmed".to_owned(), "RefundConfirmed".to_owned()],
            url,
            secret_ref: "warehouse".to_owned(),
            paused: false,
        };
        store.put_subscriber(&subscriber, Backfill::No).await.unwrap();
        let settings = RelaySettings {
            schedule: Schedule { jitter_percent: 0, ..Schedule::default() },
            poll: DEADLINE,
            prune_every: Duration::from_millis(20),
            faults: faults.clone(),
            ..RelaySettings::default()
        };
        let committed = watch::Sender::new(());
        let deliverer =
            Deliverer::try_new(Arc::new(Secrets::new(secrets)), Clock::new(clock.clone()), Duration::from_millis(500))
                .unwrap();
        let relay = Relay::new(Arc::clone(&store), deliverer, settings, committed.subscribe());
        Self { store, clock, faults, relay, committed, receiver, _folder: folder }
    }

    async fn submit(&self, order_no: &str, command: OrderCommand) {
        let target = Target::Order { order_no: OrderNo::parse(order_no).unwrap(), command };
        let context = CommandContext { source: "callback".to_owned(), ..CommandContext::default() };
        self.store.submit(Work { target, context }).await.unwrap();
    }

    async fn pay(&self, order_no: &str) {
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
        let fact = payment_fact(payment(order_no), Money::fen(8888), Timestamp::from_micros(0));
        self.submit(order_no, OrderCommand::RecordPayment(fact)).await;
    }

    async fn refund(&self, order_no: &str) {
        let number = RefundNo::parse(&format!("R-{order_no}")).unwrap();
        let amount = RefundAmount::Exact(Money::fen(100));
        let at = Timestamp::from_micros(0);
        let fact = refund_fact(payment(order_no), number, RefundOutcome::Succeeded, amount, at);
        self.submit(order_no, OrderCommand::RecordRefund(fact)).await;
    }

    fn advance(&self, seconds: i64) {
        self.clock.set_micros(self.clock.micros() + seconds * 1_000_000);
    }

    async fn run(&self) -> RelayReport {
        tokio::time::timeout(DEADLINE, self.relay.run_until_idle(20)).await.expect("the relay becomes idle").unwrap()
    }

    async fn effects(&self, order_no: &str) -> Vec<EffectRow> {
        let mut effects = self.store.list_effects(None, Some(order_no), None, 100).await.unwrap();
        effects.retain(|effect| KINDS.contains(&effect.kind.as_str()));
        effects
    }

    async fn states(&self, order_no: &str) -> Vec<String> {
        self.effects(order_no).await.into_iter().map(|effect| effect.state).collect()
    }
}

fn account() -> AccountRef {
    AccountRef::parse("wxpay:1900000001").unwrap()
}

fn payment(order_no: &str) -> PaymentRef {
    PaymentRef { account: account(), channel_trade_no: ChannelTradeNo::parse(&format!("T-{order_no}")).unwrap() }
}

const fn report(delivered: u64, retried: u64, dead: u64) -> RelayReport {
    RelayReport { delivered, retried, dead, calls_done: 0, calls_again: 0 }
}

#[tokio::test]
async fn a_delivery_is_signed_and_told_once() {
    let bench = Bench::start().await;
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(1, 0, 0));
    assert_eq!(bench.run().await, report(0, 0, 0));
    let seen = bench.receiver.seen();
    assert_eq!(seen.len(), 1);
    let seconds = seen[0].headers["webhook-timestamp"].parse().unwrap();
    let expected = signature(&[SigningSecret::parse(SECRET).unwrap()], seen[0].id(), seconds, &seen[0].body);
    assert_eq!(seen[0].headers["webhook-signature"], expected);
    assert_eq!(seen[0].id(), bench.effects("A-1").await[0].event_id.to_string());
    assert_eq!(bench.states("A-1").await, ["delivered"]);
}

#[tokio::test]
async fn a_failed_delivery_is_tried_after_one_five_and_thirty_minutes_and_is_then_dead_until_a_person_sends_it_again() {
    let bench = Bench::start().await;
    bench.receiver.answers(&[Answer::Status(500); 4]);
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(0, 1, 0));
    for (pause, wanted) in [(60, report(0, 1, 0)), (300, report(0, 1, 0)), (1800, report(0, 0, 1))] {
        bench.advance(pause - 20);
        assert_eq!(bench.run().await, report(0, 0, 0), "{pause} s are not over yet");
        bench.advance(21);
        assert_eq!(bench.run().await, wanted, "after {pause} s");
    }
    bench.advance(7 * 24 * 3600);
    assert_eq!(bench.run().await, report(0, 0, 0), "a dead delivery is not tried again by itself");
    let dead = bench.effects("A-1").await;
    assert_eq!((dead[0].state.as_str(), dead[0].attempts), ("dead", 4));
    assert!(dead[0].last_error.as_deref().unwrap().contains("500"), "{dead:?}");

    assert!(bench.store.requeue_effect(dead[0].effect_id, "lin").await.unwrap());
    assert_eq!(bench.run().await, report(1, 0, 0));
    let seen = bench.receiver.seen();
    assert_eq!(seen.len(), 5);
    assert!(seen.iter().all(|one| one.id() == seen[0].id() && one.body == seen[0].body), "one event, one webhook-id");
}

#[tokio::test]
async fn a_dead_delivery_holds_back_its_own_order_only_and_the_rest_follows_in_sequence() {
    let bench = Bench::start().await;
    bench.receiver.answers(&[Answer::Status(410)]);
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(0, 0, 1), "410 Gone is final at once");
    bench.refund("A-1").await;
    bench.pay("B-1").await;
    assert_eq!(bench.run().await, report(1, 0, 0), "only the other order goes on");
    assert_eq!(bench.states("A-1").await, ["dead", "pending"]);
    let dead = bench.effects("A-1").await[0].effect_id;
    assert!(bench.store.requeue_effect(dead, "lin").await.unwrap());
    assert_eq!(bench.run().await, report(2, 0, 0));
    let order: Vec<String> = bench.receiver.seen().iter().skip(2).map(Seen::event_type).collect();
    assert_eq!(order, ["PaymentConfirmed", "RefundConfirmed"]);
}

#[tokio::test]
async fn a_relay_that_dies_after_the_receiver_answered_sends_again_with_the_same_webhook_id() {
    for point in ["effect_before_send", "effect_after_send"] {
        let bench = Bench::start().await;
        bench.faults.arm(point, Arm::Error, 1);
        bench.pay("A-1").await;
        assert_eq!(bench.run().await, report(0, 0, 0), "{point}: nothing is reported");
        assert_eq!(bench.states("A-1").await, ["leased"], "{point}");
        bench.advance(60);
        assert_eq!(bench.run().await, report(1, 0, 0), "{point}: the lease has ended");
        let seen = bench.receiver.seen();
        let expected = if point == "effect_after_send" { 2 } else { 1 };
        assert_eq!(seen.len(), expected, "{point}");
        assert!(seen.iter().all(|one| one.id() == seen[0].id()), "{point}: one webhook-id");
        assert_eq!(bench.states("A-1").await, ["delivered"], "{point}");
    }
}

#[tokio::test]
async fn a_panic_while_sending_is_a_lease_that_ends_and_other_deliveries_go_on() {
    let bench = Bench::start().await;
    bench.faults.arm("effect_before_send", Arm::Panic, 1);
    bench.pay("A-1").await;
    bench.pay("B-1").await;
    assert_eq!(bench.run().await, report(1, 0, 0));
    bench.advance(60);
    assert_eq!(bench.run().await, report(1, 0, 0));
    assert_eq!(bench.receiver.seen().len(), 2);
}

#[tokio::test]
async fn a_result_that_comes_after_its_lease_was_lost_changes_nothing() {
    let bench = Bench::start().await;
    bench.pay("A-1").await;
    let stale = bench.store.claim_effects(KINDS, 1_000, 10).await.unwrap();
    assert_eq!(bench.run().await, report(0, 0, 0), "leased by somebody else");
    bench.advance(2);
    assert_eq!(bench.run().await, report(1, 0, 0));
    let (effect_id, token) = (stale[0].effect.effect_id, stale[0].effect.lease_token.unwrap());
    let late = TryResult::Dead { error: "late".to_owned() };
    assert!(!bench.store.complete_effect(effect_id, token, &late).await.unwrap());
    assert_eq!(bench.states("A-1").await, ["delivered"]);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_silence_ends_at_the_timeout() {
    let bench = Bench::start().await;
    bench.receiver.answers(&[Answer::Status(307), Answer::Silence]);
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(0, 1, 0));
    assert_eq!(bench.receiver.seen().len(), 1, "the address in the redirect is not asked");
    assert!(bench.effects("A-1").await[0].last_error.as_deref().unwrap().contains("redirects are not followed"));
    bench.advance(61);
    assert_eq!(bench.run().await, report(0, 1, 0));
    assert!(bench.effects("A-1").await[0].last_error.as_deref().unwrap().contains("no answer within"));
}

#[tokio::test]
async fn without_its_secret_a_delivery_waits_for_the_configuration_and_is_never_sent_unsigned() {
    let bench = Bench::with_secrets(BTreeMap::new()).await;
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(0, 1, 0));
    assert_eq!(bench.receiver.seen().len(), 0);
    assert!(bench.effects("A-1").await[0].last_error.as_deref().unwrap().contains("not configured on this node"));
}

#[tokio::test]
async fn the_loop_sleeps_until_a_commit_wakes_it_and_finishes_what_is_under_way_before_it_stops() {
    let bench = Bench::start().await;
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(bench.relay.clone().run(stopped));
    for (index, order_no) in ["A-1", "B-1", "C-1"].into_iter().enumerate() {
        bench.pay(order_no).await;
        bench.committed.send_replace(());
        bench.receiver.wait_for(index + 1).await;
    }
    stop.send_replace(true);
    tokio::time::timeout(DEADLINE, running).await.expect("the loop ends in time").unwrap();
    for order_no in ["A-1", "B-1", "C-1"] {
        assert_eq!(bench.states(order_no).await, ["delivered"]);
    }
}

#[tokio::test]
async fn delivered_rows_are_deleted_once_they_are_old_and_waiting_ones_never() {
    let bench = Bench::start().await;
    bench.receiver.answers(&[Answer::Status(410)]);
    bench.pay("A-1").await;
    assert_eq!(bench.run().await, report(0, 0, 1));
    bench.pay("B-1").await;
    assert_eq!(bench.run().await, report(1, 0, 0));
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(bench.relay.clone().run(stopped));
    bench.advance(31 * 24 * 3600);
    let gone = async {
        while !bench.states("B-1").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("the old row is deleted in time");
    assert_eq!(bench.states("A-1").await, ["dead"]);
    stop.send_replace(true);
    tokio::time::timeout(DEADLINE, running).await.expect("the loop ends in time").unwrap();
}
