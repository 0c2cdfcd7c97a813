//! A ledger in memory with its use cases, and what the platforms say, in their own words.

use std::sync::Arc;
use std::time::Duration;

use paidonce_app::channel_settings::ChannelSettings;
use paidonce_app::ports::{ChannelEffects, EffectStep};
use paidonce_app::refund::RequestRefund;
use paidonce_app::view::OrderView;
use paidonce_app::{App, AppOptions, Caller, Clock};
use paidonce_channel::OurAccounts;
use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayAppApiConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
use paidonce_order::command::{OrderCommand, PaymentFact, PaymentRef};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo, RefundNo};
use paidonce_order::money::{Currency, Money};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::MemoryStore;
use paidonce_store::options::{FirstDue, StoreOptions};
use paidonce_store::store::{CHANNEL_KINDS, ClaimedEffect, CommandContext, Outcome, Store, Target, TryResult, Work};
use serde_json::{Value, json};

use crate::keys::key;
use crate::platform::Platform;
use crate::signer::APIV3_KEY_A;

pub const WX: &str = "wxpay:1900000001";
pub const ALI: &str = "alipay:2088000000000001";
pub const ORDER: &str = "2025010812345678";
pub const TRADE: &str = "4200002025010812345678901234";
pub const ALI_TRADE: &str = "2025010822001400001234567890";

pub struct Ledger {
    pub app: Arc<App>,
    pub store: Arc<dyn Store>,
    pub platform: Arc<Platform>,
}

/// Everything is due at once, so that no test waits.
pub fn settings() -> ChannelSettings {
    let mut settings = ChannelSettings::default();
    settings.surplus.delay = Duration::ZERO;
    settings
}

pub fn ledger() -> Ledger {
    ledger_with(settings())
}

pub fn ledger_with(channel: ChannelSettings) -> Ledger {
    let options = StoreOptions { first_due: FirstDue { poll_ms: 0, surplus_ms: 0 }, ..StoreOptions::default() };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(&options));
    node(&store, channel)
}

/// A node, or the same one after a restart: nothing but the store is kept.
pub fn node(store: &Arc<dyn Store>, channel: ChannelSettings) -> Ledger {
    let ours = accounts();
    let platform = Platform::new(ours.clone());
    let options = AppOptions { channel, ..AppOptions::default() };
    let app = App::new(Arc::clone(store), ours, Clock::default(), options).with_channel_client(platform.clone());
    Ledger { app: Arc::new(app), store: Arc::clone(store), platform }
}

pub fn accounts() -> OurAccounts {
    let wxpay = ["1900000001", "1900000002"].map(|mchid| {
        let config = WxpayAccountConfig {
            mchid: mchid.to_owned(),
            appids: vec!["wx0000000000000001".to_owned()],
            mode: MerchantMode::Direct,
            platform_keys: vec![PlatformKeyConfig::Certificate {
                pem: key("platform_cert_1").certificate_pem.unwrap().to_owned(),
            }],
            apiv3_key: APIV3_KEY_A.into(),
            apiv3_key_previous: None,
            api: Some(WxpayApiConfig {
                api_url: "https://api.mch.weixin.qq.com".to_owned(),
                merchant_serial: key("merchant_api").id.to_owned(),
                merchant_private_key: key("merchant_api").private_pem.into(),
            }),
        };
        WxpayAccount::try_new(&config).unwrap()
    });
    let alipay = AlipayAccount::try_new(&AlipayAccountConfig {
        seller_id: "2088000000000001".to_owned(),
        apps: vec![AlipayAppConfig {
            app_id: "2021000000000001".to_owned(),
            key: AlipayKeyConfig::PublicKey(key("alipay_platform").public_pem.to_owned()),
            sign_type: SignType::Rsa2,
            auth_app_ids: Vec::new(),
            api: Some(AlipayAppApiConfig {
                private_key: key("alipay_app").private_pem.into(),
                certs: None,
                app_auth_token: None,
            }),
        }],
        api_url: ALIPAY_API_URL.to_owned(),
    });
    OurAccounts::try_new(wxpay.to_vec(), vec![alipay.unwrap()]).unwrap()
}

pub fn order_no() -> OrderNo {
    OrderNo::parse(ORDER).unwrap()
}

