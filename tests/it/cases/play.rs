//! Plays one script against a real server and gives its [`Report`]. A step that can't be played is reported as `not_run`
//! with the reason, and the rest is played all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::config::OPERATOR_TOKEN;
use paidonce_tests::database::{Database, Engine};
use paidonce_tests::keys;
use paidonce_tests::platform_stub::Then;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::postgres;
use paidonce_tests::warehouse::Plan;
use paidonce_tests::wire::{self, Request};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::asking;
use super::given::{Given, GivenRefund, Paused, pause_warehouse, yuan};
use super::load;
use super::platform::{Platform, named_apiv3_key};
use super::report::{self, Report, StepAnswer, alipay_accepted, api_accepted, wechat_accepted};
use super::script::{Script, all_steps, instant, list, numbered, text};
use super::sessions;
use super::swarm::Swarm;

/// Longest wait for background work at the end.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// A commit of `tx_append` is held this long; the scripts name no time.
const COMMIT_HELD: Duration = Duration::from_secs(3);
/// Longest wait for a call that a script counts on.
const CALL_WAIT: Duration = Duration::from_secs(20);
/// Prepared answers that nobody asked for are waited for this long at the end, by the ledger's clock.
const LAST_CALLS_SECONDS: i64 = 2 * 3600;
/// Passes of a fault that has no `times`.
const ALWAYS: u32 = 1_000_000;

/// Tables whose writes are refused while the database is broken.
const WRITTEN: [&str; 7] = ["events", "t_log_head", "t_idempotent", "t_order", "t_item", "t_evidence", "t_effect"];
/// Undoes [`refuse_writes`].
const ACCEPT_WRITES: &str = "DROP FUNCTION IF EXISTS refuse_writes CASCADE";

/// Environment of one run.
pub struct Variant {
    /// Its name in the report, empty when there is only one.
    pub name: String,
    /// Environment of the servers.
    pub env: Vec<(String, Option<String>)>,
}

/// A case being played.
struct Player {
    app: TestApp,
    folder: PathBuf,
    platform: Platform,
    given: Given,
    refunds_waiting: Vec<GivenRefund>,
    reasons: Vec<String>,
    notes: Vec<String>,
    background: BTreeMap<String, JoinHandle<StepAnswer>>,
    step_started: Instant,
    feed_cursor: Option<String>,
    feed_events: Vec<String>,
    swarm_is_there: watch::Sender<bool>,
    last_stubbed: Option<Api>,
    database_is_broken: bool,
}

/// The runs that `given` asks for: one, or one for each time zone.
pub fn variants(script: &Script) -> Vec<Variant> {
    let given = &script.given;
    let mut env: Vec<(String, Option<String>)> = Vec::new();
    let mut zones: Vec<Option<String>> =
        list(&given["run_with_tz"]).iter().map(|tz| tz.as_str().map(str::to_owned)).collect();
    for (name, value) in given["env"].as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("zoneinfo", _) => env.push(("TZDIR".to_owned(), Some("/nonexistent".to_owned()))),
            ("TZ", Value::Array(several)) => zones.extend(several.iter().map(|tz| tz.as_str().map(str::to_owned))),
            (name, value) => env.push((name.to_owned(), value.as_str().map(str::to_owned))),
        }
    }
    if zones.is_empty() {
        return vec![Variant { name: String::new(), env }];
    }
    zones
        .into_iter()
        .map(|zone| {
            let name = format!("TZ={}", zone.as_deref().unwrap_or(""));
            let mut env = env.clone();
            env.push(("TZ".to_owned(), zone));
            Variant { name, env }
        })
        .collect()
}

/// Plays it.
pub async fn play(script: &Script, engine: Engine, variant: Variant) -> Report {
    let given = Given::read(script);
    let now = instant(&script.given["now"]).unwrap_or_else(OffsetDateTime::now_utc);
    let mut notes = given.notes.clone();
    let wanted = instances(script, engine);
    if wanted > 1 && engine == Engine::Sqlite {
        notes.push("the embedded database has one server: every instance is the same one".to_owned());
    }
    let mut env = variant.env.clone();
    // Calls to the platforms happen where the script stands, not whenever the background gets to them.
    env.push(("PAIDONCE_TESTING_CHANNEL_RELAY".to_owned(), Some("by_hand".to_owned())));
    let app = TestApp::builder(engine)
        .instances(if engine == Engine::Sqlite { 1 } else { wanted })
        .env(env)
        .now(now)
        .config(|config| Given::configure(script, config))
        .start()
        .await;
    let mut player = Player {
        folder: script.folder.clone(),
        platform: platform(script, &given, now),
        refunds_waiting: given.refunds.clone(),
        reasons: given.reasons.clone(),
        notes,
        background: BTreeMap::new(),
        step_started: Instant::now(),
        feed_cursor: None,
        feed_events: Vec::new(),
        swarm_is_there: watch::Sender::new(false),
        last_stubbed: None,
        database_is_broken: false,
        given,
        app,
    };
    let loaded: Vec<_> =
        list(&script.given["keys_loaded"]).iter().filter_map(|name| keys::find_key(name.as_str()?)).collect();
    player.app.platforms.merchant("1900000001", |merchant| {
        merchant.platform_key = player.platform.wechat_key;
        if !loaded.is_empty() {
            merchant.certificates = loaded;
        }
        if let Some(name) = list(&script.given["apiv3_keys"]).first().and_then(|name| name.as_str().map(str::to_owned))
        {
            merchant.apiv3_key = named_apiv3_key(&name);
        }
    });
    let failed = player.given.reach(&player.app, now).await;
    player.reasons.extend(failed);
    let mut answers = Vec::new();
    for step in &script.steps {
        player.request_waiting_refunds(answers.len()).await;
        let answered = player.top_step(step, script).await;
        answers.push(answered);
        player.make_due_calls(text(step, "do")).await;
    }
    player.request_waiting_refunds(answers.len()).await;
    player.end(script, variant, answers).await
}

