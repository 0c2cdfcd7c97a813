//! Orders and refunds as a platform sees them: consistent answers for calls without a prepared one. A 2xx answer that a test
//! prepared changes it too, so that the platform does not forget what it has said.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::Content;
use super::asked::{Api, Asked, Channel};

/// Time of payments, closes and refunds: no test reads it.
const DONE_AT: &str = "2026-01-15T09:59:58+08:00";

/// What the platform knows.
#[derive(Debug, Default)]
pub struct World {
    orders: BTreeMap<String, Trade>,
    shares: BTreeMap<String, Value>,
    /// What becomes of a refund that is asked for.
    pub refunds: RefundMode,
    /// What becomes of a query for an order that it has never heard of.
    pub strangers: Strangers,
}

/// What becomes of a refund that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefundMode {
    /// It stays under way: WeChat says PROCESSING, Alipay tells nothing yet.
    #[default]
    Processing,
    /// It succeeds at once.
    Success,
}

/// Orders that it was never told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strangers {
    /// The merchant has placed them, nobody has paid (Alipay: nobody has scanned, so it has no trade).
    #[default]
    Unpaid,
    /// Nobody has placed them.
    NotFound,
}

/// One order.
#[derive(Debug, Clone, Default)]
pub struct Trade {
    /// transaction_id, trade_no: empty until paid.
    pub trade_no: String,
    /// In fen; 0 when nobody said.
    pub amount: i64,
    /// Paid, at some time.
    pub paid: bool,
    /// Closed unpaid.
    pub closed: bool,
    /// By refund number.
    pub refunds: BTreeMap<String, Refund>,
}

/// One refund.
#[derive(Debug, Clone)]
pub struct Refund {
    /// In fen.
    pub amount: i64,
    /// `PROCESSING`, `SUCCESS`, `CLOSED`, `ABNORMAL`.
    pub status: String,
    /// How often it was asked for.
    pub asked: u32,
}

impl World {
    /// The user pays.
    pub fn pay(&mut self, order_no: &str, trade_no: &str, amount: i64) {
        let trade = self.orders.entry(order_no.to_owned()).or_default();
        *trade = Trade { trade_no: trade_no.to_owned(), amount, paid: true, ..trade.clone() };
    }

    /// A refund gets this status.
    pub fn set_refund(&mut self, order_no: &str, refund_no: &str, status: &str) {
        let refund = self.orders.get_mut(order_no).and_then(|trade| trade.refunds.get_mut(refund_no));
        refund.unwrap_or_else(|| panic!("the platform has no refund {refund_no} of {order_no}")).status = status.into();
    }

    /// What a query of this profit share answers.
    pub fn set_share(&mut self, out_order_no: &str, answer: Value) {
        self.shares.insert(out_order_no.to_owned(), answer);
    }

    /// The order, if it was ever paid, closed or refunded.
    #[must_use]
    pub fn order(&self, order_no: &str) -> Option<&Trade> {
        self.orders.get(order_no)
    }

    /// The order number of a payment.
    #[must_use]
    pub fn order_no_of(&self, trade_no: &str) -> Option<&str> {
        self.orders.iter().find(|(_, trade)| trade.trade_no == trade_no).map(|(order_no, _)| order_no.as_str())
    }

    /// Its answer to a call.
    pub(super) fn answer(&mut self, asked: &Asked) -> Content {
        let order_no = self.named_order(asked);
        let (status, body) = match asked.api {
            Api::WechatQuery => self.wechat_payment(asked, &order_no),
            Api::WechatClose => self.wechat_close(&order_no),
            Api::WechatRefund => self.wechat_refund(asked, &order_no),
            Api::WechatRefundQuery => self.wechat_refund_state(asked),
            Api::WechatShareQuery => self
                .shares
                .get(asked.text("out_order_no"))
                .map_or_else(|| wechat_error(404, "RESOURCE_NOT_EXISTS"), |share| (200, share.clone())),
            Api::WechatCombineQuery => wechat_error(404, "ORDER_NOT_EXIST"),
            Api::WechatCertificates | Api::WechatOther => wechat_error(404, "NOT_FOUND"),
            Api::AlipayQuery => self.alipay_payment(&order_no),
            Api::AlipayClose => self.alipay_close(&order_no),
            Api::AlipayRefund => self.alipay_refund(asked, &order_no),
            Api::AlipayRefundQuery => self.alipay_refund_state(asked, &order_no),
            Api::AlipayShareQuery => self
                .shares
                .get(asked.text("out_request_no"))
                .map_or_else(|| alipay_error("ACQ.TRADE_NOT_EXIST"), |share| (200, share.clone())),
            Api::AlipayOther => alipay_error("isv.invalid-method"),
        };
        Content::Json(status, body)
    }

