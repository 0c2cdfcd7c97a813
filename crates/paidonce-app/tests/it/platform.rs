//! Both platforms, answering call by call as a script says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use paidonce_app::ports::{ChannelClient, KeyRefresh};
use paidonce_channel::OurAccounts;
use paidonce_channel::api::{ApiAnswer, ApiCall, ApiMoment, ApiResponse, Ask, Doubt};
use paidonce_order::ids::{AccountRef, Channel};
use paidonce_order::timestamp::Timestamp;
use serde_json::{Value, json};

use crate::keys::key;
use crate::signer;

/// One answer.
#[derive(Debug, Clone)]
pub enum Says {
    /// Signed: status and body.
    Signed(u16, Value),
    /// 204 or an empty body, signed.
    NoContent,
    /// Nothing came back.
    Timeout,
}

/// 200 and signed.
pub fn ok(body: Value) -> Says {
    Says::Signed(200, body)
}

/// An error code of WeChat Pay.
pub fn wx_error(status: u16, code: &str) -> Says {
    Says::Signed(status, json!({ "code": code, "message": "as the script says" }))
}

/// A business failure of Alipay.
pub fn ali_error(sub_code: &str) -> Says {
    ok(json!({ "code": "40004", "msg": "Business Failed", "sub_code": sub_code, "sub_msg": "as the script says" }))
}

pub struct Platform {
    ours: OurAccounts,
    script: Mutex<VecDeque<Says>>,
    calls: Mutex<Vec<String>>,
    /// Accounts without credentials.
    mute: Mutex<Vec<AccountRef>>,
    /// How long a call takes.
    pub takes: Mutex<Duration>,
}

impl Platform {
    pub fn new(ours: OurAccounts) -> Arc<Self> {
        Arc::new(Self {
            ours,
            script: Mutex::default(),
            calls: Mutex::default(),
            mute: Mutex::default(),
            takes: Mutex::default(),
        })
    }

    /// The next answers, in order.
    pub fn will_say(&self, answers: impl IntoIterator<Item = Says>) {
        self.script.lock().unwrap().extend(answers);
    }

    /// What it was asked since the last look, and that every prepared answer was given.
    pub fn asked(&self) -> Vec<String> {
        let left = self.script.lock().unwrap().len();
        assert_eq!(left, 0, "answers nobody asked for");
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    pub fn mute(&self, account: &str) {
        self.mute.lock().unwrap().push(AccountRef::parse(account).unwrap());
    }

    pub fn unmute(&self) {
        self.mute.lock().unwrap().clear();
    }
}

#[async_trait]
impl ChannelClient for Platform {
    fn can_ask(&self, account: &AccountRef) -> bool {
        !self.mute.lock().unwrap().contains(account) && self.ours.find_api(account).is_some()
    }

    async fn ask(&self, account: &AccountRef, call: &ApiCall) -> ApiAnswer {
        self.calls.lock().unwrap().push(words(account, &call.ask));
        let takes = *self.takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        let says = self.script.lock().unwrap().pop_front();
        let says = says.unwrap_or_else(|| panic!("no answer is prepared for {}", words(account, &call.ask)));
        let api = self.ours.find_api(account).unwrap();
        let moment = ApiMoment { now: now(), nonce: "0123456789abcdefghijklmnopqrstuv".to_owned() };
        api.request(call, &moment).expect("the call can be made");
        let (status, body) = match (says, account.channel) {
            (Says::Timeout, _) => {
                return ApiAnswer::Unknown(Doubt { code: "timeout", detail: "nothing came".to_owned() });
            }
            (Says::NoContent, _) => (204, Vec::new()),
            (Says::Signed(status, body), Channel::Wxpay) => (status, serde_json::to_vec(&body).unwrap()),
            (Says::Signed(status, body), Channel::Alipay) => (status, alipay_body(&call.ask, &body)),
        };
        let seconds = now().as_seconds();
        let headers = signer::wx_headers(key("platform_cert_1"), seconds, &body);
        let headers: Vec<(String, Vec<u8>)> =
            headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        api.read(call, ApiResponse { status, headers: &headers, body: &body, now: now() })
    }

    async fn refresh_keys(&self, _: &AccountRef) -> KeyRefresh {
        KeyRefresh::Nothing
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_micros(since.as_micros() as i64)
}

/// The node of the method, signed as it stands.
fn alipay_body(ask: &Ask, node: &Value) -> Vec<u8> {
    let method = match ask {
        Ask::Payment { .. } | Ask::PaymentByTradeNo { .. } => "alipay_trade_query_response",
        Ask::RefundState(_) => "alipay_trade_fastpay_refund_query_response",
        Ask::Refund(_) => "alipay_trade_refund_response",
        Ask::Close { .. } => "alipay_trade_close_response",
        Ask::Share { .. } => "alipay_trade_order_settle_query_response",
        Ask::CombinePayment { .. } | Ask::CloseCombine { .. } | Ask::Certificates | Ask::AlipayCertificate { .. } => {
            panic!("Alipay has no such call")
        }
    };
    let text = node.to_string();
    let sign = key("alipay_platform").sign(text.as_bytes());
    format!(r#"{{"{method}":{text},"sign":"{sign}"}}"#).into_bytes()
}

fn words(account: &AccountRef, ask: &Ask) -> String {
    let channel = account.channel.as_str();
    match ask {
        Ask::Payment { order_no } => format!("{channel} payment {order_no}"),
        Ask::PaymentByTradeNo { channel_trade_no, .. } => format!("{channel} payment by {channel_trade_no}"),
        Ask::RefundState(numbers) => format!("{channel} state of refund {}", numbers.refund_no),
        Ask::Refund(refund) => format!("{channel} refund {} {}", refund.numbers.refund_no, refund.amount.amount_minor),
        Ask::Close { order_no } => format!("{channel} close {order_no}"),
        Ask::Share { out_order_no, .. } => format!("{channel} share {out_order_no}"),
        Ask::CombinePayment { combine_out_trade_no } => format!("{account} combine {combine_out_trade_no}"),
        Ask::CloseCombine { combine_out_trade_no, known } => {
            let parts: Vec<&str> = known.sub_orders.iter().map(|part| part.out_trade_no.as_str()).collect();
            format!("{account} close combine {combine_out_trade_no} of {}", parts.join(" "))
        }
        Ask::Certificates | Ask::AlipayCertificate { .. } => format!("{channel} certificates"),
    }
}
