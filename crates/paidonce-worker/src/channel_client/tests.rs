//! Guards that a call is made once, as it was signed, and that whatever goes wrong on the way is an unknown outcome (P1, P5).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions,
    reason = "a test may fail loudly"
)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paidonce_app::Clock;
use paidonce_app::ports::{CallObserver, CallSeen, ChannelClient as _, KeyRefresh};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiRequest, ApiResponse, Ask, CallProblem, ChannelApi, Doubt, LearnedKey, Remedy,
};
use paidonce_order::ids::{AccountRef, OrderNo};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::clock::ClockOffset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{AccountDirectory, ChannelClientSettings, HttpChannelClient, refusal};

/// Longer than anything here takes, shorter than a person's patience.
const DEADLINE: Duration = Duration::from_secs(20);
/// Of a call in these tests.
const CALL_TIMEOUT: Duration = Duration::from_millis(700);
const MINUTE_MICROS: i64 = 60_000_000;

/// What the platform does with every request.
#[derive(Clone)]
enum Script {
    /// These bytes, then the connection stays.
    Bytes(Vec<u8>),
    /// These bytes, then it closes.
    Cut(Vec<u8>),
    /// These bytes, then nothing more.
    Hang(Vec<u8>),
    /// These bytes again and again.
    Endless(Vec<u8>),
    /// Waits until the sender says go, then answers.
    After(watch::Receiver<bool>, Vec<u8>),
}

fn answer(status: &str, body: &str) -> Script {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nRequest-Id: 08F8-1\r\n", body.len());
    Script::Bytes(format!("{head}location: /elsewhere\r\n\r\n{body}").into_bytes())
}

/// A platform on the loopback that keeps the exact head and body of every request.
#[derive(Clone)]
struct Platform {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    /// For the list of certificates, when it is another.
    list: Arc<Mutex<Option<Script>>>,
    seen: Arc<watch::Sender<Vec<String>>>,
}

