//! What a call looks like on the wire, and its signature (fact B3).

use paidonce_order::command::PaymentRef;
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use serde_json::{Value, json};
use time::UtcOffset;
use time::macros::format_description;

use crate::alipay::account::{AlipayAccount, SignType};
use crate::api::{ApiCall, ApiMoment, ApiRequest, Ask, CallProblem, RefundOrder};

const USER_AGENT: &str = concat!("paidonce/", env!("CARGO_PKG_VERSION"));

/// Longest refund reason, in characters.
const REASON_CHARS_MAX: usize = 128;

/// The method of a question. `None`: Alipay has no such question.
pub(super) const fn method(ask: &Ask) -> Option<&'static str> {
    match ask {
        Ask::Payment { .. } | Ask::PaymentByTradeNo { .. } => Some("alipay.trade.query"),
        Ask::RefundState(_) => Some("alipay.trade.fastpay.refund.query"),
        Ask::Refund(_) => Some("alipay.trade.refund"),
        Ask::Close { .. } => Some("alipay.trade.close"),
        Ask::Share { .. } => Some("alipay.trade.order.settle.query"),
        Ask::AlipayCertificate { .. } => Some("alipay.open.app.alipaycert.download"),
        Ask::CombinePayment { .. } | Ask::CloseCombine { .. } | Ask::Certificates => None,
    }
}

/// The signed request. Errors: Alipay has no such question, or no app has credentials.
pub(super) fn build(account: &AlipayAccount, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
    let none = || CallProblem { field: "ask", problem: "Alipay has no such call".to_owned() };
    let (method, biz_content) = (method(&call.ask).ok_or_else(none)?, biz_content(&call.ask).ok_or_else(none)?);
    account.signed_request(method, &ascii_json(&biz_content), moment)
}

impl AlipayAccount {
    /// Signs any request to the gateway: also those that are not about an order, such as bills. `biz_content` should be
    /// JSON in ASCII (`\u` escapes): then no charset setting on the way can change what was signed.
    ///
    /// Errors: no app of the account has credentials.
    pub fn signed_request(
        &self,
        method: &str,
        biz_content: &str,
        moment: &ApiMoment,
    ) -> Result<ApiRequest, CallProblem> {
        let problem = |problem: &str| CallProblem { field: "app_private_key_file", problem: problem.to_owned() };
        let none = "is missing: with the private key of an app this account can ask";
        let (app_id, _, keys) = self.asking_app().ok_or_else(|| problem(none))?;
        let timestamp = beijing_text(moment.now)
            .ok_or_else(|| CallProblem { field: "now", problem: "is not a time that Alipay can read".to_owned() })?;
        let mut params = vec![
            ("app_id", app_id.to_owned()),
            ("method", method.to_owned()),
            ("format", "JSON".to_owned()),
            ("charset", "utf-8".to_owned()),
            ("sign_type", SignType::Rsa2.as_str().to_owned()),
            ("timestamp", timestamp),
            ("version", "1.0".to_owned()),
        ];
        if let Some(certs) = &keys.certs {
            params.push(("app_cert_sn", certs.app_cert_sn.clone()));
            params.push(("alipay_root_cert_sn", certs.alipay_root_cert_sn.clone()));
        }
        if let Some(token) = &keys.app_auth_token {
            params.push(("app_auth_token", token.expose().to_owned()));
        }
        params.push(("biz_content", biz_content.to_owned()));
        let sign = keys.private_key.sign_sha256(string_to_sign(&params).as_bytes());
        params.push(("sign", sign.ok_or_else(|| problem("could not sign: the host has no memory or entropy left"))?));
        let headers = vec![
            ("Accept", "application/json".to_owned()),
            ("User-Agent", USER_AGENT.to_owned()),
            ("Content-Type", "application/x-www-form-urlencoded;charset=utf-8".to_owned()),
        ];
        let pairs: Vec<String> = params.iter().map(|(key, value)| format!("{key}={}", form_escaped(value))).collect();
        Ok(ApiRequest { method: "POST", url: self.api_url.clone(), headers, body: pairs.join("&").into_bytes() })
    }
}

