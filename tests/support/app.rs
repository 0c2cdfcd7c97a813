//! A whole ledger for one test: database, server processes, warehouse, clock; and the verdict at the end.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::accuse::{self, Tolerate};
use crate::config::{Asking, Config, OPERATOR_TOKEN, SERVICE_TOKEN};
use crate::database::{Database, Engine};
use crate::keys::key;
use crate::platform_stub::asked::Api;
use crate::platform_stub::{Call, PlatformStub};
use crate::process::Server;
use crate::signer;
use crate::warehouse::Warehouse;
use crate::wire::{self, Answer, Reply, Request};

/// Rounds of the relay in [`TestApp::settle`]: more than any lane of these tests is long.
const RELAY_ROUNDS_MAX: u32 = 500;

/// Stops of [`TestApp::walk_to`]: more than any schedule has within the time that a test lets pass.
const WALK_STEPS_MAX: u32 = 2_000;

/// Longest wait for deliveries under way.
const SETTLE_WAIT: std::time::Duration = std::time::Duration::from_secs(15);
/// Between two looks at them.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(25);
/// A lease is over after this long, whatever the request timeout is.
const LEASE_OVER_SECONDS: i64 = 600;

/// How to start a [`TestApp`].
#[derive(Debug)]
pub struct Builder {
    engine: Engine,
    instances: usize,
    config: Config,
    env: Vec<(String, Option<String>)>,
    now: Option<OffsetDateTime>,
    database: Option<Database>,
}

/// A ledger under test.
#[derive(Debug)]
pub struct TestApp {
    /// Its database.
    pub database: Database,
    /// Its subscriber.
    pub warehouse: Warehouse,
    /// The platforms' APIs, asked only with [`Builder::asking`].
    pub platforms: PlatformStub,
    /// What the servers were started with; [`TestApp::restart`] uses it again.
    pub config: Config,
    servers: Vec<Server>,
    env: Vec<(String, Option<String>)>,
    dir: TempDir,
    offset: Mutex<Duration>,
    starts: AtomicU32,
    finished: bool,
}

impl Builder {
    /// Server processes; more than one only on PostgreSQL.
    #[must_use]
    pub const fn instances(mut self, instances: usize) -> Self {
        self.instances = instances;
        self
    }

    /// Changes the configuration.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Gives the accounts what it takes to ask the platforms.
    #[must_use]
    pub fn asking(self) -> Self {
        self.config(|config| config.asking = Asking::Yes)
    }

    /// The same, and calls that the ledger makes by itself happen only when the test drives the relay or lets time pass.
    #[must_use]
    pub fn asking_by_hand(mut self) -> Self {
        self.env.push(("PAIDONCE_TESTING_CHANNEL_RELAY".to_owned(), Some("by_hand".to_owned())));
        self.asking()
    }

    /// Environment of the servers.
    #[must_use]
    pub fn env(mut self, env: Vec<(String, Option<String>)>) -> Self {
        self.env = env;
        self
    }

    /// The ledger's clock at the start; the real time otherwise.
    #[must_use]
    pub const fn now(mut self, now: OffsetDateTime) -> Self {
        self.now = Some(now);
        self
    }

    /// A database of the test's own (for example on a cluster that the test stops).
    #[must_use]
    pub fn database(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// Starts everything.
    pub async fn start(self) -> TestApp {
        let dir = tempfile::Builder::new().prefix("paidonce-test-").tempdir().expect("a temporary directory");
        let data_dir = dir.path().join("data");
        let mut app = TestApp {
            database: self.database.unwrap_or_else(|| Database::fresh(self.engine, &data_dir)),
            warehouse: Warehouse::start().await,
            platforms: PlatformStub::start().await,
            config: self.config,
            servers: Vec::new(),
            env: self.env,
            dir,
            offset: Mutex::new(self.now.map_or(Duration::ZERO, |now| now - OffsetDateTime::now_utc())),
            starts: AtomicU32::new(0),
            finished: false,
        };
        app.platforms.set_offset(micros(app.now() - OffsetDateTime::now_utc()));
        app.write_config();
        for _ in 0..self.instances {
            let server = app.start_server().await.unwrap_or_else(|e| panic!("{e}"));
            app.servers.push(server);
        }
        if let Some(now) = self.now {
            app.set_clock(now).await;
        }
        app
    }
}

impl TestApp {
    /// A ledger on that kind of database.
    #[must_use]
    pub fn builder(engine: Engine) -> Builder {
        Builder { engine, instances: 1, config: Config::default(), env: Vec::new(), now: None, database: None }
    }

