//! Alipay's gateway: who may ask, what is answered, what is told.
//!
//! | step | where |
//! |---|---|
//! | the request's parameters and signature, before anything else | [`request`] |
//! | payments: query, close | [`trades`] |
//! | refunds and their query | [`refunds`] |
//! | royalties | [`shares`] |
//! | bills | [`bills`] |
//! | certificate mode | [`certificates`] |
//! | the answer's signature over the raw node | [`answer`] |
//! | notices | [`callback`] |

pub mod answer;
pub mod bills;
pub mod callback;
pub mod certificates;
pub mod refunds;
pub mod request;
pub mod shares;
pub mod trades;

use serde_json::{Value, json};

use crate::accounts::{Account, Channel};
use crate::failures::{Api, Effect, FailKind, Trouble};
use crate::moment::Moment;
use crate::options::AlipayKeyMode;
use crate::order::{Charset, Order, OrderKey};
use crate::platforms::Platforms;
use crate::ring::Signer;

use request::Caller;

/// A refusal in Alipay's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `40004`, ..
    pub code: &'static str,
    /// `Business Failed`, ..
    pub msg: &'static str,
    /// `ACQ.TRADE_NOT_EXIST`, ..
    pub sub_code: &'static str,
    /// For people.
    pub sub_msg: String,
}

impl Refusal {
    /// 40004 with this sub_code.
    #[must_use]
    pub fn business(sub_code: &'static str, sub_msg: &str) -> Self {
        Self { code: "40004", msg: "Business Failed", sub_code, sub_msg: sub_msg.to_owned() }
    }

    /// 40002 with this sub_code.
    #[must_use]
    pub fn invalid(sub_code: &'static str, sub_msg: &str) -> Self {
        Self { code: "40002", msg: "Invalid Arguments", sub_code, sub_msg: sub_msg.to_owned() }
    }

    /// 40001: a parameter is missing.
    #[must_use]
    pub fn missing(sub_code: &'static str) -> Self {
        Self { code: "40001", msg: "Missing Required Arguments", sub_code, sub_msg: "缺少必要参数".to_owned() }
    }

    fn node(&self) -> Value {
        json!({ "code": self.code, "msg": self.msg, "sub_code": self.sub_code, "sub_msg": self.sub_msg })
    }
}

/// What a call returns: the members beside `code` and `msg`.
pub type Outcome = Result<Value, Refusal>;

/// An answer before it is signed and written.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `alipay_trade_query_response`; `error_response` when nobody knows who asked.
    pub node_name: String,
    /// The node's content.
    pub node: Value,
    /// Of the answer.
    pub charset: Charset,
    /// Alipay's key, with the number of its certificate in certificate mode; none when the caller is nobody Alipay knows.
    pub signer: Option<Signer>,
    /// What befalls it on the way.
    pub trouble: Option<FailKind>,
}

/// A method of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    TradeQuery,
    TradeClose,
    Refund,
    RefundQuery,
    Settle,
    SettleQuery,
    Bill,
    Certificate,
}

impl Method {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "alipay.trade.query" => Self::TradeQuery,
            "alipay.trade.close" => Self::TradeClose,
            "alipay.trade.refund" => Self::Refund,
            "alipay.trade.fastpay.refund.query" => Self::RefundQuery,
            "alipay.trade.order.settle" => Self::Settle,
            "alipay.trade.order.settle.query" => Self::SettleQuery,
            "alipay.data.dataservice.bill.downloadurl.query" => Self::Bill,
            "alipay.open.app.alipaycert.download" => Self::Certificate,
            _ => return None,
        })
    }

    const fn api(self) -> Api {
        match self {
            Self::TradeQuery => Api::Query,
            Self::TradeClose => Api::Close,
            Self::Refund => Api::Refund,
            Self::RefundQuery => Api::RefundQuery,
            Self::Settle => Api::Share,
            Self::SettleQuery => Api::ShareQuery,
            Self::Bill => Api::Bill,
            Self::Certificate => Api::Certificates,
        }
    }
}

impl Platforms {
    /// Answers a request to Alipay. Its signature was checked by [`request::check`]: `caller` is who signed, or why nobody
    /// did.
    pub fn alipay(&mut self, caller: Result<Caller, request::Unknown>, now: Moment) -> Answer {
        self.tick(now);
        let signer = self.ring.for_alipay(self.behaviour.alipay_keys);
        match caller {
            Ok(caller) => {
                let (outcome, trouble) = self.alipay_call(&caller, now);
                let node_name = request::node_name(&caller.method);
                Answer { node_name, node: node(outcome), charset: caller.charset, signer: Some(signer), trouble }
            }
            Err(unknown) => {
                let signer = unknown.app_is_known().then_some(signer);
                let node_name = unknown.node_name();
                let node = unknown.refusal.node();
                Answer { node_name, node, charset: Charset::Utf8, signer, trouble: None }
            }
        }
    }