pub fn account(text: &str) -> AccountRef {
    AccountRef::parse(text).unwrap()
}

pub fn payment_ref(at: &str, trade_no: &str) -> PaymentRef {
    PaymentRef { account: account(at), channel_trade_no: ChannelTradeNo::parse(trade_no).unwrap() }
}

impl Ledger {
    /// Opens the order of these tests over 88.88.
    pub async fn open(&self, accounts: &[&str]) {
        let request = json!({ "order_no": ORDER, "amount_minor": 8888, "currency": "CNY", "accounts": accounts });
        self.app.open(serde_json::from_value(request).unwrap(), &Caller::default()).await.unwrap();
    }

    /// The same, and nobody has to pay it any more.
    pub async fn open_expired(&self, accounts: &[&str]) {
        let terms = paidonce_order::command::Terms {
            amount: Money::fen(8888),
            accounts: accounts.iter().map(|text| account(text)).collect(),
            description: None,
            expires_at: Some(Timestamp::from_micros(0)),
            supersedes: None,
            sub_mchid: None,
            combine: None,
        };
        self.tell(OrderCommand::OpenOrder(terms)).await;
    }

    /// A command as if a callback had brought it.
    pub async fn tell(&self, command: OrderCommand) {
        let target = Target::Order { order_no: order_no(), command };
        let context = CommandContext { source: "callback".to_owned(), ..CommandContext::default() };
        let outcome = self.store.submit(Work { target, context }).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_) | Outcome::Duplicate(_)), "{outcome:?}");
    }

    /// A callback says that it was paid.
    pub async fn pay(&self, at: &str, trade_no: &str, fen: i64) {
        self.tell(OrderCommand::RecordPayment(PaymentFact {
            payment: payment_ref(at, trade_no),
            amount: Money::fen(fen),
            payer_amount: None,
            occurred_at: Timestamp::parse("2025-01-08T12:34:56+08:00").unwrap(),
            channel_trade_type: None,
            content: Digest([u8::try_from(trade_no.len() % 200).unwrap(); 32]),
        }))
        .await;
    }

    pub async fn request_refund(&self, refund_no: &str, fen: i64) {
        let request = RequestRefund {
            amount_minor: fen,
            currency: Some(Currency::CNY),
            refund_no: Some(RefundNo::parse(refund_no).unwrap()),
            payment: None,
            reason: None,
        };
        self.app.request_refund(&order_no(), request, &Caller::default()).await.unwrap();
    }

    pub async fn order(&self) -> OrderView {
        self.app.get_order(&order_no()).await.unwrap()
    }

    pub async fn status(&self) -> &'static str {
        self.order().await.status.as_str()
    }

    /// `R1 REQUESTED` and so on.
    pub async fn refunds(&self) -> Vec<String> {
        let words = |refund: &paidonce_app::view::RefundView| {
            let state = serde_json::to_value(refund.state).unwrap();
            format!("{} {} {}", refund.refund_no, refund.amount_minor, state.as_str().unwrap())
        };
        self.order().await.refunds.iter().map(words).collect()
    }

    pub async fn events(&self) -> Vec<String> {
        let events = self.app.list_order_events(&order_no()).await.unwrap();
        events.into_iter().map(|event| event.event_type).collect()
    }

    /// `kind state: detail` of every item.
    pub async fn items(&self) -> Vec<String> {
        let words = |item: &paidonce_app::view::OrderItemView| {
            let word = |value: Value| value.as_str().unwrap().to_owned();
            let (kind, state) = (serde_json::to_value(item.kind).unwrap(), serde_json::to_value(item.state).unwrap());
            format!("{} {}: {}", word(kind), word(state), item.detail)
        };
        self.order().await.items.iter().map(words).collect()
    }

    /// Claims the one due effect of this kind, as the relay does.
    pub async fn claim(&self, kind: &str) -> ClaimedEffect {
        let kind = CHANNEL_KINDS.iter().find(|known| **known == kind).unwrap();
        let mut claimed = self.store.claim_effects(&[kind], 60_000, 10).await.unwrap();
        assert_eq!(claimed.len(), 1, "due effects of kind {kind}");
        claimed.remove(0)
    }

    /// One try of the one effect of this kind; it is due again at once.
    pub async fn run(&self, kind: &str) -> EffectStep {
        let claimed = self.claim(kind).await;
        let step = self.app.run_channel_effect(&claimed).await;
        self.report(&claimed, &step).await;
        step
    }

    pub async fn report(&self, claimed: &ClaimedEffect, step: &EffectStep) {
        let result = match step {
            EffectStep::Done => TryResult::Delivered,
            EffectStep::Again { why, .. } => TryResult::RetryAfter { delay_ms: 0, error: why.clone() },
        };
        let token = claimed.effect.lease_token.unwrap();
        assert!(self.store.complete_effect(claimed.effect.effect_id, token, &result).await.unwrap());
    }

    pub async fn count_of(&self, event_type: &str) -> usize {
        self.events().await.iter().filter(|found| *found == event_type).count()
    }
}

