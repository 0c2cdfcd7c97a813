//! Answers signed as the platforms sign them, and the words in which the tests speak of them.

use paidonce_channel::alipay::{AlipayAccount, AlipayAccountConfig, AlipayAppApiConfig};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, ApiResponse, Ask, ChannelApi, Doubt, KnownCombine, PaymentState, RefundNumbers,
    RefundOrder, Reply, ReplyState, SubOrder,
};
use paidonce_channel::wxpay::{WXPAY_API_URL, WxpayAccount, WxpayAccountConfig, WxpayApiConfig};
use paidonce_channel::{Fact, OurAccounts, SecretText};
use paidonce_order::command::PaymentRef;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, CombineNo, OrderNo, RefundNo};
use paidonce_order::{Money, Timestamp};
use serde_json::{Value, json};

use crate::signer::*;

pub const MERCHANT_SERIAL: &str = "5E1F00D5E1F00D5E1F00D5E1F00D5E1F00D5E1F0";
pub const NONCE: &str = "REQNONCE000000000000000000000001";
pub const ORDER_NO: &str = "ORD20260101000001";
pub const TRADE_NO: &str = "4200000000202601010000000001";
pub const ALIPAY_TRADE_NO: &str = "2026010122001400000500000001";
pub const REFUND_NO: &str = "RFD0001";

pub fn private_key(name: &str) -> SecretText {
    SecretText::from(KEYS["private_pem"][name].as_str().unwrap())
}

pub fn moment() -> ApiMoment {
    ApiMoment { now: Timestamp::from_micros(NOW_SECONDS * 1_000_000), nonce: NONCE.to_owned() }
}

pub fn wxpay_api_config() -> WxpayAccountConfig {
    let api = WxpayApiConfig {
        api_url: WXPAY_API_URL.to_owned(),
        merchant_serial: MERCHANT_SERIAL.to_owned(),
        merchant_private_key: private_key("wechat_merchant"),
    };
    WxpayAccountConfig { api: Some(api), ..wxpay_config() }
}

pub fn alipay_api_config() -> AlipayAccountConfig {
    let mut config = alipay_config();
    config.apps[0].api =
        Some(AlipayAppApiConfig { private_key: private_key("alipay_app"), certs: None, app_auth_token: None });
    config
}

pub fn account(text: &str) -> AccountRef {
    AccountRef::parse(text).unwrap()
}

/// The usual account and a second one of ours.
pub fn wxpay_api(config: &WxpayAccountConfig) -> Box<dyn ChannelApi> {
    let other = WxpayAccountConfig { mchid: OTHER_MCHID.to_owned(), api: None, ..config.clone() };
    let accounts = [config, &other].map(|config| WxpayAccount::try_new(config).unwrap()).into();
    let ours = OurAccounts::try_new(accounts, Vec::new()).unwrap();
    ours.find_api(&account(&format!("wxpay:{}", config.mchid))).unwrap()
}

pub fn alipay_api(config: &AlipayAccountConfig) -> Box<dyn ChannelApi> {
    let ours = OurAccounts::try_new(Vec::new(), vec![AlipayAccount::try_new(config).unwrap()]).unwrap();
    ours.find_api(&account(&format!("alipay:{SELLER_ID}"))).unwrap()
}

pub fn ask(ask: Ask) -> ApiCall {
    ApiCall { sub_mchid: None, ask }
}

pub fn order_no(text: &str) -> OrderNo {
    OrderNo::parse(text).unwrap()
}

pub fn ask_payment() -> ApiCall {
    ask(Ask::Payment { order_no: order_no(ORDER_NO) })
}

pub fn ask_close() -> ApiCall {
    ask(Ask::Close { order_no: order_no(ORDER_NO) })
}

pub fn ask_share(payment: PaymentRef) -> ApiCall {
    ask(Ask::Share { order_no: order_no(ORDER_NO), payment, out_order_no: "SHARE1".to_owned() })
}

pub fn wxpay_payment_ref() -> PaymentRef {
    PaymentRef { account: account("wxpay:1900000001"), channel_trade_no: ChannelTradeNo::parse(TRADE_NO).unwrap() }
}