    fn alipay_call(&mut self, caller: &Caller, now: Moment) -> (Outcome, Option<FailKind>) {
        let Some(method) = Method::find(&caller.method) else {
            return (Err(Refusal::invalid("isv.invalid-method", "不存在的方法名")), None);
        };
        if let Err(refusal) = self.alipay_admits(caller) {
            return (Err(refusal), None);
        }
        let account = caller.account();
        match self.trouble(&account, method.api(), now) {
            Some(Trouble { kind: FailKind::RateLimit, .. }) => (Err(call_limited()), None),
            Some(Trouble { kind: FailKind::BalanceShort, .. }) => {
                (Err(Refusal::business("ACQ.SELLER_BALANCE_NOT_ENOUGH", "卖家余额不足")), None)
            }
            Some(Trouble { kind, effect: Effect::None }) => (Err(self.alipay_system_error()), on_the_way(kind)),
            Some(Trouble { kind, effect: Effect::Executed }) => {
                let outcome = self.alipay_method(method, caller, now);
                let failed = kind == FailKind::SystemError;
                (if failed { Err(self.alipay_system_error()) } else { outcome }, on_the_way(kind))
            }
            None => (self.alipay_method(method, caller, now), None),
        }
    }

    /// What a call must carry beside its signature. Errors: what is missing or wrong.
    fn alipay_admits(&self, caller: &Caller) -> Result<(), Refusal> {
        if caller.app_auth_token != caller.seller.seller.app_auth_token {
            let sub_msg = "无效的应用授权令牌".to_owned();
            let (msg, sub_code) = ("Insufficient Token Permissions", "aop.invalid-app-auth-token");
            return Err(Refusal { code: "20001", msg, sub_code, sub_msg });
        }
        if self.behaviour.alipay_keys == AlipayKeyMode::PublicKey {
            return Ok(());
        }
        let app_sn = certificates::AlipayCertificates::app_sn(&caller.seller.certificate);
        let wanted = [
            ("isv.invalid-app-cert-sn", &caller.app_cert_sn, app_sn),
            ("isv.invalid-root-cert-sn", &caller.alipay_root_cert_sn, self.ring.alipay_certificates.root_sn()),
        ];
        match wanted.into_iter().find(|(_, found, wanted)| found.as_ref() != Some(wanted)) {
            Some((sub_code, ..)) => Err(Refusal::invalid(sub_code, "证书SN错误")),
            None => Ok(()),
        }
    }

    fn alipay_method(&mut self, method: Method, caller: &Caller, now: Moment) -> Outcome {
        match method {
            Method::TradeQuery => self.alipay_trade_query(caller),
            Method::TradeClose => self.alipay_trade_close(caller, now),
            Method::Refund => self.alipay_refund(caller, now),
            Method::RefundQuery => self.alipay_refund_query(caller, now),
            Method::Settle => self.alipay_settle(caller, now),
            Method::SettleQuery => self.alipay_settle_query(caller),
            Method::Bill => self.alipay_bill(caller, now),
            Method::Certificate => self.alipay_certificate(caller),
        }
    }

    /// Both spellings that production uses, in turn.
    fn alipay_system_error(&mut self) -> Refusal {
        if self.toggle() {
            return Refusal::business("ACQ.SYSTEM_ERROR", "系统错误");
        }
        Refusal {
            code: "20000",
            msg: "Service Currently Unavailable",
            sub_code: "isp.unknow-error",
            sub_msg: "系统繁忙".to_owned(),
        }
    }

    /// The caller's trade that a request names: trade_no wins over out_trade_no.
    pub(crate) fn alipay_order(&self, caller: &Caller) -> Result<&Order, Refusal> {
        let order = match (caller.text("trade_no"), caller.text("out_trade_no")) {
            (Some(trade_no), _) => self.find_by_trade_no(trade_no),
            (None, Some(order_no)) => {
                self.find(&OrderKey { account: caller.account(), sub_mchid: None, order_no: order_no.to_owned() })
            }
            (None, None) => return Err(Refusal::business("ACQ.INVALID_PARAMETER", "参数无效")),
        };
        let order = order.filter(|order| order.key.account == caller.account());
        order.ok_or_else(|| Refusal::business("ACQ.TRADE_NOT_EXIST", "交易不存在"))
    }
}

impl Caller {
    /// The account of the ledger.
    #[must_use]
    pub fn account(&self) -> Account {
        Account { channel: Channel::Alipay, id: self.seller.seller.seller_id.clone() }
    }
}

fn node(outcome: Outcome) -> Value {
    match outcome {
        Ok(mut members) => {
            crate::wxpay::orders::set(&mut members, "code", json!("10000"));
            crate::wxpay::orders::set(&mut members, "msg", json!("Success"));
            members
        }
        Err(refusal) => refusal.node(),
    }
}

fn call_limited() -> Refusal {
    Refusal {
        code: "40005",
        msg: "Call Limited",
        sub_code: "isv.app-call-limited",
        sub_msg: "应用调用次数超限".to_owned(),
    }
}

/// What befalls the answer itself. Alipay sends no probes: a wrong signature is the nearest to one.
const fn on_the_way(kind: FailKind) -> Option<FailKind> {
    match kind {
        FailKind::Timeout
        | FailKind::Disconnect
        | FailKind::ServerError
        | FailKind::BadSignature
        | FailKind::Unsigned
        | FailKind::Probe => Some(kind),
        FailKind::SystemError | FailKind::RateLimit | FailKind::BalanceShort | FailKind::Abnormal => None,
    }
}
