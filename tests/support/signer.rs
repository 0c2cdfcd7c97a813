//! Signs and seals as WeChat Pay and Alipay do. Written from the protocol alone; uses no code of `paidonce-channel`.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::keys::TestKey;

/// The APIv3 key of merchant 1900000001 unless a test says otherwise: 32 ASCII bytes.
pub const APIV3_KEY_A: &str = "testApiV3KeyA-0123456789abcdefgh";
/// A second APIv3 key, for rotation.
pub const APIV3_KEY_B: &str = "testApiV3KeyB-0123456789abcdefgh";
/// The APIv3 key of merchant 1900000002.
pub const APIV3_KEY_M2: &str = "testApiV3KeyM2-0123456789abcdefg";

/// Characters of a push nonce.
const NONCE_CHARS: usize = 12;

/// A text that no other call gives: for nonces and push ids.
#[must_use]
pub fn fresh_text(chars: usize) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:0>chars$x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A 12-character nonce for sealing.
#[must_use]
pub fn fresh_nonce() -> String {
    fresh_text(NONCE_CHARS)
}

/// AES-256-GCM as WeChat Pay seals a resource: ciphertext and tag, base64. A nonce that is not 12 bytes long can't be
/// used; then the sealing takes its first 12 bytes (zeros behind), and the receiver has to refuse the label.
#[must_use]
pub fn seal(apiv3_key: &str, nonce: &str, aad: &str, plain: &[u8]) -> String {
    let mut nonce_bytes = [0_u8; NONCE_LEN];
    for (to, from) in nonce_bytes.iter_mut().zip(nonce.bytes()) {
        *to = from;
    }
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, apiv3_key.as_bytes()).expect("an APIv3 key has 32 bytes"));
    let mut sealed = plain.to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce_bytes), Aad::from(aad.as_bytes()), &mut sealed)
        .expect("seal");
    STANDARD.encode(sealed)
}

/// The four signature headers over exactly these body bytes.
#[must_use]
pub fn wx_headers(key: &TestKey, timestamp: i64, body: &[u8]) -> Vec<(String, String)> {
    let nonce = fresh_text(32);
    let signature = key.sign(&wx_message(timestamp, &nonce, body));
    wx_header_list(key.id, timestamp, &nonce, &signature)
}

/// `timestamp LF nonce LF body LF`.
#[must_use]
pub fn wx_message(timestamp: i64, nonce: &str, body: &[u8]) -> Vec<u8> {
    let mut message = format!("{timestamp}\n{nonce}\n").into_bytes();
    message.extend_from_slice(body);
    message.push(b'\n');
    message
}

/// The header list of a push.
#[must_use]
pub fn wx_header_list(serial: &str, timestamp: i64, nonce: &str, signature: &str) -> Vec<(String, String)> {
    [
        ("Wechatpay-Timestamp", timestamp.to_string()),
        ("Wechatpay-Nonce", nonce.to_owned()),
        ("Wechatpay-Signature", signature.to_owned()),
        ("Wechatpay-Serial", serial.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A complete push body: `resource` sealed into an envelope.
#[must_use]
pub fn wx_envelope(apiv3_key: &str, event_type: &str, original_type: &str, resource: &Value) -> Vec<u8> {
    let nonce = fresh_nonce();
    json!({
        "id": format!("EV-{}", fresh_text(32)),
        "create_time": "2026-01-15T10:00:00+08:00",
        "resource_type": "encrypt-resource",
        "event_type": event_type,
        "summary": "test",
        "resource": {
            "original_type": original_type,
            "algorithm": "AEAD_AES_256_GCM",
            "ciphertext": seal(apiv3_key, &nonce, original_type, resource.to_string().as_bytes()),
            "associated_data": original_type,
            "nonce": nonce,
        }
    })
    .to_string()
    .into_bytes()
}

/// The plain text of a direct payment.
#[must_use]
pub fn wx_payment(order_no: &str, channel_trade_no: &str, total: i64) -> Value {
    json!({
        "mchid": "1900000001",
        "appid": "wx0000000000000001",
        "out_trade_no": order_no,
        "transaction_id": channel_trade_no,
        "trade_type": "JSAPI",
        "trade_state": "SUCCESS",
        "trade_state_desc": "支付成功",
        "bank_type": "OTHERS",
        "attach": "",
        "success_time": "2026-01-15T09:59:58+08:00",
        "payer": { "openid": "oTEST0000000000000000000001" },
        "amount": { "total": total, "payer_total": total, "currency": "CNY", "payer_currency": "CNY" }
    })
}

/// The plain text of a successful refund of `refund` out of `total`.
#[must_use]
pub fn wx_refund(order_no: &str, channel_trade_no: &str, refund_no: &str, total: i64, refund: i64) -> Value {
    json!({
        "mchid": "1900000001",
        "out_trade_no": order_no,
        "transaction_id": channel_trade_no,
        "out_refund_no": refund_no,
        "refund_id": format!("5030{refund_no}"),
        "refund_status": "SUCCESS",
        "success_time": "2026-01-15T10:20:00+08:00",
        "user_received_account": "支付用户零钱",
        "amount": { "total": total, "refund": refund, "payer_total": total, "payer_refund": refund }
    })
}

/// How an Alipay form is signed and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8.
    Utf8,
    /// GBK bytes, percent-encoded; the signature is over those bytes.
    Gbk,
}

impl Charset {
    /// The bytes of `text` in this charset.
    #[must_use]
    pub fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Self::Utf8 => text.as_bytes().to_vec(),
            Self::Gbk => encoding_rs::GBK.encode(text).0.into_owned(),
        }
    }
}

