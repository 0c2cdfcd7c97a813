//! Signs and seals as the platforms do, with the test keys of `tests/fixtures/vectors`. For this test binary only: it
//! shares no code with the crate under test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_channel::{ChannelReceiver, Fact, Notice, OurAccounts, RawNotification, SecretText, VerifyError};
use paidonce_order::Timestamp;
use paidonce_order::ids::Channel;
use serde_json::{Value, json};

/// 2026-01-01T12:00:00+08:00, the receiver's clock unless a test says otherwise.
pub const NOW_SECONDS: i64 = 1_767_240_000;

pub const MCHID: &str = "1900000001";
pub const OTHER_MCHID: &str = "1900000002";
pub const APPID: &str = "wx1111111111111111";
pub const CERTIFICATE_SERIAL: &str = "0A5DFF7711C0FFEE00112233445566778899AABB";
pub const PUBLIC_KEY_ID: &str = "PUB_KEY_ID_0119000000012025010100000000000001";
pub const APIV3_KEY: &str = "0123456789abcdefghijklmnopqrstuv";
pub const APP_ID: &str = "2021000000000001";
pub const SELLER_ID: &str = "2088000000000002";

pub static KEYS: LazyLock<Value> = LazyLock::new(|| fixture("keys.json"));

static PRIVATE: LazyLock<BTreeMap<&'static str, KeyPair>> = LazyLock::new(|| {
    let read = |name: &'static str| {
        let pem = KEYS["private_pem"][name].as_str().unwrap();
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        (name, KeyPair::from_pkcs8(&BASE64.decode(base64).unwrap()).unwrap())
    };
    ["wechat_platform_a", "wechat_platform_pub", "alipay_platform", "alipay_app", "attacker"].map(read).into()
});

pub fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/vectors").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn vector(file: &str, id: &str) -> Value {
    let set = fixture(file);
    set["vectors"].as_array().unwrap().iter().find(|vector| vector["id"] == id).unwrap().clone()
}

/// RSA PKCS#1 v1.5 with SHA-256, base64.
pub fn sign(key: &str, message: &[u8]) -> String {
    let key = &PRIVATE[key];
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
    BASE64.encode(signature)
}

// ---- WeChat Pay ----

pub fn wxpay_config() -> WxpayAccountConfig {
    WxpayAccountConfig {
        mchid: MCHID.to_owned(),
        appids: vec![APPID.to_owned()],
        mode: MerchantMode::Direct,
        platform_keys: vec![
            PlatformKeyConfig::Certificate { pem: KEYS["cert_pem"]["wechat_platform_a"].as_str().unwrap().to_owned() },
            PlatformKeyConfig::PublicKey {
                id: PUBLIC_KEY_ID.to_owned(),
                pem: KEYS["public_pem"]["wechat_platform_pub"].as_str().unwrap().to_owned(),
            },
        ],
        apiv3_key: SecretText::from(APIV3_KEY),
        apiv3_key_previous: None,
        api: None,
    }
}

/// The usual account and a second one of ours.
pub fn wxpay_receiver(config: &WxpayAccountConfig) -> Box<dyn ChannelReceiver> {
    let other = WxpayAccountConfig { mchid: OTHER_MCHID.to_owned(), mode: MerchantMode::Direct, ..config.clone() };
    let accounts = [config, &other].map(|config| WxpayAccount::try_new(config).unwrap()).into();
    let ours = OurAccounts::try_new(accounts, Vec::new()).unwrap();
    ours.find_receiver(Channel::Wxpay, &config.mchid).unwrap()
}

/// A payment of 10.00, as the direct mode says it.
pub fn wxpay_payment() -> Value {
    json!({
        "mchid": MCHID, "appid": APPID, "out_trade_no": "ORD1", "transaction_id": "4200000000202601010000000001",
        "trade_type": "JSAPI", "trade_state": "SUCCESS", "bank_type": "OTHERS", "attach": "",
        "success_time": "2026-01-01T11:59:58+08:00", "payer": {"openid": "oTEST"},
        "amount": {"total": 1000, "payer_total": 1000, "currency": "CNY", "payer_currency": "CNY"}
    })
}

pub fn wxpay_refund(status: &str) -> Value {
    let mut refund = json!({
        "mchid": MCHID, "out_trade_no": "ORD1", "transaction_id": "4200000000202601010000000001",
        "refund_id": "50000000382026010100000000001", "out_refund_no": "RFD1", "refund_status": status,
        "user_received_account": "招商银行信用卡0403",
        "amount": {"total": 1000, "refund": 300, "payer_total": 1000, "payer_refund": 300}
    });
    if status == "SUCCESS" {
        refund["success_time"] = json!("2026-01-01T12:10:00+08:00");
    }
    refund
}

pub fn wxpay_share() -> Value {
    json!({
        "mchid": MCHID, "transaction_id": "4200000000202601010000000001", "order_id": "3008450740201411110007820472",
        "out_order_no": "P1", "success_time": "2026-01-01T12:20:00+08:00",
        "receiver": {"type": "MERCHANT_ID", "account": "1900000109", "amount": 888, "description": "分账"}
    })
}