pub fn alipay_payment_ref() -> PaymentRef {
    PaymentRef {
        account: account(&format!("alipay:{SELLER_ID}")),
        channel_trade_no: ChannelTradeNo::parse(ALIPAY_TRADE_NO).unwrap(),
    }
}

pub fn refund_numbers(payment: PaymentRef) -> RefundNumbers {
    RefundNumbers { payment, order_no: order_no(ORDER_NO), refund_no: RefundNo::parse(REFUND_NO).unwrap() }
}

pub fn ask_refund_state(payment: PaymentRef) -> ApiCall {
    ask(Ask::RefundState(refund_numbers(payment)))
}

/// 3.00 of 10.00.
pub fn ask_refund(payment: PaymentRef) -> ApiCall {
    ask(Ask::Refund(RefundOrder {
        numbers: refund_numbers(payment),
        amount: Money::fen(300),
        payment_amount: Money::fen(1000),
        reason: Some("退货 \"A\"".to_owned()),
    }))
}

pub fn ask_combine() -> ApiCall {
    ask(Ask::CombinePayment { combine_out_trade_no: CombineNo::parse("COMBINE1").unwrap() })
}

/// Closes a combine payment of a part of our own and one of a sub-merchant.
pub fn close_combine() -> ApiCall {
    let part = |mchid: &str, sub_mchid: Option<&str>, no: &str| SubOrder {
        mchid: mchid.to_owned(),
        sub_mchid: sub_mchid.map(str::to_owned),
        out_trade_no: no.to_owned(),
        state: Some(PaymentState::Unpaid),
        trade_state: "NOTPAY".to_owned(),
    };
    let sub_orders = vec![part(MCHID, None, "SUB001"), part(OTHER_MCHID, Some("1900000109"), "SUB002")];
    let known = KnownCombine { combine_appid: APPID.to_owned(), sub_orders };
    ask(Ask::CloseCombine { combine_out_trade_no: CombineNo::parse("COMBINE1").unwrap(), known })
}

/// All calls that WeChat Pay knows.
pub fn wxpay_calls() -> Vec<(&'static str, ApiCall)> {
    let channel_trade_no = ChannelTradeNo::parse(TRADE_NO).unwrap();
    vec![
        ("payment", ask_payment()),
        ("by_trade_no", ask(Ask::PaymentByTradeNo { order_no: order_no(ORDER_NO), channel_trade_no })),
        ("combine", ask_combine()),
        ("close_combine", close_combine()),
        ("refund_state", ask_refund_state(wxpay_payment_ref())),
        ("refund", ask_refund(wxpay_payment_ref())),
        ("close", ask_close()),
        ("share", ask_share(wxpay_payment_ref())),
        ("certificates", ask(Ask::Certificates)),
    ]
}

/// All calls that Alipay knows, with their methods.
pub fn alipay_calls() -> Vec<(&'static str, &'static str, ApiCall)> {
    let channel_trade_no = ChannelTradeNo::parse(ALIPAY_TRADE_NO).unwrap();
    let by_trade_no = ask(Ask::PaymentByTradeNo { order_no: order_no(ORDER_NO), channel_trade_no });
    vec![
        ("payment", "alipay.trade.query", ask_payment()),
        ("by_trade_no", "alipay.trade.query", by_trade_no),
        ("refund_state", "alipay.trade.fastpay.refund.query", ask_refund_state(alipay_payment_ref())),
        ("refund", "alipay.trade.refund", ask_refund(alipay_payment_ref())),
        ("close", "alipay.trade.close", ask_close()),
        ("share", "alipay.trade.order.settle.query", ask_share(alipay_payment_ref())),
    ]
}

/// A response on its way to the reader.
#[derive(Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub now_seconds: i64,
}