/// The content that Alipay signs: without `sign` (and `sign_type`, unless it is a message of the application gateway),
/// without empty values, sorted by name, joined with `&`.
#[must_use]
pub fn alipay_content(params: &[(String, String)], charset: Charset, keep_sign_type: KeepSignType) -> Vec<u8> {
    let mut signed: Vec<&(String, String)> = params
        .iter()
        .filter(|(name, value)| {
            !value.is_empty() && name != "sign" && (name != "sign_type" || keep_sign_type == KeepSignType::Yes)
        })
        .collect();
    signed.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    let pairs: Vec<Vec<u8>> =
        signed.iter().map(|(name, value)| [name.as_bytes(), b"=", &charset.encode(value)].concat()).collect();
    pairs.join(&b"&"[..])
}

/// Whether `sign_type` is part of the signed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepSignType {
    /// Application gateway messages.
    Yes,
    /// Payment notifications.
    No,
}

/// How the value of `sign` is written into the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignField {
    /// Percent-encoded, as it must be.
    Escaped,
    /// With a literal `+`, which a form decoder reads as a space.
    PlusLeft,
}

/// Writes the form; `sign` goes last, when there is one.
#[must_use]
pub fn alipay_form(params: &[(String, String)], sign: Option<&str>, charset: Charset, field: SignField) -> Vec<u8> {
    let mut parts: Vec<String> = params
        .iter()
        .map(|(name, value)| format!("{}={}", percent(name.as_bytes()), percent(&charset.encode(value))))
        .collect();
    if let Some(sign) = sign {
        parts.push(match field {
            SignField::Escaped => format!("sign={}", percent(sign.as_bytes())),
            SignField::PlusLeft => format!("sign={}", percent(sign.as_bytes()).replace("%2B", "+")),
        });
    }
    parts.join("&").into_bytes()
}

/// A signed payment form as Alipay sends it.
#[must_use]
pub fn alipay_signed_form(key: &TestKey, params: &[(String, String)]) -> Vec<u8> {
    let sign = key.sign(&alipay_content(params, Charset::Utf8, KeepSignType::No));
    alipay_form(params, Some(&sign), Charset::Utf8, SignField::Escaped)
}

/// The fields of a TRADE_SUCCESS. `total` is in yuan, as text.
#[must_use]
pub fn alipay_payment(order_no: &str, channel_trade_no: &str, total: &str) -> Vec<(String, String)> {
    [
        ("gmt_create", "2026-01-15 09:59:40"),
        ("charset", "utf-8"),
        ("subject", "测试商品"),
        ("sign_type", "RSA2"),
        ("buyer_id", "2088000000000099"),
        ("notify_id", &fresh_text(34)),
        ("notify_type", "trade_status_sync"),
        ("trade_status", "TRADE_SUCCESS"),
        ("receipt_amount", total),
        ("buyer_pay_amount", total),
        ("app_id", "2021000000000001"),
        ("seller_id", "2088000000000001"),
        ("gmt_payment", "2026-01-15 09:59:58"),
        ("notify_time", "2026-01-15 10:00:00"),
        ("version", "1.0"),
        ("out_trade_no", order_no),
        ("total_amount", total),
        ("trade_no", channel_trade_no),
        ("auth_app_id", "2021000000000001"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Every byte but unreserved ones as `%XX`.
fn percent(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
