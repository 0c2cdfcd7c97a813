//! Who signed a request to WeChat Pay: `Authorization: WECHATPAY2-SHA256-RSA2048 mchid="..",nonce_str="..",...`.
//!
//! Strict on purpose: a client that passes here passes at the platform.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Refusal;
use crate::accounts::{Accounts, KnownMerchant};
use crate::moment::Moment;

/// The only scheme.
const SCHEME: &str = "WECHATPAY2-SHA256-RSA2048 ";
/// What the header names, each once.
const PAIRS: [&str; 5] = ["mchid", "nonce_str", "serial_no", "signature", "timestamp"];
/// A request's clock may differ from the platform's by less than this.
pub const CLOCK_SECONDS_MAX: u64 = 300;

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// Before the question mark, exactly as sent.
    pub path: String,
    /// Behind the question mark, exactly as sent; empty when there is none.
    pub query: String,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// `Wechatpay-Serial`: which key the caller wants the answer signed with.
    pub serial: Option<String>,
    /// `Accept`.
    pub accept: Option<String>,
    /// `User-Agent`.
    pub user_agent: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// Exact bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// A parameter of the query, decoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pair = self.query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))?;
        Some(percent_encoding::percent_decode_str(pair.1).decode_utf8_lossy().into_owned())
    }

    /// The body. Errors: it is no JSON object.
    pub fn json(&self) -> Result<Value, Refusal> {
        match serde_json::from_slice(&self.body) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) | Err(_) => Err(Refusal::parameter("请求体不是JSON对象")),
        }
    }
}

/// Who signed it. Errors: 401 SIGN_ERROR, or 400 when a header is missing.
pub fn check(accounts: &Accounts, request: &Request, now: Moment) -> Result<Arc<KnownMerchant>, Refusal> {
    headers(request)?;
    let header = request.authorization.as_deref().and_then(|header| header.strip_prefix(SCHEME));
    let header = header.ok_or_else(|| sign_error("Http头Authorization认证类型不正确"))?;
    let pairs = pairs(header).ok_or_else(|| sign_error("Http头Authorization格式错误"))?;
    let pair = |name: &str| pairs.get(name).copied().unwrap_or_default();
    let merchant = accounts.find_merchant(pair("mchid")).ok_or_else(|| sign_error("商户号不存在"))?;
    if !pair("serial_no").eq_ignore_ascii_case(&merchant.serial) {
        return Err(sign_error("商户证书序列号有误"));
    }
    let timestamp: i64 = pair("timestamp").parse().map_err(|_| sign_error("Http头Authorization时间戳错误"))?;
    if timestamp.abs_diff(now.seconds()) >= CLOCK_SECONDS_MAX {
        return Err(sign_error("Http头Authorization时间戳与微信支付服务器时间偏差过大"));
    }
    let nonce = pair("nonce_str");
    if nonce.is_empty() || nonce.len() > 32 {
        return Err(sign_error("Http头Authorization随机串长度不正确"));
    }
    if merchant.key.verifies(&message(request, pair("timestamp"), nonce), pair("signature")) {
        Ok(Arc::clone(merchant))
    } else {
        Err(sign_error("签名错误，请检查后再试"))
    }
}

fn headers(request: &Request) -> Result<(), Refusal> {
    let filled = |header: &Option<String>| header.as_deref().is_some_and(|value| !value.trim().is_empty());
    if !filled(&request.accept) {
        return Err(Refusal::parameter("Http头缺少Accept"));
    }
    if !filled(&request.user_agent) {
        return Err(Refusal::parameter("Http头缺少User-Agent"));
    }
    let json = request.content_type.as_deref().is_some_and(|value| value.starts_with("application/json"));
    if !request.body.is_empty() && !json {
        return Err(Refusal::parameter("Http头Content-Type不是application/json"));
    }
    Ok(())
}

/// METHOD LF path-with-query LF timestamp LF nonce LF body LF.
fn message(request: &Request, timestamp: &str, nonce: &str) -> Vec<u8> {
    let question = if request.query.is_empty() { "" } else { "?" };
    let (method, path, query) = (&request.method, &request.path, &request.query);
    let mut message = format!("{method}\n{path}{question}{query}\n{timestamp}\n{nonce}\n").into_bytes();
    message.extend_from_slice(&request.body);
    message.push(b'\n');
    message
}

/// `a="1",b="2"`, exactly the five names, in any order.
fn pairs(header: &str) -> Option<BTreeMap<&str, &str>> {
    let mut found = BTreeMap::new();
    for pair in header.split(',') {
        let (name, quoted) = pair.split_once('=')?;
        let value = quoted.strip_prefix('"')?.strip_suffix('"')?;
        if found.insert(name, value).is_some() {
            return None;
        }
    }
    found.keys().copied().eq(PAIRS).then_some(found)
}

fn sign_error(message: &str) -> Refusal {
    Refusal::new(401, "SIGN_ERROR", message)
}
