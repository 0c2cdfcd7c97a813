//! WeChat Pay v3 and Alipay as an API server, played with code that shares nothing with `paidonce-channel`: it checks the
//! signature of every request, records it, and gives the answer that a test prepared, or else what its small
//! [`World`] says.
//!
//! | file | job |
//! |---|---|
//! | here | prepared answers, the record of calls, the server |
//! | [`asked`] | which call a request is, and whether its signature is right |
//! | [`world`] | orders and refunds as the platform sees them: the answer when none was prepared |
//! | [`answer`] | writes an answer: signed, unsigned, badly signed, as a probe, late, never |

pub mod answer;
pub mod asked;
pub mod world;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::keys::{TestKey, key};
use crate::signer;
use answer::{Content, Prepared};
use asked::{Api, Asked};
use world::World;

/// How long [`PlatformStub::wait_for_calls`] waits.
const WAIT: Duration = Duration::from_secs(20);

/// One request, as it was understood, and what it was answered.
#[derive(Debug, Clone)]
pub struct Call {
    /// The request.
    pub asked: Asked,
    /// The order that it is about, also when it names another number of it.
    pub order_no: String,
    /// Why its signature (or its form) is not what the platform accepts; `None`: it is right.
    pub problem: Option<String>,
    /// The answer in a few words, for example `200 SUCCESS`.
    pub answered: String,
    /// The ledger's clock when it came, unix seconds.
    pub at: i64,
}

/// What a merchant's account is known by.
#[derive(Debug, Clone)]
pub struct Merchant {
    /// The key that signs answers to it.
    pub platform_key: &'static TestKey,
    /// Its APIv3 key.
    pub apiv3_key: String,
    /// Platform certificates that the list offers.
    pub certificates: Vec<&'static TestKey>,
}

/// The platforms. Stops with its runtime.
#[derive(Debug, Clone)]
pub struct PlatformStub {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
    offset_micros: AtomicI64,
    in_flight: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    prepared: BTreeMap<(Api, Option<String>), Plan>,
    calls: Vec<Call>,
    world: World,
    merchants: BTreeMap<String, Merchant>,
    alipay_key: &'static TestKey,
    always: Option<Prepared>,
}

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<Prepared>,
    last: Option<Prepared>,
}

/// What happens when the prepared answers of an API are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The last one again and again.
    RepeatLast,
    /// What the world says.
    World,
}

