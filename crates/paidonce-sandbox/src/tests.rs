//! The platforms as a ledger meets them, without HTTP: requests in, answers and callbacks out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "a test may fail loudly"
)]

mod alipay;
mod bills;
mod callbacks;
mod wxpay;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;

use crate::accounts::{Accounts, KnownMerchant};
use crate::control::Pay;
use crate::failures::{Api, FailKind, FailNext};
use crate::moment::Moment;
use crate::notice::{Push, Verdict};
use crate::options::{Behaviour, SandboxOptions};
use crate::platforms::Platforms;
use crate::ring::Ring;
use crate::saved_keys;
use crate::wire::Reply;
use crate::wxpay::authorization::Request;

/// 2026-01-15 10:00:00 in Beijing.
pub const START: i64 = 1_768_442_400;

/// Making RSA keys takes long: all tests share one set.
fn keys() -> &'static (Accounts, Ring) {
    static KEYS: OnceLock<(Accounts, Ring)> = OnceLock::new();
    KEYS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = SandboxOptions::new(dir.path().to_owned(), "http://ledger".to_owned());
        saved_keys::load_or_make(&options, Moment::from_seconds(START)).unwrap()
    })
}

/// Both platforms and a clock that the test moves.
pub struct World {
    pub platforms: Platforms,
    pub now: Moment,
}

impl World {
    pub fn new(behaviour: Behaviour) -> Self {
        let (accounts, ring) = keys();
        let accounts = Arc::new(accounts.clone());
        let platforms = Platforms::new(accounts, ring.clone(), behaviour, "http://ledger".to_owned());
        Self { platforms, now: Moment::from_seconds(START) }
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    pub fn pay(&mut self, pay: &Pay) {
        self.platforms.pay(pay, self.now).unwrap();
    }

    pub fn fail(&mut self, api: Api, kind: FailKind) {
        self.platforms.fail_next(FailNext { api, channel: None, kind, times: 1, executed: None });
    }

    /// Everything that is due, each try judged by `verdict`.
    pub fn push(&mut self, verdict: Verdict) -> Vec<Push> {
        let pushes = self.platforms.take_due(self.now);
        for push in &pushes {
            self.platforms.pushed(push, verdict, self.now);
        }
        pushes
    }

    pub fn merchant(&self, mchid: &str) -> Arc<KnownMerchant> {
        Arc::clone(self.platforms.accounts.find_merchant(mchid).unwrap())
    }

    /// A call of WeChat Pay's API as merchant `mchid`, signed as it must be; status and body.
    pub fn wxpay(&mut self, mchid: &str, method: &str, target: &str, body: &str) -> (u16, Value) {
        let request = self.signed(mchid, method, target, body);
        let reply = self.wxpay_raw(&request);
        let body = if reply.body().is_empty() { Value::Null } else { serde_json::from_slice(reply.body()).unwrap() };
        (reply.status, body)
    }

    pub fn wxpay_raw(&mut self, request: &Request) -> Reply {
        let caller = crate::wxpay::authorization::check(&self.platforms.accounts, request, self.now);
        crate::wxpay::answer::write(self.platforms.wxpay(request, caller, self.now)).unwrap()
    }

    pub fn signed(&self, mchid: &str, method: &str, target: &str, body: &str) -> Request {
        let merchant = self.merchant(mchid);
        let (timestamp, nonce) = (self.now.seconds(), "n0nce");
        let message = format!("{method}\n{target}\n{timestamp}\n{nonce}\n{body}\n");
        let signature = merchant.key.sign(message.as_bytes()).unwrap();
        let serial = &merchant.serial;
        let authorization = format!(
            "WECHATPAY2-SHA256-RSA2048 mchid=\"{mchid}\",nonce_str=\"{nonce}\",timestamp=\"{timestamp}\",\
             serial_no=\"{serial}\",signature=\"{signature}\""
        );
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            authorization: Some(authorization),
            serial: None,
            accept: Some("application/json".to_owned()),
            user_agent: Some("test".to_owned()),
            content_type: Some("application/json".to_owned()),
            body: body.as_bytes().to_vec(),
        }
    }

    /// A call of Alipay's gateway, signed as it must be; the node's content, after its signature was checked.
    pub fn alipay(&mut self, method: &str, biz: &Value) -> Value {
        let form = self.alipay_form(method, biz, &[]);
        self.alipay_raw(&form)
    }

    pub fn alipay_form(&self, method: &str, biz: &Value, changes: &[(&str, &str)]) -> String {
        let seller = &self.platforms.accounts.sellers[0];
        let mut fields = std::collections::BTreeMap::from([
            ("app_id", seller.seller.app_id.clone()),
            ("method", method.to_owned()),
            ("format", "JSON".to_owned()),
            ("charset", "utf-8".to_owned()),
            ("sign_type", "RSA2".to_owned()),
            ("timestamp", self.now.text()),
            ("version", "1.0".to_owned()),
            ("biz_content", biz.to_string()),
        ]);
        for (name, value) in changes {
            fields.insert(name, (*value).to_owned());
        }
        let content: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fields.insert("sign", seller.key.sign(content.join("&").as_bytes()).unwrap());
        let encoded = fields.iter().map(|(name, value)| {
            format!("{name}={}", percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC))
        });
        encoded.collect::<Vec<_>>().join("&")
    }

    pub fn alipay_raw(&mut self, form: &str) -> Value {
        let caller = crate::alipay::request::check(&self.platforms.accounts, "", form.as_bytes(), self.now);
        let reply = crate::alipay::answer::write(&self.platforms.alipay(caller, self.now)).unwrap();
        let text = String::from_utf8(reply.into_body()).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        let (name, node) = whole.as_object().unwrap().iter().find(|(_, node)| node.is_object()).unwrap();
        if let Some(sign) = whole.get("sign").and_then(Value::as_str) {
            let signer = self.platforms.ring.for_alipay(self.platforms.behaviour.alipay_keys);
            let named = whole.get("alipay_cert_sn").and_then(Value::as_str).unwrap_or_default();
            assert_eq!(named, signer.id, "{text}");
            let end = if named.is_empty() { ",\"sign\"" } else { ",\"alipay_cert_sn\"" };
            let raw = text.split_once(&format!("\"{name}\":")).unwrap().1.split_once(end).unwrap().0;
            assert!(signer.key.verifies(raw.as_bytes(), sign), "{text}");
        }
        node.clone()
    }
}