fn instances(script: &Script, engine: Engine) -> usize {
    let steps = all_steps(&script.steps);
    let asked = steps.iter().filter_map(|step| step["instances"].as_u64()).max().unwrap_or(1);
    let second = steps.iter().any(|step| matches!(text(step, "do"), "tx_append" | "parallel_append"));
    let asked = usize::try_from(asked).unwrap_or(1);
    if second && engine == Engine::Postgres { asked.max(2) } else { asked }
}

fn platform(script: &Script, given: &Given, now: OffsetDateTime) -> Platform {
    let mut merchants = BTreeMap::from([("m1".to_owned(), "1900000001".to_owned())]);
    for (name, mchid) in script.given["merchants"].as_object().into_iter().flatten() {
        merchants.insert(name.clone(), mchid.as_str().unwrap_or_default().to_owned());
    }
    let loaded = list(&script.given["keys_loaded"]);
    let wechat_key = loaded.first().and_then(|name| keys::find_key(name.as_str()?));
    Platform {
        now: now.unix_timestamp(),
        merchants,
        wechat_key: wechat_key.unwrap_or_else(|| keys::key("platform_cert_1")),
        orders: given.orders.iter().map(|order| order.order_no.clone()).collect(),
        attempts: given.attempts().into_iter().collect(),
    }
}

impl Player {
    /// A step that may change the servers or the clock; every other one is an inner step.
    async fn top_step(&mut self, step: &Value, script: &Script) -> Vec<StepAnswer> {
        let kind = text(step, "do");
        let previous = std::mem::replace(&mut self.step_started, Instant::now());
        if step["ts_offset_s"].is_number() {
            // One second before or after a limit: start at the beginning of a second.
            let second = OffsetDateTime::from_unix_timestamp(self.app.now().unix_timestamp());
            self.app.set_clock(second.expect("a time of this era")).await;
        }
        self.platform.now = self.app.now().unix_timestamp();
        let seconds = step["seconds"].as_u64();
        match kind {
            "advance_clock" => return vec![self.advance_clock(step).await],
            "at_ms" => {
                let due = previous + Duration::from_millis(step["ms"].as_u64().unwrap_or(0));
                tokio::time::sleep_until(due.into()).await;
                return self.inner_step(&step["step"], 0).await;
            }
            "create_order_slow" => return vec![self.create_order_slow(step).await],
            "restart_service" if step["after_call"].is_u64() => return vec![self.restart_after_call(step).await],
            "restart_service" | "kill_after_ack" => return vec![self.restart(step).await],
            "stub_provider" => return vec![self.stub_provider(step)],
            "query_profit_sharing" => return vec![self.query_share(step).await],
            "run_job" => return vec![self.run_job(step, script).await],
            "configure" => return vec![self.configure(step).await],
            "break_db" => return vec![self.break_db(step).await],
            "repair_db" => self.repair_db().await,
            "stub_downstream" => return vec![self.stub_downstream(step)],
            "run_outbox" => return vec![self.run_outbox(step, script).await],
            "run_projector" => return vec![self.run_projector(step).await],
            "wait_quiescent" => self.wait_quiescent(seconds).await,
            "tx_begin" => {}
            "tx_append" => return vec![self.tx_append(step).await],
            "tx_commit" => return self.join_background(text(step, "name")).await.into_iter().collect(),
            _ => return self.inner_step(step, 0).await,
        }
        vec![StepAnswer::done(kind)]
    }