    /// Remembers what a prepared answer said.
    pub(super) fn learn(&mut self, asked: &Asked, status: u16, body: &Value) {
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        let accepted = match asked.api.channel() {
            Channel::Wechat => (200..300).contains(&status),
            Channel::Alipay => text("code") == "10000",
        };
        if !accepted {
            return;
        }
        let order_no = self.named_order(asked);
        match asked.api {
            Api::WechatQuery | Api::AlipayQuery => {
                let paid = matches!(text("trade_state"), "SUCCESS" | "REFUND")
                    || matches!(text("trade_status"), "TRADE_SUCCESS" | "TRADE_FINISHED");
                let number = [text("transaction_id"), text("trade_no")].concat();
                if paid && !self.orders.get(&order_no).is_some_and(|trade| trade.paid) {
                    self.pay(&order_no, &number, body["amount"]["total"].as_i64().unwrap_or(0));
                }
                self.orders.entry(order_no).or_default().closed =
                    text("trade_state") == "CLOSED" || text("trade_status") == "TRADE_CLOSED";
            }
            Api::WechatClose | Api::AlipayClose => self.orders.entry(order_no).or_default().closed = true,
            Api::WechatRefund => {
                self.take_refund(asked, &order_no);
                self.note_status(asked, &order_no, text("status"));
            }
            Api::WechatRefundQuery => self.note_status(asked, &order_no, text("status")),
            Api::AlipayRefund => {
                self.take_refund(asked, &order_no);
                self.note_status(asked, &order_no, if text("fund_change") == "Y" { "SUCCESS" } else { "" });
            }
            Api::AlipayRefundQuery if text("refund_status") == "REFUND_SUCCESS" => {
                self.note_status(asked, &order_no, "SUCCESS");
            }
            Api::WechatShareQuery => self.set_share(asked.text("out_order_no"), body.clone()),
            Api::AlipayShareQuery => self.set_share(asked.text("out_request_no"), body.clone()),
            Api::AlipayRefundQuery
            | Api::WechatCombineQuery
            | Api::WechatCertificates
            | Api::WechatOther
            | Api::AlipayOther => {}
        }
    }

    pub(super) fn named_order(&self, asked: &Asked) -> String {
        let named = asked.text("out_trade_no");
        if !named.is_empty() {
            return named.to_owned();
        }
        let trade_no = [asked.text("transaction_id"), asked.text("trade_no")].concat();
        let refund_no = asked.refund_no();
        let by_refund = || self.orders.iter().find(|(_, trade)| trade.refunds.contains_key(refund_no));
        let found = self.order_no_of(&trade_no).map(str::to_owned);
        found.or_else(|| by_refund().map(|(order_no, _)| order_no.clone())).unwrap_or(trade_no)
    }

    fn note_status(&mut self, asked: &Asked, order_no: &str, status: &str) {
        let trade = self.orders.entry(order_no.to_owned()).or_default();
        if let Some(refund) = trade.refunds.get_mut(asked.refund_no()).filter(|_| !status.is_empty()) {
            refund.status = status.to_owned();
        }
    }

