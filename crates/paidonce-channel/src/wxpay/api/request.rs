//! What a call looks like on the wire, and its signature (fact A3).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::api::{ApiCall, ApiMoment, ApiRequest, Ask, CallProblem, KnownCombine, RefundOrder, SubOrder};
use crate::wxpay::account::{SubMchids, WxpayAccount};

/// Also the word that starts the `Authorization` header.
const SCHEMA: &str = "WECHATPAY2-SHA256-RSA2048";

/// WeChat Pay answers 4xx to a request without one.
const USER_AGENT: &str = concat!("paidonce/", env!("CARGO_PKG_VERSION"));

/// Everything but RFC 3986 unreserved characters: what is signed is exactly what any HTTP client then sends.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest refund reason, in bytes of UTF-8.
const REASON_BYTES_MAX: usize = 80;

/// The parts that are signed.
struct Unsigned {
    method: &'static str,
    path_and_query: String,
    body: String,
}

impl Unsigned {
    fn get(path: String, query: &[(&str, &str)]) -> Self {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let path_and_query = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        Self { method: "GET", path_and_query, body: String::new() }
    }

    fn post(path_and_query: String, body: &Value) -> Self {
        Self { method: "POST", path_and_query, body: body.to_string() }
    }
}

/// The signed request. Errors: a number or a sub-merchant with which the call can't be made.
pub(super) fn build(account: &WxpayAccount, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
    let Unsigned { method, path_and_query, body } = unsigned(account, call)?;
    account.signed_request(method, &path_and_query, &body, moment)
}

impl WxpayAccount {
    /// Signs any request to WeChat Pay: also those that are not about an order, such as bills.
    ///
    /// Guarantees: what is signed is `path_and_query` and `body` exactly as given; they must be sent so.
    /// Errors: the account has no credentials.
    pub fn signed_request(
        &self,
        method: &'static str,
        path_and_query: &str,
        body: &str,
        moment: &ApiMoment,
    ) -> Result<ApiRequest, CallProblem> {
        let problem = |problem: &str| CallProblem { field: "merchant_private_key_file", problem: problem.to_owned() };
        let none = "is missing: with merchant_serial and the key of that certificate this account can ask";
        let keys = self.api.as_ref().ok_or_else(|| problem(none))?;
        let timestamp = moment.now.as_seconds().to_string();
        let message = format!("{method}\n{path_and_query}\n{timestamp}\n{}\n{body}\n", moment.nonce);
        let signature = keys.private_key.sign_sha256(message.as_bytes());
        let signature = signature.ok_or_else(|| problem("could not sign: the host has no memory or entropy left"))?;
        let pairs = [
            ("mchid", self.account.account.as_str()),
            ("nonce_str", &moment.nonce),
            ("timestamp", &timestamp),
            ("serial_no", &keys.merchant_serial),
            ("signature", &signature),
        ];
        let quoted: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let mut headers = vec![
            ("Authorization", format!("{SCHEMA} {}", quoted.join(","))),
            ("Accept", "application/json".to_owned()),
            ("User-Agent", USER_AGENT.to_owned()),
        ];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        // Asks for an answer signed with the public key: without it a merchant in the switch gets the old certificate's.
        headers.extend(self.public_key_id.clone().map(|id| ("Wechatpay-Serial", id)));
        let url = format!("{}{path_and_query}", keys.api_url);
        Ok(ApiRequest { method, url, headers, body: body.as_bytes().to_vec() })
    }
}

fn unsigned(account: &WxpayAccount, call: &ApiCall) -> Result<Unsigned, CallProblem> {
    match &call.ask {
        Ask::Payment { order_no } => {
            let merchant = Merchant::of(account, call)?;
            let (path, no) = (merchant.payments_path(), segment("order_no", order_no.as_str())?);
            Ok(Unsigned::get(format!("{path}/out-trade-no/{no}"), &merchant.query()))
        }
        Ask::PaymentByTradeNo { channel_trade_no, .. } => {
            let merchant = Merchant::of(account, call)?;
            let (path, no) = (merchant.payments_path(), segment("channel_trade_no", channel_trade_no.as_str())?);
            Ok(Unsigned::get(format!("{path}/id/{no}"), &merchant.query()))
        }
        Ask::CombinePayment { combine_out_trade_no } => {
            let no = segment("combine_out_trade_no", combine_out_trade_no.as_str())?;
            Ok(Unsigned::get(format!("/v3/combine-transactions/out-trade-no/{no}"), &[]))
        }
        Ask::CloseCombine { combine_out_trade_no, known } => {
            let no = segment("combine_out_trade_no", combine_out_trade_no.as_str())?;
            Ok(Unsigned::post(format!("/v3/combine-transactions/out-trade-no/{no}/close"), &combine_close_body(known)))
        }
        Ask::RefundState(numbers) => {
            let merchant = Merchant::of(account, call)?;
            let no = segment("refund_no", numbers.refund_no.as_str())?;
            Ok(Unsigned::get(format!("/v3/refund/domestic/refunds/{no}"), &merchant.sub_query()))
        }
        Ask::Refund(refund) => {
            let body = refund_body(&Merchant::of(account, call)?, refund);
            Ok(Unsigned::post("/v3/refund/domestic/refunds".to_owned(), &body))
        }
        Ask::Close { order_no } => {
            let merchant = Merchant::of(account, call)?;
            let (path, no) = (merchant.payments_path(), segment("order_no", order_no.as_str())?);
            let body: Map<String, Value> =
                merchant.query().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
            Ok(Unsigned::post(format!("{path}/out-trade-no/{no}/close"), &Value::Object(body)))
        }
        Ask::Share { payment, out_order_no, .. } => {
            let merchant = Merchant::of(account, call)?;
            let no = segment("out_order_no", out_order_no)?;
            let mut query = merchant.sub_query();
            query.push(("transaction_id", payment.channel_trade_no.as_str()));
            Ok(Unsigned::get(format!("/v3/profitsharing/orders/{no}"), &query))
        }
        Ask::AlipayCertificate { .. } => {
            Err(CallProblem { field: "ask", problem: "WeChat Pay has no such call".to_owned() })
        }
        Ask::Certificates => Ok(Unsigned::get("/v3/certificates".to_owned(), &[])),
    }
}