    /// One server with the default configuration and the real time.
    pub async fn start(engine: Engine) -> Self {
        Self::builder(engine).start().await
    }

    // Servers.

    /// Where the first server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr_of(0)
    }

    /// Where that server listens.
    #[must_use]
    pub fn addr_of(&self, server: usize) -> SocketAddr {
        self.servers[server].addr()
    }

    /// How many servers there are.
    #[must_use]
    pub const fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// That server.
    #[must_use]
    pub fn server(&self, server: usize) -> &Server {
        &self.servers[server]
    }

    /// That server, to wait for its end or to ask whether it has ended.
    pub fn server_mut(&mut self, server: usize) -> &mut Server {
        &mut self.servers[server]
    }

    /// The directory of configuration, keys and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// SIGKILL: nothing is flushed or finished.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    /// Starts that server again on the same ledger, configuration and clock; kills it first when it still runs.
    pub async fn restart(&mut self, server: usize) {
        self.servers[server].kill();
        self.write_config();
        self.servers[server] = self.start_server().await.unwrap_or_else(|e| panic!("{e}"));
        self.send_clock(server).await;
    }

    /// One more server on the same ledger, or why it does not start.
    pub async fn start_another(&mut self) -> Result<usize, String> {
        let server = self.start_server().await?;
        self.servers.push(server);
        self.send_clock(self.servers.len() - 1).await;
        Ok(self.servers.len() - 1)
    }

    /// Writes the configuration file again, for a reload.
    pub fn write_config(&self) {
        let _ = self.config.write(self.dir.path(), &self.database, &self.warehouse.url(), &self.platforms);
    }

    async fn start_server(&self) -> Result<Server, String> {
        let number = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        let log = self.dir.path().join(format!("server-{number}.log"));
        let offset = self.offset.lock().expect("the offset").whole_microseconds().to_string();
        let mut env = self.env.clone();
        env.push(("PAIDONCE_TESTING_CLOCK_OFFSET_MICROS".to_owned(), Some(offset)));
        let is_fetch = |call: &&Call| call.asked.api == Api::WechatCertificates;
        let fetches = self.platforms.calls_of(Api::WechatCertificates).len() + self.config.fetches_at_start();
        let server = Server::start(&self.dir.path().join("paidonce.toml"), log, &env).await?;
        if self.config.fetches_at_start() > 0 {
            // A test prepares answers for what it does itself, not for what every start does.
            self.platforms.wait_for_calls(|calls| calls.iter().filter(is_fetch).count() >= fetches).await;
        }
        Ok(server)
    }

    // Clock, faults, relay: the doors of the test build.

