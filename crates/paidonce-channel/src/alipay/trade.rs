//! A trade notice: payment, refund and close look alike, and values, never mere presence, tell them apart (facts B1.3, B1.4).

use std::borrow::Cow;

use paidonce_order::command::{AttemptFact, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOutcome};
use paidonce_order::ids::{AccountRef, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use super::value::{Fields, Sign, currency, find_money, first_time};
use crate::observation::Fact;
use crate::reading::{
    Said, Unbookable, attempt_fact, channel_no, cut, flag_fact, order_no, payment_fact, refund_fact, refund_no,
};

/// `trade_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TradeStatus {
    WaitBuyerPay,
    /// TRADE_SUCCESS, or TRADE_FINISHED: paid, and no longer refundable. Months later it is the same payment.
    Paid,
    /// Unpaid and timed out, or paid and fully refunded.
    Closed,
}

/// Where the fields come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// A notification: it has its own times.
    Notice,
    /// The answer to a query, received then: this stands in for the times that it does not have.
    Answer(Timestamp),
}

/// Reads the notice, or the same fields of an answer. Errors: nothing of it can be booked.
pub(super) fn read(texts: &dyn Fields, account: &AccountRef, door: Door) -> Result<Vec<Said>, Unbookable> {
    let order_no = order_no("out_trade_no", texts.get("out_trade_no").as_deref())?;
    let notice = Notice { texts, account, order_no, door };
    match trade_status(texts)? {
        TradeStatus::WaitBuyerPay => Ok(vec![Said::about(notice.order_no, Fact::Nothing)]),
        TradeStatus::Paid => Ok(notice.paid()),
        TradeStatus::Closed => Ok(notice.closed()),
    }
}

/// Errors: missing, or unknown.
pub(super) fn trade_status(texts: &dyn Fields) -> Result<TradeStatus, Unbookable> {
    let word = texts.get("trade_status").ok_or_else(|| Unbookable::missing("trade_status"))?;
    match word.as_ref() {
        "WAIT_BUYER_PAY" => Ok(TradeStatus::WaitBuyerPay),
        "TRADE_SUCCESS" | "TRADE_FINISHED" => Ok(TradeStatus::Paid),
        "TRADE_CLOSED" => Ok(TradeStatus::Closed),
        other => Err(Unbookable::new("unknown_type", format!("trade_status {:?} is unknown", cut(other)))),
    }
}

/// What the refund fields say, by value.
enum Refunded {
    Nothing,
    /// All refunds of this payment so far.
    InAll(Money),
    /// A time of refund without an amount: not to be guessed.
    Unclear,
}

struct Notice<'a> {
    texts: &'a dyn Fields,
    account: &'a AccountRef,
    order_no: OrderNo,
    door: Door,
}

