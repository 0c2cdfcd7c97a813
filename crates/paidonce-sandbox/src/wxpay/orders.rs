//! Query and close, plain and combined.

use std::sync::Arc;

use serde_json::{Value, json};

use super::route::Which;
use super::{Content, Outcome, Refusal, Request, Scope};
use crate::accounts::KnownMerchant;
use crate::moment::Moment;
use crate::order::{Order, OrderKey, Payment, Status};
use crate::platforms::Platforms;

impl Platforms {
    pub(super) fn wxpay_query(&self, scope: &Scope, which: &Which) -> Outcome {
        let order = match which {
            Which::OrderNo(order_no) => self.find(&key(scope, order_no)),
            Which::TradeNo(trade_no) => self.find_by_trade_no(trade_no),
        };
        // A combined order is only known by its combine_out_trade_no.
        let order = order.filter(|order| is_of(order, scope) && order.combine_no.is_none());
        order.map(|order| Content::Json(payment(order, scope.merchant.as_ref()))).ok_or_else(not_found)
    }

    pub(super) fn wxpay_close(&mut self, scope: &Scope, order_no: &str, now: Moment) -> Outcome {
        let order = self.orders.get_mut(&key(scope, order_no)).ok_or_else(not_found)?;
        close(order, now)?;
        Ok(Content::Nothing)
    }

    pub(super) fn wxpay_combine_query(&self, caller: &Arc<KnownMerchant>, combine_no: &str) -> Outcome {
        let orders: Vec<&Order> = self.sub_orders(caller, combine_no).collect();
        if orders.is_empty() {
            return Err(not_found());
        }
        Ok(Content::Json(combined(caller, combine_no, &orders)))
    }

    /// Closes the whole: the request must name its app and each of its parts.
    pub(super) fn wxpay_combine_close(
        &mut self,
        caller: &Arc<KnownMerchant>,
        (combine_no, request): (&str, &Request),
        now: Moment,
    ) -> Outcome {
        let body = request.json()?;
        if body.get("combine_appid").and_then(Value::as_str) != Some(caller.merchant.appid.as_str()) {
            return Err(Refusal::parameter("combine_appid与下单时不一致"));
        }
        let keys: Vec<OrderKey> = self.sub_orders(caller, combine_no).map(|order| order.key.clone()).collect();
        if keys.is_empty() {
            return Err(not_found());
        }
        let named = body.get("sub_orders").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let names = |key: &OrderKey| named.iter().any(|part| is_named(key, part));
        if named.len() != keys.len() || !keys.iter().all(names) {
            return Err(Refusal::parameter("sub_orders与下单时不一致"));
        }
        for key in keys {
            if let Some(order) = self.orders.get_mut(&key) {
                close(order, now)?;
            }
        }
        Ok(Content::Nothing)
    }

    fn sub_orders<'a>(&'a self, caller: &'a KnownMerchant, combine_no: &'a str) -> impl Iterator<Item = &'a Order> {
        let own = move |order: &&Order| {
            order.combine_no.as_deref() == Some(combine_no) && order.key.account.id == caller.merchant.mchid
        };
        self.orders.values().filter(own)
    }
}

fn is_named(key: &OrderKey, part: &Value) -> bool {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    text("mchid") == Some(key.account.id.as_str())
        && text("out_trade_no") == Some(key.order_no.as_str())
        && text("sub_mchid") == key.sub_mchid.as_deref()
}

fn key(scope: &Scope, order_no: &str) -> OrderKey {
    OrderKey { account: scope.account(), sub_mchid: scope.sub_mchid.clone(), order_no: order_no.to_owned() }
}

/// Whether the order is the caller's.
#[must_use]
pub fn is_of(order: &Order, scope: &Scope) -> bool {
    order.key.account == scope.account() && order.key.sub_mchid == scope.sub_mchid
}

/// 404 ORDER_NOT_EXIST.
#[must_use]
pub fn not_found() -> Refusal {
    Refusal::new(404, "ORDER_NOT_EXIST", "查询的订单不存在")
}

/// Repeating a close is fine.
fn close(order: &mut Order, now: Moment) -> Result<(), Refusal> {
    match order.status {
        Status::Paid => Err(Refusal::new(400, "ORDER_PAID", "该订单已支付")),
        Status::Closed => Ok(()),
        Status::Notpay => {
            order.status = Status::Closed;
            order.closed_at = Some(now);
            Ok(())
        }
    }
}

