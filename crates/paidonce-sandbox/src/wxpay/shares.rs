//! Profit sharing: share, query, return, unfreeze, what is left.

use std::sync::Arc;

use serde_json::{Value, json};

use super::authorization::Request;
use super::orders::not_found;
use super::route::text;
use super::{Content, Outcome, Refusal};
use crate::accounts::KnownMerchant;
use crate::moment::Moment;
use crate::order::{Order, OrderKey, Receiver, Share, ShareResult, ShareReturn, Status};
use crate::platforms::Platforms;

/// Receivers of one request.
const RECEIVERS_MAX: usize = 50;

/// A share that somebody wants.
#[derive(Debug, Clone)]
pub struct NewShare {
    /// out_order_no.
    pub out_order_no: String,
    /// Who gets what, and what becomes of it.
    pub receivers: Vec<Receiver>,
    /// Frees the rest.
    pub unfreeze: bool,
}

impl Platforms {
    pub(super) fn wxpay_share(&mut self, caller: &Arc<KnownMerchant>, request: &Request, now: Moment) -> Outcome {
        let body = request.json()?;
        let key = self.own_order(caller, text(&body, "transaction_id").as_deref())?;
        let out_order_no = text(&body, "out_order_no").ok_or_else(|| Refusal::parameter("缺少参数out_order_no"))?;
        let entries = body.get("receivers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let receivers: Option<Vec<Receiver>> = entries.iter().map(receiver).collect();
        let receivers = receivers.ok_or_else(|| Refusal::parameter("参数receivers不正确"))?;
        let unfreeze = body.get("unfreeze_unsplit").and_then(Value::as_bool).unwrap_or(false);
        self.start_share(&key, NewShare { out_order_no: out_order_no.clone(), receivers, unfreeze }, now)?;
        self.share_answer(&key, &out_order_no)
    }

    pub(super) fn wxpay_unfreeze(&mut self, caller: &Arc<KnownMerchant>, request: &Request, now: Moment) -> Outcome {
        let body = request.json()?;
        let key = self.own_order(caller, text(&body, "transaction_id").as_deref())?;
        let out_order_no = text(&body, "out_order_no").ok_or_else(|| Refusal::parameter("缺少参数out_order_no"))?;
        let known = self.find(&key).and_then(|order| find_share(order, &out_order_no));
        if known.is_some_and(|share| !share.receivers.is_empty()) {
            return Err(Refusal::new(400, "INVALID_REQUEST", "解冻需要使用新的商户分账单号"));
        }
        self.start_share(
            &key,
            NewShare { out_order_no: out_order_no.clone(), receivers: Vec::new(), unfreeze: true },
            now,
        )?;
        self.share_answer(&key, &out_order_no)
    }

    /// Begins a share, or knows it already. Errors: what the platform refuses.
    pub(crate) fn start_share(&mut self, key: &OrderKey, wanted: NewShare, now: Moment) -> Result<(), Refusal> {
        let order = self.find(key).ok_or_else(not_found)?;
        if find_share(order, &wanted.out_order_no).is_some() {
            return Ok(());
        }
        if order.status != Status::Paid {
            return Err(Refusal::new(400, "INVALID_REQUEST", "订单未支付，不能分账"));
        }
        if wanted.receivers.len() > RECEIVERS_MAX {
            return Err(Refusal::parameter("分账接收方超过50个"));
        }
        let sum = wanted.receivers.iter().fold(0_i64, |sum, one| sum.saturating_add(one.amount_minor));
        if wanted.receivers.iter().any(|one| one.amount_minor <= 0) || sum > unsplit(order) {
            return Err(Refusal::new(403, "NOT_ENOUGH", "分账金额超过可分金额"));
        }
        let order_id = self.next_number("3008", now);
        let mut receivers = wanted.receivers;
        for receiver in &mut receivers {
            receiver.detail_id = self.next_number("3601", now);
        }
        let share = Share {
            out_order_no: wanted.out_order_no.clone(),
            order_id,
            receivers,
            created_at: now,
            done_at: None,
            unfreeze: wanted.unfreeze,
        };
        if let Some(order) = self.orders.get_mut(key) {
            order.shares.push(share);
        }
        self.plan_share(key, &wanted.out_order_no, now);
        Ok(())
    }

    pub(super) fn wxpay_share_query(
        &self,
        caller: &Arc<KnownMerchant>,
        request: &Request,
        out_order_no: &str,
    ) -> Outcome {
        let key = self.own_order(caller, request.parameter("transaction_id").as_deref())?;
        self.share_answer(&key, out_order_no)
    }

    pub(super) fn wxpay_share_return(
        &mut self,
        caller: &Arc<KnownMerchant>,
        request: &Request,
        now: Moment,
    ) -> Outcome {
        let body = request.json()?;
        let member = |name: &str| text(&body, name).ok_or_else(|| Refusal::parameter(format!("缺少参数{name}")));
        let (out_order_no, out_return_no) = (member("out_order_no")?, member("out_return_no")?);
        let amount_minor = body.get("amount").and_then(Value::as_i64).filter(|amount| *amount > 0);
        let amount_minor = amount_minor.ok_or_else(|| Refusal::parameter("缺少参数amount"))?;
        let own = |order: &&mut Order| order.key.account.id == caller.merchant.mchid;
        let mut orders = self.orders.values_mut().filter(own);
        let order = orders.find(|order| find_share(order, &out_order_no).is_some()).ok_or_else(no_share)?;
        if let Some(known) = order.share_returns.iter().find(|one| one.out_return_no == out_return_no) {
            return if known.amount_minor == amount_minor { Ok(returned(known)) } else { Err(other_return()) };
        }
        let return_mchid = member("return_mchid")?;
        let received = find_share(order, &out_order_no).map_or(0, |share| received_by(share, &return_mchid));
        let back = order.share_returns.iter().filter(|one| one.out_order_no == out_order_no);
        let back = back
            .filter(|one| one.return_mchid == return_mchid)
            .fold(0_i64, |sum, one| sum.saturating_add(one.amount_minor));
        if back.saturating_add(amount_minor) > received {
            return Err(Refusal::new(403, "NOT_ENOUGH", "回退金额超过接收方分得金额"));
        }
        let new = ShareReturn {
            return_id: format!("3009{}", out_return_no),
            out_return_no,
            out_order_no,
            return_mchid,
            amount_minor,
            description: text(&body, "description").unwrap_or_default(),
            created_at: now,
        };
        order.share_returns.push(new.clone());
        Ok(returned(&new))
    }

    pub(super) fn wxpay_share_return_query(&self, caller: &Arc<KnownMerchant>, out_return_no: &str) -> Outcome {
        let own = self.orders.values().filter(|order| order.key.account.id == caller.merchant.mchid);
        let found = own.flat_map(|order| order.share_returns.iter()).find(|one| one.out_return_no == out_return_no);
        found.map(returned).ok_or_else(no_share)
    }

    pub(super) fn wxpay_unsplit(&self, caller: &Arc<KnownMerchant>, trade_no: &str) -> Outcome {
        let key = self.own_order(caller, Some(trade_no))?;
        let order = self.find(&key).ok_or_else(not_found)?;
        Ok(Content::Json(json!({ "transaction_id": order.trade_no(), "unsplit_amount": unsplit(order) })))
    }

    fn own_order(&self, caller: &KnownMerchant, trade_no: Option<&str>) -> Result<OrderKey, Refusal> {
        let trade_no = trade_no.ok_or_else(|| Refusal::parameter("缺少参数transaction_id"))?;
        let order = self.find_by_trade_no(trade_no).filter(|order| order.key.account.id == caller.merchant.mchid);
        order.map(|order| order.key.clone()).ok_or_else(|| Refusal::new(404, "RESOURCE_NOT_EXISTS", "订单不存在"))
    }

    fn share_answer(&self, key: &OrderKey, out_order_no: &str) -> Outcome {
        let order = self.find(key).ok_or_else(no_share)?;
        let share = find_share(order, out_order_no).ok_or_else(no_share)?;
        Ok(Content::Json(json!({
            "transaction_id": order.trade_no(),
            "out_order_no": share.out_order_no,
            "order_id": share.order_id,
            // FINISHED means executed; each receiver has a result of its own.
            "state": if share.done_at.is_some() { "FINISHED" } else { "PROCESSING" },
            "receivers": share.receivers.iter().map(|one| part(share, one)).collect::<Vec<_>>(),
        })))
    }
}

fn find_share<'a>(order: &'a Order, out_order_no: &str) -> Option<&'a Share> {
    order.shares.iter().find(|share| share.out_order_no == out_order_no)
}

