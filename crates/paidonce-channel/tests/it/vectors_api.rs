//! Vectors of kind `api_response` and `api_request`: what came back from a platform, and what our calls must look like.
//!
//! A vector says neither which call was made nor from which account: both are read off its own words.

use paidonce_channel::OurAccounts;
use paidonce_channel::alipay::{AlipayAccount, AlipayAppApiConfig};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiRequest, ApiResponse, Ask, ChannelApi, PaymentState, RefundNumbers, RefundState,
    ReplyState,
};
use paidonce_channel::wxpay::{MerchantMode, WXPAY_API_URL, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
use paidonce_channel::{Fact, SecretText};
use paidonce_order::Timestamp;
use paidonce_order::command::PaymentRef;
use paidonce_order::ids::{AccountRef, Channel, ChannelTradeNo, CombineNo, OrderNo, RefundNo};
use serde_json::{Value, json};

use crate::vectors::{DEFAULT_NOW_SECONDS, Judge, alipay_config, text, wxpay_config};

/// What a vector was judged as.
pub struct Judged {
    pub judge: Judge,
    pub got: Value,
}

/// Accounts of `keys.json` with credentials.
struct Asking {
    wxpay: WxpayAccountConfig,
    ours: OurAccounts,
    alipay_account: AccountRef,
    wxpay_account: AccountRef,
}

impl Asking {
    fn new(keys: &Value, partner: &Value) -> Self {
        let api = WxpayApiConfig {
            api_url: WXPAY_API_URL.to_owned(),
            merchant_serial: text(&keys["wechat"]["merchant_serial"]).to_owned(),
            merchant_private_key: SecretText::from(text(&keys["private_pem"]["wechat_merchant"])),
        };
        let mode = match partner.as_str() {
            Some(_) => MerchantMode::Partner { sub_mchids: vec!["*".to_owned()] },
            None => MerchantMode::Direct,
        };
        let wxpay = WxpayAccountConfig { mode, api: Some(api), ..wxpay_config(keys) };
        let mut alipay = alipay_config(keys);
        let private_key = SecretText::from(text(&keys["private_pem"]["alipay_app"]));
        alipay.apps[0].api = Some(AlipayAppApiConfig { private_key, certs: None, app_auth_token: None });
        let named = |channel: &str, id: &str| AccountRef::parse(&format!("{channel}:{id}")).unwrap();
        Self {
            wxpay_account: named("wxpay", &wxpay.mchid),
            alipay_account: named("alipay", &alipay.seller_id),
            ours: OurAccounts::try_new(
                vec![WxpayAccount::try_new(&wxpay).expect("keys.json")],
                vec![AlipayAccount::try_new(&alipay).expect("keys.json")],
            )
            .unwrap(),
            wxpay,
        }
    }

    fn account(&self, channel: Channel) -> &AccountRef {
        match channel {
            Channel::Wxpay => &self.wxpay_account,
            Channel::Alipay => &self.alipay_account,
        }
    }

    fn api(&self, channel: Channel) -> Box<dyn ChannelApi> {
        self.ours.find_api(self.account(channel)).unwrap()
    }
}

fn order_no(value: &Value) -> OrderNo {
    OrderNo::parse(text(value)).unwrap_or_else(|_| OrderNo::parse("ORDER1").unwrap())
}

fn refund_state(account: &AccountRef, trade_no: &Value, order: &Value, refund: &Value) -> Ask {
    let parsed = ChannelTradeNo::parse(text(trade_no));
    let channel_trade_no = parsed.unwrap_or_else(|_| ChannelTradeNo::parse("1").unwrap());
    let refund_no = RefundNo::parse(text(refund)).unwrap_or_else(|_| RefundNo::parse("R1").unwrap());
    let payment = PaymentRef { account: account.clone(), channel_trade_no };
    Ask::RefundState(RefundNumbers { payment, order_no: order_no(order), refund_no })
}

/// The question that this answer fits.
fn ask_for(channel: Channel, account: &AccountRef, vector: &Value) -> Ask {
    let body: Value = serde_json::from_str(text(&vector["body"])).unwrap_or_default();
    match channel {
        Channel::Wxpay if vector["status"] == 204 => Ask::Close { order_no: order_no(&body["out_trade_no"]) },
        Channel::Wxpay if body["data"].is_array() => Ask::Certificates,
        Channel::Wxpay if body["combine_out_trade_no"].is_string() => {
            let combine_out_trade_no = CombineNo::parse(text(&body["combine_out_trade_no"]));
            Ask::CombinePayment {
                combine_out_trade_no: combine_out_trade_no.unwrap_or_else(|_| CombineNo::parse("C1").unwrap()),
            }
        }
        Channel::Wxpay if body["out_refund_no"].is_string() => {
            refund_state(account, &body["transaction_id"], &body["out_trade_no"], &body["out_refund_no"])
        }
        Channel::Wxpay => Ask::Payment { order_no: order_no(&body["out_trade_no"]) },
        Channel::Alipay => {
            let named = body.as_object().into_iter().flatten().find(|(key, _)| key.ends_with("_response"));
            let Some((node, content)) = named else { return Ask::Payment { order_no: order_no(&Value::Null) } };
            match node.as_str() {
                "alipay_trade_fastpay_refund_query_response" => {
                    refund_state(account, &content["trade_no"], &content["out_trade_no"], &content["out_request_no"])
                }
                "alipay_trade_close_response" => Ask::Close { order_no: order_no(&content["out_trade_no"]) },
                _ => Ask::Payment { order_no: order_no(&content["out_trade_no"]) },
            }
        }
    }
}

/// Judges an answer.
pub fn response(keys: &Value, channel: Channel, vector: &Value) -> Judged {
    let body: Value = serde_json::from_str(text(&vector["body"])).unwrap_or_default();
    let asking = Asking::new(keys, &body["sp_mchid"]);
    let ask = ask_for(channel, asking.account(channel), vector);
    let call = ApiCall { sub_mchid: body["sub_mchid"].as_str().map(str::to_owned), ask };
    let headers: Vec<(String, Vec<u8>)> = vector["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), text(value).as_bytes().to_vec()))
        .collect();
    let now = Timestamp::from_micros(vector["clock_now"].as_i64().unwrap_or(DEFAULT_NOW_SECONDS) * 1_000_000);
    let status = vector["status"].as_u64().map_or(200, |status| u16::try_from(status).unwrap());
    let response = ApiResponse { status, headers: &headers, body: text(&vector["body"]).as_bytes(), now };
    let answer = asking.api(channel).read(&call, response);
    let mut judge = Judge::default();
    let mut expected = false;
    for (key, value) in vector.as_object().unwrap().iter().chain(vector["expect"].as_object().into_iter().flatten()) {
        match key.as_str() {
            "verified" | "accept" | "signature_ok" => {
                expected = true;
                judge.check(Some(is_verified(&answer)) == value.as_bool(), format!("{key} is not {value}"));
            }
            "meaning" => {
                expected = true;
                judge_meaning(&mut judge, &answer, text(value));
            }
            "decrypted_certificate_pem" => {
                let same = |pem: &str| pem.trim() == text(value).trim();
                let found = state(&answer).is_some_and(
                    |state| matches!(state, ReplyState::Certificates(keys) if keys.iter().any(|key| same(&key.pem))),
                );
                judge.check(found, "the certificate was not learned");
            }
            "must_not_record_event" => {
                let nothing = facts(&answer).is_empty();
                judge.check(Some(nothing) == value.as_bool(), "something would be recorded");
            }
            "reason" => judge_reason(&mut judge, &answer, text(value)),
            // Words for people, the parts of the vector, and what the signature over them already proves.
            "id" | "kind" | "status" | "headers" | "body" | "clock_now" | "note" | "string_to_verify" | "node"
            | "signed_substring" | "sign" | "expect" => {}
            other => judge.not_judged.push(other.to_owned()),
        }
    }
    if !expected {
        judge.not_judged.push("it expects nothing".to_owned());
    }
    Judged { judge, got: json!(crate::api_signer::word(&answer)) }
}

fn is_verified(answer: &ApiAnswer) -> bool {
    match answer {
        ApiAnswer::Refused(_) | ApiAnswer::Final(_) => true,
        ApiAnswer::Unknown(doubt) => matches!(doubt.code, "unreadable" | "not_ours" | "unknown_code"),
    }
}

fn state(answer: &ApiAnswer) -> Option<&ReplyState> {
    match answer {
        ApiAnswer::Final(reply) => Some(&reply.state),
        ApiAnswer::Refused(_) | ApiAnswer::Unknown(_) => None,
    }
}

fn facts(answer: &ApiAnswer) -> Vec<&Fact> {
    match answer {
        ApiAnswer::Final(reply) => reply.notice.get().observations.iter().map(|one| &one.fact).collect(),
        ApiAnswer::Refused(_) | ApiAnswer::Unknown(_) => Vec::new(),
    }
}

fn judge_reason(judge: &mut Judge, answer: &ApiAnswer, reason: &str) {
    let ApiAnswer::Unknown(doubt) = answer else {
        return judge.check(false, format!("not unknown for {reason}"));
    };
    let fits = match reason {
        "probe" | "unknown_serial" => doubt.code == reason,
        "signature" | "stale" => doubt.code == "bad_signature",
        "missing_header" | "unsigned" | "no_sign" => matches!(doubt.code, "unsigned" | "bad_signature"),
        other => return judge.not_judged.push(format!("reason {other}")),
    };
    judge.check(fits, format!("unknown as {}, not for {reason}", doubt.code));
}

fn judge_meaning(judge: &mut Judge, answer: &ApiAnswer, meaning: &str) {
    let payment = |wanted: PaymentState| match state(answer) {
        Some(ReplyState::Payment(found)) => *found == wanted,
        Some(ReplyState::Combine(Some(known))) => known.sub_orders.iter().all(|part| part.state == Some(wanted)),
        Some(ReplyState::Combine(None)) => wanted == PaymentState::NotFound,
        _ => false,
    };
    let refund = |wanted: RefundState| matches!(state(answer), Some(ReplyState::Refund(found)) if *found == wanted);
    let books = facts(answer);
    let books_payment = matches!(books.as_slice(), [Fact::Payment(_)]);
    let books_refund = matches!(books.as_slice(), [Fact::Refund(_)]);
    let right = match meaning.split(" (").next().unwrap_or_default() {
        "payment_succeeded" => payment(PaymentState::Paid) && books_payment,
        "payment_refunded" => payment(PaymentState::PaidWithRefunds) && books_payment,
        "not_paid_yet" | "created_unpaid" => payment(PaymentState::Unpaid) && books.is_empty(),
        "closed_unpaid" => payment(PaymentState::Closed) && matches!(books.as_slice(), [Fact::AttemptClosed(_)]),
        "not_created_yet_or_unknown" => payment(PaymentState::NotFound) && books.is_empty(),
        "accepted_only" => refund(RefundState::Processing) && books.is_empty(),
        "refund_succeeded" => refund(RefundState::Succeeded) && books_refund,
        "refund_failed_final" => refund(RefundState::Failed) && books_refund,
        "refund_abnormal_not_final" => refund(RefundState::Stalled) && books_refund,
        "refund not done" => refund(RefundState::NotFound) && books.is_empty(),
        "unknown" | "unknown_outcome" | "unverified" | "reject" | "discard" => matches!(answer, ApiAnswer::Unknown(_)),
        "ok" => is_verified(answer),
        other => return judge.not_judged.push(format!("meaning {other}")),
    };
    judge.check(right, format!("does not mean {meaning}"));
}

/// Judges a request: signed as the vector says, and, where a call of ours is meant, the same as that call makes it.
pub fn request(keys: &Value, channel: Channel, vector: &Value) -> Judged {
    let mut judge = Judge::default();
    let made = match channel {
        Channel::Wxpay => wxpay_request(&mut judge, keys, vector),
        Channel::Alipay => alipay_request(&mut judge, keys, vector),
    };
    Judged { judge, got: json!({ "url": made.url, "by": if made.is_call { "call" } else { "signer" } }) }
}

struct Made {
    url: String,
    /// A call of ours makes this request; else it was only signed.
    is_call: bool,
}

fn wxpay_request(judge: &mut Judge, keys: &Value, vector: &Value) -> Made {
    let asking = Asking::new(keys, &Value::Null);
    let account = WxpayAccount::try_new(&asking.wxpay).unwrap();
    let (path, body) = (text(&vector["url_path_and_query"]), text(&vector["body"]));
    let seconds = vector["timestamp"].as_i64().unwrap_or(DEFAULT_NOW_SECONDS);
    let nonce = text(&vector["nonce_str"]).to_owned();
    let moment = ApiMoment { now: Timestamp::from_micros(seconds * 1_000_000), nonce };
    let method = if vector["method"] == "GET" { "GET" } else { "POST" };
    let signed = account.signed_request(method, path, body, &moment).unwrap();
    judge_wxpay(judge, &signed, vector);
    let call = wxpay_call(path).map(|ask| ApiCall { sub_mchid: None, ask });
    if let Some(call) = &call {
        judge_wxpay(judge, &asking.api(Channel::Wxpay).request(call, &moment).unwrap(), vector);
    }
    judge_known_keys(
        judge,
        vector,
        &["url_path_and_query", "timestamp", "nonce_str", "signature_b64", "authorization"],
    );
    Made { url: signed.url, is_call: call.is_some() }
}

fn judge_wxpay(judge: &mut Judge, request: &ApiRequest, vector: &Value) {
    let header = request.headers.iter().find(|(name, _)| *name == "Authorization").map(|(_, value)| value.as_str());
    judge.check(header == vector["authorization"].as_str(), "another Authorization header");
    judge.check(header.is_some_and(|found| found.contains(text(&vector["signature_b64"]))), "another signature");
    judge.check(request.method == text(&vector["method"]), "another method");
    judge.check(request.url == format!("{WXPAY_API_URL}{}", text(&vector["url_path_and_query"])), "another URL");
    judge.check(request.body == text(&vector["body"]).as_bytes(), "another body");
}

fn wxpay_call(path: &str) -> Option<Ask> {
    let order = |text: &str| Some(OrderNo::parse(text).unwrap());
    if let Some(rest) = path.strip_prefix("/v3/pay/transactions/out-trade-no/") {
        return match rest.split_once('?') {
            Some((no, _)) => Some(Ask::Payment { order_no: order(no)? }),
            None => Some(Ask::Close { order_no: order(rest.strip_suffix("/close")?)? }),
        };
    }
    (path == "/v3/certificates").then_some(Ask::Certificates)
}

fn alipay_request(judge: &mut Judge, keys: &Value, vector: &Value) -> Made {
    let asking = Asking::new(keys, &Value::Null);
    let mut config = alipay_config(keys);
    let private_key = SecretText::from(text(&keys["private_pem"]["alipay_app"]));
    config.apps[0].api = Some(AlipayAppApiConfig { private_key, certs: None, app_auth_token: None });
    let account = AlipayAccount::try_new(&config).unwrap();
    let params = &vector["params"];
    let beijing = format!("{}+08:00", text(&params["timestamp"]).replace(' ', "T"));
    let moment = ApiMoment { now: Timestamp::parse(&beijing).unwrap(), nonce: String::new() };
    let (method, biz_content) = (text(&params["method"]), text(&params["biz_content"]));
    let signed = account.signed_request(method, biz_content, &moment).unwrap();
    judge_alipay(judge, &signed, vector);
    let content: Value = serde_json::from_str(biz_content).unwrap_or_default();
    let only_order_no = content.as_object().is_some_and(|content| content.keys().eq(["out_trade_no"]));
    let order_no = order_no(&content["out_trade_no"]);
    let ask = match method {
        "alipay.trade.query" if only_order_no => Some(Ask::Payment { order_no }),
        "alipay.trade.close" if only_order_no => Some(Ask::Close { order_no }),
        _ => None,
    };
    let call = ask.map(|ask| ApiCall { sub_mchid: None, ask });
    if let Some(call) = &call {
        judge_alipay(judge, &asking.api(Channel::Alipay).request(call, &moment).unwrap(), vector);
    }
    judge_known_keys(judge, vector, &["params", "sign"]);
    Made { url: signed.url, is_call: call.is_some() }
}

fn judge_alipay(judge: &mut Judge, request: &ApiRequest, vector: &Value) {
    judge.check(request.method == text(&vector["method"]), "another method");
    let body = String::from_utf8(request.body.clone()).unwrap();
    let sign = body.rsplit_once("&sign=").map(|(_, sign)| sign).unwrap_or_default();
    let sign = percent_encoding::percent_decode_str(sign).decode_utf8().unwrap();
    judge.check(sign == text(&vector["sign"]), "another sign");
    judge.check(body == text(&vector["body"]), "another body");
}

/// `string_to_sign` is what the signature proves.
fn judge_known_keys(judge: &mut Judge, vector: &Value, known: &[&str]) {
    let common = ["id", "kind", "method", "body", "string_to_sign", "note", "verified"];
    let keys = vector.as_object().unwrap().keys().map(String::as_str);
    let unknown = keys.filter(|key| !known.contains(key) && !common.contains(key)).map(str::to_owned);
    judge.not_judged.extend(unknown);
}