const fn state_text(state: &str) -> &'static str {
    match state.as_bytes() {
        b"SUCCESS" => "支付成功",
        b"REFUND" => "订单发生过退款，退款详情请查询退款单",
        b"CLOSED" => "订单已关闭",
        _ => "订单未支付",
    }
}

/// The payment object of queries and callbacks. Before the payment it has neither number, payer nor time.
#[must_use]
pub fn payment(order: &Order, merchant: &KnownMerchant) -> Value {
    let state = order.platform_state();
    let mut object = json!({
        "out_trade_no": order.key.order_no,
        "trade_state": state,
        "trade_state_desc": state_text(state),
        "attach": order.attach,
        "amount": { "total": order.amount_minor, "currency": "CNY" },
    });
    let partner = order.key.sub_mchid.as_deref();
    match partner {
        Some(sub_mchid) => {
            set(&mut object, "sp_mchid", json!(merchant.merchant.mchid));
            set(&mut object, "sp_appid", json!(order.app_id));
            set(&mut object, "sub_mchid", json!(sub_mchid));
        }
        None => {
            set(&mut object, "mchid", json!(merchant.merchant.mchid));
            set(&mut object, "appid", json!(order.app_id));
        }
    }
    if let Some(paid) = &order.payment {
        set(&mut object, "transaction_id", json!(paid.trade_no));
        set(&mut object, "trade_type", json!("JSAPI"));
        set(&mut object, "bank_type", json!("OTHERS"));
        set(&mut object, "success_time", json!(paid.paid_at.rfc3339()));
        let payer = if partner.is_some() { json!({ "sp_openid": "otest" }) } else { json!({ "openid": "otest" }) };
        set(&mut object, "payer", payer);
        set(&mut object, "amount", amount(order.amount_minor, paid));
        if paid.payer_minor < order.amount_minor {
            set(&mut object, "promotion_detail", coupon(order.amount_minor.saturating_sub(paid.payer_minor)));
        }
    }
    object
}

fn amount(total: i64, paid: &Payment) -> Value {
    json!({ "total": total, "payer_total": paid.payer_minor, "currency": "CNY", "payer_currency": "CNY" })
}

fn coupon(minor: i64) -> Value {
    json!([{
        "coupon_id": "109519", "name": "沙箱代金券", "scope": "GLOBAL", "type": "CASH", "amount": minor,
        "wechatpay_contribute": minor, "merchant_contribute": 0, "other_contribute": 0, "currency": "CNY",
    }])
}

/// The combined object: other names for the amounts, and times with milliseconds.
#[must_use]
pub fn combined(merchant: &KnownMerchant, combine_no: &str, orders: &[&Order]) -> Value {
    let sub_order = |order: &&Order| {
        let mut object = json!({
            "mchid": merchant.merchant.mchid,
            "out_trade_no": order.key.order_no,
            "trade_state": order.platform_state(),
            "attach": order.attach,
            "amount": { "total_amount": order.amount_minor, "currency": "CNY" },
        });
        if let Some(sub_mchid) = &order.key.sub_mchid {
            set(&mut object, "sub_mchid", json!(sub_mchid));
        }
        if let Some(paid) = &order.payment {
            set(&mut object, "transaction_id", json!(paid.trade_no));
            set(&mut object, "trade_type", json!("JSAPI"));
            set(&mut object, "bank_type", json!("OTHERS"));
            set(&mut object, "success_time", json!(paid.paid_at.rfc3339().replace("+08:00", ".120+08:00")));
            let amount = json!({
                "total_amount": order.amount_minor, "payer_amount": paid.payer_minor,
                "currency": "CNY", "payer_currency": "CNY",
            });
            set(&mut object, "amount", amount);
        }
        object
    };
    json!({
        "combine_appid": merchant.merchant.appid,
        "combine_mchid": merchant.merchant.mchid,
        "combine_out_trade_no": combine_no,
        "combine_payer_info": { "openid": "otest" },
        "sub_orders": orders.iter().map(sub_order).collect::<Vec<_>>(),
    })
}

/// Puts a member into an object.
pub fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