impl Response {
    pub fn unsigned(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: body.as_bytes().to_vec(), now_seconds: NOW_SECONDS }
    }

    /// Signed with the public key, as an answer is when we asked so.
    pub fn wxpay(status: u16, body: &Value) -> Self {
        Self::wxpay_text(status, &body.to_string())
    }

    pub fn wxpay_text(status: u16, body: &str) -> Self {
        Self::unsigned(status, body).signed("wechat_platform_pub", PUBLIC_KEY_ID)
    }

    pub fn signed(mut self, key: &str, serial: &str) -> Self {
        let body = String::from_utf8(self.body.clone()).unwrap();
        let message = format!("{NOW_SECONDS}\nRESPNONCE\n{body}\n");
        self.headers = [
            ("wechatpay-timestamp", NOW_SECONDS.to_string()),
            ("wechatpay-nonce", "RESPNONCE".to_owned()),
            ("wechatpay-signature", sign(key, message.as_bytes())),
            ("wechatpay-serial", serial.to_owned()),
            ("request-id", "0123456789-0".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value.into_bytes()))
        .into();
        self
    }

    /// The node's raw text is signed as it is.
    pub fn alipay(method: &str, content: &str) -> Self {
        Self::alipay_node(&format!("{}_response", method.replace('.', "_")), content)
    }

    pub fn alipay_node(node: &str, content: &str) -> Self {
        let sign = sign("alipay_platform", content.as_bytes());
        Self::unsigned(200, &format!("{{\"{node}\":{content},\"sign\":\"{sign}\"}}"))
    }

    pub fn read(&self, api: &dyn ChannelApi, call: &ApiCall) -> ApiAnswer {
        let now = Timestamp::from_micros(self.now_seconds * 1_000_000);
        api.read(call, ApiResponse { status: self.status, headers: &self.headers, body: &self.body, now })
    }
}

pub fn final_reply(answer: ApiAnswer) -> Reply {
    match answer {
        ApiAnswer::Final(reply) => *reply,
        other => panic!("not final: {}", word(&other)),
    }
}

pub fn doubt(answer: ApiAnswer) -> Doubt {
    match answer {
        ApiAnswer::Unknown(doubt) => doubt,
        other => panic!("not unknown: {}", word(&other)),
    }
}

/// `final Paid`, `refused Wait`, `unknown probe`.
pub fn word(answer: &ApiAnswer) -> String {
    match answer {
        ApiAnswer::Refused(refusal) => format!("refused {:?}", refusal.remedy),
        ApiAnswer::Unknown(doubt) => format!("unknown {}", doubt.code),
        ApiAnswer::Final(reply) => match &reply.state {
            ReplyState::Payment(state) => format!("final {state:?}"),
            ReplyState::Combine(None) => "final NotFound".to_owned(),
            ReplyState::Combine(Some(known)) => {
                let states: Vec<String> = known.sub_orders.iter().map(|part| format!("{:?}", part.state)).collect();
                format!("final {}", states.join(" ").replace("Some(", "").replace(')', ""))
            }
            ReplyState::Refund(state) => format!("final {state:?}"),
            ReplyState::Close(state) => format!("final {state:?}"),
            ReplyState::Share(state) => format!("final {state:?}"),
            ReplyState::Certificates(keys) => format!("final {} keys", keys.len()),
        },
    }
}

pub fn facts(reply: &Reply) -> Vec<Fact> {
    reply.notice.get().observations.iter().map(|observation| observation.fact.clone()).collect()
}

pub fn strays(reply: &Reply) -> Vec<String> {
    reply.notice.get().strays.iter().map(|stray| stray.fact.code.clone()).collect()
}

/// What the query of a paid order says.
pub fn wxpay_paid() -> Value {
    let mut paid = wxpay_payment();
    paid["out_trade_no"] = json!(ORDER_NO);
    paid["transaction_id"] = json!(TRADE_NO);
    paid
}

/// What the refund API and its query say.
pub fn wxpay_refund_answer(status: &str) -> Value {
    let mut refund = json!({
        "refund_id": "50000000382026010100000000001", "out_refund_no": REFUND_NO, "transaction_id": TRADE_NO,
        "out_trade_no": ORDER_NO, "channel": "ORIGINAL", "user_received_account": "支付用户零钱",
        "create_time": "2026-01-01T12:05:00+08:00", "status": status, "funds_account": "AVAILABLE",
        "amount": {
            "total": 1000, "refund": 300, "payer_total": 800, "payer_refund": 240, "settlement_refund": 300,
            "settlement_total": 1000, "discount_refund": 60, "currency": "CNY", "from": []
        }
    });
    if status == "SUCCESS" {
        refund["success_time"] = json!("2026-01-01T12:10:00+08:00");
    }
    refund
}