    /// Takes a refund, once for each number; `None`: it would give back more than was paid, or the amount is another one.
    fn take_refund(&mut self, asked: &Asked, order_no: &str) -> Option<Taken> {
        let status = match self.refunds {
            RefundMode::Processing => "PROCESSING",
            RefundMode::Success => "SUCCESS",
        };
        let amount = asked_amount(asked);
        let trade = self.orders.entry(order_no.to_owned()).or_default();
        if trade.amount == 0 {
            let total = asked.members.get("amount").and_then(|amount| amount["total"].as_i64());
            trade.amount = total.unwrap_or(i64::MAX);
        }
        let others: i64 = trade.refunds.values().filter(|refund| refund.status != "CLOSED").map(|r| r.amount).sum();
        let known = trade.refunds.contains_key(asked.refund_no());
        if !known && others + amount > trade.amount {
            return None;
        }
        let fresh = Refund { amount, status: status.to_owned(), asked: 0 };
        let refund = trade.refunds.entry(asked.refund_no().to_owned()).or_insert(fresh);
        refund.asked += 1;
        (refund.amount == amount).then_some(if known { Taken::Before } else { Taken::Now })
    }

    fn wechat_payment(&self, asked: &Asked, order_no: &str) -> (u16, Value) {
        let Some(trade) = self.orders.get(order_no) else {
            return match self.strangers {
                Strangers::Unpaid => (200, wechat_trade(asked, order_no, "NOTPAY")),
                Strangers::NotFound => wechat_error(404, "ORDER_NOT_EXIST"),
            };
        };
        if !trade.paid {
            return (200, wechat_trade(asked, order_no, if trade.closed { "CLOSED" } else { "NOTPAY" }));
        }
        let state = if trade.refunds.is_empty() { "SUCCESS" } else { "REFUND" };
        let mut body = wechat_trade(asked, order_no, state);
        body["transaction_id"] = json!(trade.trade_no);
        body["trade_type"] = json!("JSAPI");
        body["bank_type"] = json!("OTHERS");
        body["success_time"] = json!(DONE_AT);
        body["payer"] = json!({ "openid": "oTEST0000000000000000000001" });
        body["amount"] = json!({
            "total": trade.amount, "payer_total": trade.amount, "currency": "CNY", "payer_currency": "CNY"
        });
        (200, body)
    }

    fn wechat_close(&mut self, order_no: &str) -> (u16, Value) {
        let trade = self.orders.entry(order_no.to_owned()).or_default();
        if trade.paid {
            return wechat_error(400, "ORDERPAID");
        }
        trade.closed = true;
        (204, Value::Null)
    }

    fn wechat_refund(&mut self, asked: &Asked, order_no: &str) -> (u16, Value) {
        match self.take_refund(asked, order_no) {
            Some(_) => self.wechat_refund_state(asked),
            None => wechat_error(400, "INVALID_REQUEST"),
        }
    }

    fn wechat_refund_state(&self, asked: &Asked) -> (u16, Value) {
        let refund_no = asked.refund_no();
        let found = self.orders.iter().find_map(|(no, trade)| Some((no, trade, trade.refunds.get(refund_no)?)));
        let Some((order_no, trade, refund)) = found else { return wechat_error(404, "RESOURCE_NOT_EXISTS") };
        let mut body = json!({
            "refund_id": format!("5030{refund_no}"), "out_refund_no": refund_no, "out_trade_no": order_no,
            "transaction_id": trade.trade_no, "channel": "ORIGINAL", "user_received_account": "支付用户零钱",
            "create_time": DONE_AT, "status": refund.status, "funds_account": "AVAILABLE",
            "amount": {
                "total": trade.amount, "refund": refund.amount, "payer_total": trade.amount,
                "payer_refund": refund.amount, "settlement_refund": refund.amount, "settlement_total": trade.amount,
                "discount_refund": 0, "currency": "CNY", "from": []
            }
        });
        if refund.status == "SUCCESS" {
            body["success_time"] = json!(DONE_AT);
        }
        (200, body)
    }

    fn alipay_payment(&self, order_no: &str) -> (u16, Value) {
        let Some(trade) = self.orders.get(order_no).filter(|trade| trade.paid || trade.closed) else {
            return alipay_error("ACQ.TRADE_NOT_EXIST");
        };
        let refunded = trade.refunded();
        let closed = trade.closed || (refunded > 0 && refunded == trade.amount);
        let mut body = alipay_success(order_no, &trade.trade_no);
        body["trade_status"] = json!(if closed { "TRADE_CLOSED" } else { "TRADE_SUCCESS" });
        body["total_amount"] = json!(yuan(trade.amount));
        if trade.paid {
            body["send_pay_date"] = json!("2026-01-15 09:59:58");
        }
        (200, body)
    }

