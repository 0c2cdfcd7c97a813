//! Who signed a request to Alipay's gateway: all parameters except `sign`, sorted, joined, signed with the app's key.
//!
//! Parameters may stand in the query and in the body; a name that comes twice is refused. Strict on purpose: a client that
//! passes here passes at the platform.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Refusal;
use crate::accounts::{Accounts, KnownSeller};
use crate::moment::Moment;
use crate::order::Charset;

/// A request's clock may differ from the platform's by less than this.
pub const CLOCK_SECONDS_MAX: u64 = 600;

/// A request that its app signed.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose app.
    pub seller: Arc<KnownSeller>,
    /// `alipay.trade.query`.
    pub method: String,
    /// biz_content.
    pub biz: Value,
    /// Of the request, and so of the answer.
    pub charset: Charset,
    /// `notify_url`, where the method takes one.
    pub notify_url: Option<String>,
    /// `app_auth_token`, of an app that acts for somebody else.
    pub app_auth_token: Option<String>,
    /// `app_cert_sn`, in certificate mode.
    pub app_cert_sn: Option<String>,
    /// `alipay_root_cert_sn`, in certificate mode.
    pub alipay_root_cert_sn: Option<String>,
}

impl Caller {
    /// A text member of biz_content; empty counts as absent.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.biz.get(name).and_then(Value::as_str).filter(|value| !value.is_empty())
    }
}

/// A request that nobody signed as it must be.
#[derive(Debug, Clone)]
pub struct Unknown {
    /// Why.
    pub refusal: Refusal,
    method: Option<String>,
    app: App,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum App {
    Known,
    Unknown,
}

impl Unknown {
    /// Whether the answer can be signed: Alipay signs with the key of the app's own page.
    #[must_use]
    pub fn app_is_known(&self) -> bool {
        self.app == App::Known
    }

    /// `error_response` when not even the method is known.
    #[must_use]
    pub fn node_name(&self) -> String {
        self.method.as_deref().map_or_else(|| "error_response".to_owned(), node_name)
    }
}

/// `alipay.trade.query` -> `alipay_trade_query_response`.
#[must_use]
pub fn node_name(method: &str) -> String {
    format!("{}_response", method.replace('.', "_"))
}

/// Decoded once, still bytes: the charset is one of the parameters.
type Parameters = BTreeMap<String, Vec<u8>>;

/// Who signed it. Errors: why nobody did, in Alipay's words.
pub fn check(accounts: &Accounts, query: &str, body: &[u8], now: Moment) -> Result<Caller, Unknown> {
    let nobody = |refusal| Unknown { refusal, method: None, app: App::Unknown };
    let Some(parameters) = parameters(query, body) else {
        return Err(nobody(Refusal::invalid("isv.invalid-parameter", "参数重复或格式错误")));
    };
    let method = text(&parameters, "method").ok_or_else(|| nobody(Refusal::missing("isv.missing-method")))?;
    let app_id = text(&parameters, "app_id").ok_or_else(|| nobody(Refusal::missing("isv.missing-app-id")))?;
    let Some(seller) = accounts.find_seller_of_app(&app_id) else {
        return Err(nobody(Refusal::invalid("isv.invalid-app-id", "无效的AppID参数")));
    };
    let refuse = |refusal| Unknown { refusal, method: Some(method.clone()), app: App::Known };
    let charset = common(&parameters, now).map_err(refuse)?;
    let sign = text(&parameters, "sign").ok_or_else(|| refuse(Refusal::missing("isv.missing-signature")))?;
    if !seller.key.verifies(&content(&parameters), &sign) {
        let refusal = Refusal::invalid("isv.invalid-signature", "验签出错，请确认charset、sign_type和应用公钥是否正确");
        return Err(refuse(refusal));
    }
    let biz = decode(parameters.get("biz_content").map_or(&b"{}"[..], Vec::as_slice), charset);
    let biz: Value = serde_json::from_str(&biz)
        .map_err(|_| refuse(Refusal::invalid("isv.invalid-parameter", "biz_content不是JSON")))?;
    let named = |name| text(&parameters, name);
    Ok(Caller {
        seller: Arc::clone(seller),
        biz,
        charset,
        notify_url: named("notify_url"),
        app_auth_token: named("app_auth_token"),
        app_cert_sn: named("app_cert_sn"),
        alipay_root_cert_sn: named("alipay_root_cert_sn"),
        method,
    })
}

/// The parameters that every call has.
fn common(parameters: &Parameters, now: Moment) -> Result<Charset, Refusal> {
    let named = |name: &str| text(parameters, name);
    if named("format").is_some_and(|format| !format.eq_ignore_ascii_case("json")) {
        return Err(Refusal::invalid("isv.invalid-format", "无效的数据格式"));
    }
    match named("sign_type").as_deref() {
        Some("RSA2") => {}
        Some(_) => return Err(Refusal::invalid("isv.invalid-signature-type", "无效签名类型")),
        None => return Err(Refusal::missing("isv.missing-signature-type")),
    }
    if named("version").as_deref() != Some("1.0") {
        return Err(Refusal::missing("isv.missing-version"));
    }
    let timestamp = named("timestamp").ok_or_else(|| Refusal::missing("isv.missing-timestamp"))?;
    let at = Moment::parse_text(&timestamp);
    if at.is_none_or(|at| at.seconds().abs_diff(now.seconds()) >= CLOCK_SECONDS_MAX) {
        return Err(Refusal::invalid("isv.invalid-timestamp", "非法的时间戳参数"));
    }
    match named("charset").map(|charset| charset.to_ascii_lowercase()).as_deref() {
        Some("utf-8" | "utf8") => Ok(Charset::Utf8),
        Some("gbk" | "gb2312" | "gb18030") => Ok(Charset::Gbk),
        Some(_) => Err(Refusal::invalid("isv.invalid-charset", "字符集错误")),
        None => Err(Refusal::missing("isv.missing-charset")),
    }
}

/// What was signed: names in byte order, values as they are, nothing empty.
fn content(parameters: &Parameters) -> Vec<u8> {
    let signed = parameters.iter().filter(|(name, value)| *name != "sign" && !value.is_empty());
    let pairs: Vec<Vec<u8>> = signed.map(|(name, value)| [name.as_bytes(), b"=", value.as_slice()].concat()).collect();
    pairs.join(&b'&')
}

/// `None`: a name comes twice, or a name is no text.
fn parameters(query: &str, body: &[u8]) -> Option<Parameters> {
    let mut found = Parameters::new();
    for pair in query.as_bytes().split(|byte| *byte == b'&').chain(body.split(|byte| *byte == b'&')) {
        if pair.is_empty() {
            continue;
        }
        let split = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at_checked(split)?;
        let value = value.strip_prefix(b"=").unwrap_or_default();
        if found.insert(String::from_utf8(form_decode(name)).ok()?, form_decode(value)).is_some() {
            return None;
        }
    }
    Some(found)
}

fn form_decode(bytes: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

/// An ASCII parameter; empty counts as absent.
fn text(parameters: &Parameters, name: &str) -> Option<String> {
    let value = parameters.get(name).filter(|value| !value.is_empty())?;
    String::from_utf8(value.clone()).ok()
}

fn decode(bytes: &[u8], charset: Charset) -> String {
    match charset {
        Charset::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        Charset::Gbk => encoding_rs::GBK.decode(bytes).0.into_owned(),
    }
}
