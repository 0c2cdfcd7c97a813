//! Guards that a ledger and the platforms find each other: a query, keys that change, a sandbox that says what it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use paidonce_sandbox::{Channel, Delivery, KeyMode, Pay, Sandbox, SandboxOptions, Wish};
use paidonce_store::Migrations;
use serde_json::{Value, json};

use super::*;
use crate::client::{Call, Client};
use crate::config::{Environment, Secret};

/// Longer than anything here takes, shorter than a person's patience.
const DEADLINE: Duration = Duration::from_secs(30);
const WXPAY: &str = "wxpay:1900000001";

struct Bench {
    sandbox: Sandbox,
    config: Config,
    running: Running,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn start(keys: KeyMode, before: impl FnOnce(&Sandbox)) -> Self {
        // A second install in this process is refused, and the first one is the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let mut options = SandboxOptions::new(folder.path().join("sandbox"), "http://127.0.0.1:0".to_owned());
        options.delivery = Delivery::ByHand;
        options.behaviour.wxpay_keys = keys;
        let sandbox = Sandbox::start(options).await.unwrap();
        let text = sandbox.config_toml().unwrap();
        before(&sandbox);
        let config = Config::parse(Some(&folder.path().join("paidonce.toml")), &text, &Environment::default());
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let running = Running::start(&config, OpenPlan::durable(Migrations::Apply)).await.unwrap();
        sandbox.set_notify_base(&running.url());
        let token = std::fs::read_dir(sandbox.dir()).unwrap().filter_map(Result::ok).map(|entry| entry.path());
        let token = token.into_iter().find(|path| path.extension().is_some_and(|end| end == "token")).unwrap();
        let token = Secret::new(std::fs::read_to_string(token).unwrap().trim().to_owned());
        let client = Client::to(&running.url(), Some(token)).unwrap();
        Self { sandbox, config, running, client, _folder: folder }
    }

    async fn open(&self, order_no: &str) {
        let order = json!({ "order_no": order_no, "amount_minor": 8888, "currency": "CNY", "accounts": [WXPAY] });
        self.client.send(Call::post(&["v1", "orders"], order)).await.unwrap();
    }

    fn pay(&self, order_no: &str, callback: Wish) {
        let pay = Pay { callback, ..Pay::new(Channel::Wxpay, order_no, 8888) };
        self.sandbox.play(|platforms, now| platforms.pay(&pay, now)).unwrap();
    }

    async fn order(&self, order_no: &str) -> Value {
        self.client.send(Call::get(&["v1", "orders", order_no])).await.unwrap()
    }

    async fn text(&self, path: &str) -> String {
        reqwest::get(format!("{}{path}", self.running.url())).await.unwrap().text().await.unwrap()
    }

    /// The figure behind a metric's name and labels; zero when it has none yet.
    async fn metric(&self, name: &str) -> u64 {
        let text = self.text("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or(0)
    }

    async fn wait_for_metric(&self, name: &str, wanted: u64) {
        let reached = async {
            while self.metric(name).await < wanted {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, reached).await.expect("it is counted in time");
    }

    async fn stop(self) {
        self.running.stop().await;
        self.sandbox.stop().await;
    }
}

const CERTIFICATES: &str = "paidonce_channel_calls_total{channel=\"wxpay\",api=\"certificates\",outcome=\"final\"}";

#[tokio::test]
async fn a_payment_whose_callback_was_lost_is_found_by_a_query_and_the_sandbox_is_said_everywhere() {
    let bench = Bench::start(KeyMode::PublicKey, |_| {}).await;
    bench.open("ORDER-A1").await;
    bench.pay("ORDER-A1", Wish::Lost);
    let found = bench.client.send(Call::post(&["v1", "orders", "ORDER-A1", "query-payment"], json!({}))).await.unwrap();
    assert_eq!(found["status"], "PAID", "{found}");
    assert_eq!((&found["changed"], &found["results"][0]["outcome"]), (&json!(true), &json!("paid")), "{found}");
    assert_eq!(bench.order("ORDER-A1").await["paid_minor"], 8888);
    let asked = "paidonce_channel_calls_total{channel=\"wxpay\",api=\"payment\",outcome=\"final\"}";
    assert_eq!(bench.metric(asked).await, 1);
    assert_eq!(bench.metric("paidonce_sandbox").await, 1);
    for path in ["/healthz", "/readyz"] {
        assert!(bench.text(path).await.contains("\"sandbox\":true"), "{path}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_certificate_that_was_changed_before_the_start_is_fetched_and_outlives_a_reload() {
    let mut serial = String::new();
    let bench = Bench::start(KeyMode::Certificate, |sandbox| serial = sandbox.rotate_certificate().unwrap()).await;
    for order_no in ["ORDER-A1", "ORDER-B1"] {
        bench.open(order_no).await;
        bench.pay(order_no, Wish::Prompt);
        bench.sandbox.deliver_now().await;
        assert_eq!(bench.order(order_no).await["status"], "PAID", "{order_no}, signed by {serial}");
        bench.running.reload(&bench.config);
    }
    bench.stop().await;
}

#[tokio::test]
async fn gotcha_5_a_flood_of_made_up_serials_fetches_nothing_within_the_interval() {
    let bench = Bench::start(KeyMode::Certificate, |_| {}).await;
    // Each account asks once at its start.
    let accounts = u64::try_from(bench.config.accounts.refreshed.len()).unwrap();
    bench.wait_for_metric(CERTIFICATES, accounts).await;
    let url = format!("{}/callbacks/{}", bench.running.url(), WXPAY.replace(':', "/"));
    let client = reqwest::Client::new();
    for number in 0..300_u32 {
        let pushed = client
            .post(&url)
            .header("Wechatpay-Serial", format!("5F00D{number:08X}"))
            .header("Wechatpay-Timestamp", bench.running.app().clock().now().as_seconds().to_string())
            .header("Wechatpay-Nonce", "made-up")
            .header("Wechatpay-Signature", "bm90IGEgc2lnbmF0dXJl")
            .body("{}");
        assert_eq!(pushed.send().await.unwrap().status(), 401);
    }
    assert_eq!(bench.metric(CERTIFICATES).await, accounts, "no further fetch");
    bench.stop().await;
}
