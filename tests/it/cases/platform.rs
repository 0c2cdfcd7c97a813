//! Turns a `wechat_notify`, `wechat_raw` or `alipay_notify` step into the request that the platform (or an attacker)
//! would send: sealed, signed and written at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paidonce_tests::keys::{self, TestKey};
use paidonce_tests::signer::{self, Charset, KeepSignType, SignField};
use paidonce_tests::wire::{Request, Transfer};
use serde_json::{Map, Value};

use super::script::{list, map_texts, text};

/// Tries of another subject until the signature has the wanted character: one in three has it.
const SUBJECTS_MAX: u32 = 200;

/// Everything that the requests of one case have in common.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Test clock, unix seconds.
    pub now: i64,
    /// Path name to WeChat merchant number.
    pub merchants: BTreeMap<String, String>,
    /// Key that signs for merchant 1900000001.
    pub wechat_key: &'static TestKey,
    /// Order numbers of the case: as a last path segment they have no counterpart in this ledger.
    pub orders: Vec<String>,
    /// Number of a payment attempt to our order number.
    pub attempts: BTreeMap<String, String>,
}

impl Platform {
    /// The request of a WeChat push, or why it can't be built.
    pub fn wechat(&self, step: &Value) -> Result<Request, String> {
        let step = &self.rename_attempts(step);
        let body = match text(step, "do") {
            "wechat_raw" => expand_repeat(text(step, "body")).into_bytes(),
            _ => self.wechat_body(step, text(step, "body_form"))?,
        };
        let key = self.wechat_signing_key(step)?;
        let timestamp = self.now + step["ts_offset_s"].as_i64().unwrap_or(0);
        let mut headers = self.wechat_signature(step, key, timestamp, &body)?;
        self.override_headers(&mut headers, step);
        let wire = &step["wire"];
        let content_type = match wire.get("content_type") {
            Some(Value::Null) => None,
            Some(other) => other.as_str(),
            None => Some("application/json"),
        };
        let mut request = Request::post(self.path(step, "wechat")?, body);
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        Ok(finish(request.headers(headers), step))
    }

    /// The request of an Alipay notification, or why it can't be built.
    pub fn alipay(&self, step: &Value) -> Result<Request, String> {
        let step = &self.rename_attempts(step);
        let wire = &step["wire"];
        let charset = match text(wire, "charset").to_ascii_lowercase().as_str() {
            "" | "utf-8" | "utf8" => Charset::Utf8,
            "gbk" | "gb2312" => Charset::Gbk,
            other => return Err(format!("wire.charset {other:?}")),
        };
        let field = match text(wire, "sign_field") {
            "" | "escaped" | "percent" => SignField::Escaped,
            "plus_left_unescaped" => SignField::PlusLeft,
            other => return Err(format!("wire.sign_field {other:?}")),
        };
        let mut params: Vec<(String, String)> = list(&step["params"])
            .iter()
            .map(|pair| {
                let value = pair[1].as_str().map_or_else(|| pair[1].to_string(), expand_repeat);
                (pair[0].as_str().unwrap_or_default().to_owned(), value)
            })
            .collect();
        let sign = alipay_sign(step, &mut params, charset)?;
        let form = signer::alipay_form(&params, sign.as_deref(), charset, field);
        let mut request = Request::post(self.path(step, "alipay")?, form);
        match wire.get("content_type") {
            None => request = request.header("Content-Type", "application/x-www-form-urlencoded;charset=utf-8"),
            Some(Value::Null) => {}
            Some(value) => request = request.header("Content-Type", value.as_str().unwrap_or_default()),
        }
        let mut headers = Vec::new();
        self.override_headers(&mut headers, step);
        Ok(finish(request.headers(headers), step))
    }

