//! WeChat Pay API v3: who may ask, what is answered, what is told.
//!
//! | step | where |
//! |---|---|
//! | the request's signature, before anything else | [`authorization`] |
//! | which call it is | [`route`] |
//! | what it does and answers | [`orders`], [`refunds`], [`shares`], [`certificates`], [`bills`] |
//! | the answer's signature | [`answer`] |
//! | callbacks | [`callback`] |

pub mod answer;
pub mod authorization;
pub mod bills;
pub mod callback;
pub mod certificates;
pub mod orders;
pub mod refunds;
pub mod route;
pub mod shares;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::accounts::{Account, Channel, KnownMerchant};
use crate::failures::{Effect, FailKind, Trouble};
use crate::moment::Moment;
use crate::platforms::Platforms;
use crate::ring::Signer;

use authorization::Request;
use route::Route;

/// A refusal in WeChat Pay's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// `ORDER_NOT_EXIST`, ..
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl Refusal {
    /// One.
    #[must_use]
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// 400 PARAM_ERROR.
    #[must_use]
    pub fn parameter(message: impl Into<String>) -> Self {
        Self::new(400, "PARAM_ERROR", message)
    }

    fn body(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }
}

/// What a call answers when it succeeds.
#[derive(Debug, Clone)]
pub enum Content {
    /// 200 with JSON.
    Json(Value),
    /// 204, signed all the same.
    Nothing,
    /// A bill: 200, not signed.
    File(Vec<u8>),
}

/// An answer before it is signed and written.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub content: Content,
    /// With which key.
    pub signer: Signer,
    /// What befalls it on the way.
    pub trouble: Option<FailKind>,
    /// Now, by the platform's clock.
    pub at: Moment,
}

impl Answer {
    /// The code of a refusal, for the log.
    #[must_use]
    pub fn refusal_code(&self) -> &str {
        match &self.content {
            Content::Json(value) => value.get("code").and_then(Value::as_str).unwrap_or_default(),
            Content::Nothing | Content::File(_) => "",
        }
    }
}

/// What a call returns.
pub type Outcome = Result<Content, Refusal>;

/// Whose orders a call is about.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The caller.
    pub merchant: Arc<KnownMerchant>,
    /// Under a service provider: which sub-merchant.
    pub sub_mchid: Option<String>,
}

impl Scope {
    /// The account of the ledger.
    #[must_use]
    pub fn account(&self) -> Account {
        Account { channel: Channel::Wxpay, id: self.merchant.merchant.mchid.clone() }
    }
}

impl Platforms {
    /// Answers a request to WeChat Pay. The caller's signature was checked by [`authorization::check`]: `caller` is who
    /// signed, or why nobody did.
    pub fn wxpay(&mut self, request: &Request, caller: Result<Arc<KnownMerchant>, Refusal>, now: Moment) -> Answer {
        self.tick(now);
        let signer = self.ring.for_answer(self.behaviour.wxpay_keys, request.serial.as_deref());
        let (outcome, trouble) = match caller {
            Ok(caller) => self.wxpay_routed(request, &caller, now),
            Err(refusal) => (Err(refusal), None),
        };
        let (status, content) = match outcome {
            Ok(Content::Nothing) => (204, Content::Nothing),
            Ok(content) => (200, content),
            Err(refusal) => (refusal.status, Content::Json(refusal.body())),
        };
        Answer { status, content, signer, trouble, at: now }
    }

    fn wxpay_routed(
        &mut self,
        request: &Request,
        caller: &Arc<KnownMerchant>,
        now: Moment,
    ) -> (Outcome, Option<FailKind>) {
        let route = match route::find(request) {
            Ok(route) => route,
            Err(refusal) => return (Err(refusal), None),
        };
        let account = Account { channel: Channel::Wxpay, id: caller.merchant.mchid.clone() };
        let trouble = self.trouble(&account, route.api(), now);
        match trouble {
            Some(Trouble { kind: FailKind::RateLimit, .. }) => {
                (Err(Refusal::new(429, "FREQUENCY_LIMITED", "频率超限")), None)
            }
            Some(Trouble { kind: FailKind::BalanceShort, .. }) => {
                (Err(Refusal::new(403, "NOT_ENOUGH", "基本账户余额不足，请充值后重新发起")), None)
            }
            Some(Trouble { kind, effect: Effect::None }) => (Err(system_error()), on_the_way(kind)),
            Some(Trouble { kind, effect: Effect::Executed }) => {
                let outcome = self.wxpay_call(&route, request, caller, (now, Some(kind)));
                let outcome = if kind == FailKind::SystemError { Err(system_error()) } else { outcome };
                (outcome, on_the_way(kind))
            }
            None => (self.wxpay_call(&route, request, caller, (now, None)), None),
        }
    }

    fn wxpay_call(
        &mut self,
        route: &Route,
        request: &Request,
        caller: &Arc<KnownMerchant>,
        (now, trouble): (Moment, Option<FailKind>),
    ) -> Outcome {
        match route {
            Route::Query(party, which) => self.wxpay_query(&route::scope(caller, *party, request)?, which),
            Route::Close(party, order_no) => self.wxpay_close(&route::scope(caller, *party, request)?, order_no, now),
            Route::CombineQuery(combine_no) => self.wxpay_combine_query(caller, combine_no),
            Route::CombineClose(combine_no) => self.wxpay_combine_close(caller, (combine_no, request), now),
            Route::Refund => self.wxpay_refund(&route::refund_scope(caller, request)?, request, (now, trouble)),
            Route::RefundQuery(refund_no) => self.wxpay_refund_query(&route::refund_scope(caller, request)?, refund_no),
            Route::AbnormalRefund(refund_id) => {
                self.wxpay_abnormal_refund(&route::refund_scope(caller, request)?, refund_id, now)
            }
            Route::Share => self.wxpay_share(caller, request, now),
            Route::ShareQuery(out_order_no) => self.wxpay_share_query(caller, request, out_order_no),
            Route::ShareReturn => self.wxpay_share_return(caller, request, now),
            Route::ShareReturnQuery(out_return_no) => self.wxpay_share_return_query(caller, out_return_no),
            Route::Unfreeze => self.wxpay_unfreeze(caller, request, now),
            Route::Unsplit(trade_no) => self.wxpay_unsplit(caller, trade_no),
            Route::Certificates => self.wxpay_certificates(caller),
            Route::TradeBill => self.wxpay_trade_bill(caller, request, now),
            Route::FundFlowBill => self.wxpay_fund_flow_bill(caller, request, now),
            Route::Download => self.wxpay_download(request, now),
        }
    }
}

fn system_error() -> Refusal {
    Refusal::new(500, "SYSTEM_ERROR", "系统异常，请稍后重试")
}

/// What befalls the answer itself; a refusal needs nothing more.
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