/// Everything of a WeChat Pay notification that a test may want to bend.
#[derive(Clone)]
pub struct Wxpay {
    pub event_type: &'static str,
    pub original_type: Option<&'static str>,
    pub summary: &'static str,
    pub plaintext: String,
    pub apiv3_key: &'static str,
    pub sealed_with: &'static str,
    pub associated_data: Value,
    pub nonce: &'static str,
    pub header_nonce: &'static str,
    pub signing_key: &'static str,
    pub serial: &'static str,
    pub timestamp: i64,
}

impl Wxpay {
    pub fn payment(plaintext: &Value) -> Self {
        Self {
            event_type: "TRANSACTION.SUCCESS",
            original_type: Some("transaction"),
            summary: "支付成功",
            plaintext: plaintext.to_string(),
            apiv3_key: APIV3_KEY,
            sealed_with: "transaction",
            associated_data: json!("transaction"),
            nonce: "nonce0000001",
            header_nonce: "HEADERNONCE0000000000000000000001",
            signing_key: "wechat_platform_a",
            serial: CERTIFICATE_SERIAL,
            timestamp: NOW_SECONDS,
        }
    }

    pub fn refund(plaintext: &Value) -> Self {
        Self {
            event_type: "REFUND.SUCCESS",
            original_type: Some("refund"),
            summary: "退款",
            ..Self::payment(plaintext)
        }
    }

    pub fn share(plaintext: &Value) -> Self {
        Self {
            event_type: "PROFITSHARING.SUCCESS",
            original_type: Some("profitsharing"),
            summary: "分账",
            ..Self::payment(plaintext)
        }
    }

