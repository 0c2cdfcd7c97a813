//! Refund, refund query, and what a merchant does about an abnormal refund.

use serde_json::{Value, json};

use super::authorization::Request;
use super::orders::{is_of, not_found};
use super::route::text;
use super::{Content, Outcome, Refusal, Scope};
use crate::failures::FailKind;
use crate::moment::Moment;
use crate::order::{Order, OrderKey, Refund, RefundStatus, Status};
use crate::platforms::Platforms;

/// Partial refunds of one payment.
const REFUNDS_MAX: usize = 50;

/// What a refund request asks for.
struct Wanted {
    refund_no: String,
    refund_minor: i64,
    total_minor: i64,
    notify_url: Option<String>,
    reason: Option<String>,
}

impl Platforms {
    /// Idempotent by out_refund_no, which is one space per merchant. 200 means accepted, not refunded.
    pub(super) fn wxpay_refund(
        &mut self,
        scope: &Scope,
        request: &Request,
        (now, trouble): (Moment, Option<FailKind>),
    ) -> Outcome {
        let body = request.json()?;
        let wanted = wanted(&body)?;
        let key = self.refund_order(scope, &body)?;
        let number = (scope.account(), wanted.refund_no.clone());
        if let Some(known) = self.by_refund_no.get(&number) {
            return if *known == key { self.same_refund(&key, &wanted) } else { Err(number_taken()) };
        }
        let order = self.orders.get(&key).ok_or_else(not_found)?;
        self.check_refund(order, &wanted, now)?;
        let refund_id = self.next_number("50300001", now);
        self.by_refund_no.insert(number, key.clone());
        let refund = Refund {
            refund_no: wanted.refund_no.clone(),
            refund_id,
            amount_minor: wanted.refund_minor,
            status: RefundStatus::Processing,
            requested_at: now,
            done_at: None,
            notify_url: wanted.notify_url,
            reason: wanted.reason,
        };
        if let Some(order) = self.orders.get_mut(&key) {
            order.refunds.push(refund);
        }
        let becomes = if trouble == Some(FailKind::Abnormal) { RefundStatus::Abnormal } else { RefundStatus::Success };
        self.plan_refund(&key, &wanted.refund_no, becomes, now);
        self.refund_answer(&key, &wanted.refund_no)
    }

    pub(super) fn wxpay_refund_query(&self, scope: &Scope, refund_no: &str) -> Outcome {
        let key = self.by_refund_no.get(&(scope.account(), refund_no.to_owned())).ok_or_else(no_refund)?;
        if key.sub_mchid != scope.sub_mchid {
            return Err(no_refund());
        }
        self.refund_answer(key, refund_no)
    }

    /// The merchant gives another way for the money; the same refund may then succeed.
    pub(super) fn wxpay_abnormal_refund(&mut self, scope: &Scope, refund_id: &str, now: Moment) -> Outcome {
        let found = self.orders.values().filter(|order| is_of(order, scope)).find_map(|order| {
            let refund = order.refunds.iter().find(|refund| refund.refund_id == refund_id)?;
            Some((order.key.clone(), refund.refund_no.clone(), refund.status))
        });
        let (key, refund_no, status) = found.ok_or_else(no_refund)?;
        if status != RefundStatus::Abnormal {
            return Err(Refusal::new(400, "INVALID_REQUEST", "退款单不是异常状态"));
        }
        if let Some(refund) = self.orders.get_mut(&key).and_then(|order| order.find_refund_mut(&refund_no)) {
            refund.status = RefundStatus::Processing;
        }
        self.plan_refund(&key, &refund_no, RefundStatus::Success, now);
        self.refund_answer(&key, &refund_no)
    }

    fn refund_order(&self, scope: &Scope, body: &Value) -> Result<OrderKey, Refusal> {
        let order = match (text(body, "transaction_id"), text(body, "out_trade_no")) {
            (Some(trade_no), _) => self.find_by_trade_no(&trade_no),
            (None, Some(order_no)) => {
                let sub_mchid = scope.sub_mchid.clone();
                self.find(&OrderKey { account: scope.account(), sub_mchid, order_no })
            }
            (None, None) => return Err(Refusal::parameter("缺少参数transaction_id或out_trade_no")),
        };
        let order = order.filter(|order| is_of(order, scope));
        order.map(|order| order.key.clone()).ok_or_else(|| Refusal::new(404, "RESOURCE_NOT_EXISTS", "订单不存在"))
    }