impl Platform {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let platform =
            Self { address, script: Arc::new(Mutex::new(script)), list: Arc::default(), seen: Arc::default() };
        let serving = platform.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        platform
    }

    fn lists(&self, script: Script) {
        *self.list.lock().unwrap() = Some(script);
    }

    fn script_for(&self, request: &str) -> Script {
        let list = self.list.lock().unwrap().clone().filter(|_| request.contains("/v3/certificates"));
        list.unwrap_or_else(|| self.script.lock().unwrap().clone())
    }

    fn requests(&self) -> Vec<String> {
        self.seen.borrow().clone()
    }

    async fn wait_for_requests(&self, count: usize) {
        let mut seen = self.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.len() >= count);
        tokio::time::timeout(DEADLINE, reached).await.expect("the platform is asked in time").unwrap();
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Some(request) = read_request(&mut stream, &mut bytes).await {
            let script = self.script_for(&request);
            self.seen.send_modify(|all| all.push(request));
            match script {
                Script::Bytes(answer) => stream.write_all(&answer).await.unwrap(),
                Script::Cut(answer) => {
                    stream.write_all(&answer).await.unwrap();
                    return;
                }
                Script::Hang(answer) => {
                    stream.write_all(&answer).await.unwrap();
                    std::future::pending::<()>().await;
                }
                Script::Endless(answer) => while stream.write_all(&answer).await.is_ok() {},
                Script::After(mut go, answer) => {
                    go.wait_for(|go| *go).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if bytes.len() >= whole {
                let request = String::from_utf8(bytes[..whole].to_vec()).unwrap();
                bytes.drain(..whole);
                return Some(request);
            }
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// What [`FakeApi::read`] was given.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Accounts whose calls go to the platform above.
struct Directory {
    base: String,
    path: Mutex<String>,
    keys: Mutex<BTreeSet<String>>,
    read: Mutex<Vec<Read>>,
}

/// Answers in the place of a real channel: the body says what it means.
struct FakeApi {
    directory: Arc<Directory>,
    account: AccountRef,
}

struct Shared(Arc<Directory>);

impl AccountDirectory for Shared {
    fn find_api(&self, account: &AccountRef) -> Option<Box<dyn ChannelApi>> {
        let ours = account.account.as_str() == "1900000001";
        ours.then(|| {
            Box::new(FakeApi { directory: Arc::clone(&self.0), account: account.clone() }) as Box<dyn ChannelApi>
        })
    }

    fn learn(&self, _account: &AccountRef, keys: Vec<LearnedKey>, _now: Timestamp) -> usize {
        let mut known = self.0.keys.lock().unwrap();
        keys.into_iter().filter(|key| known.insert(key.serial.clone())).count()
    }
}

impl ChannelApi for FakeApi {
    fn account(&self) -> &AccountRef {
        &self.account
    }

    fn request(&self, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
        let path = if call.ask == Ask::Certificates {
            "/v3/certificates".to_owned()
        } else {
            self.directory.path.lock().unwrap().clone()
        };
        if path == "not possible" {
            return Err(CallProblem { field: "sub_mchid", problem: "is missing".to_owned() });
        }
        let headers =
            vec![("Authorization", "WECHATPAY2-SHA256-RSA2048 secret".to_owned()), ("X-Nonce", moment.nonce.clone())];
        Ok(ApiRequest {
            method: "POST",
            url: format!("{}{path}", self.directory.base),
            headers,
            body: b"{\"a\": 1}".to_vec(),
        })
    }

    fn key_question(&self, _: ApiResponse<'_>) -> Option<Ask> {
        Some(Ask::Certificates)
    }

    fn read(&self, call: &ApiCall, response: ApiResponse<'_>) -> ApiAnswer {
        let ApiResponse { status, headers, body, .. } = response;
        self.directory.read.lock().unwrap().push(Read { status, headers: headers.to_vec(), body: body.to_vec() });
        let said = String::from_utf8_lossy(body).into_owned();
        let unknown = |code| ApiAnswer::Unknown(Doubt { code, detail: said.clone() });
        if call.ask == Ask::Certificates {
            self.directory.keys.lock().unwrap().insert(said.clone());
            return unknown("unreadable");
        }
        match said.strip_prefix("signed by ") {
            Some(key) if !self.directory.keys.lock().unwrap().contains(key) => unknown("unknown_serial"),
            _ if status == 429 => ApiAnswer::Refused(refusal("FREQUENCY_LIMITED", said, Remedy::Wait)),
            _ if status >= 500 => unknown("server_error"),
            _ => ApiAnswer::Refused(refusal("SAID", said, Remedy::Person)),
        }
    }
}

#[derive(Default)]
struct Seen(Mutex<Vec<CallSeen>>);

impl CallObserver for Seen {
    fn observe(&self, call: &CallSeen) {
        self.0.lock().unwrap().push(*call);
    }
}

struct Bench {
    platform: Platform,
    directory: Arc<Directory>,
    client: HttpChannelClient,
    seen: Arc<Seen>,
    clock: ClockOffset,
}

impl Bench {
    async fn start(script: Script) -> Self {
        let platform = Platform::start(script).await;
        let address = platform.address;
        Self::at(
            platform,
            address,
            ChannelClientSettings { calls_per_second: 1000, ..ChannelClientSettings::default() },
        )
    }

    fn at(platform: Platform, address: SocketAddr, settings: ChannelClientSettings) -> Self {
        // A second install in this process is refused, and the first one is the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = Arc::new(Directory {
            base: format!("http://{address}"),
            path: Mutex::new("/v3/pay?mchid=1900000001".to_owned()),
            keys: Mutex::default(),
            read: Mutex::default(),
        });
        let (seen, clock) = (Arc::new(Seen::default()), ClockOffset::default());
        let settings = ChannelClientSettings { call_timeout: CALL_TIMEOUT, ..settings };
        let accounts = Arc::new(Shared(Arc::clone(&directory)));
        let observer: Arc<dyn CallObserver> = Arc::<Seen>::clone(&seen);
        let client = HttpChannelClient::try_new(accounts, observer, Clock::new(clock.clone()), &settings).unwrap();
        Self { platform, directory, client, seen, clock }
    }

    async fn ask(&self) -> ApiAnswer {
        let (account, payment) = (account(), payment());
        let asking = self.client.ask(&account, &payment);
        tokio::time::timeout(DEADLINE, asking).await.expect("a call ends in time")
    }

    async fn code(&self) -> String {
        code(&self.ask().await)
    }

    async fn refresh(&self) -> KeyRefresh {
        let account = account();
        let refreshing = self.client.refresh_keys(&account);
        tokio::time::timeout(DEADLINE, refreshing).await.expect("a refresh ends in time")
    }

    fn outcomes(&self) -> Vec<(&'static str, &'static str)> {
        self.seen.0.lock().unwrap().iter().map(|call| (call.api, call.outcome)).collect()
    }

    fn read(&self) -> Vec<Read> {
        self.directory.read.lock().unwrap().clone()
    }

    fn advance(&self, micros: i64) {
        self.clock.set_micros(self.clock.micros() + micros);
    }
}

fn account() -> AccountRef {
    AccountRef::parse("wxpay:1900000001").unwrap()
}

fn payment() -> ApiCall {
    ApiCall { sub_mchid: None, ask: Ask::Payment { order_no: OrderNo::parse("A-1").unwrap() } }
}

fn code(answer: &ApiAnswer) -> String {
    match answer {
        ApiAnswer::Refused(refused) => refused.code.clone(),
        ApiAnswer::Unknown(doubt) => doubt.code.to_owned(),
        ApiAnswer::Final(_) => "final".to_owned(),
    }
}

#[tokio::test]
async fn what_was_signed_is_what_is_sent_and_what_came_is_what_is_judged() {
    let body = "{\"a\":  \"\\u4e2d\",\n \"b\":1}\n";
    let head = format!("HTTP/1.1 200 OK\r\nWechatpay-Nonce: n 1\r\ncontent-length: {}\r\n", body.len());
    let bench = Bench::start(Script::Bytes(format!("{head}X-Two: a\r\nX-Two: b\r\n\r\n{body}").into_bytes())).await;
    assert_eq!(bench.code().await, "SAID");
    let requests = bench.platform.requests();
    assert_eq!(requests.len(), 1);
    let (sent_head, sent_body) = requests[0].split_once("\r\n\r\n").unwrap();
    assert_eq!(sent_body, "{\"a\": 1}");
    assert!(sent_head.starts_with("POST /v3/pay?mchid=1900000001 HTTP/1.1\r\n"), "{sent_head}");
    let lower = sent_head.to_ascii_lowercase();
    assert!(lower.contains("\r\nuser-agent: paidonce/"), "{sent_head}");
    assert!(lower.contains("\r\nauthorization: wechatpay2-sha256-rsa2048 secret"), "{sent_head}");
    assert!(!lower.contains("accept-encoding"), "a compressed answer would not be the signed bytes: {sent_head}");
    let nonce = lower.lines().find_map(|line| line.strip_prefix("x-nonce: ")).unwrap();
    assert!(nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{nonce}");
    let read = bench.read();
    assert_eq!((read[0].status, read[0].body.as_slice()), (200, body.as_bytes()));
    let two: Vec<_> = read[0].headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-two")).collect();
    assert_eq!(two.iter().map(|(_, value)| value.as_slice()).collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(read[0].headers.contains(&("wechatpay-nonce".to_owned(), b"n 1".to_vec())), "{:?}", read[0].headers);
}

#[tokio::test]
async fn whatever_goes_wrong_on_the_way_is_unknown_and_is_sent_once() {
    let partly = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"trade_state\":\"SUCC".to_vec();
    let endless = b"HTTP/1.1 200 OK\r\ncontent-length: 900000000\r\n\r\n".to_vec();
    let cases = [
        ("silence", Script::Hang(Vec::new()), "timeout"),
        ("a body that stops", Script::Hang(partly.clone()), "timeout"),
        ("a cut body", Script::Cut(partly), "unreadable"),
        ("a closed connection", Script::Cut(Vec::new()), "no_connection"),
        ("no HTTP", Script::Cut(b"SSH-2.0-x\r\n\r\n".to_vec()), "no_connection"),
        ("too long", Script::Endless([endless, vec![b' '; 65_536]].concat()), "unreadable"),
        ("a server error", answer("503 Busy", "<html>"), "server_error"),
    ];
    for (name, script, expected) in cases {
        let bench = Bench::start(script).await;
        let answer = bench.ask().await;
        assert!(matches!(answer, ApiAnswer::Unknown(_)), "{name}: {answer:?}");
        assert_eq!(code(&answer), expected, "{name}: {answer:?}");
        assert_eq!(bench.platform.requests().len(), 1, "{name}: never a second try by itself");
        assert_eq!(bench.outcomes(), [("payment", expected)], "{name}");
    }
}

#[tokio::test]
async fn a_platform_that_is_not_there_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let platform = Platform::start(Script::Cut(Vec::new())).await;
    let bench = Bench::at(platform, nobody, ChannelClientSettings::default());
    assert_eq!(bench.code().await, "no_connection");
}

#[tokio::test]
async fn a_redirect_is_judged_and_never_followed() {
    let bench = Bench::start(answer("302 Found", "over there")).await;
    bench.ask().await;
    assert_eq!(bench.read()[0].status, 302);
    let requests = bench.platform.requests();
    assert_eq!(requests.len(), 1, "the address in the redirect is not asked: {requests:?}");
}

#[tokio::test]
async fn what_can_not_be_asked_is_refused_without_a_call() {
    let bench = Bench::start(answer("200 OK", "")).await;
    let stranger = AccountRef::parse("wxpay:1900000009").unwrap();
    assert!(!bench.client.can_ask(&stranger) && bench.client.can_ask(&account()));
    let answer = bench.client.ask(&stranger, &payment()).await;
    let ApiAnswer::Refused(refused) = &answer else { panic!("{answer:?}") };
    assert_eq!((refused.code.as_str(), refused.remedy), ("channel_not_configured", Remedy::Person));
    assert!(refused.detail.contains("merchant_private_key_file"), "{refused:?}");
    // Signed was "/v3/ä"; sent would be "/v3/%C3%A4".
    for path in ["not possible", "/v3/ä", "/v3/../v3/pay"] {
        path.clone_into(&mut bench.directory.path.lock().unwrap());
        assert_eq!(bench.code().await, "call_not_possible", "{path}");
    }
    assert_eq!(bench.platform.requests().len(), 0);
}

#[tokio::test]
async fn after_a_rate_limit_the_platform_is_left_alone_for_a_while() {
    let bench = Bench::start(answer("429 Too Many", "")).await;
    assert_eq!(bench.code().await, "FREQUENCY_LIMITED");
    let waiting = bench.ask().await;
    let ApiAnswer::Refused(refused) = &waiting else { panic!("{waiting:?}") };
    assert_eq!((refused.code.as_str(), refused.remedy), ("backing_off", Remedy::Wait));
    assert_eq!(bench.platform.requests().len(), 1);
    bench.advance(1_000_000);
    assert_eq!(bench.code().await, "FREQUENCY_LIMITED");
    bench.advance(1_000_000);
    assert_eq!(bench.code().await, "backing_off", "the second pause is longer");
    assert_eq!(bench.platform.requests().len(), 2);
}

#[tokio::test]
async fn never_more_calls_a_second_than_configured_and_no_caller_waits_without_end() {
    let platform = Platform::start(answer("200 OK", "x")).await;
    let address = platform.address;
    let settings = ChannelClientSettings {
        calls_per_second: 20,
        turn_wait_max: Duration::from_millis(400),
        ..ChannelClientSettings::default()
    };
    let bench = Arc::new(Bench::at(platform, address, settings));
    let started = tokio::time::Instant::now();
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.code().await })
        })
        .collect();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap());
    }
    let made = codes.iter().filter(|code| *code == "SAID").count();
    assert!(codes.iter().all(|code| code == "SAID" || code == "calls_per_second"), "{codes:?}");
    assert_eq!(made, bench.platform.requests().len());
    let seconds = started.elapsed().as_millis();
    assert!(made >= 9 && (made - 1) * 50 <= usize::try_from(seconds).unwrap(), "{made} calls in {seconds} ms");
}