/// What may still be shared.
fn unsplit(order: &Order) -> i64 {
    if order.shares.iter().any(|share| share.unfreeze) {
        return 0;
    }
    let shared = order.shares.iter().fold(0_i64, |sum, share| sum.saturating_add(share.shared_minor()));
    order.amount_minor.saturating_sub(shared).saturating_sub(order.refunding_minor()).max(0)
}

fn received_by(share: &Share, account: &str) -> i64 {
    let received = |one: &&Receiver| one.account == account && one.result == ShareResult::Success;
    share.receivers.iter().filter(received).fold(0, |sum, one| sum.saturating_add(one.amount_minor))
}

fn receiver(entry: &Value) -> Option<Receiver> {
    Some(Receiver {
        kind: text(entry, "type")?,
        account: text(entry, "account")?,
        amount_minor: entry.get("amount").and_then(Value::as_i64)?,
        description: text(entry, "description").unwrap_or_default(),
        fate: ShareResult::Success,
        result: ShareResult::Pending,
        fail_reason: None,
        detail_id: String::new(),
    })
}

fn part(share: &Share, one: &Receiver) -> Value {
    let result = match one.result {
        ShareResult::Pending => "PENDING",
        ShareResult::Success => "SUCCESS",
        ShareResult::Closed => "CLOSED",
    };
    let mut object = json!({
        "type": one.kind, "account": one.account, "amount": one.amount_minor, "description": one.description,
        "result": result, "detail_id": one.detail_id, "create_time": share.created_at.rfc3339(),
        "finish_time": share.done_at.unwrap_or(share.created_at).rfc3339(),
    });
    if let (ShareResult::Closed, Some(reason)) = (one.result, &one.fail_reason) {
        super::orders::set(&mut object, "fail_reason", json!(reason));
    }
    object
}

fn returned(one: &ShareReturn) -> Content {
    Content::Json(json!({
        "out_order_no": one.out_order_no,
        "out_return_no": one.out_return_no,
        "return_id": one.return_id,
        "return_mchid": one.return_mchid,
        "amount": one.amount_minor,
        "description": one.description,
        "result": "SUCCESS",
        "create_time": one.created_at.rfc3339(),
        "finish_time": one.created_at.rfc3339(),
    }))
}

fn no_share() -> Refusal {
    Refusal::new(404, "RESOURCE_NOT_EXISTS", "分账单不存在")
}

fn other_return() -> Refusal {
    Refusal::parameter("回退金额与之前请求不一致")
}
