//! Brings the ledger to what a script's `given` says, through the API and signed callbacks only.
//!
//! | given | how |
//! |---|---|
//! | order CREATED | opened by API |
//! | order PAID, REFUNDED | opened, then a signed payment (and refund) callback |
//! | order CLOSED | opened, then closed by API, at `closed_at` |
//! | attempts, one of them SUPERSEDED | a chain of orders, each superseding the one before |
//! | other attempts | one order payable through every account; the attempts' numbers become its number |
//! | refund PROCESSING | requested by API, as soon as its order is paid; the platform stub has accepted it |
//! | refund SUCCEEDED | the same, and the platform stub says so when it is asked |
//! | outbox tasks | paid orders whose deliveries wait because the subscriber is paused |

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::config::{Asking, Config, WxAccount};
use paidonce_tests::keys;
use paidonce_tests::signer;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, UtcOffset};

use super::platform::named_apiv3_key;
use super::script::{Script, instant, list, text};

/// transaction_id and trade_no of the scripts, when an order names none.
const WECHAT_TRADE_NO: &str = "4200009999202601150000000001";
const ALIPAY_TRADE_NO: &str = "2026011522001499000000000001";

/// An order of the script, as this ledger names it.
#[derive(Debug, Clone)]
pub struct GivenOrder {
    /// Our order number.
    pub order_no: String,
    /// Amount in fen.
    pub amount: i64,
    /// `wechat`, `alipay`, `any`.
    pub provider: String,
    accounts: Vec<String>,
    raw: Value,
}

/// Everything that `given` asks for.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Orders, copies included.
    pub orders: Vec<GivenOrder>,
    /// Refunds that wait for their order to be paid.
    pub refunds: Vec<GivenRefund>,
    /// Profit shares that the merchant has started.
    pub shares: Vec<Value>,
    /// Tasks of the outbox.
    pub outbox: usize,
    /// What can't be played.
    pub reasons: Vec<String>,
    /// How it was translated.
    pub notes: Vec<String>,
}

/// How far a given refund has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// The platform has accepted it.
    UnderWay,
    /// The money is back.
    Succeeded,
}

/// A refund that was requested before.
#[derive(Debug, Clone)]
pub struct GivenRefund {
    /// Its order.
    pub order_no: String,
    /// Its number.
    pub refund_no: String,
    /// Amount in fen.
    pub amount: i64,
    /// How far it has come.
    pub stands: Stands,
    /// Why it could not be requested yet.
    pub refused: String,
}

const KNOWN: &[&str] = &[
    "now",
    "orders",
    "refunds",
    "profit_sharing",
    "outbox",
    "env",
    "run_with_tz",
    "keys_loaded",
    "apiv3_keys",
    "merchants",
];

impl Given {
    /// Reads `given`.
    pub fn read(script: &Script) -> Self {
        let given = &script.given;
        let mut read = Self::default();
        for (name, _) in given.as_object().into_iter().flatten() {
            if !KNOWN.contains(&name.as_str()) {
                read.reasons.push(format!("given.{name} is not in this release"));
            }
        }
        for order in list(&given["orders"]) {
            read.add_order(&order);
        }
        for refund in list(&given["refunds"]) {
            read.add_refund(&refund);
        }
        if given["profit_sharing"].is_array() {
            read.notes.push("sharing orders are followed from the step that asks for them".to_owned());
        }
        read.shares = list(&given["profit_sharing"]);
        read.outbox = given["outbox"].as_array().map_or(0, Vec::len);
        read
    }

