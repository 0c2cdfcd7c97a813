//! Query and close.

use serde_json::{Value, json};

use super::request::Caller;
use super::{Outcome, Refusal};
use crate::moment::Moment;
use crate::money::yuan;
use crate::notice::Wish;
use crate::order::{Order, Status};
use crate::platforms::Platforms;
use crate::wxpay::orders::set;

impl Platforms {
    /// Says nothing of refunds: a trade that is wholly refunded is TRADE_CLOSED and still has its send_pay_date.
    pub(super) fn alipay_trade_query(&self, caller: &Caller) -> Outcome {
        Ok(trade(self.alipay_order(caller)?))
    }

    /// Only what waits for its payer can be closed.
    pub(super) fn alipay_trade_close(&mut self, caller: &Caller, now: Moment) -> Outcome {
        let order = self.alipay_order(caller)?;
        if order.status != Status::Notpay {
            return Err(Refusal::business("ACQ.TRADE_STATUS_ERROR", "交易状态不合法"));
        }
        let key = order.key.clone();
        self.close_order(&key, now, Wish::AsUsual);
        let order = self.find(&key).ok_or_else(|| Refusal::business("ACQ.TRADE_NOT_EXIST", "交易不存在"))?;
        Ok(json!({ "trade_no": lazily_made_trade_no(order), "out_trade_no": order.key.order_no }))
    }
}

/// A trade has a number as soon as its payer came, paid or not.
fn lazily_made_trade_no(order: &Order) -> String {
    match &order.payment {
        Some(payment) => payment.trade_no.clone(),
        None => {
            format!("{}2200199999{:010}", order.created_at.compact_day(), order.created_at.micros() % 10_000_000_000)
        }
    }
}

fn trade(order: &Order) -> Value {
    let paid = |minor: i64| yuan(if order.payment.is_some() { minor } else { 0 });
    let payer = order.payment.as_ref().map_or(0, |payment| payment.payer_minor);
    let mut node = json!({
        "buyer_logon_id": "tes***@sandbox.com",
        "buyer_user_id": "2088000000000099",
        "buyer_pay_amount": yuan(payer),
        "invoice_amount": yuan(payer),
        "out_trade_no": order.key.order_no,
        "point_amount": "0.00",
        "receipt_amount": paid(order.amount_minor),
        "total_amount": yuan(order.amount_minor),
        "trade_no": lazily_made_trade_no(order),
        "trade_status": order.platform_state(),
    });
    if let Some(payment) = &order.payment {
        set(&mut node, "send_pay_date", json!(payment.paid_at.text()));
        set(
            &mut node,
            "fund_bill_list",
            json!([{ "fund_channel": "ALIPAYACCOUNT", "amount": yuan(payment.payer_minor) }]),
        );
    }
    node
}
