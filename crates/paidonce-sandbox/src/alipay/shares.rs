//! Royalties: `alipay.trade.order.settle` and its query.

use serde_json::{Value, json};

use super::request::Caller;
use super::{Outcome, Refusal};
use crate::moment::Moment;
use crate::money::{parse_yuan, yuan};
use crate::order::{Order, Receiver, Share, ShareResult};
use crate::platforms::Platforms;
use crate::wxpay::orders::set;
use crate::wxpay::shares::NewShare;

impl Platforms {
    pub(super) fn alipay_settle(&mut self, caller: &Caller, now: Moment) -> Outcome {
        let key = self.alipay_order(caller)?.key.clone();
        let invalid = || Refusal::business("ACQ.INVALID_PARAMETER", "参数无效");
        let out_order_no = caller.text("out_request_no").ok_or_else(invalid)?.to_owned();
        let entries = caller.biz.get("royalty_parameters").and_then(Value::as_array).ok_or_else(invalid)?;
        let receivers: Vec<Receiver> = entries.iter().map(receiver).collect::<Option<_>>().ok_or_else(invalid)?;
        let new = NewShare { out_order_no: out_order_no.clone(), receivers, unfreeze: false };
        self.start_share(&key, new, now)
            .map_err(|_| Refusal::business("ACQ.ROYALTY_AMOUNT_NOT_ENOUGH", "分账金额超过可分金额"))?;
        let order = self.alipay_order(caller)?;
        let settle_no = find(order, &out_order_no).map(|share| share.order_id.clone());
        Ok(json!({ "trade_no": order.trade_no(), "settle_no": settle_no }))
    }

    pub(super) fn alipay_settle_query(&self, caller: &Caller) -> Outcome {
        let none = || Refusal::business("ACQ.SETTLE_NOT_EXIST", "结算单不存在");
        let share = match caller.text("settle_no") {
            Some(settle_no) => {
                let own = self.orders.values().filter(|order| order.key.account == caller.account());
                own.flat_map(|order| order.shares.iter()).find(|share| share.order_id == settle_no)
            }
            None => {
                let order = self.alipay_order(caller)?;
                caller.text("out_request_no").and_then(|no| find(order, no))
            }
        };
        Ok(settled(share.ok_or_else(none)?))
    }
}

fn find<'a>(order: &'a Order, out_order_no: &str) -> Option<&'a Share> {
    order.shares.iter().find(|share| share.out_order_no == out_order_no)
}

fn receiver(entry: &Value) -> Option<Receiver> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let amount = entry.get("amount");
    let amount_minor = amount
        .and_then(Value::as_str)
        .map_or_else(|| amount.map(Value::to_string).as_deref().and_then(parse_yuan), parse_yuan)?;
    Some(Receiver {
        kind: text("trans_in_type").unwrap_or_else(|| "userId".to_owned()),
        account: text("trans_in")?,
        amount_minor,
        description: text("desc").unwrap_or_default(),
        fate: ShareResult::Success,
        result: ShareResult::Pending,
        fail_reason: None,
        detail_id: String::new(),
    })
}

/// What the query answers, and what the settle notice says.
pub(super) fn settled(share: &Share) -> Value {
    json!({
        "out_request_no": share.out_order_no,
        "operation_dt": share.created_at.text(),
        "royalty_detail_list": share.receivers.iter().map(|one| detail(share, one)).collect::<Vec<_>>(),
    })
}

fn detail(share: &Share, one: &Receiver) -> Value {
    let state = match one.result {
        ShareResult::Pending => "PROCESSING",
        ShareResult::Success => "SUCCESS",
        ShareResult::Closed => "FAIL",
    };
    let mut object = json!({
        "operation_type": "transfer",
        "execute_dt": share.done_at.unwrap_or(share.created_at).text(),
        "trans_in": one.account,
        "trans_in_type": one.kind,
        "amount": yuan(one.amount_minor),
        "state": state,
        "detail_id": one.detail_id,
    });
    if let (ShareResult::Closed, Some(reason)) = (one.result, &one.fail_reason) {
        set(&mut object, "error_code", json!(reason));
        set(&mut object, "error_desc", json!(reason));
    }
    object
}