    fn add_order(&mut self, order: &Value) {
        let provider = order["provider"].as_str().unwrap_or("wechat").to_owned();
        let wechat = format!("wxpay:{}", order["mchid"].as_str().unwrap_or("1900000001"));
        let alipay = format!("alipay:{}", order["seller_id"].as_str().unwrap_or("2088000000000001"));
        let accounts = match provider.as_str() {
            "wechat" => vec![wechat],
            "alipay" => vec![alipay],
            "any" => vec![wechat, alipay],
            other => return self.reasons.push(format!("the channel {other} is not in this release")),
        };
        for number in 1..=order["count"].as_u64().unwrap_or(1) {
            let order_no = text(order, "out_trade_no").replace("{i}", &number.to_string());
            let amount = order["amount_fen"].as_i64().unwrap_or(0);
            let raw = order.clone();
            self.orders.push(GivenOrder {
                order_no,
                amount,
                provider: provider.clone(),
                accounts: accounts.clone(),
                raw,
            });
        }
    }

    fn add_refund(&mut self, refund: &Value) {
        let status = refund["status"].as_str().unwrap_or("PROCESSING");
        let stands = match status {
            "PROCESSING" | "REQUESTED" | "CREATED" | "PENDING" => Stands::UnderWay,
            "SUCCEEDED" | "SUCCESS" | "DONE" => Stands::Succeeded,
            other => {
                self.reasons.push(format!("a given refund in status {other}"));
                Stands::UnderWay
            }
        };
        let first = self.orders.first().map_or("", |order| order.order_no.as_str());
        let named = ["order", "out_trade_no"].iter().find_map(|name| refund[*name].as_str());
        let number = ["out_refund_no", "out_request_no", "refund_no"].iter().find_map(|name| refund[*name].as_str());
        self.refunds.push(GivenRefund {
            order_no: named.unwrap_or(first).to_owned(),
            refund_no: number.unwrap_or("R-GIVEN").to_owned(),
            amount: refund["amount_fen"].as_i64().unwrap_or(0),
            stands,
            refused: String::new(),
        });
    }

    /// Attempt numbers that are other names of one order here.
    pub fn attempts(&self) -> Vec<(String, String)> {
        let renamed = self.orders.iter().filter(|order| !order.is_superseding());
        renamed.flat_map(GivenOrder::attempt_names).collect()
    }

    /// Changes the configuration to what is given.
    pub fn configure(script: &Script, config: &mut Config) {
        let given = &script.given;
        config.asking = Asking::Yes;
        // Every query step of a script means a call.
        config.channel_calls.fresh_seconds = 0;
        let first = &mut config.wxpay[0];
        let loaded: Vec<_> =
            list(&given["keys_loaded"]).iter().filter_map(|name| keys::find_key(name.as_str()?)).collect();
        if !loaded.is_empty() {
            first.keys = loaded;
        }
        let apiv3: Vec<String> =
            list(&given["apiv3_keys"]).iter().filter_map(|name| Some(named_apiv3_key(name.as_str()?))).collect();
        if !apiv3.is_empty() {
            first.apiv3_keys = apiv3;
        }
        // One merchant of the scripts is a direct one in most and a service provider in some.
        first.partner = script.steps.iter().any(|step| step.to_string().contains("\"sp_mchid\""));
        let mchids = list(&given["orders"]).into_iter().filter_map(|order| Some(order["mchid"].as_str()?.to_owned()));
        for mchid in mchids.collect::<std::collections::BTreeSet<_>>() {
            if !config.wxpay.iter().any(|account| account.mchid == mchid) {
                config.wxpay.push(WxAccount { mchid, ..WxAccount::first() });
            }
        }
    }

    /// Opens, pays and closes what is given; then the clock shows `now`. What failed, in words.
    pub async fn reach(&self, app: &TestApp, now: OffsetDateTime) -> Vec<String> {
        let mut failed = Vec::new();
        for order in &self.orders {
            app.set_clock(order.opened_at(now)).await;
            if let Err(e) = order.open(app).await {
                failed.push(format!("given order {}: {e}", order.order_no));
                continue;
            }
            if let Err(e) = order.move_to_status(app, now).await {
                failed.push(format!("given order {}: {e}", order.order_no));
            }
        }
        app.set_clock(now).await;
        if self.outbox > 0
            && let Err(e) = self.fill_outbox(app).await
        {
            failed.push(format!("given.outbox: {e}"));
        }
        failed
    }