#[tokio::test]
async fn gotcha_5_a_hundred_callers_make_one_fetch_and_then_none_within_the_interval() {
    let (go, wait) = watch::channel(false);
    let bench =
        Arc::new(Bench::start(Script::After(wait, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nK-1".to_vec())).await);
    // Each caller's first poll joins the fetch before anybody is answered.
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.refresh().await })
        })
        .collect();
    bench.platform.wait_for_requests(1).await;
    go.send_replace(true);
    for caller in callers {
        let outcome = caller.await.unwrap();
        assert!(matches!(outcome, KeyRefresh::Failed(_) | KeyRefresh::Nothing), "{outcome:?}");
    }
    assert_eq!(bench.platform.requests().len(), 1);
    for _ in 0..100 {
        assert_eq!(bench.refresh().await, KeyRefresh::Nothing);
    }
    bench.advance(MINUTE_MICROS - 1_000_000);
    assert_eq!(bench.refresh().await, KeyRefresh::Nothing);
    assert_eq!(bench.platform.requests().len(), 1, "the interval is not over");
    bench.advance(1_000_000);
    assert!(matches!(bench.refresh().await, KeyRefresh::Failed(_)));
    assert_eq!(bench.platform.requests().len(), 2);
    assert_eq!(bench.outcomes(), [("certificates", "unreadable"); 2]);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_fetch_to_the_others() {
    let (go, wait) = watch::channel(false);
    let bench = Bench::start(Script::After(wait, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nK-1".to_vec())).await;
    let (one, two) = (account(), account());
    let impatient = bench.client.refresh_keys(&one);
    assert!(tokio::time::timeout(Duration::from_millis(20), impatient).await.is_err());
    let patient = bench.client.refresh_keys(&two);
    bench.platform.wait_for_requests(1).await;
    go.send_replace(true);
    assert!(matches!(patient.await, KeyRefresh::Failed(_)));
    assert_eq!(bench.platform.requests().len(), 1);
    assert!(bench.directory.keys.lock().unwrap().contains("K-1"));
}

#[tokio::test]
async fn an_answer_signed_by_a_new_key_is_judged_again_after_a_refresh_and_not_asked_for_again() {
    let bench = Bench::start(answer("200 OK", "signed by K-2")).await;
    bench.platform.lists(answer("200 OK", "K-1"));
    assert_eq!(bench.code().await, "unknown_serial", "the list does not have it");
    bench.advance(MINUTE_MICROS);
    bench.platform.lists(answer("200 OK", "K-2"));
    assert_eq!(bench.code().await, "SAID");
    let made = bench.platform.requests();
    let asked = made.iter().filter(|request| request.contains("/v3/pay")).count();
    assert_eq!((asked, made.len()), (2, 4), "each call once, each list once: {made:?}");
    assert_eq!(bench.code().await, "SAID", "known from now on");
    assert_eq!(bench.platform.requests().len(), 5);
}

#[tokio::test]
async fn alipay_has_no_list_of_certificates() {
    let bench = Bench::start(answer("200 OK", "")).await;
    let alipay = AccountRef::parse("alipay:1900000001").unwrap();
    assert!(matches!(bench.client.refresh_keys(&alipay).await, KeyRefresh::Failed(_)));
    assert_eq!(bench.platform.requests().len(), 0);
}