/// The pause of a step that comes again.
pub fn pause(step: &EffectStep) -> u64 {
    match step {
        EffectStep::Again { after, .. } => after.as_secs(),
        EffectStep::Done => panic!("it is done"),
    }
}

pub fn why(step: &EffectStep) -> &str {
    match step {
        EffectStep::Again { why, .. } => why,
        EffectStep::Done => panic!("it is done"),
    }
}

/// The payment object of WeChat Pay.
pub fn wx_payment(state: &str) -> Value {
    let mut payment = json!({
        "appid": "wx0000000000000001", "mchid": "1900000001", "out_trade_no": ORDER, "trade_state": state,
        "trade_state_desc": "as the script says", "amount": { "total": 8888, "currency": "CNY" }
    });
    if matches!(state, "SUCCESS" | "REFUND") {
        payment["transaction_id"] = json!(TRADE);
        payment["trade_type"] = json!("JSAPI");
        payment["success_time"] = json!("2025-01-08T12:34:56+08:00");
        payment["amount"]["payer_total"] = json!(8888);
    }
    payment
}

pub fn wx_refund(refund_no: &str, status: &str, fen: i64) -> Value {
    let mut refund = json!({
        "refund_id": format!("5030{refund_no}"), "out_refund_no": refund_no, "transaction_id": TRADE,
        "out_trade_no": ORDER, "channel": "ORIGINAL", "status": status, "create_time": "2025-01-08T13:00:00+08:00",
        "user_received_account": "OTHERS", "amount": {
            "total": 8888, "refund": fen, "payer_total": 8888, "payer_refund": fen, "currency": "CNY",
            "settlement_refund": fen, "settlement_total": 8888, "discount_refund": 0
        }
    });
    if status == "SUCCESS" {
        refund["success_time"] = json!("2025-01-08T13:05:00+08:00");
    }
    refund
}

pub fn ali_payment(status: &str) -> Value {
    let mut payment = json!({
        "code": "10000", "msg": "Success", "out_trade_no": ORDER, "trade_no": ALI_TRADE, "trade_status": status,
        "total_amount": "88.88", "buyer_logon_id": "a***@example.com"
    });
    if status != "WAIT_BUYER_PAY" {
        payment["send_pay_date"] = json!("2025-01-08 12:34:56");
    }
    payment
}

/// The refund query's answer; `None` for a refund that Alipay does not know (of).
pub fn ali_refund_state(refund_no: &str, yuan: Option<&str>) -> Value {
    match yuan {
        None => json!({ "code": "10000", "msg": "Success" }),
        Some(yuan) => json!({
            "code": "10000", "msg": "Success", "out_request_no": refund_no, "out_trade_no": ORDER,
            "trade_no": ALI_TRADE, "refund_amount": yuan, "total_amount": "88.88", "refund_status": "REFUND_SUCCESS",
            "gmt_refund_pay": "2025-01-08 13:05:00"
        }),
    }
}

pub fn ali_refund(fund_change: &str, total_yuan: &str) -> Value {
    json!({
        "code": "10000", "msg": "Success", "out_trade_no": ORDER, "trade_no": ALI_TRADE, "fund_change": fund_change,
        "refund_fee": total_yuan, "gmt_refund_pay": "2025-01-08 13:05:00", "buyer_logon_id": "a***@example.com"
    })
}