    fn alipay_close(&mut self, order_no: &str) -> (u16, Value) {
        match self.orders.get(order_no) {
            Some(trade) if trade.paid => alipay_error("ACQ.REASON_TRADE_STATUS_INVALID"),
            Some(trade) => (200, alipay_success(order_no, &trade.trade_no)),
            None => alipay_error("ACQ.TRADE_NOT_EXIST"),
        }
    }

    fn alipay_refund(&mut self, asked: &Asked, order_no: &str) -> (u16, Value) {
        let Some(taken) = self.take_refund(asked, order_no) else {
            return alipay_error("ACQ.REASON_TRADE_REFUND_FEE_ERR");
        };
        let trade = &self.orders[order_no];
        let moved = taken == Taken::Now && self.refunds == RefundMode::Success;
        let mut body = alipay_success(order_no, &trade.trade_no);
        body["fund_change"] = json!(if moved { "Y" } else { "N" });
        body["refund_fee"] = json!(yuan(trade.refunded()));
        (200, body)
    }

    fn alipay_refund_state(&self, asked: &Asked, order_no: &str) -> (u16, Value) {
        let trade = self.orders.get(order_no);
        let refund = trade.and_then(|trade| trade.refunds.get(asked.refund_no()));
        let (Some(trade), Some(refund)) = (trade, refund.filter(|refund| refund.status == "SUCCESS")) else {
            return (200, json!({ "code": "10000", "msg": "Success" }));
        };
        let mut body = alipay_success(order_no, &trade.trade_no);
        body["out_request_no"] = json!(asked.refund_no());
        body["refund_amount"] = json!(yuan(refund.amount));
        body["total_amount"] = json!(yuan(trade.amount));
        body["refund_status"] = json!("REFUND_SUCCESS");
        (200, body)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Now,
    Before,
}

impl Trade {
    /// What went back, in fen.
    #[must_use]
    pub fn refunded(&self) -> i64 {
        self.refunds.values().filter(|refund| refund.status == "SUCCESS").map(|refund| refund.amount).sum()
    }
}

fn wechat_trade(asked: &Asked, order_no: &str, state: &str) -> Value {
    let mut body = json!({ "out_trade_no": order_no, "trade_state": state, "trade_state_desc": "test" });
    if asked.text("sp_mchid").is_empty() {
        body["mchid"] = json!(asked.account);
        body["appid"] = json!("wx0000000000000001");
    } else {
        body["sp_mchid"] = json!(asked.account);
        body["sp_appid"] = json!("wx0000000000000001");
        body["sub_mchid"] = json!(asked.text("sub_mchid"));
    }
    body
}

fn wechat_error(status: u16, code: &str) -> (u16, Value) {
    (status, json!({ "code": code, "message": "test" }))
}

fn alipay_success(order_no: &str, trade_no: &str) -> Value {
    json!({ "code": "10000", "msg": "Success", "out_trade_no": order_no, "trade_no": trade_no })
}

fn alipay_error(sub_code: &str) -> (u16, Value) {
    (200, json!({ "code": "40004", "msg": "Business Failed", "sub_code": sub_code, "sub_msg": "test" }))
}

fn asked_amount(asked: &Asked) -> i64 {
    match asked.api.channel() {
        Channel::Wechat => asked.members.get("amount").and_then(|amount| amount["refund"].as_i64()).unwrap_or_default(),
        Channel::Alipay => fen(asked.text("refund_amount")),
    }
}

/// Yuan text to fen; -1 when it is none.
fn fen(yuan: &str) -> i64 {
    let (whole, rest) = yuan.split_once('.').unwrap_or((yuan, "00"));
    format!("{whole}{rest:0<2}").parse().unwrap_or(-1)
}

/// Fen as yuan text.
fn yuan(fen: i64) -> String {
    format!("{}.{:02}", fen / 100, fen % 100)
}