fn combine_close_body(known: &KnownCombine) -> Value {
    let part = |part: &SubOrder| {
        let mut members = json!({ "mchid": part.mchid, "out_trade_no": part.out_trade_no });
        if let (Some(members), Some(sub_mchid)) = (members.as_object_mut(), &part.sub_mchid) {
            members.insert("sub_mchid".to_owned(), json!(sub_mchid));
        }
        members
    };
    let sub_orders: Vec<Value> = known.sub_orders.iter().map(part).collect();
    json!({ "combine_appid": known.combine_appid, "sub_orders": sub_orders })
}

fn refund_body(merchant: &Merchant<'_>, refund: &RefundOrder) -> Value {
    let mut body = json!({
        "transaction_id": refund.numbers.payment.channel_trade_no.as_str(),
        "out_refund_no": refund.numbers.refund_no.as_str(),
        "amount": {
            "refund": refund.amount.amount_minor,
            "total": refund.payment_amount.amount_minor,
            "currency": refund.amount.currency.as_str(),
        },
    });
    if let Some(members) = body.as_object_mut() {
        let reason = refund.reason.as_deref().map(cut_reason).filter(|reason| !reason.is_empty());
        members.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
        members.extend(merchant.sub_query().into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
    }
    body
}

/// A longer reason would make WeChat Pay refuse the refund: words for people must not do that.
fn cut_reason(reason: &str) -> &str {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    end.and_then(|end| reason.get(..end)).unwrap_or_default()
}

/// Whose order it is: the mchid's own, or that of a sub-merchant of the service provider (a query then needs both numbers).
enum Merchant<'a> {
    Direct { mchid: &'a str },
    Partner { sp_mchid: &'a str, sub_mchid: &'a str },
}

impl<'a> Merchant<'a> {
    fn of(account: &'a WxpayAccount, call: &'a ApiCall) -> Result<Self, CallProblem> {
        let mchid = account.account.account.as_str();
        let problem = |problem: String| CallProblem { field: "sub_mchid", problem };
        match (&account.sub_mchids, call.sub_mchid.as_deref()) {
            (SubMchids::None, None) => Ok(Self::Direct { mchid }),
            (SubMchids::None, Some(sub_mchid)) => Err(problem(format!(
                "the order belongs to sub-merchant {sub_mchid:?}, but {mchid} is not configured as a service provider: set partner = true"
            ))),
            (SubMchids::Any | SubMchids::Only(_), None) => Err(problem(format!(
                "{mchid} is a service provider: open its orders with sub_mchid, so that they can be asked about"
            ))),
            (SubMchids::Any | SubMchids::Only(_), Some(sub_mchid)) => {
                let ours = account.sub_mchids.has(sub_mchid).then_some(Self::Partner { sp_mchid: mchid, sub_mchid });
                ours.ok_or_else(|| problem(format!("{sub_mchid:?} is not among the sub_mchids of {mchid}: add it")))
            }
        }
    }

    const fn payments_path(&self) -> &'static str {
        match self {
            Self::Direct { .. } => "/v3/pay/transactions",
            Self::Partner { .. } => "/v3/pay/partner/transactions",
        }
    }

    fn query(&self) -> Vec<(&'static str, &'a str)> {
        match *self {
            Self::Direct { mchid } => vec![("mchid", mchid)],
            Self::Partner { sp_mchid, sub_mchid } => vec![("sp_mchid", sp_mchid), ("sub_mchid", sub_mchid)],
        }
    }

    fn sub_query(&self) -> Vec<(&'static str, &'a str)> {
        match *self {
            Self::Direct { .. } => Vec::new(),
            Self::Partner { sub_mchid, .. } => vec![("sub_mchid", sub_mchid)],
        }
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// A number as one segment of the path. HTTP clients fold `.` and `..` away, and then another path than the signed one is
/// asked.
fn segment(field: &'static str, text: &str) -> Result<String, CallProblem> {
    if text.is_empty() || text.bytes().all(|b| b == b'.') {
        return Err(CallProblem { field, problem: format!("{text:?} can't stand in a path: use another number") });
    }
    Ok(escaped(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut_reason("short"), "short");
        assert_eq!(cut_reason(&"x".repeat(81)).len(), 80);
        assert_eq!(cut_reason(&"退".repeat(40)), "退".repeat(26));
    }

    #[test]
    fn a_number_stays_one_segment() {
        assert_eq!(segment("order_no", "a/b?c|d*e@f").unwrap(), "a%2Fb%3Fc%7Cd%2Ae%40f");
        assert_eq!(segment("order_no", "A-1_2.3~").unwrap(), "A-1_2.3~");
        for text in ["", ".", "..", "..."] {
            assert!(segment("order_no", text).is_err(), "{text}");
        }
    }
}