    /// `/notify/wechat/m1` becomes `/callbacks/wxpay/1900000001`; a last segment that is an order number of the case is
    /// dropped, because this ledger's paths name an account and nothing else.
    pub fn path(&self, step: &Value, provider: &str) -> Result<String, String> {
        let written = [text(step, "path"), text(&step["wire"], "path")].into_iter().find(|path| !path.is_empty());
        let default = format!("/notify/{provider}/m1");
        let written = written.unwrap_or(&default);
        let Some(rest) = written.strip_prefix("/notify/") else {
            return Ok(format!("{written}{}", text(step, "path_suffix")));
        };
        let mut segments = rest.split('/');
        let (channel, name) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        let account = match channel {
            "wechat" => format!("wxpay/{}", self.merchants.get(name).map_or(name, String::as_str)),
            "alipay" => format!("alipay/{}", if name == "m1" { "2088000000000001" } else { name }),
            other => return Err(format!("the channel {other} is not in this release")),
        };
        let more: Vec<&str> = segments.filter(|segment| !self.orders.iter().any(|order| order == segment)).collect();
        let more: String = more.iter().map(|segment| format!("/{segment}")).collect();
        Ok(format!("/callbacks/{account}{more}{}", text(step, "path_suffix")))
    }

    fn rename_attempts(&self, step: &Value) -> Value {
        map_texts(step, &|text| self.attempts.get(text).cloned().unwrap_or_else(|| text.to_owned()))
    }

    fn wechat_body(&self, step: &Value, form: &str) -> Result<Vec<u8>, String> {
        let plain = match step["resource_raw"].as_str() {
            Some(raw) => raw.to_owned(),
            None => step["resource"].to_string(),
        };
        let mut envelope = step["envelope"].clone();
        if !envelope.is_object() {
            return Err("an envelope that is not an object".to_owned());
        }
        let nonce = match text(&envelope["resource"], "nonce") {
            "@nonce12" => signer::fresh_nonce(),
            written => expand_repeat(written),
        };
        if envelope["resource"].get("nonce").is_some() {
            envelope["resource"]["nonce"] = Value::String(nonce.clone());
        }
        if text(&envelope["resource"], "ciphertext") == "@seal(resource)" {
            let label = text(&envelope["resource"], "associated_data");
            let aad = step["seal_aad"].as_str().unwrap_or(label).to_owned();
            let sealed = signer::seal(&self.apiv3_key(step)?, &nonce, &aad, plain.as_bytes());
            let tampered = tamper(&sealed, text(step, "tamper_ciphertext"))?;
            envelope["resource"]["ciphertext"] = Value::String(tampered);
        }
        write_json(&envelope, form).map(String::into_bytes)
    }

    fn apiv3_key(&self, step: &Value) -> Result<String, String> {
        match (text(step, "seal_key"), self.merchant(step)) {
            ("", "1900000002") => Ok(signer::APIV3_KEY_M2.to_owned()),
            ("" | "apiv3_A", _) => Ok(signer::APIV3_KEY_A.to_owned()),
            ("apiv3_B", _) => Ok(signer::APIV3_KEY_B.to_owned()),
            (other, _) => Ok(named_apiv3_key(other)),
        }
    }

    fn merchant<'a>(&'a self, step: &'a Value) -> &'a str {
        let name = text(step, "merchant");
        self.merchants.get(name).map_or("1900000001", String::as_str)
    }

