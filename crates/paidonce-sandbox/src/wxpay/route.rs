//! Which call of WeChat Pay's API a request is, and about whose orders.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::authorization::Request;
use super::{Refusal, Scope};
use crate::accounts::KnownMerchant;
use crate::failures::Api;

/// Which paths: a merchant's own, or a service provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// `mchid`.
    Direct,
    /// `sp_mchid` and `sub_mchid`.
    Partner,
}

/// By which number an order is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// out_trade_no.
    OrderNo(String),
    /// transaction_id.
    TradeNo(String),
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `GET /v3/pay[/partner]/transactions/{id,out-trade-no}/{n}`.
    Query(Party, Which),
    /// `POST /v3/pay[/partner]/transactions/out-trade-no/{n}/close`.
    Close(Party, String),
    /// `GET /v3/combine-transactions/out-trade-no/{n}`.
    CombineQuery(String),
    /// `POST /v3/combine-transactions/out-trade-no/{n}/close`.
    CombineClose(String),
    /// `POST /v3/refund/domestic/refunds`.
    Refund,
    /// `GET /v3/refund/domestic/refunds/{n}`.
    RefundQuery(String),
    /// `POST /v3/refund/domestic/refunds/{refund_id}/apply-abnormal-refund`.
    AbnormalRefund(String),
    /// `POST /v3/profitsharing/orders`.
    Share,
    /// `GET /v3/profitsharing/orders/{n}`.
    ShareQuery(String),
    /// `POST /v3/profitsharing/return-orders`.
    ShareReturn,
    /// `GET /v3/profitsharing/return-orders/{n}`.
    ShareReturnQuery(String),
    /// `POST /v3/profitsharing/orders/unfreeze`.
    Unfreeze,
    /// `GET /v3/profitsharing/transactions/{id}/amounts`.
    Unsplit(String),
    /// `GET /v3/certificates`.
    Certificates,
    /// `GET /v3/bill/tradebill`.
    TradeBill,
    /// `GET /v3/bill/fundflowbill`.
    FundFlowBill,
    /// `GET /v3/billdownload/file`.
    Download,
}

impl Route {
    /// Its group, for trouble on demand.
    #[must_use]
    pub const fn api(&self) -> Api {
        match self {
            Self::Query(..) | Self::CombineQuery(_) => Api::Query,
            Self::Close(..) | Self::CombineClose(_) => Api::Close,
            Self::Refund | Self::AbnormalRefund(_) => Api::Refund,
            Self::RefundQuery(_) => Api::RefundQuery,
            Self::Share | Self::ShareReturn | Self::Unfreeze => Api::Share,
            Self::ShareQuery(_) | Self::ShareReturnQuery(_) | Self::Unsplit(_) => Api::ShareQuery,
            Self::Certificates => Api::Certificates,
            Self::TradeBill | Self::FundFlowBill => Api::Bill,
            Self::Download => Api::Download,
        }
    }
}

/// Reads method and path. Errors: 404 for what the sandbox (or the platform) does not have.
pub fn find(request: &Request) -> Result<Route, Refusal> {
    let decoded: Vec<String> = request
        .path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let ["v3", rest @ ..] = segments.as_slice() else { return Err(unknown(request)) };
    match request.method.as_str() {
        "GET" => find_get(rest),
        "POST" => find_post(rest),
        _ => None,
    }
    .ok_or_else(|| unknown(request))
}

fn find_get(rest: &[&str]) -> Option<Route> {
    Some(match rest {
        ["pay", "transactions", "id", id] => Route::Query(Party::Direct, Which::TradeNo((*id).to_owned())),
        ["pay", "transactions", "out-trade-no", no] => Route::Query(Party::Direct, Which::OrderNo((*no).to_owned())),
        ["pay", "partner", "transactions", "id", id] => Route::Query(Party::Partner, Which::TradeNo((*id).to_owned())),
        ["pay", "partner", "transactions", "out-trade-no", no] => {
            Route::Query(Party::Partner, Which::OrderNo((*no).to_owned()))
        }
        ["combine-transactions", "out-trade-no", no] => Route::CombineQuery((*no).to_owned()),
        ["refund", "domestic", "refunds", no] => Route::RefundQuery((*no).to_owned()),
        ["profitsharing", "orders", no] => Route::ShareQuery((*no).to_owned()),
        ["profitsharing", "return-orders", no] => Route::ShareReturnQuery((*no).to_owned()),
        ["profitsharing", "transactions", id, "amounts"] => Route::Unsplit((*id).to_owned()),
        ["certificates"] => Route::Certificates,
        ["bill", "tradebill"] => Route::TradeBill,
        ["bill", "fundflowbill"] => Route::FundFlowBill,
        ["billdownload", "file"] => Route::Download,
        _ => return None,
    })
}

