//! What reading one notification costs: verify, open, parse. `cargo run --release -p paidonce-channel --example measure`
//!
//! Takes signed notifications of `tests/fixtures/vectors` and prints microseconds for each, on one core: the best batch of
//! many, since other work on the machine only ever makes a batch slower.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::float_arithmetic,
    reason = "a measuring program: a missing fixture ends it, and its floats are durations"
)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayAppConfig, AlipayKeyConfig, SignType,
};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccount, WxpayAccountConfig};
use paidonce_channel::{OurAccounts, RawNotification, SecretText};
use paidonce_order::Timestamp;
use paidonce_order::ids::Channel;
use serde_json::Value;

const BATCHES: u32 = 200;
const BATCH: u32 = 100;

fn main() {
    let keys = fixture("keys.json");
    let ours = accounts(&keys);
    for (file, id, channel) in [
        ("wechatpay_v3.json", "wx-pay-success-cert", Channel::Wxpay),
        ("wechatpay_v3.json", "wx-refund-partial-1", Channel::Wxpay),
        ("wechatpay_v3.json", "wx-signed-by-attacker", Channel::Wxpay),
        ("alipay.json", "ali-pay-success", Channel::Alipay),
        ("alipay.json", "ali-pay-success-gbk", Channel::Alipay),
        ("alipay.json", "ali-attacker-key", Channel::Alipay),
    ] {
        let set = fixture(file);
        let vector = set["vectors"].as_array().unwrap().iter().find(|vector| vector["id"] == id).unwrap();
        println!("{id:24} {:7.1} us", micros_per_notice(&ours, channel, vector));
    }
}

#[expect(clippy::disallowed_methods, reason = "measures a duration")]
fn micros_per_notice(ours: &OurAccounts, channel: Channel, vector: &Value) -> f64 {
    let account = ours.list().into_iter().find(|account| account.channel == channel).unwrap();
    let receiver = ours.find_receiver(channel, account.account.as_str()).unwrap();
    let headers: Vec<(String, Vec<u8>)> = vector["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().as_bytes().to_vec()))
        .collect();
    let body = vector["body"].as_str().unwrap().as_bytes();
    let now = Timestamp::from_micros(vector["clock_now"].as_i64().unwrap_or(0) * 1_000_000);
    let read =
        || black_box(receiver.receive(RawNotification { headers: &headers, body: black_box(body), now }).is_ok());
    for _ in 0..1_000 {
        read();
    }
    let batch = |_| {
        let started = Instant::now();
        for _ in 0..BATCH {
            read();
        }
        started.elapsed()
    };
    let best = (0..BATCHES).map(batch).min().unwrap();
    best.as_secs_f64() * 1e6 / f64::from(BATCH)
}

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/vectors").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn accounts(keys: &Value) -> OurAccounts {
    let text = |group: &str, name: &str| keys[group][name].as_str().unwrap().to_owned();
    let wxpay = WxpayAccountConfig {
        mchid: text("wechat", "mchid"),
        appids: vec![text("wechat", "appid")],
        mode: MerchantMode::Direct,
        platform_keys: vec![PlatformKeyConfig::Certificate { pem: text("cert_pem", "wechat_platform_a") }],
        apiv3_key: SecretText::new(text("wechat", "api_v3_key")),
        apiv3_key_previous: None,
        api: None,
    };
    let app = AlipayAppConfig {
        app_id: text("alipay", "app_id"),
        key: AlipayKeyConfig::PublicKey(text("public_pem", "alipay_platform")),
        sign_type: SignType::Rsa2,
        auth_app_ids: Vec::new(),
        api: None,
    };
    let alipay = AlipayAccountConfig {
        seller_id: text("alipay", "seller_id"),
        apps: vec![app],
        api_url: ALIPAY_API_URL.to_owned(),
    };
    let (wxpay, alipay) = (WxpayAccount::try_new(&wxpay).unwrap(), AlipayAccount::try_new(&alipay).unwrap());
    OurAccounts::try_new(vec![wxpay], vec![alipay]).unwrap()
}