    fn wechat_signing_key(&self, step: &Value) -> Result<&'static TestKey, String> {
        match (text(step, "key"), self.merchant(step)) {
            ("", "1900000002") => Ok(keys::key("platform_cert_3")),
            ("", _) => Ok(self.wechat_key),
            (name, _) => keys::find_key(name).ok_or_else(|| format!("the key {name}")),
        }
    }

    fn wechat_signature(
        &self,
        step: &Value,
        key: &TestKey,
        timestamp: i64,
        body: &[u8],
    ) -> Result<Vec<(String, String)>, String> {
        let nonce = signer::fresh_text(32);
        let sign = |bytes: &[u8]| key.sign(&signer::wx_message(timestamp, &nonce, bytes));
        let signature = match step["sign"].as_str().unwrap_or("valid") {
            "valid" => sign(body),
            "invalid" => sign(b"something else"),
            "absent" => String::new(),
            "signature_of_other_form" => {
                let other = if text(step, "body_form") == "spaced" { "compact" } else { "spaced" };
                let envelope: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
                sign(write_json(&envelope, other)?.as_bytes())
            }
            "captured_then_new_timestamp_and_nonce" => {
                key.sign(&signer::wx_message(timestamp - 3600, &signer::fresh_text(32), body))
            }
            other => match other.strip_prefix("literal:") {
                Some(literal) => literal.to_owned(),
                None => return Err(format!("sign {other:?}")),
            },
        };
        let mut headers = signer::wx_header_list(key.id, timestamp, &nonce, &signature);
        if text(step, "sign") == "absent" {
            headers.retain(|(name, _)| name != "Wechatpay-Signature");
        }
        Ok(headers)
    }

    fn override_headers(&self, headers: &mut Vec<(String, String)>, step: &Value) {
        for (name, value) in step["headers"].as_object().unwrap_or(&Map::new()) {
            headers.retain(|(existing, _)| !existing.eq_ignore_ascii_case(name));
            if let Some(value) = value.as_str() {
                headers.push((name.clone(), self.expand_header(value)));
            }
        }
        match text(step, "drop_header") {
            "" => {}
            "*" => headers.clear(),
            dropped => headers.retain(|(name, _)| !name.eq_ignore_ascii_case(dropped)),
        }
        for (name, _) in headers.iter_mut() {
            *name = match text(step, "header_case") {
                "lower" => name.to_ascii_lowercase(),
                "upper" => name.to_ascii_uppercase(),
                "mixed" => mixed_case(name),
                _ => name.clone(),
            };
        }
    }

    fn expand_header(&self, value: &str) -> String {
        if value == "@now" {
            return self.now.to_string();
        }
        let named = value.strip_prefix("@id(").and_then(|rest| rest.strip_suffix(')')).and_then(keys::find_key);
        named.map_or_else(|| expand_repeat(value), |key| key.id.to_owned())
    }
}

/// A 32-byte APIv3 key of that name.
pub fn named_apiv3_key(name: &str) -> String {
    match name {
        "apiv3_A" => signer::APIV3_KEY_A.to_owned(),
        "apiv3_B" => signer::APIV3_KEY_B.to_owned(),
        other => format!("{other:-<32}").chars().filter(char::is_ascii).take(32).collect(),
    }
}

/// What belongs to the transport: chunks, pauses, an early close.
fn finish(mut request: Request, step: &Value) -> Request {
    let wire = &step["wire"];
    let number = |name: &str| usize::try_from(wire[name].as_u64().unwrap_or(0)).unwrap_or(0);
    if text(wire, "transfer") == "chunked" {
        let trailer = list(&wire["trailer"]);
        request.transfer = Transfer::Chunked {
            size: number("chunk_size").max(1),
            extension: wire["chunk_extension"].as_str().map(str::to_owned),
            trailer: match trailer.as_slice() {
                [name, value] => {
                    Some((name.as_str().unwrap_or_default().to_owned(), value.as_str().unwrap_or_default().to_owned()))
                }
                _ => None,
            },
            also_content_length: wire["also_content_length"] == Value::Bool(true),
        };
        if number("chunk_size") == 0 {
            let size = request.body.len();
            if let Transfer::Chunked { size: chunk, .. } = &mut request.transfer {
                *chunk = size;
            }
        }
    }
    if wire["split_inside_multibyte"] == Value::Bool(true) {
        let first = request.body.iter().position(|byte| !byte.is_ascii()).unwrap_or(request.body.len() / 2);
        let pause = Duration::from_millis(wire["pause_ms"].as_u64().unwrap_or(0));
        request.transfer = Transfer::Split { at: first + 1, pause };
    }
    if wire["expect_100_continue"] == Value::Bool(true) {
        request.transfer = Transfer::Expect;
    }
    request.close_after = step["close_after_ms"].as_u64().map(Duration::from_millis);
    request
}