impl Notice<'_> {
    fn paid(&self) -> Vec<Said> {
        let payment = self.said(self.payment().map(Fact::Payment));
        match self.refunded() {
            Ok(Refunded::Nothing) => vec![payment],
            Ok(Refunded::InAll(total)) => self.paid_and_refunded(total),
            Ok(Refunded::Unclear) => vec![payment, self.flag("refund_without_amount")],
            Err(unbookable) => vec![payment, Said::Unbookable(unbookable)],
        }
    }

    fn closed(&self) -> Vec<Said> {
        match self.refunded() {
            Ok(Refunded::InAll(total)) => self.paid_and_refunded(total),
            Ok(Refunded::Nothing) if !self.has("gmt_payment") => {
                vec![self.said(self.attempt_closed().map(Fact::AttemptClosed))]
            }
            // Paid, then closed, and no word of the money: the trade and its refunds must be queried.
            Ok(Refunded::Nothing | Refunded::Unclear) => {
                let payment = match self.door {
                    Door::Notice => None,
                    // Nobody will say it more clearly: the payment is booked, a person looks after its refund.
                    Door::Answer(_) => self.proven_payment(),
                };
                payment.into_iter().chain([self.flag("closed_without_refund")]).collect()
            }
            Err(unbookable) => vec![Said::Unbookable(unbookable)],
        }
    }

    /// The payment comes first, so that the refund finds it.
    fn paid_and_refunded(&self, total: Money) -> Vec<Said> {
        let refund = self.said(self.refund(total).map(Fact::Refund));
        self.proven_payment().into_iter().chain([refund]).collect()
    }

    /// A payment is proven by its own time and amount.
    fn proven_payment(&self) -> Option<Said> {
        self.has("gmt_payment").then(|| self.said(self.payment().map(Fact::Payment)))
    }

    fn refunded(&self) -> Result<Refunded, Unbookable> {
        let refund_fee = find_money(self.texts, "refund_fee", currency(self.texts)?, Sign::NotNegative)?;
        match refund_fee.filter(|money| money.amount_minor > 0) {
            Some(total) => Ok(Refunded::InAll(total)),
            None if self.has("gmt_refund") => Ok(Refunded::Unclear),
            None => Ok(Refunded::Nothing),
        }
    }

    fn payment(&self) -> Result<PaymentFact, Unbookable> {
        let currency = currency(self.texts)?;
        let payment = self.payment_ref()?;
        let total = find_money(self.texts, "total_amount", currency, Sign::Positive)?;
        let total = total.ok_or_else(|| Unbookable::missing("total_amount"))?;
        let payer_amount = find_money(self.texts, "buyer_pay_amount", currency, Sign::NotNegative)?;
        let occurred_at = self.time(&["gmt_payment", "notify_time"])?;
        Ok(PaymentFact { payer_amount, ..payment_fact(payment, total, occurred_at) })
    }

    fn refund(&self, total: Money) -> Result<RefundFact, Unbookable> {
        let payment = self.payment_ref()?;
        let refund_no = self.refund_no(&payment)?;
        let occurred_at = self.time(&["gmt_refund", "gmt_close", "notify_time"])?;
        let amount = RefundAmount::Cumulative(total);
        Ok(refund_fact(payment, refund_no, RefundOutcome::Succeeded, amount, occurred_at))
    }

    /// out_biz_no is our out_request_no. A refund made without one is named by its trade_no, as Alipay itself does.
    fn refund_no(&self, payment: &PaymentRef) -> Result<RefundNo, Unbookable> {
        let named = self.texts.get("out_biz_no").or_else(|| self.texts.get("out_request_no"));
        let text = named.unwrap_or(Cow::Borrowed(payment.channel_trade_no.as_str()));
        refund_no("out_biz_no", Some(&text))
    }

    fn attempt_closed(&self) -> Result<AttemptFact, Unbookable> {
        let trade_no = self.texts.get("trade_no");
        let channel_trade_no = trade_no.as_deref().map(|text| channel_no("trade_no", Some(text))).transpose()?;
        Ok(attempt_fact(self.account, channel_trade_no, self.time(&["gmt_close", "notify_time"])?))
    }

    fn flag(&self, code: &str) -> Said {
        let shown = |key: &str| self.texts.get(key).map(|text| cut(&text)).unwrap_or_default();
        let (status, trade_no, gmt_refund) = (shown("trade_status"), shown("trade_no"), shown("gmt_refund"));
        let detail = format!("trade_status {status:?} of trade {trade_no:?}, gmt_refund {gmt_refund:?}, no refund_fee");
        let occurred_at = self.time(&["gmt_refund", "gmt_close", "notify_time"]);
        let distinguishing = [self.order_no.as_str(), trade_no.as_str(), status.as_str(), gmt_refund.as_str()];
        self.said(occurred_at.map(|at| Fact::Flag(flag_fact(self.account, code, detail, &distinguishing, at))))
    }

    fn payment_ref(&self) -> Result<PaymentRef, Unbookable> {
        let channel_trade_no = channel_no("trade_no", self.texts.get("trade_no").as_deref())?;
        Ok(PaymentRef { account: self.account.clone(), channel_trade_no })
    }

    fn time(&self, names: &[&'static str]) -> Result<Timestamp, Unbookable> {
        let missing = || Unbookable::missing(names.first().copied().unwrap_or("time"));
        match (first_time(self.texts, names)?, self.door) {
            (Some(at), _) | (None, Door::Answer(at)) => Ok(at),
            (None, Door::Notice) => Err(missing()),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.texts.get(key).is_some()
    }

    fn said(&self, fact: Result<Fact, Unbookable>) -> Said {
        match fact {
            Ok(fact) => Said::about(self.order_no.clone(), fact),
            Err(unbookable) => Said::Unbookable(unbookable),
        }
    }
}