    pub fn envelope(&self) -> Value {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, self.apiv3_key.as_bytes()).unwrap());
        let mut sealed = self.plaintext.clone().into_bytes();
        let nonce = Nonce::try_assume_unique_for_key(self.nonce.as_bytes()).unwrap();
        key.seal_in_place_append_tag(nonce, Aad::from(self.sealed_with.as_bytes()), &mut sealed).unwrap();
        let mut resource = json!({
            "algorithm": "AEAD_AES_256_GCM", "ciphertext": BASE64.encode(sealed), "nonce": self.nonce,
            "associated_data": self.associated_data,
        });
        if let Some(original_type) = self.original_type {
            resource["original_type"] = json!(original_type);
        }
        json!({
            "id": "11111111-0000-5000-8000-000000000001", "create_time": "2026-01-01T12:00:00+08:00",
            "resource_type": "encrypt-resource", "event_type": self.event_type, "summary": self.summary,
            "resource": resource,
        })
    }

    pub fn headers(&self, body: &[u8]) -> Vec<(String, Vec<u8>)> {
        let timestamp = self.timestamp.to_string();
        let message = [timestamp.as_bytes(), b"\n", self.header_nonce.as_bytes(), b"\n", body, b"\n"].concat();
        let signature = sign(self.signing_key, &message);
        [
            ("Content-Type", "application/json"),
            ("Wechatpay-Timestamp", timestamp.as_str()),
            ("Wechatpay-Nonce", self.header_nonce),
            ("Wechatpay-Signature", signature.as_str()),
            ("Wechatpay-Serial", self.serial),
            ("Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048"),
            ("Request-ID", "REQUEST1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .into()
    }

    pub fn receive(&self) -> Result<Notice, VerifyError> {
        self.receive_at(&wxpay_config())
    }

    pub fn receive_at(&self, config: &WxpayAccountConfig) -> Result<Notice, VerifyError> {
        let body = self.envelope().to_string();
        receive(wxpay_receiver(config).as_ref(), &self.headers(body.as_bytes()), body.as_bytes())
    }

    /// These exact bytes as the body, rightly signed.
    pub fn receive_body(&self, body: &[u8]) -> Result<Notice, VerifyError> {
        receive(wxpay_receiver(&wxpay_config()).as_ref(), &self.headers(body), body)
    }
}

// ---- Alipay ----

pub fn alipay_config() -> AlipayAccountConfig {
    AlipayAccountConfig {
        seller_id: SELLER_ID.to_owned(),
        apps: vec![AlipayAppConfig {
            app_id: APP_ID.to_owned(),
            key: AlipayKeyConfig::PublicKey(KEYS["public_pem"]["alipay_platform"].as_str().unwrap().to_owned()),
            sign_type: SignType::Rsa2,
            auth_app_ids: Vec::new(),
            api: None,
        }],
        api_url: ALIPAY_API_URL.to_owned(),
    }
}

pub fn alipay_receiver(config: &AlipayAccountConfig) -> Box<dyn ChannelReceiver> {
    let ours = OurAccounts::try_new(Vec::new(), vec![AlipayAccount::try_new(config).unwrap()]).unwrap();
    ours.find_receiver(Channel::Alipay, &config.seller_id).unwrap()
}

/// A form before it is signed: decoded values as bytes.
#[derive(Clone)]
pub struct Alipay {
    pub pairs: Vec<(String, Vec<u8>)>,
    pub signing_key: &'static str,
    pub signs_sign_type: SignsSignType,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SignsSignType {
    No,
    Yes,
}

impl Alipay {
    pub fn new(pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Self { pairs, signing_key: "alipay_platform", signs_sign_type: SignsSignType::No }
    }

    /// A payment of 88.88.
    pub fn payment() -> Self {
        Self::new(&[
            ("gmt_create", "2026-01-01 11:59:30"),
            ("charset", "UTF-8"),
            ("subject", "测试商品 A+B=100% \"引号\""),
            ("buyer_id", "2088000000000009"),
            ("notify_id", "20260101002221200000000000001"),
            ("notify_type", "trade_status_sync"),
            ("trade_status", "TRADE_SUCCESS"),
            ("receipt_amount", "88.88"),
            ("buyer_pay_amount", "88.88"),
            ("app_id", APP_ID),
            ("auth_app_id", APP_ID),
            ("seller_id", SELLER_ID),
            ("gmt_payment", "2026-01-01 11:59:58"),
            ("notify_time", "2026-01-01 12:00:00"),
            ("version", "1.0"),
            ("out_trade_no", "ALI1"),
            ("total_amount", "88.88"),
            ("trade_no", "2026010122001400000500000001"),
            ("sign_type", "RSA2"),
        ])
    }

    pub fn gateway(method: &str, biz_content: &str) -> Self {
        let pairs = [
            ("app_id", APP_ID),
            ("charset", "utf-8"),
            ("version", "1.1"),
            ("msg_method", method),
            ("notify_id", "2026010100262210000000000001"),
            ("utc_timestamp", "1767240000000"),
            ("biz_content", biz_content),
            ("sign_type", "RSA2"),
        ];
        Self { signs_sign_type: SignsSignType::Yes, ..Self::new(&pairs) }
    }

    pub fn set(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.pairs.retain(|(existing, _)| existing != key);
        self.pairs.push((key.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn without(mut self, key: &str) -> Self {
        self.pairs.retain(|(existing, _)| existing != key);
        self
    }

    pub fn signature(&self) -> String {
        let mut signed: Vec<&(String, Vec<u8>)> = self
            .pairs
            .iter()
            .filter(|(key, value)| {
                let kept = key != "sign_type" || self.signs_sign_type == SignsSignType::Yes;
                kept && key != "sign" && !value.is_empty()
            })
            .collect();
        signed.sort();
        let lines: Vec<Vec<u8>> =
            signed.iter().map(|(key, value)| [key.as_bytes(), b"=", value.as_slice()].concat()).collect();
        sign(self.signing_key, &lines.join(&b'&'))
    }

    /// The form without `sign`.
    pub fn unsigned_body(&self) -> String {
        let pairs = self.pairs.iter().map(|(key, value)| format!("{}={}", escape(key.as_bytes()), escape(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    pub fn body(&self) -> String {
        format!("{}&sign={}", self.unsigned_body(), escape(self.signature().as_bytes()))
    }

    pub fn receive(&self) -> Result<Notice, VerifyError> {
        alipay_receive(self.body().as_bytes())
    }

    pub fn receive_at(&self, config: &AlipayAccountConfig) -> Result<Notice, VerifyError> {
        receive(alipay_receiver(config).as_ref(), &[], self.body().as_bytes())
    }
}

pub fn alipay_receive(body: &[u8]) -> Result<Notice, VerifyError> {
    receive(alipay_receiver(&alipay_config()).as_ref(), &[], body)
}

/// Form encoding: unreserved bytes as they are, a space as `+`, the rest in percent.
pub fn escape(bytes: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => char::from(*byte).to_string(),
        b' ' => "+".to_owned(),
        other => format!("%{other:02X}"),
    };
    bytes.iter().map(one).collect()
}

// ---- both ----

pub fn receive(
    receiver: &dyn ChannelReceiver,
    headers: &[(String, Vec<u8>)],
    body: &[u8],
) -> Result<Notice, VerifyError> {
    let now = Timestamp::from_micros(NOW_SECONDS * 1_000_000);
    receiver.receive(RawNotification { headers, body, now }).map(|verified| verified.into_inner())
}

/// The only fact of a notice that has nothing else.
pub fn only_fact(notice: &Notice) -> &Fact {
    assert_eq!((notice.observations.len(), notice.strays.len()), (1, 0), "{notice:?}");
    &notice.observations[0].fact
}

/// The code of the only stray of an acknowledged notice that books nothing.
pub fn only_stray(notice: &Notice) -> &str {
    assert_eq!((notice.observations.len(), notice.strays.len()), (0, 1), "{notice:?}");
    assert_eq!(notice.refuse_after_recording, None);
    &notice.strays[0].fact.code
}

/// The total of the only payment of a notice.
pub fn paid_minor(notice: &Notice) -> i64 {
    match only_fact(notice) {
        Fact::Payment(fact) => fact.amount.amount_minor,
        other => panic!("not a payment: {other:?}"),
    }
}