/// All parameters, `sign_type` too (a notification's rule leaves it out), sorted by key.
fn string_to_sign(params: &[(&'static str, String)]) -> String {
    let mut sorted: Vec<&(&str, String)> = params.iter().filter(|(_, value)| !value.is_empty()).collect();
    sorted.sort_by_key(|(key, _)| *key);
    let pairs: Vec<String> = sorted.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join("&")
}

fn biz_content(ask: &Ask) -> Option<Value> {
    match ask {
        Ask::Payment { order_no } | Ask::Close { order_no } => Some(json!({ "out_trade_no": order_no.as_str() })),
        Ask::PaymentByTradeNo { channel_trade_no, .. } => Some(json!({ "trade_no": channel_trade_no.as_str() })),
        Ask::RefundState(numbers) => Some(json!({
            "trade_no": trade_no(&numbers.payment),
            "out_request_no": numbers.refund_no.as_str(),
            "query_options": ["gmt_refund_pay"],
        })),
        Ask::Refund(refund) => Some(refund_content(refund)),
        Ask::Share { payment, out_order_no, .. } => {
            Some(json!({ "trade_no": trade_no(payment), "out_request_no": out_order_no }))
        }
        Ask::AlipayCertificate { cert_sn } => Some(json!({ "alipay_cert_sn": cert_sn })),
        Ask::CombinePayment { .. } | Ask::CloseCombine { .. } | Ask::Certificates => None,
    }
}

fn refund_content(refund: &RefundOrder) -> Value {
    let mut content = json!({
        "trade_no": trade_no(&refund.numbers.payment),
        // Always: a partial refund without one is refused, and a repeat without one can't be told from a second refund.
        "out_request_no": refund.numbers.refund_no.as_str(),
        "refund_amount": decimal(refund.amount),
    });
    let reason = refund.reason.as_deref().map(|text| text.chars().take(REASON_CHARS_MAX).collect::<String>());
    if let (Some(members), Some(reason)) = (content.as_object_mut(), reason.filter(|text| !text.is_empty())) {
        members.insert("refund_reason".to_owned(), json!(reason));
    }
    content
}

fn trade_no(payment: &PaymentRef) -> &str {
    payment.channel_trade_no.as_str()
}

/// Major units with all decimals of the currency (`10.00`), by integers alone.
fn decimal(money: Money) -> String {
    let decimals = usize::from(money.currency.exponent());
    let sign = if money.amount_minor < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", money.amount_minor.unsigned_abs(), width = decimals.saturating_add(1));
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(decimals));
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// `yyyy-MM-dd HH:mm:ss`, Beijing time.
fn beijing_text(at: Timestamp) -> Option<String> {
    let beijing = UtcOffset::from_hms(8, 0, 0).ok()?;
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    at.to_datetime().to_offset(beijing).format(format).ok()
}

/// JSON in ASCII alone: then no charset setting on the way can make the gateway sign other bytes than we did.
fn ascii_json(value: &Value) -> String {
    let mut ascii = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            let mut units = [0_u16; 2];
            ascii.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ascii
}

/// `application/x-www-form-urlencoded`, a space as `+`.
fn form_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => escaped.push('+'),
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'*' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;
    use paidonce_order::money::Currency;

    #[test]
    fn fen_become_yuan_by_integers_alone() {
        for (fen, yuan) in
            [(1, "0.01"), (10, "0.10"), (100, "1.00"), (105, "1.05"), (1999, "19.99"), (100_105, "1001.05")]
        {
            assert_eq!(decimal(Money::fen(fen)), yuan);
        }
        assert_eq!(decimal(Money::fen(i64::MAX)), "92233720368547758.07");
        assert_eq!(decimal(Money::new(88, Currency::parse("JPY").unwrap())), "88");
    }

    #[test]
    fn the_time_of_a_request_is_beijing_time() {
        let at = Timestamp::parse("2025-12-31T16:30:05.999Z").unwrap();
        assert_eq!(beijing_text(at).unwrap(), "2026-01-01 00:30:05");
    }

    #[test]
    fn the_content_is_ascii_and_still_says_the_same() {
        let value = json!({ "refund_reason": "退款 \"a\" 😀 \\ /" });
        let text = ascii_json(&value);
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