    async fn fill_outbox(&self, app: &TestApp) -> Result<(), String> {
        pause_warehouse(app, Paused::Yes).await?;
        for number in 1..=self.outbox {
            let order_no = format!("OUTBOX-T{number}");
            open(
                app,
                json!({
                    "order_no": order_no, "amount_minor": 100, "currency": "CNY", "accounts": ["wxpay:1900000001"]
                }),
            )
            .await?;
            let paid = app.try_send(&app.wx_payment(&order_no, &format!("42000000000000000000T{number}"), 100)).await;
            if !paid.as_ref().is_ok_and(|answer| answer.status == 204) {
                return Err(format!("a payment was answered {paid:?}"));
            }
        }
        Ok(())
    }
}

/// Whether the warehouse is sent anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// Effects wait.
    Yes,
    /// Effects are sent.
    No,
}

/// Pauses or resumes the warehouse.
pub async fn pause_warehouse(app: &TestApp, paused: Paused) -> Result<(), String> {
    let body = json!({
        "events": app.config.warehouse_events, "url": app.warehouse.url(), "secret_ref": "warehouse",
        "paused": paused == Paused::Yes
    });
    let request = paidonce_tests::app::json_request("PUT", "/v1/subscribers/warehouse", &body.to_string())
        .header("Authorization", &format!("Bearer {}", paidonce_tests::config::OPERATOR_TOKEN));
    match app.try_send(&request).await {
        Ok(answer) if answer.status < 300 => Ok(()),
        Ok(answer) => Err(format!("PUT /v1/subscribers/warehouse: {} {}", answer.status, answer.text())),
        Err(none) => Err(format!("PUT /v1/subscribers/warehouse: {}", none.reason)),
    }
}

impl GivenRefund {
    /// Requests it. Errors: the order is not paid yet, or the ledger says no, in its words.
    pub async fn request(&self, app: &TestApp) -> Result<(), String> {
        let path = format!("/v1/orders/{}/refunds", self.order_no);
        let body = json!({ "refund_no": self.refund_no, "amount_minor": self.amount });
        let answer = app.post_as_shop(&path, &body).await;
        if answer.status >= 300 {
            return Err(format!("{} {}", answer.status, answer.text()));
        }
        // The call is made now: what a script prepares is for what it does itself.
        drop(app.try_relay(0).await);
        if self.stands == Stands::Succeeded {
            app.platforms.world(|world| world.set_refund(&self.order_no, &self.refund_no, "SUCCESS"));
            let asked = app.post_as_shop(&format!("{path}/{}/query", self.refund_no), &json!({})).await;
            if asked.status >= 300 {
                return Err(format!("its query: {} {}", asked.status, asked.text()));
            }
        }
        Ok(())
    }
}

impl GivenOrder {
    fn is_superseding(&self) -> bool {
        list(&self.raw["attempts"]).iter().any(|attempt| text(attempt, "status") == "SUPERSEDED")
    }

    fn attempt_names(&self) -> Vec<(String, String)> {
        list(&self.raw["attempts"])
            .iter()
            .map(|attempt| (text(attempt, "out_trade_no").to_owned(), self.order_no.clone()))
            .filter(|(attempt, order_no)| attempt != order_no)
            .collect()
    }

    /// Early enough for its own times, and never after `now`.
    fn opened_at(&self, now: OffsetDateTime) -> OffsetDateTime {
        let before = |name: &str| instant(&self.raw[name]).map(|at| at - Duration::hours(1));
        [Some(now), before("expires_at"), before("closed_at")].into_iter().flatten().min().unwrap_or(now)
    }