fn find_post(rest: &[&str]) -> Option<Route> {
    Some(match rest {
        ["pay", "transactions", "out-trade-no", no, "close"] => Route::Close(Party::Direct, (*no).to_owned()),
        ["pay", "partner", "transactions", "out-trade-no", no, "close"] => {
            Route::Close(Party::Partner, (*no).to_owned())
        }
        ["combine-transactions", "out-trade-no", no, "close"] => Route::CombineClose((*no).to_owned()),
        ["refund", "domestic", "refunds"] => Route::Refund,
        ["refund", "domestic", "refunds", id, "apply-abnormal-refund"] => Route::AbnormalRefund((*id).to_owned()),
        ["profitsharing", "orders"] => Route::Share,
        ["profitsharing", "orders", "unfreeze"] => Route::Unfreeze,
        ["profitsharing", "return-orders"] => Route::ShareReturn,
        _ => return None,
    })
}

fn unknown(request: &Request) -> Refusal {
    Refusal::new(404, "NOT_FOUND", format!("the sandbox has no {} {}", request.method, request.path))
}

/// Whose order: named in the query of a GET, in the body of a POST, and it must be the caller's.
pub fn scope(caller: &Arc<KnownMerchant>, party: Party, request: &Request) -> Result<Scope, Refusal> {
    let named = |name: &str| -> Result<String, Refusal> {
        let value = if request.method == "GET" { request.parameter(name) } else { text(&request.json()?, name) };
        value.ok_or_else(|| Refusal::parameter(format!("缺少参数{name}")))
    };
    let own_name = match party {
        Party::Direct => "mchid",
        Party::Partner => "sp_mchid",
    };
    if named(own_name)? != caller.merchant.mchid {
        return Err(Refusal::parameter("商户号与签名的商户号不一致"));
    }
    match party {
        Party::Direct if caller.merchant.sub_mchids.is_some() => {
            Err(Refusal::new(403, "NO_AUTH", "服务商请使用服务商接口"))
        }
        Party::Direct => Ok(Scope { merchant: Arc::clone(caller), sub_mchid: None }),
        Party::Partner => sub_merchant(caller, Some(named("sub_mchid")?)),
    }
}

/// Refunds have one path for both parties; a service provider names its sub-merchant.
pub fn refund_scope(caller: &Arc<KnownMerchant>, request: &Request) -> Result<Scope, Refusal> {
    let sub_mchid =
        if request.method == "GET" { request.parameter("sub_mchid") } else { text(&request.json()?, "sub_mchid") };
    sub_merchant(caller, sub_mchid)
}

fn sub_merchant(caller: &Arc<KnownMerchant>, sub_mchid: Option<String>) -> Result<Scope, Refusal> {
    match (&caller.merchant.sub_mchids, sub_mchid) {
        (None, None) => Ok(Scope { merchant: Arc::clone(caller), sub_mchid: None }),
        (None, Some(_)) => Err(Refusal::parameter("普通商户不能传sub_mchid")),
        (Some(_), None) => Err(Refusal::parameter("缺少参数sub_mchid")),
        (Some(known), Some(wanted)) if known.contains(&wanted) => {
            Ok(Scope { merchant: Arc::clone(caller), sub_mchid: Some(wanted) })
        }
        (Some(_), Some(_)) => Err(Refusal::new(403, "NO_AUTH", "特约子商户商户号未授权服务商的产品权限")),
    }
}

/// A text member of a body.
#[must_use]
pub fn text(body: &Value, name: &str) -> Option<String> {
    body.get(name).and_then(Value::as_str).filter(|value| !value.is_empty()).map(str::to_owned)
}