    fn check_refund(&self, order: &Order, wanted: &Wanted, now: Moment) -> Result<(), Refusal> {
        if order.status != Status::Paid {
            return Err(Refusal::new(400, "INVALID_REQUEST", "订单未支付，不能退款"));
        }
        if wanted.total_minor != order.amount_minor {
            return Err(Refusal::parameter("订单金额或退款金额与之前请求不一致，请核实后再试"));
        }
        if order.refunding_minor().saturating_add(wanted.refund_minor) > order.amount_minor {
            return Err(Refusal::new(400, "INVALID_REQUEST", "申请退款金额大于订单可退金额"));
        }
        if order.refunds.len() >= REFUNDS_MAX {
            return Err(Refusal::new(400, "INVALID_REQUEST", "该订单部分退款次数已达上限"));
        }
        let spacing = self.behaviour.scaled_seconds(self.behaviour.refund_spacing_seconds);
        match order.refunds.last() {
            Some(last) if now.since(last.requested_at) < spacing => {
                Err(Refusal::new(429, "FREQUENCY_LIMITED", "同一笔订单的退款请求过于频繁，请1分钟后再试"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A repeat answers how the refund stands; it must ask for the same.
    fn same_refund(&self, key: &OrderKey, wanted: &Wanted) -> Outcome {
        let known = self.find(key).and_then(|order| order.find_refund(&wanted.refund_no)).ok_or_else(no_refund)?;
        if known.amount_minor != wanted.refund_minor {
            return Err(Refusal::parameter("订单金额或退款金额与之前请求不一致，请核实后再试"));
        }
        self.refund_answer(key, &wanted.refund_no)
    }

    fn refund_answer(&self, key: &OrderKey, refund_no: &str) -> Outcome {
        let order = self.find(key).ok_or_else(no_refund)?;
        let refund = order.find_refund(refund_no).ok_or_else(no_refund)?;
        Ok(Content::Json(object(order, refund)))
    }
}

fn wanted(body: &Value) -> Result<Wanted, Refusal> {
    let refund_no = text(body, "out_refund_no").ok_or_else(|| Refusal::parameter("缺少参数out_refund_no"))?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-|*@".contains(&byte);
    if refund_no.len() > 64 || !refund_no.bytes().all(allowed) {
        return Err(Refusal::parameter("参数out_refund_no格式不正确"));
    }
    let amount = |name: &str| body.get("amount").and_then(|amount| amount.get(name)).and_then(Value::as_i64);
    let (Some(refund_minor), Some(total_minor)) = (amount("refund"), amount("total")) else {
        return Err(Refusal::parameter("缺少参数amount.refund或amount.total"));
    };
    let currency = body.get("amount").and_then(|amount| amount.get("currency")).and_then(Value::as_str);
    if currency != Some("CNY") || refund_minor <= 0 {
        return Err(Refusal::parameter("参数amount不正确"));
    }
    Ok(Wanted {
        refund_no,
        refund_minor,
        total_minor,
        notify_url: text(body, "notify_url"),
        reason: text(body, "reason"),
    })
}

fn no_refund() -> Refusal {
    Refusal::new(404, "RESOURCE_NOT_EXISTS", "退款单不存在")
}

fn number_taken() -> Refusal {
    Refusal::parameter("商户退款单号重复，且订单与之前请求不一致")
}

/// The refund object of the API. Its state is called `status`; in callbacks it is called `refund_status`.
fn object(order: &Order, refund: &Refund) -> Value {
    let payer_total = order.payment.as_ref().map_or(order.amount_minor, |paid| paid.payer_minor);
    let payer_refund = refund.amount_minor.min(payer_total);
    let mut object = json!({
        "refund_id": refund.refund_id,
        "out_refund_no": refund.refund_no,
        "transaction_id": order.trade_no(),
        "out_trade_no": order.key.order_no,
        "channel": "ORIGINAL",
        "user_received_account": "支付用户零钱",
        "create_time": refund.requested_at.rfc3339(),
        "status": refund.status.word(),
        "funds_account": "AVAILABLE",
        "amount": {
            "total": order.amount_minor, "refund": refund.amount_minor,
            "payer_total": payer_total, "payer_refund": payer_refund,
            "settlement_refund": payer_refund, "settlement_total": payer_total,
            "discount_refund": refund.amount_minor.saturating_sub(payer_refund), "currency": "CNY",
        },
    });
    if let (RefundStatus::Success, Some(at)) = (refund.status, refund.done_at) {
        super::orders::set(&mut object, "success_time", json!(at.rfc3339()));
    }
    object
}