    async fn open(&self, app: &TestApp) -> Result<(), String> {
        let mut body = json!({
            "order_no": self.order_no, "amount_minor": self.amount, "currency": "CNY", "accounts": self.accounts
        });
        if let Some(currency) = self.raw["currency"].as_str() {
            body["currency"] = json!(currency);
        }
        if let Some(expires_at) = self.raw["expires_at"].as_str() {
            body["expires_at"] = json!(expires_at);
        }
        if !self.is_superseding() {
            return open(app, body).await;
        }
        let mut earlier: Option<String> = None;
        for attempt in list(&self.raw["attempts"]) {
            let order_no = text(&attempt, "out_trade_no").to_owned();
            body["order_no"] = json!(order_no);
            body["amount_minor"] = json!(attempt["amount_fen"].as_i64().unwrap_or(self.amount));
            if let Some(earlier) = earlier {
                body["supersedes"] = json!(earlier);
            }
            open(app, body.clone()).await?;
            earlier = Some(order_no);
        }
        Ok(())
    }

    async fn move_to_status(&self, app: &TestApp, now: OffsetDateTime) -> Result<(), String> {
        match self.raw["status"].as_str().unwrap_or("CREATED") {
            "CREATED" | "OPEN" | "PENDING" | "UNPAID" => Ok(()),
            "PAID" => self.pay(app, now).await,
            "CLOSED" => {
                app.set_clock(instant(&self.raw["closed_at"]).unwrap_or(now)).await;
                let path = format!("/v1/orders/{}/close", self.order_no);
                let answer = app.post_as_shop(&path, &json!({ "reason": "unpaid timeout" })).await;
                if answer.status < 300 { Ok(()) } else { Err(format!("close: {} {}", answer.status, answer.text())) }
            }
            other => Err(format!("the status {other} can't be reached")),
        }
    }

    async fn pay(&self, app: &TestApp, now: OffsetDateTime) -> Result<(), String> {
        app.set_clock(now).await;
        let number = if self.provider == "alipay" { "trade_no" } else { "transaction_id" };
        let default = if self.provider == "alipay" { ALIPAY_TRADE_NO } else { WECHAT_TRADE_NO };
        let trade_no = self.raw[number].as_str().unwrap_or(default);
        app.platforms.world(|world| world.pay(&self.order_no, trade_no, self.amount));
        let paid_at = (now - Duration::minutes(10)).to_offset(UtcOffset::from_hms(8, 0, 0).expect("+08:00"));
        let request = if self.provider == "alipay" {
            let mut params = signer::alipay_payment(&self.order_no, trade_no, &yuan(self.amount));
            for (name, value) in &mut params {
                if name == "gmt_payment" {
                    *value = paid_at.format(&Rfc3339).expect("a time")[..19].replace('T', " ");
                }
            }
            app.alipay_signed(&params)
        } else {
            let mut resource = signer::wx_payment(&self.order_no, trade_no, self.amount);
            resource["success_time"] = json!(format!("{}+08:00", &paid_at.format(&Rfc3339).expect("a time")[..19]));
            if let Some(payer_total) = self.raw["payer_total"].as_i64() {
                resource["amount"]["payer_total"] = json!(payer_total);
            }
            app.wx_push("TRANSACTION.SUCCESS", "transaction", &resource)
        };
        match app.try_send(&request).await {
            Ok(answer) if matches!(answer.status, 200 | 204) => Ok(()),
            other => Err(format!("its payment was answered {other:?}")),
        }
    }
}

/// Fen as yuan text with two digits.
pub fn yuan(fen: i64) -> String {
    format!("{}.{:02}", fen / 100, fen % 100)
}

async fn open(app: &TestApp, body: Value) -> Result<(), String> {
    match app.try_send(&shop_request("/v1/orders", &body)).await {
        Ok(answer) if answer.status == 201 => Ok(()),
        Ok(answer) => Err(format!("POST /v1/orders: {} {}", answer.status, answer.text())),
        Err(none) => Err(format!("POST /v1/orders: {}", none.reason)),
    }
}