impl PlatformStub {
    /// Listens on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port for the platforms");
        let addr = listener.local_addr().expect("the platforms' address");
        let state = State {
            prepared: BTreeMap::new(),
            calls: Vec::new(),
            world: World::default(),
            merchants: BTreeMap::from([
                ("1900000001".to_owned(), Merchant::of("platform_cert_1", signer::APIV3_KEY_A)),
                ("1900000002".to_owned(), Merchant::of("platform_cert_3", signer::APIV3_KEY_M2)),
            ]),
            alipay_key: key("alipay_platform"),
            always: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            arrived: Notify::new(),
            offset_micros: AtomicI64::new(0),
            in_flight: watch::Sender::new(0),
        });
        let for_loop = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&for_loop)));
            }
        });
        Self { addr, shared }
    }

    /// `api_url` of a WeChat Pay account.
    #[must_use]
    pub fn wxpay_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// `api_url` of an Alipay account.
    #[must_use]
    pub fn alipay_url(&self) -> String {
        format!("http://{}/gateway.do", self.addr)
    }

    /// Moves its clock to the ledger's: answers carry it, requests are checked against it.
    pub fn set_offset(&self, micros: i64) {
        self.shared.offset_micros.store(micros, Ordering::SeqCst);
    }

    /// Changes what the platform knows of orders and refunds.
    pub fn world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.lock().world)
    }

    /// Changes what the platform knows of a WeChat merchant.
    pub fn merchant(&self, mchid: &str, change: impl FnOnce(&mut Merchant)) {
        let mut state = self.lock();
        let known = state.merchants.entry(mchid.to_owned());
        change(known.or_insert_with(|| Merchant::of("platform_cert_1", signer::APIV3_KEY_A)));
    }

    /// Answers the next calls of this API with these, whichever order they are about.
    pub fn prepare(&self, api: Api, answers: impl IntoIterator<Item = Prepared>, then: Then) {
        self.plan(api, None, answers, then);
    }

    /// The same for calls about one order, refund or share, by its number; goes before [`Self::prepare`].
    pub fn prepare_for(&self, api: Api, number: &str, answers: impl IntoIterator<Item = Prepared>, then: Then) {
        self.plan(api, Some(number.to_owned()), answers, then);
    }

    fn plan(&self, api: Api, number: Option<String>, answers: impl IntoIterator<Item = Prepared>, then: Then) {
        let mut state = self.lock();
        let plan = state.prepared.entry((api, number)).or_default();
        plan.next.extend(answers);
        if then == Then::RepeatLast {
            plan.last = plan.next.back().cloned();
        }
    }

    /// Every call without a prepared answer gets this one.
    pub fn always(&self, answer: Prepared) {
        self.lock().always = Some(answer);
    }

    /// Forgets what was prepared: the world answers.
    pub fn forget_prepared(&self) {
        let mut state = self.lock();
        state.prepared.clear();
        state.always = None;
    }

    /// Prepared answers that nobody has asked for yet.
    #[must_use]
    pub fn answers_left(&self) -> usize {
        self.lock().prepared.values().map(|plan| plan.next.len()).sum()
    }

    /// Every call so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// Calls of one API so far.
    #[must_use]
    pub fn calls_of(&self, api: Api) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.asked.api == api).collect()
    }

    /// Calls of one API about one order, refund or share.
    #[must_use]
    pub fn calls_about(&self, api: Api, number: &str) -> Vec<Call> {
        self.calls_of(api).into_iter().filter(|call| call.is_about(number)).collect()
    }

    /// What is wrong with requests that it got: a signature that does not verify, a header that is missing.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let calls = self.calls();
        let wrong = calls.iter().filter_map(|call| Some((call, call.problem.as_ref()?)));
        wrong.map(|(call, problem)| format!("{} {}: {problem}", call.asked.method, call.asked.path)).collect()
    }

    /// Waits until `enough` says so of the calls. Panics after 20 s.
    pub async fn wait_for_calls(&self, enough: impl Fn(&[Call]) -> bool) {
        let waiting = async {
            loop {
                let arrived = self.shared.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                if enough(&self.calls()) {
                    return;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(WAIT, waiting)
            .await
            .unwrap_or_else(|_| panic!("the platforms got only these calls within {WAIT:?}: {:?}", self.calls()));
    }

    /// Waits until no call waits for its answer: before a jump of the clock, since in real time the caller would have given
    /// up long before. Panics after 20 s.
    pub async fn wait_until_idle(&self) {
        let mut in_flight = self.shared.in_flight.subscribe();
        let idle = tokio::time::timeout(WAIT, in_flight.wait_for(|calls| *calls == 0)).await;
        assert!(idle.is_ok(), "a call to the platforms still waits after {WAIT:?}");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().expect("the platforms' state")
    }
}

impl Call {
    /// Whether it names this number, or another one of this order.
    #[must_use]
    pub fn is_about(&self, number: &str) -> bool {
        self.asked.is_about(number) || self.order_no == number
    }
}

impl Merchant {
    fn of(key_name: &str, apiv3_key: &str) -> Self {
        Self { platform_key: key(key_name), apiv3_key: apiv3_key.to_owned(), certificates: vec![key(key_name)] }
    }
}

impl State {
    /// The prepared answer for a call, if any: those for its own number go first.
    fn take_prepared(&mut self, asked: &Asked) -> Option<Prepared> {
        // A query by the channel's number is about the order that was paid with it.
        let trade_no = [asked.text("transaction_id"), asked.text("trade_no")].concat();
        let order_no = self.world.order_no_of(&trade_no).map(str::to_owned);
        let numbers = asked.numbers().map(str::to_owned).chain(order_no).map(Some).chain([None]);
        for number in numbers {
            let Some(plan) = self.prepared.get_mut(&(asked.api, number)) else { continue };
            if let Some(answer) = plan.next.pop_front().or_else(|| plan.last.clone()) {
                return Some(answer);
            }
        }
        self.always.clone()
    }
}

impl Shared {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc() + time::Duration::microseconds(self.offset_micros.load(Ordering::SeqCst))
    }

    /// Understands, checks and answers one request; records it before the answer leaves.
    fn decide(&self, asked: Asked) -> (Prepared, answer::Signer) {
        let now = self.now();
        let mut state = self.state.lock().expect("the platforms' state");
        let problem = asked.problem(now);
        let prepared = match &problem {
            Some(_) => Prepared::refused_signature(&asked),
            None => state.take_prepared(&asked).unwrap_or_else(Prepared::world),
        };
        let prepared = prepared.resolved(&asked, &mut state.world);
        let merchant = state.merchants.get(&asked.account).cloned();
        let platform_key = match asked.api.channel() {
            asked::Channel::Wechat => merchant.as_ref().map_or(key("platform_cert_1"), |known| known.platform_key),
            asked::Channel::Alipay => state.alipay_key,
        };
        let prepared = match (&prepared.content, &merchant) {
            (Content::Certificates(None), Some(known)) => {
                Prepared { content: Content::Certificates(Some(known.certificates.clone())), ..prepared }
            }
            _ => prepared,
        };
        let signer = answer::Signer {
            // A merchant in public-key mode names the key that it wants the answer signed with.
            key: asked.wanted_key().unwrap_or(platform_key),
            apiv3_key: merchant.map_or_else(|| signer::APIV3_KEY_A.to_owned(), |known| known.apiv3_key),
            now: now.unix_timestamp(),
            api: asked.api,
        };
        let answered = prepared.in_words();
        let order_no = state.world.named_order(&asked);
        state.calls.push(Call { asked, order_no, problem, answered, at: now.unix_timestamp() });
        (prepared, signer)
    }
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let Some((head, body)) = read_request(&mut socket).await else { return };
    let (prepared, signer) = shared.decide(Asked::read(&head, body));
    shared.in_flight.send_modify(|calls| *calls += 1);
    shared.arrived.notify_waiters();
    answer::write(&mut socket, &prepared, &signer).await;
    shared.in_flight.send_modify(|calls| *calls -= 1);
}

/// Head and body of one request; `None` when the sender went away.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = asked::header(&head, "content-length").parse().unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                return Some((head, bytes[end + 4..end + 4 + length].to_vec()));
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