    /// What the ledger's clock says.
    #[must_use]
    pub fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc() + *self.offset.lock().expect("the offset")
    }

    /// Moves the clock of every server to `to`.
    pub async fn set_clock(&self, to: OffsetDateTime) {
        let offset = to - OffsetDateTime::now_utc();
        *self.offset.lock().expect("the offset") = offset;
        self.platforms.set_offset(micros(offset));
        for server in 0..self.servers.len() {
            self.send_clock(server).await;
        }
    }

    /// Moves the clock of every server forward.
    pub async fn advance(&self, seconds: i64) {
        self.set_clock(self.now() + Duration::seconds(seconds)).await;
    }

    /// Lets time pass until `to`: the clock stops at every due time of a call to a platform, and the call is made then.
    pub async fn walk_to(&self, to: OffsetDateTime) {
        for _ in 0..WALK_STEPS_MAX {
            drop(self.try_relay(0).await);
            let now = self.now();
            let due = self.next_call_due().filter(|due| *due <= to);
            match due {
                // What is due now and was not done is held by somebody else's lease: time has to pass.
                Some(due) => self.set_clock(due.max(now + Duration::seconds(1)).min(to.max(now))).await,
                None => return self.set_clock(to.max(now)).await,
            }
            if now >= to {
                return;
            }
        }
        panic!("calls are due again and again, {WALK_STEPS_MAX} times until {to}");
    }

    /// Lets this many seconds pass, see [`Self::walk_to`].
    pub async fn walk(&self, seconds: i64) {
        self.walk_to(self.now() + Duration::seconds(seconds)).await;
    }

    /// When the next call to a platform is due.
    #[must_use]
    pub fn next_call_due(&self) -> Option<OffsetDateTime> {
        self.database.next_call_due().map(from_micros)
    }

    /// Whether a call to a platform is due now.
    #[must_use]
    pub fn call_is_due(&self) -> bool {
        self.next_call_due().is_some_and(|due| due <= self.now())
    }

    async fn send_clock(&self, server: usize) {
        let now = self.now().format(&Rfc3339).expect("a time");
        self.control(server, Request::post("/testing/clock", json!({ "now": now }).to_string())).await;
    }

    /// Sets a fault on one server for the next `times` passes.
    pub async fn fault(&self, server: usize, point: &str, action: &str, times: u32) {
        self.arm(server, json!({ "point": point, "action": action, "times": times })).await;
    }

    /// Delays the next `times` passes of a point on one server.
    pub async fn fault_delay(&self, server: usize, point: &str, seconds: u64, times: u32) {
        self.arm(server, json!({ "point": point, "action": "delay", "seconds": seconds, "times": times })).await;
    }

    async fn arm(&self, server: usize, fault: Value) {
        self.control(server, Request::post("/testing/fault", fault.to_string())).await;
    }

    /// Removes all faults of one server.
    pub async fn clear_faults(&self, server: usize) {
        self.control(server, Request::new("DELETE", "/testing/fault", Vec::new())).await;
    }

    /// Runs the relay of one server until nothing is due; what it did, or why there was no answer.
    pub async fn try_relay(&self, server: usize) -> Reply {
        wire::send(self.addr_of(server), &Self::relay_request()).await
    }

    /// What [`Self::try_relay`] sends.
    #[must_use]
    pub fn relay_request() -> Request {
        json_request("POST", "/testing/relay", &json!({ "rounds": RELAY_ROUNDS_MAX }).to_string())
    }

    /// Runs the relay of the first server until nothing is due.
    pub async fn relay(&self) -> Value {
        let answer = self.expect(self.try_relay(0).await);
        assert_eq!(answer.status, 200, "the relay: {}", answer.text());
        answer.json()
    }

    async fn control(&self, server: usize, request: Request) {
        let request = request.header("Content-Type", "application/json");
        let answer = self.expect(wire::send(self.addr_of(server), &request).await);
        assert!(answer.status < 300, "{} answers {}: {}", request.path, answer.status, answer.text());
    }

    // The API.

    /// Sends a request to the first server and wants an answer.
    pub async fn send(&self, request: &Request) -> Answer {
        self.expect(wire::send(self.addr(), request).await)
    }

    /// Sends a request to the first server.
    pub async fn try_send(&self, request: &Request) -> Reply {
        wire::send(self.addr(), request).await
    }

    /// A GET with the operator's token.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(&Request::get(path).header("Authorization", &format!("Bearer {OPERATOR_TOKEN}"))).await
    }

    /// A POST of JSON with the operator's token.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = json_request("POST", path, &body.to_string());
        self.send(&request.header("Authorization", &format!("Bearer {OPERATOR_TOKEN}"))).await
    }

    /// A POST of JSON with the shop's token.
    pub async fn post_as_shop(&self, path: &str, body: &Value) -> Answer {
        self.send(&shop_request(path, body)).await
    }

    /// Opens an order payable through these accounts and wants it opened.
    pub async fn open(&self, order_no: &str, amount_minor: i64, accounts: &[&str]) {
        let body = json!({
            "order_no": order_no, "amount_minor": amount_minor, "currency": "CNY", "accounts": accounts
        });
        let answer = self.post_as_shop("/v1/orders", &body).await;
        assert_eq!(answer.status, 201, "open {order_no}: {}", answer.text());
    }

    /// The order, as the API shows it.
    pub async fn order(&self, order_no: &str) -> Value {
        let answer = self.get(&format!("/v1/orders/{order_no}")).await;
        assert_eq!(answer.status, 200, "GET {order_no}: {}", answer.text());
        answer.json()
    }

    // The platforms.

    /// A signed WeChat payment push, sealed and signed anew on every call.
    #[must_use]
    pub fn wx_payment(&self, order_no: &str, channel_trade_no: &str, total: i64) -> Request {
        self.wx_push("TRANSACTION.SUCCESS", "transaction", &signer::wx_payment(order_no, channel_trade_no, total))
    }

    /// A signed WeChat push of any resource, to merchant 1900000001.
    #[must_use]
    pub fn wx_push(&self, event_type: &str, original_type: &str, resource: &Value) -> Request {
        let body = signer::wx_envelope(signer::APIV3_KEY_A, event_type, original_type, resource);
        self.wx_signed(&body)
    }

    /// These bytes, signed as WeChat Pay signs, to merchant 1900000001.
    #[must_use]
    pub fn wx_signed(&self, body: &[u8]) -> Request {
        let headers = signer::wx_headers(key("platform_cert_1"), self.now().unix_timestamp(), body);
        Request::post("/callbacks/wxpay/1900000001", body).header("Content-Type", "application/json").headers(headers)
    }

    /// A signed Alipay payment notification; `total` in yuan.
    #[must_use]
    pub fn alipay_payment(&self, order_no: &str, channel_trade_no: &str, total: &str) -> Request {
        self.alipay_signed(&signer::alipay_payment(order_no, channel_trade_no, total))
    }

    /// These fields, signed as Alipay signs.
    #[must_use]
    pub fn alipay_signed(&self, params: &[(String, String)]) -> Request {
        alipay_request(signer::alipay_signed_form(key("alipay_platform"), params))
    }

    // The end.

    /// Delivers what is due, and waits for what is being sent.
    pub async fn settle(&self) {
        self.settle_within(SETTLE_WAIT).await;
    }

    /// The same, at most this long.
    pub async fn settle_within(&self, wait: std::time::Duration) {
        let deadline = Instant::now() + wait;
        loop {
            drop(self.try_relay(0).await);
            if self.database.count(accuse::IN_FLIGHT) == 0 || Instant::now() > deadline {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Moves the clock past the lease of a worker that died (or lost its database) while it was sending.
    pub async fn pass_leases(&self) {
        self.advance(LEASE_OVER_SECONDS).await;
    }

    /// Settles, then accuses: see [`accuse::accuse`].
    pub async fn finish(self) {
        self.finish_tolerating(Tolerate::nothing()).await;
    }

    /// Settles, then accuses, but for what the test made on purpose.
    pub async fn finish_tolerating(mut self, tolerate: Tolerate) {
        if self.servers.iter_mut().any(|server| !server.has_ended()) {
            self.settle().await;
        }
        accuse::accuse(&self.database, &self.warehouse, &tolerate);
        self.finished = true;
    }

    /// The test ends without the verdict, because it has no ledger any more (a server that may not start).
    pub fn abandon(mut self) {
        self.finished = true;
    }

    fn expect(&self, reply: Reply) -> Answer {
        reply.unwrap_or_else(|e| panic!("no answer after {:?}: {}", e.after, e.reason))
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (number, server) in self.servers.iter().enumerate() {
                eprintln!("--- end of the log of server {number} ---\n{}", server.log_tail());
            }
        } else {
            assert!(self.finished, "a test must end with TestApp::finish: it accuses");
        }
    }
}

fn micros(offset: Duration) -> i64 {
    i64::try_from(offset.whole_microseconds()).expect("an offset of this era")
}

fn from_micros(micros: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::microseconds(micros)
}

/// A request with a JSON body.
#[must_use]
pub fn json_request(method: &str, path: &str, body: &str) -> Request {
    Request::new(method, path, body).header("Content-Type", "application/json")
}

/// A POST of JSON with the shop's token.
#[must_use]
pub fn shop_request(path: &str, body: &Value) -> Request {
    json_request("POST", path, &body.to_string()).header("Authorization", &format!("Bearer {SERVICE_TOKEN}"))
}

/// A form to the Alipay callback of seller 2088000000000001.
#[must_use]
pub fn alipay_request(form: Vec<u8>) -> Request {
    Request::post("/callbacks/alipay/2088000000000001", form)
        .header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
}