    /// A step that may also stand inside `parallel`.
    fn inner_step<'a>(
        &'a self,
        step: &'a Value,
        server: usize,
    ) -> Pin<Box<dyn Future<Output = Vec<StepAnswer>> + Send + 'a>> {
        Box::pin(async move {
            let kind = text(step, "do");
            match kind {
                "wechat_notify" | "wechat_raw" => vec![self.callback(step, server, self.platform.wechat(step)).await],
                "alipay_notify" => vec![self.callback(step, server, self.platform.alipay(step)).await],
                "raw_http" => vec![self.raw_http(step, server).await],
                "command" => vec![self.command(step, server).await],
                "append" => self.append(step, step["count"].as_u64().unwrap_or(1)).await,
                "parallel_append" => self.append(step, step["writers"].as_u64().unwrap_or(1)).await,
                "inject" => vec![self.inject(step).await],
                "parallel" => self.parallel(step).await,
                "parallel_pairs" => self.parallel_pairs(step).await,
                "repeat_unique" => self.repeat_unique(step, server).await,
                "slow_senders" => vec![self.slow_senders(step, server).await],
                kind if asking::result_api(kind).is_some() => vec![self.query_result(step, server).await],
                other => vec![StepAnswer::not_run(other, not_in_this_release(other))],
            }
        })
    }

    // Requests.

    async fn callback(&self, step: &Value, server: usize, request: Result<Request, String>) -> StepAnswer {
        let kind = text(step, "do");
        let request = match request {
            Ok(request) => request,
            Err(reason) => return StepAnswer::not_run(kind, reason),
        };
        let accepted = if kind == "alipay_notify" { alipay_accepted } else { wechat_accepted };
        let reply = wire::send(self.address(server), &request).await;
        if request.close_after.is_some()
            && let Err(left) = sessions::wait_until_no_tx_is_left(&self.app.database).await
        {
            return StepAnswer::words(kind, "left_in_tx", &left);
        }
        StepAnswer::of(kind, reply, accepted, ["ack", "nack"])
    }

    async fn raw_http(&self, step: &Value, server: usize) -> StepAnswer {
        let provider = if text(step, "path").contains("alipay") { "alipay" } else { "wechat" };
        match self.platform.path(step, provider) {
            Ok(path) => load::raw_http(self.address(server), step, &path, &self.folder).await,
            Err(reason) => StepAnswer::not_run("raw_http", reason),
        }
    }

    /// Others that run at the same time wait until the crowd is there: see [`Player::parallel`].
    async fn slow_senders(&self, step: &Value, server: usize) -> StepAnswer {
        let swarm = Swarm::open(self.address(server), step).await;
        self.swarm_is_there.send_replace(true);
        match swarm {
            Ok(swarm) => swarm.dribble().await,
            Err(reason) => StepAnswer::not_run("slow_senders", reason),
        }
    }

    async fn command(&self, step: &Value, server: usize) -> StepAnswer {
        let order = ["order", "out_trade_no"].iter().find_map(|name| step[*name].as_str()).unwrap_or_default();
        let order = self.platform.attempts.get(order).map_or(order, String::as_str);
        let (path, body) = match text(step, "name") {
            "refund" => {
                let mut body = json!({ "amount_minor": step["amount_fen"] });
                if let Some(number) = ["out_refund_no", "out_request_no"].iter().find_map(|name| step[*name].as_str()) {
                    body["refund_no"] = json!(number);
                }
                (format!("/v1/orders/{order}/refunds"), body)
            }
            "close" | "close_order" => (format!("/v1/orders/{order}/close"), json!({ "reason": "asked for" })),
            "create_order" | "open" | "open_order" => {
                let accounts = ["wxpay:1900000001", "alipay:2088000000000001"];
                let body = json!({
                    "order_no": order, "amount_minor": step["amount_fen"], "currency": "CNY", "accounts": accounts
                });
                ("/v1/orders".to_owned(), body)
            }
            other => return StepAnswer::not_run("command", format!("the command {other:?}")),
        };
        let mut request = shop_request(&path, &body);
        if let Some(key) = step["key"].as_str() {
            request = request.header("Idempotency-Key", key);
        }
        let reply = wire::send(self.address(server), &request).await;
        StepAnswer::of("command", reply, api_accepted, ["ok", "rejected"])
    }

    /// The platform has an answer ready, and the ledger is made to ask.
    async fn query_result(&self, step: &Value, server: usize) -> StepAnswer {
        let kind = text(step, "do");
        let Some(api) = asking::result_api(kind) else { return StepAnswer::not_run(kind, "not a result") };
        let prepared = asking::answer(api, step, &self.folder);
        let about = asking::about(api, step, &self.given, &self.app);
        let (prepared, about) = match (prepared, about) {
            (Ok(prepared), Ok(about)) => (prepared, about),
            (Err(reason), _) | (_, Err(reason)) => return StepAnswer::not_run(kind, reason),
        };
        let before = self.app.platforms.calls_about(api, &about.number).len();
        self.app.platforms.prepare_for(api, &about.number, [prepared], Then::World);
        let reply = wire::send(self.address(server), &about.request).await;
        let answer = StepAnswer::of(kind, reply, api_accepted, ["ok", "rejected"]);
        if self.app.platforms.calls_about(api, &about.number).len() == before {
            return StepAnswer { body: format!("the ledger did not ask: {}", answer.body), ..answer };
        }
        answer
    }

    /// Events of a stream: payments with numbers of their own, all at once, over all servers.
    async fn append(&self, step: &Value, count: u64) -> Vec<StepAnswer> {
        let sends = (1..=count).map(|number| async move {
            let request = self.append_request(text(step, "stream"));
            let server = usize::try_from(number - 1).unwrap_or(0) % self.app.server_count();
            let reply = wire::send(self.address(server), &request).await;
            let accepted = if request.path.contains("alipay") { alipay_accepted } else { wechat_accepted };
            StepAnswer::of(text(step, "do"), reply, accepted, ["ack", "nack"])
        });
        join_all(sends).await
    }

    fn append_request(&self, stream: &str) -> Request {
        let order_no = order_of_stream(stream);
        let given = self.given.orders.iter().find(|order| order.order_no == order_no);
        let amount = given.map_or(100, |order| order.amount);
        let trade_no = format!("4200{}", paidonce_tests::signer::fresh_text(24));
        if given.is_some_and(|order| order.provider == "alipay") {
            self.app.alipay_payment(order_no, &trade_no, &yuan(amount))
        } else {
            self.app.wx_payment(order_no, &trade_no, amount)
        }
    }

    // Steps of steps.

    async fn parallel(&self, step: &Value) -> Vec<StepAnswer> {
        let single = step["step"].is_object().then(|| &step["step"]);
        let times = usize::try_from(step["times"].as_u64().unwrap_or(1)).unwrap_or(1);
        let steps: Vec<&Value> = match (single, step["steps"].as_array()) {
            (Some(single), _) => vec![single; times],
            (None, Some(several)) => several.iter().collect(),
            (None, None) => return vec![StepAnswer::not_run("parallel", "neither step nor steps")],
        };
        let servers =
            usize::try_from(step["instances"].as_u64().unwrap_or(1)).unwrap_or(1).min(self.app.server_count());
        let gap = match (step["stagger_ms"].as_u64(), step["over_seconds"].as_u64()) {
            (Some(ms), _) => ms,
            (None, Some(seconds)) => seconds * 1000 / u64::try_from(steps.len().max(1)).unwrap_or(1),
            (None, None) => 0,
        };
        let is_swarm = |step: &Value| text(step, "do") == "slow_senders";
        let has_swarm = steps.iter().any(|step| is_swarm(step));
        let runs = steps.into_iter().enumerate().map(|(number, inner)| async move {
            if has_swarm && !is_swarm(inner) {
                let _ = self.swarm_is_there.subscribe().wait_for(|there| *there).await;
            }
            tokio::time::sleep(Duration::from_millis(gap * u64::try_from(number).unwrap_or(0))).await;
            self.inner_step(inner, number % servers.max(1)).await
        });
        join_all(runs).await.concat()
    }

    async fn parallel_pairs(&self, step: &Value) -> Vec<StepAnswer> {
        let mut answers = Vec::new();
        for number in 1..=step["count"].as_u64().unwrap_or(1) {
            let (a, b) = (numbered(&step["a"], number), numbered(&step["b"], number));
            let both = futures_util::future::join(self.inner_step(&a, 0), self.inner_step(&b, 0)).await;
            answers.extend([both.0, both.1].concat());
        }
        answers
    }

    async fn repeat_unique(&self, step: &Value, server: usize) -> Vec<StepAnswer> {
        let mut answers = Vec::new();
        for number in 1..=step["times"].as_u64().unwrap_or(1) {
            answers.extend(self.inner_step(&numbered(&step["template"], number), server).await);
        }
        answers
    }

    // Faults.

    async fn inject(&self, step: &Value) -> StepAnswer {
        let (place, action) = (text(step, "where"), text(step, "action"));
        let times = step["times"].as_u64().and_then(|times| u32::try_from(times).ok()).unwrap_or(ALWAYS);
        let seconds = step["seconds"].as_u64().or_else(|| step["ms"].as_u64().map(|ms| ms.div_ceil(1000))).unwrap_or(1);
        if matches!(place, "downstream" | "warehouse") {
            let delay = Duration::from_secs(if action == "delay" { seconds } else { 0 });
            self.app.warehouse.always(Plan { delay, status: if action == "delay" { 200 } else { 500 } });
            return StepAnswer::done("inject");
        }
        let point = match place {
            "db_commit" | "before_commit" | "commit" => "db_commit",
            "after_commit" | "after_commit_before_ack" | "before_ack" => "after_commit",
            "before_append" | "append" | "db_insert" => "before_append",
            "handler" => "handler",
            "before_send" => "effect_before_send",
            "after_send_before_mark" | "after_send" => "effect_after_send",
            other => return StepAnswer::not_run("inject", format!("the place {other:?}")),
        };
        match action {
            "delay" => self.app.fault_delay(0, point, seconds, times).await,
            "panic" | "kill" | "error" | "disconnect" => self.app.fault(0, point, action, times).await,
            other => return StepAnswer::not_run("inject", format!("the action {other:?}")),
        }
        StepAnswer::done("inject")
    }

    async fn break_db(&mut self, step: &Value) -> StepAnswer {
        match (text(step, "mode"), &self.app.database) {
            (
                "read_only" | "disk_full" | "connection_cut" | "down" | "stopped" | "unavailable",
                Database::Sqlite(_),
            ) => {
                self.notes.push("the embedded database is broken at the writer's fault point".to_owned());
                self.app.fault(0, "before_append", "error", ALWAYS).await;
            }
            ("read_only", Database::Postgres(url)) => postgres::execute(url, &refuse_writes("25006")),
            ("disk_full", Database::Postgres(url)) => postgres::execute(url, &refuse_writes("53100")),
            ("connection_cut" | "down" | "stopped" | "unavailable", Database::Postgres(url)) => {
                alter_database(url, "ALLOW_CONNECTIONS false");
                let _ = postgres::shared().terminate_backends(url);
            }
            (other, _) => return StepAnswer::not_run("break_db", format!("the mode {other:?}")),
        }
        self.database_is_broken = true;
        StepAnswer::done("break_db")
    }

    async fn repair_db(&mut self) {
        self.database_is_broken = false;
        match &self.app.database {
            Database::Sqlite(_) => self.app.clear_faults(0).await,
            Database::Postgres(url) => {
                alter_database(url, "ALLOW_CONNECTIONS true");
                postgres::execute(url, ACCEPT_WRITES);
            }
        }
    }

    async fn restart(&mut self, step: &Value) -> StepAnswer {
        for server in 0..self.app.server_count() {
            self.start_again(server).await;
        }
        StepAnswer::done(text(step, "do"))
    }

    /// A worker that died while it was sending holds its lease for a while: nothing in a script says how long to wait.
    async fn start_again(&mut self, server: usize) {
        self.app.kill(server);
        let leased = self.app.database.count("SELECT count(*) FROM t_effect WHERE state = 'leased'");
        self.app.restart(server).await;
        if leased > 0 {
            self.notes.push("the clock was moved past the lease of the worker that died".to_owned());
            self.app.pass_leases().await;
        }
    }

    async fn configure(&mut self, step: &Value) -> StepAnswer {
        for (name, value) in step.as_object().into_iter().flatten() {
            match name.as_str() {
                "do" => {}
                "apiv3_keys" => {
                    let keys = list(value).iter().filter_map(|key| Some(named_apiv3_key(key.as_str()?))).collect();
                    self.app.config.wxpay[0].apiv3_keys = keys;
                }
                "keys_loaded" => {
                    let loaded = list(value).iter().filter_map(|key| keys::find_key(key.as_str()?)).collect();
                    self.app.config.wxpay[0].keys = loaded;
                }
                other => return StepAnswer::not_run("configure", format!("the setting {other:?}")),
            }
        }
        self.restart(step).await
    }

    // Time and background work.

    /// What is under way ends before the clock moves: it would end long before that in real time.
    async fn advance_clock(&mut self, step: &Value) -> StepAnswer {
        self.app.platforms.wait_until_idle().await;
        self.quiesce(SETTLE_WAIT).await;
        match (step["seconds"].as_i64(), instant(&step["to"])) {
            (Some(seconds), _) => self.app.walk(seconds).await,
            (None, Some(to)) if to > self.app.now() => self.app.walk_to(to).await,
            (None, Some(to)) => self.app.set_clock(to).await,
            (None, None) => return StepAnswer::not_run("advance_clock", "neither seconds nor to"),
        }
        StepAnswer::done("advance_clock")
    }

    /// Calls that are due are made before the next step: in real time nothing else would happen first.
    async fn make_due_calls(&mut self, kind: &str) {
        let prepares = matches!(
            kind,
            "stub_provider"
                | "stub_downstream"
                | "inject"
                | "break_db"
                | "tx_begin"
                | "tx_append"
                | "create_order_slow"
        );
        if !prepares && !self.database_is_broken && !self.app.server_mut(0).has_ended() && self.app.call_is_due() {
            drop(self.app.try_relay(0).await);
        }
    }

    fn stub_provider(&mut self, step: &Value) -> StepAnswer {
        match asking::prepare(&self.app, step, &self.folder) {
            Ok(api) => {
                self.last_stubbed = Some(api);
                StepAnswer::done("stub_provider")
            }
            Err(reason) => StepAnswer::not_run("stub_provider", reason),
        }
    }

    async fn restart_after_call(&mut self, step: &Value) -> StepAnswer {
        let api = step["api"].as_str().map_or(self.last_stubbed, asking::api_named);
        let (Some(api), Some(wanted)) = (api, step["after_call"].as_u64()) else {
            return StepAnswer::not_run("restart_service", "after_call of an API that is not known");
        };
        let (server, request) = (self.address(0), TestApp::relay_request());
        let calls = tokio::spawn(async move { wire::send(server, &request).await });
        let deadline = Instant::now() + CALL_WAIT;
        while (self.app.platforms.calls_of(api).len() as u64) < wanted {
            if Instant::now() > deadline {
                return StepAnswer::not_run(
                    "restart_service",
                    format!("call {wanted} was not made within {CALL_WAIT:?}"),
                );
            }
            if calls.is_finished() && !self.walk_to_next_call().await {
                return StepAnswer::not_run("restart_service", format!("call {wanted} is never due"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let answer = self.restart(step).await;
        drop(calls.await);
        answer
    }

    /// Time passes until the next call, which is made; `false`: none is to come.
    async fn walk_to_next_call(&self) -> bool {
        let Some(due) = self.app.next_call_due() else { return false };
        // What is due and was not done waits for somebody else's lease: a second passes all the same.
        self.app.walk_to(due.max(self.app.now() + time::Duration::seconds(1))).await;
        true
    }

    /// Background work with its pauses, as far as it is due within that time. The clock stops at the last call.
    async fn wait_quiescent(&mut self, seconds: Option<u64>) {
        self.quiesce(SETTLE_WAIT).await;
        let end = self.app.now() + time::Duration::seconds(seconds.and_then(|s| i64::try_from(s).ok()).unwrap_or(0));
        while self.app.now() < end && self.app.next_call_due().is_some_and(|due| due <= end) {
            self.walk_to_next_call().await;
            self.quiesce(SETTLE_WAIT).await;
        }
    }

    async fn run_job(&mut self, step: &Value, script: &Script) -> StepAnswer {
        let name = text(step, "name");
        let named = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let times = step["times"].as_u64().unwrap_or(1);
        if named(&["bill", "reconcile", "statement"]) {
            return StepAnswer::not_run("run_job", "bills are not in this release");
        }
        if named(&["outbox", "deliver"]) {
            return self.run_outbox(step, script).await;
        }
        if named(&["cert", "key"]) {
            return StepAnswer::not_run(
                "run_job",
                format!("the job {name:?} has no hour here: keys are asked for when needed"),
            );
        }
        if named(&["close", "expire"]) {
            // Its calls are due when the order's time is over, not before.
            drop(self.app.try_relay(0).await);
            return StepAnswer::done("run_job");
        }
        if !named(&["poll", "query", "sync", "pending", "refund", "surplus", "shar", "retry"]) {
            return StepAnswer::not_run("run_job", format!("the job {name:?}"));
        }
        for _ in 0..times {
            if !self.walk_to_next_call().await {
                return StepAnswer::words("run_job", "done", "nothing to ask for");
            }
        }
        StepAnswer::done("run_job")
    }

    /// Follows the share, or asks again when it is followed already.
    async fn query_share(&mut self, step: &Value) -> StepAnswer {
        let kind = "query_profit_sharing";
        let Some(order_no) = asking::shared_order(step, &self.given) else {
            return StepAnswer::not_run(kind, "no order of the profit share");
        };
        let body = json!({ "out_order_no": step["out_order_no"] });
        let request = shop_request(&format!("/v1/orders/{order_no}/profit-shares"), &body);
        let reply = wire::send(self.address(0), &request).await;
        let again = reply.as_ref().is_ok_and(|answer| answer.status == 200);
        let answer = StepAnswer::of(kind, reply, api_accepted, ["ok", "rejected"]);
        if again {
            self.walk_to_next_call().await;
        }
        drop(self.app.try_relay(0).await);
        answer
    }

    async fn create_order_slow(&mut self, step: &Value) -> StepAnswer {
        let order = &step["order"];
        let held = Duration::from_millis(step["commit_after_ms"].as_u64().unwrap_or(1000));
        sessions::hold_next_commit(&self.app, 0, text(order, "out_trade_no"), held).await;
        let body = json!({
            "order_no": order["out_trade_no"], "amount_minor": order["amount_fen"], "currency": "CNY",
            "accounts": [if text(order, "provider") == "alipay" { "alipay:2088000000000001" } else { "wxpay:1900000001" }]
        });
        let request = shop_request("/v1/orders", &body);
        self.in_background("create_order_slow", 0, request, api_accepted);
        self.when_held("create_order_slow").await
    }

    async fn tx_append(&mut self, step: &Value) -> StepAnswer {
        let server = self.app.server_count() - 1;
        let stream = text(step, "stream");
        sessions::hold_next_commit(&self.app, server, order_of_stream(stream), COMMIT_HELD).await;
        let request = self.append_request(stream);
        self.in_background(text(step, "name"), server, request, wechat_accepted);
        self.when_held("tx_append").await
    }

    /// The script goes on when the commit is under way.
    async fn when_held(&self, step: &str) -> StepAnswer {
        match sessions::wait_until_held(&self.app).await {
            Ok(()) => StepAnswer::done(step),
            Err(reason) => StepAnswer::not_run(step, reason),
        }
    }

    fn in_background(&mut self, name: &str, server: usize, request: Request, accepted: fn(u16, &[u8]) -> bool) {
        let (address, step) = (self.address(server), name.to_owned());
        let task = tokio::spawn(async move {
            let reply = wire::send(address, &request).await;
            StepAnswer::of(&step, reply, accepted, ["ack", "nack"])
        });
        self.background.insert(name.to_owned(), task);
    }

    async fn join_background(&mut self, name: &str) -> Option<StepAnswer> {
        Some(self.background.remove(name)?.await.expect("a background request"))
    }

    fn stub_downstream(&mut self, step: &Value) -> StepAnswer {
        let plan = |answer: &Value| match answer.as_u64() {
            Some(status) => Plan::status(u16::try_from(status).unwrap_or(500)),
            None if answer["timeout"] == Value::Bool(true) => Plan { delay: Duration::from_secs(15), status: 504 },
            None => Plan {
                delay: Duration::from_millis(answer["delay_ms"].as_u64().unwrap_or(0)),
                status: ["code", "http", "status"]
                    .iter()
                    .find_map(|name| u16::try_from(answer[*name].as_u64()?).ok())
                    .unwrap_or(200),
            },
        };
        let plans: Vec<Plan> = list(&step["answers"]).iter().map(plan).collect();
        if let (Some(last), true) = (plans.last(), step["repeat_last"] == Value::Bool(true)) {
            self.app.warehouse.always(*last);
        }
        self.app.warehouse.plan(plans);
        StepAnswer::done("stub_downstream")
    }

    async fn run_outbox(&mut self, step: &Value, script: &Script) -> StepAnswer {
        if step["force_same_task"] == Value::Bool(true) {
            return self.run_same_task(script).await;
        }
        if self.given.outbox > 0 && !self.app.server_mut(0).has_ended() {
            // With a kill injected, the server may be gone before it answers.
            let _ = pause_warehouse(&self.app, Paused::No).await;
        }
        let workers = usize::try_from(step["workers"].as_u64().unwrap_or(1)).unwrap_or(1);
        let rounds = (0..workers).map(|worker| self.app.try_relay(worker % self.app.server_count()));
        let replies = join_all(rounds).await;
        let unanswered = replies.iter().filter(|reply| reply.is_err()).count();
        if unanswered > 0 {
            return StepAnswer::words(
                "run_outbox",
                "no_answer",
                &format!("{unanswered} of {workers} workers went away"),
            );
        }
        self.quiesce(SETTLE_WAIT).await;
        StepAnswer::done("run_outbox")
    }

    /// The first worker is slow and fails; its lease runs out, the second takes the same task and delivers it; only then
    /// does the first one report. The slow answer of the script goes to the first worker.
    async fn run_same_task(&mut self, script: &Script) -> StepAnswer {
        let stub = script.steps.iter().find(|step| text(step, "do") == "stub_downstream");
        let mut answers = stub.map(|step| list(&step["answers"])).unwrap_or_default();
        answers.sort_by_key(|answer| std::cmp::Reverse(answer["delay_ms"].as_u64().unwrap_or(0)));
        self.stub_downstream(&json!({ "answers": answers }));
        if let Err(reason) = pause_warehouse(&self.app, Paused::No).await {
            return StepAnswer::not_run("run_outbox", reason);
        }
        let first = self.app.try_relay(0);
        let second = async {
            self.app.warehouse.wait_until(|arrivals| arrivals >= 1).await;
            self.app.pass_leases().await;
            self.app.try_relay(self.app.server_count() - 1).await
        };
        let (first, second) = futures_util::future::join(first, second).await;
        self.app.warehouse.wait_until(|arrivals| arrivals >= 2).await;
        if first.is_err() || second.is_err() {
            return StepAnswer::words("run_outbox", "no_answer", "a worker went away");
        }
        self.quiesce(SETTLE_WAIT).await;
        StepAnswer::done("run_outbox")
    }

    /// Reads the feed on from where it stopped.
    async fn run_projector(&mut self, step: &Value) -> StepAnswer {
        for _ in 0..step["polls"].as_u64().unwrap_or(1) {
            let cursor = self.feed_cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let path = format!("/v1/events?limit=100{cursor}");
            let request = Request::get(path).header("Authorization", &format!("Bearer {OPERATOR_TOKEN}"));
            let answer = match wire::send(self.address(0), &request).await {
                Ok(answer) if answer.status == 200 => answer.json(),
                other => return StepAnswer::words("run_projector", "rejected", &format!("{other:?}")),
            };
            self.feed_events.extend(list(&answer["events"]).iter().map(|event| text(event, "event_id").to_owned()));
            self.feed_cursor = answer["next_cursor"].as_str().map(str::to_owned);
        }
        StepAnswer::done("run_projector")
    }

    async fn request_waiting_refunds(&mut self, steps_done: usize) {
        let mut waiting = Vec::new();
        for mut refund in std::mem::take(&mut self.refunds_waiting) {
            if self.app.server_mut(0).has_ended() {
                waiting.push(refund);
            } else if let Err(refused) = refund.request(&self.app).await {
                refund.refused = refused;
                waiting.push(refund);
            } else if steps_done > 0 {
                let note = format!(
                    "refund {} was requested after step {steps_done}, when it became possible",
                    refund.refund_no
                );
                self.notes.push(note);
            }
        }
        self.refunds_waiting = waiting;
    }

    async fn quiesce(&self, wait: Duration) {
        self.app.settle_within(wait).await;
    }

    async fn end(mut self, script: &Script, variant: Variant, mut answers: Vec<Vec<StepAnswer>>) -> Report {
        let names: Vec<String> = self.background.keys().cloned().collect();
        for name in names {
            answers.extend(self.join_background(&name).await.map(|answer| vec![answer]));
        }
        for server in 0..self.app.server_count() {
            if self.app.server_mut(server).has_ended() {
                self.notes.push(format!("server {server} had ended and was started again to settle"));
                self.start_again(server).await;
            }
            self.app.clear_faults(server).await;
        }
        self.app.warehouse.answer_at_once();
        self.quiesce(SETTLE_WAIT).await;
        self.make_last_calls().await;
        if !self.feed_events.is_empty() {
            self.check_feed().await;
        }
        if all_steps(&script.steps).iter().any(|step| step["close_after_ms"].is_number()) {
            self.reasons.extend(sessions::ended_sessions(&self.app.database));
        }
        let never =
            |refund: &GivenRefund| format!("given refund {} was never possible: {}", refund.refund_no, refund.refused);
        let waiting: Vec<String> = self.refunds_waiting.iter().map(never).collect();
        self.reasons.extend(waiting);
        let not_run = answers.iter().flatten().filter(|answer| answer.verdict == "not_run");
        let reasons: BTreeSet<String> =
            not_run.map(|answer| format!("{}: {}", answer.step, answer.body)).chain(self.reasons).collect();
        let report = Report {
            case: script.id.clone(),
            database: self.app.database.engine().as_str().to_owned(),
            variant: variant.name,
            status: if reasons.is_empty() { "played" } else { "not_run" }.to_owned(),
            reasons: reasons.into_iter().collect(),
            notes: self.notes,
            answers,
            ledger: report::ledger(&self.app),
        };
        self.app.abandon();
        report
    }

    /// A script that prepared more answers than were asked for means calls that come later.
    async fn make_last_calls(&mut self) {
        let end = self.app.now() + time::Duration::seconds(LAST_CALLS_SECONDS);
        let started = self.app.platforms.calls().len();
        let left = || self.app.platforms.answers_left() > 0 && self.app.now() < end;
        while left() && self.app.next_call_due().is_some_and(|due| due <= end) {
            self.walk_to_next_call().await;
        }
        if self.app.platforms.calls().len() > started {
            self.quiesce(SETTLE_WAIT).await;
            self.notes.push("the clock was moved on while answers of the platform were left".to_owned());
        }
    }

    /// A reader of the feed must have seen every event, each once.
    async fn check_feed(&mut self) {
        let _ = self.run_projector(&json!({ "polls": 2 })).await;
        let read = self.feed_events.len();
        let different: BTreeSet<&String> = self.feed_events.iter().collect();
        let stored = self.app.database.count("SELECT count(*) FROM events");
        if different.len() != read || i64::try_from(read) != Ok(stored) {
            let seen = different.len();
            self.reasons.push(format!("FEED: {stored} events are stored, {read} were read, {seen} of them different"));
        }
    }

    fn address(&self, server: usize) -> std::net::SocketAddr {
        self.app.addr_of(server.min(self.app.server_count() - 1))
    }
}

fn order_of_stream(stream: &str) -> &str {
    stream.strip_prefix("order-").unwrap_or(stream)
}

/// Every write fails with this SQLSTATE: 25006 read-only, 53100 disk full. The setting default_transaction_read_only is not
/// enough, because a session may ask for READ WRITE.
fn refuse_writes(sqlstate: &str) -> String {
    let function = format!(
        "CREATE FUNCTION refuse_writes() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'the database refuses writes' USING ERRCODE = '{sqlstate}'; END $$;"
    );
    let triggers = WRITTEN.map(|table| {
        format!(
            "CREATE TRIGGER refuse_writes BEFORE INSERT OR UPDATE OR DELETE ON {table}
               FOR EACH STATEMENT EXECUTE FUNCTION refuse_writes();"
        )
    });
    format!("{function}{}", triggers.concat())
}

fn alter_database(url: &str, what: &str) {
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).unwrap_or_default();
    postgres::execute(&postgres::shared().url("postgres"), &format!("ALTER DATABASE {name} {what}"));
}

fn not_in_this_release(kind: &str) -> String {
    match kind {
        "stripe_event" => "Stripe is not in this release".to_owned(),
        "import_bill" => "bills are not in this release".to_owned(),
        "query_profit_sharing" | "stub_provider" | "run_job" => format!("{kind} inside of another step"),
        other => format!("the step {other:?} is not known"),
    }
}
