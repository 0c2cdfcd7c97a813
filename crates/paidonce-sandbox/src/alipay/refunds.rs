//! Refund and refund query. `refund_fee` is the sum of all refunds of the trade; only `fund_change` tells whether this call
//! moved money.

use serde_json::json;

use super::request::Caller;
use super::{Outcome, Refusal};
use crate::moment::Moment;
use crate::money::{parse_yuan, yuan};
use crate::order::{Order, Refund, RefundStatus, Status};
use crate::platforms::Platforms;

impl Platforms {
    pub(super) fn alipay_refund(&mut self, caller: &Caller, now: Moment) -> Outcome {
        let order = self.alipay_order(caller)?;
        let amount_minor = caller.text("refund_amount").and_then(parse_yuan).filter(|minor| *minor > 0);
        let amount_minor = amount_minor.ok_or_else(|| Refusal::business("ACQ.INVALID_PARAMETER", "参数无效"))?;
        // Without a number the notice carries the trade's own as out_biz_no.
        let given = caller.text("out_request_no").map(str::to_owned);
        let refund_no = given.clone().unwrap_or_else(|| order.trade_no().to_owned());
        if let Some(known) = order.find_refund(&refund_no) {
            if known.amount_minor != amount_minor {
                return Err(Refusal::business("ACQ.DISCORDANT_REPEAT_REQUEST", "不一致的请求"));
            }
            return Ok(answer(order, "N"));
        }
        check(order, amount_minor, given.as_deref())?;
        let key = order.key.clone();
        let refund = Refund {
            refund_no: refund_no.clone(),
            refund_id: String::new(),
            amount_minor,
            status: RefundStatus::Processing,
            requested_at: now,
            done_at: None,
            notify_url: None,
            reason: caller.text("refund_reason").map(str::to_owned),
        };
        if let Some(order) = self.orders.get_mut(&key) {
            order.refunds.push(refund);
        }
        self.settle_refund(&key, &refund_no, RefundStatus::Success, now);
        self.find(&key).map(|order| answer(order, "Y")).ok_or_else(not_exist)
    }

    /// 10000 without a refund_status means: not refunded, or not known yet.
    pub(super) fn alipay_refund_query(&self, caller: &Caller, now: Moment) -> Outcome {
        let order = self.alipay_order(caller)?;
        let refund_no =
            caller.text("out_request_no").ok_or_else(|| Refusal::business("ACQ.INVALID_PARAMETER", "参数无效"))?;
        let lag = self.behaviour.scaled_seconds(self.behaviour.refund_query_lag_seconds);
        let refund = order.find_refund(refund_no).filter(|refund| now.since(refund.requested_at) >= lag);
        let Some(refund) = refund else { return Ok(json!({})) };
        Ok(json!({
            "trade_no": order.trade_no(),
            "out_trade_no": order.key.order_no,
            "out_request_no": refund.refund_no,
            "refund_amount": yuan(refund.amount_minor),
            "refund_status": "REFUND_SUCCESS",
            "total_amount": yuan(order.amount_minor),
            "gmt_refund_pay": refund.done_at.unwrap_or(refund.requested_at).text(),
            "refund_detail_item_list": [{ "fund_channel": "ALIPAYACCOUNT", "amount": yuan(refund.amount_minor) }],
        }))
    }
}

fn check(order: &Order, amount_minor: i64, given: Option<&str>) -> Result<(), Refusal> {
    if order.status != Status::Paid {
        return Err(Refusal::business("ACQ.TRADE_STATUS_ERROR", "交易状态不合法"));
    }
    if order.finished {
        return Err(Refusal::business("ACQ.TRADE_HAS_FINISHED", "交易已完结"));
    }
    if given.is_none() && amount_minor < order.amount_minor {
        return Err(Refusal::business("ACQ.REFUND_AMT_NOT_EQUAL_TOTAL", "退款金额超限"));
    }
    if order.refunding_minor().saturating_add(amount_minor) > order.amount_minor {
        return Err(Refusal::business("ACQ.REASON_TRADE_REFUND_FEE_ERR", "退款金额无效"));
    }
    Ok(())
}

fn not_exist() -> Refusal {
    Refusal::business("ACQ.TRADE_NOT_EXIST", "交易不存在")
}

fn answer(order: &Order, fund_change: &str) -> serde_json::Value {
    let refunded = order.refunded_minor();
    json!({
        "trade_no": order.trade_no(),
        "out_trade_no": order.key.order_no,
        "buyer_logon_id": "tes***@sandbox.com",
        "buyer_user_id": "2088000000000099",
        "fund_change": fund_change,
        "refund_fee": yuan(refunded),
        "send_back_fee": yuan(refunded),
    })
}