/// The `sign` value of an Alipay form (`None`: there is none); may change the subject, as `sign_must_contain` asks.
fn alipay_sign(step: &Value, params: &mut [(String, String)], charset: Charset) -> Result<Option<String>, String> {
    let key = match text(step, "key") {
        "" => keys::key("alipay_platform"),
        name => keys::find_key(name).ok_or_else(|| format!("the key {name}"))?,
    };
    let content = |params: &[(String, String)], keep| signer::alipay_content(params, charset, keep);
    match step["sign"].as_str().unwrap_or("valid") {
        "valid" => {
            let wanted = text(step, "sign_must_contain");
            let mut sign = key.sign(&content(params, KeepSignType::No));
            for number in 0..SUBJECTS_MAX {
                if sign.contains(wanted) {
                    return Ok(Some(sign));
                }
                let subject = params.iter_mut().find(|(name, _)| name == "subject").ok_or("no subject to change")?;
                subject.1 = format!("subject {number}");
                sign = key.sign(&content(params, KeepSignType::No));
            }
            Err(format!("no signature contains {wanted:?}"))
        }
        "valid_including_sign_type" => Ok(Some(key.sign(&content(params, KeepSignType::Yes)))),
        "invalid" => Ok(Some(key.sign(b"something else"))),
        "absent" => Ok(None),
        other => match other.strip_prefix("literal:") {
            Some(literal) => Ok(Some(literal.to_owned())),
            None => Err(format!("sign {other:?}")),
        },
    }
}

fn tamper(sealed: &str, how: &str) -> Result<String, String> {
    let mut bytes = STANDARD.decode(sealed).map_err(|e| e.to_string())?;
    match how {
        "" => return Ok(sealed.to_owned()),
        "flip_last_byte_before_signing" | "flip_last_byte" => {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
        "flip_first_byte_before_signing" | "flip_first_byte" => bytes[0] ^= 1,
        "truncate" | "drop_tag" => bytes.truncate(bytes.len().saturating_sub(16)),
        other => return Err(format!("tamper_ciphertext {other:?}")),
    }
    Ok(STANDARD.encode(bytes))
}

/// `@repeat("x",n)` and `@repeat(n,x)`; any other text stays.
pub fn expand_repeat(text: &str) -> String {
    let Some(arguments) = text.strip_prefix("@repeat(").and_then(|rest| rest.strip_suffix(')')) else {
        return text.to_owned();
    };
    let Some((first, second)) = arguments.rsplit_once(',') else { return text.to_owned() };
    let bare = |part: &str| part.trim().trim_matches('"').to_owned();
    if let Ok(times) = second.trim().parse::<usize>() {
        return bare(first).repeat(times);
    }
    let (first, second) = arguments.split_once(',').unwrap_or((first, second));
    first.trim().parse::<usize>().map_or_else(|_| text.to_owned(), |times| bare(second).repeat(times))
}

fn mixed_case(name: &str) -> String {
    name.chars()
        .enumerate()
        .map(|(i, c)| if i % 2 == 0 { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() })
        .collect()
}

/// The same JSON in another byte form.
fn write_json(value: &Value, form: &str) -> Result<String, String> {
    match form {
        "" | "compact" => Ok(value.to_string()),
        "pretty" => serde_json::to_string_pretty(value).map_err(|e| e.to_string()),
        "spaced" => Ok(spaced(value, Order::AsIs)),
        "keys_reversed" => Ok(spaced(value, Order::Reversed)),
        other => Err(format!("body_form {other:?}")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AsIs,
    Reversed,
}

fn spaced(value: &Value, order: Order) -> String {
    match value {
        Value::Object(members) => {
            let mut parts: Vec<String> = members
                .iter()
                .map(|(name, member)| format!("{}: {}", Value::String(name.clone()), spaced(member, order)))
                .collect();
            if order == Order::Reversed {
                parts.reverse();
            }
            format!("{{{}}}", parts.join(", "))
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(|item| spaced(item, order)).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
