//! A server with one WeChat Pay and one Alipay account and a token of each scope.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use paidonce_app::{App, AppOptions, Clock};
use paidonce_channel::OurAccounts;
use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_http::{Scope, Server, ServerOptions, Token, serve};
use paidonce_store::clock::ClockOffset;
use serde_json::{Value, json};

use crate::client::{Answer, exchange, request};
use crate::keys::{TestKey, key};
use crate::ledger::Ledger;
use crate::signer;

pub const WXPAY: &str = "wxpay:1900000001";
pub const ALIPAY: &str = "alipay:2088000000000001";
pub const WXPAY_PATH: &str = "/callbacks/wxpay/1900000001";
pub const ALIPAY_PATH: &str = "/callbacks/alipay/2088000000000001";

pub const SERVICE: &str = "test-secret-of-the-service-token";
pub const FINANCE: &str = "test-secret-of-the-finance-token";
pub const OPERATOR: &str = "test-secret-of-the-operator-token";

pub struct Doors {
    pub ledger: Arc<Ledger>,
    pub server: Server,
    pub app: Arc<App>,
}

pub async fn doors() -> Doors {
    doors_with(|_| {}).await
}

pub async fn doors_with(change: impl FnOnce(&mut ServerOptions)) -> Doors {
    doors_of(|app| app, change).await
}

/// `wire` may give the use cases more than their ledger.
pub async fn doors_of(wire: impl FnOnce(App) -> App, change: impl FnOnce(&mut ServerOptions)) -> Doors {
    let ledger = Arc::new(Ledger::new());
    let offset = ClockOffset::default();
    let clock = Clock::new(offset.clone());
    let app = App::new(ledger.clone(), accounts(signer::APIV3_KEY_A), clock, AppOptions::default());
    let app = Arc::new(wire(app));
    let mut options = ServerOptions::new("127.0.0.1:0".parse().unwrap());
    options.workers = 1;
    #[cfg(feature = "testing")]
    {
        options.testing.clock = offset;
        // Tests run side by side in one process.
        options.testing.faults = paidonce_app::fault::Faults::private();
    }
    options.tokens = vec![
        Token::try_new("shop", &[Scope::Service], SERVICE).unwrap(),
        Token::try_new("books", &[Scope::Finance], FINANCE).unwrap(),
        Token::try_new("alice", &[Scope::Operator], OPERATOR).unwrap(),
    ];
    change(&mut options);
    let server = serve(options, app.clone()).await.unwrap();
    Doors { ledger, server, app }
}

pub fn accounts(apiv3_key: &str) -> OurAccounts {
    let wxpay = WxpayAccount::try_new(&WxpayAccountConfig {
        mchid: "1900000001".to_owned(),
        appids: vec!["wx0000000000000001".to_owned()],
        mode: MerchantMode::Direct,
        platform_keys: vec![PlatformKeyConfig::Certificate {
            pem: key("platform_cert_1").certificate_pem.unwrap().to_owned(),
        }],
        apiv3_key: apiv3_key.into(),
        apiv3_key_previous: None,
        api: None,
    })
    .unwrap();
    let alipay = AlipayAccount::try_new(&AlipayAccountConfig {
        seller_id: "2088000000000001".to_owned(),
        apps: vec![AlipayAppConfig {
            app_id: "2021000000000001".to_owned(),
            key: AlipayKeyConfig::PublicKey(key("alipay_platform").public_pem.to_owned()),
            sign_type: SignType::Rsa2,
            auth_app_ids: Vec::new(),
            api: None,
        }],
        api_url: ALIPAY_API_URL.to_owned(),
    })
    .unwrap();
    OurAccounts::try_new(vec![wxpay], vec![alipay]).unwrap()
}

pub fn unix_now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A request to a callback path.
pub struct Push {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Push {
    pub fn bytes(&self) -> Vec<u8> {
        request("POST", &self.path, &self.headers, &self.body)
    }
}

pub fn wx_push_by(key: &TestKey, timestamp: i64, body: Vec<u8>) -> Push {
    let mut headers = signer::wx_headers(key, timestamp, &body);
    headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    Push { path: WXPAY_PATH.to_owned(), headers, body }
}

pub fn wx_push(body: Vec<u8>) -> Push {
    wx_push_by(key("platform_cert_1"), unix_now(), body)
}

pub fn wx_payment(order_no: &str, channel_trade_no: &str, total: i64) -> Push {
    let resource = signer::wx_payment(order_no, channel_trade_no, total);
    wx_push(signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "transaction", &resource))
}

pub fn alipay_push(key: &TestKey, params: &[(String, String)]) -> Push {
    let headers =
        vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded; text/html; charset=utf-8".to_owned())];
    Push { path: ALIPAY_PATH.to_owned(), headers, body: signer::alipay_signed_form(key, params) }
}

pub fn alipay_payment(order_no: &str, channel_trade_no: &str, total: &str) -> Push {
    alipay_push(key("alipay_platform"), &signer::alipay_payment(order_no, channel_trade_no, total))
}

pub fn open_body(order_no: &str, amount_minor: i64) -> Value {
    json!({ "order_no": order_no, "amount_minor": amount_minor, "currency": "CNY", "accounts": [WXPAY, ALIPAY] })
}

impl Doors {
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub async fn push(&self, push: &Push) -> Answer {
        exchange(self.address(), &push.bytes()).await
    }

    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        exchange(self.address(), bytes).await
    }

    /// With a token, optional further headers, and a JSON body.
    pub async fn call(&self, secret: &str, method: &str, path: &str, body: &Value) -> Answer {
        self.call_with(secret, method, path, body, &[]).await
    }

    pub async fn call_with(
        &self,
        secret: &str,
        method: &str,
        path: &str,
        body: &Value,
        further: &[(&str, &str)],
    ) -> Answer {
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {secret}"))];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        if !body.is_empty() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        headers.extend(further.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        exchange(self.address(), &request(method, path, &headers, &body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(OPERATOR, "GET", path, &Value::Null).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(OPERATOR, "POST", path, body).await
    }

    pub async fn open(&self, order_no: &str, amount_minor: i64) {
        let answer = self.post("/v1/orders", &open_body(order_no, amount_minor)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

/// Polls until `holds`, at most five seconds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
