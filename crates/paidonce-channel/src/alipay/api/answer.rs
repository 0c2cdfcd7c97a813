//! What a verified answer with code 10000 says, by the same readers as the notifications, and whether it is about what was
//! asked.

use std::borrow::Cow;

use paidonce_order::command::{PaymentRef, RefundAmount, RefundOutcome};
use paidonce_order::ids::{AccountRef, OrderNo, RefundNo};
use paidonce_order::timestamp::Timestamp;

use crate::alipay::gateway::{self, Settlement, ShareWord};
use crate::alipay::trade::{self, Door, TradeStatus};
use crate::alipay::value::{Fields, Sign, beijing_time, currency, find_money};
use crate::answer::{Answering, Read, doubt, not_ours, text_or_digits};
use crate::api::{
    ApiAnswer, ApiCall, Ask, CloseState, Doubt, PaymentState, RefundNumbers, RefundState, ReplyState, ShareState,
};
use crate::json::Object;
use crate::observation::Fact;
use crate::reading::{Said, Unbookable, cut, flag_fact, refund_fact};

/// Reads the answer to a call.
pub(super) fn read(call: &ApiCall, answering: Answering<'_>, content: &Object<'_>) -> ApiAnswer {
    let read = read_content(call, content, answering.account, answering.now());
    answering.finish(read)
}

fn read_content(call: &ApiCall, content: &Object<'_>, account: &AccountRef, now: Timestamp) -> Result<Read, Doubt> {
    match &call.ask {
        Ask::Payment { order_no } => {
            same("out_trade_no", content, order_no.as_str())?;
            read_payment(content, account, now)
        }
        Ask::PaymentByTradeNo { order_no, channel_trade_no } => {
            same("out_trade_no", content, order_no.as_str())?;
            same("trade_no", content, channel_trade_no.as_str())?;
            read_payment(content, account, now)
        }
        Ask::RefundState(numbers) => read_refund_state(content, numbers, now),
        Ask::Refund(refund) => read_refund(content, &refund.numbers, now),
        Ask::Close { order_no } => {
            same_if_named("out_trade_no", content, order_no.as_str())?;
            Ok(Read::state(ReplyState::Close(CloseState::Closed), "TRADE_CLOSED"))
        }
        Ask::Share { order_no, payment, out_order_no } => {
            same("out_request_no", content, out_order_no)?;
            same_if_named("trade_no", content, payment.channel_trade_no.as_str())?;
            read_share(content, payment, order_no, now)
        }
        Ask::CombinePayment { .. } | Ask::CloseCombine { .. } | Ask::Certificates | Ask::AlipayCertificate { .. } => {
            Err(doubt("unreadable", "Alipay has no such call"))
        }
    }
}

/// The members of an answer under the names that the notifications use. An amount may be a number: its digits count
/// (gotcha 55).
struct AnswerFields<'a>(&'a Object<'a>);

impl Fields for AnswerFields<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let key = if key == "gmt_payment" { "send_pay_date" } else { key };
        text_or_digits(self.0, key).map(Cow::Borrowed)
    }
}

fn read_payment(content: &Object<'_>, account: &AccountRef, now: Timestamp) -> Result<Read, Doubt> {
    let fields = AnswerFields(content);
    let status = trade::trade_status(&fields).map_err(|unbookable| doubt("unknown_code", unbookable.detail))?;
    let state = match status {
        TradeStatus::WaitBuyerPay => PaymentState::Unpaid,
        TradeStatus::Paid => PaymentState::Paid,
        TradeStatus::Closed => PaymentState::Closed,
    };
    let said = match status {
        TradeStatus::WaitBuyerPay => Vec::new(),
        TradeStatus::Paid | TradeStatus::Closed => trade::read(&fields, account, Door::Answer(now))?,
    };
    let word = fields.get("trade_status").unwrap_or_default().into_owned();
    Ok(Read { state: ReplyState::Payment(state), word, said })
}

/// 10000 only means that the question was answered: without `refund_status` nothing was refunded under this number, or not
/// yet (gotcha 51); the same number may be sent again.
fn read_refund_state(content: &Object<'_>, asked: &RefundNumbers, now: Timestamp) -> Result<Read, Doubt> {
    let state = |state, word: &str| Ok(Read::state(ReplyState::Refund(state), word));
    same_if_named("out_request_no", content, asked.refund_no.as_str())?;
    same_if_named("trade_no", content, asked.payment.channel_trade_no.as_str())?;
    same_if_named("out_trade_no", content, asked.order_no.as_str())?;
    match text_or_digits(content, "refund_status") {
        None => state(RefundState::NotFound, "10000"),
        Some("REFUND_PROCESSING") => state(RefundState::Processing, "REFUND_PROCESSING"),
        Some(word @ "REFUND_SUCCESS") => {
            same("out_request_no", content, asked.refund_no.as_str())?;
            let fields = AnswerFields(content);
            let amount = find_money(&fields, "refund_amount", currency(&fields)?, Sign::Positive)?;
            let amount = RefundAmount::Exact(amount.ok_or_else(|| Unbookable::missing("refund_amount"))?);
            Ok(refunded(asked, amount, refunded_at(content, now)?, word))
        }
        Some(other) => Err(doubt("unknown_code", format!("refund_status {:?} is unknown", cut(other)))),
    }
}

/// `fund_change=Y` means that this very call moved money. Anything else is no proof (gotcha 51): the refund query tells.
fn read_refund(content: &Object<'_>, asked: &RefundNumbers, now: Timestamp) -> Result<Read, Doubt> {
    same("trade_no", content, asked.payment.channel_trade_no.as_str())?;
    same_if_named("out_trade_no", content, asked.order_no.as_str())?;
    match text_or_digits(content, "fund_change") {
        Some("Y") => {
            let fields = AnswerFields(content);
            let total = find_money(&fields, "refund_fee", currency(&fields)?, Sign::Positive)?;
            let total = RefundAmount::Cumulative(total.ok_or_else(|| Unbookable::missing("refund_fee"))?);
            Ok(refunded(asked, total, refunded_at(content, now)?, "fund_change=Y"))
        }
        Some("N") | None => Ok(Read::state(ReplyState::Refund(RefundState::Processing), "fund_change=N")),
        Some(other) => Err(doubt("unknown_code", format!("fund_change {:?} is unknown", cut(other)))),
    }
}

fn refunded(asked: &RefundNumbers, amount: RefundAmount, at: Timestamp, word: &str) -> Read {
    let (payment, refund_no): (PaymentRef, RefundNo) = (asked.payment.clone(), asked.refund_no.clone());
    let fact = refund_fact(payment, refund_no, RefundOutcome::Succeeded, amount, at);
    let said = vec![Said::about(asked.order_no.clone(), Fact::Refund(fact))];
    Read { state: ReplyState::Refund(RefundState::Succeeded), word: word.to_owned(), said }
}

/// Only some answers say when: else it was known by now.
fn refunded_at(content: &Object<'_>, now: Timestamp) -> Result<Timestamp, Unbookable> {
    match text_or_digits(content, "gmt_refund_pay") {
        Some(text) => beijing_time("gmt_refund_pay", text),
        None => Ok(now),
    }
}

fn read_share(content: &Object<'_>, payment: &PaymentRef, order_no: &OrderNo, now: Timestamp) -> Result<Read, Doubt> {
    let (mut said, mut open) = (Vec::new(), false);
    for detail in gateway::details(content)? {
        match gateway::word(detail)? {
            (ShareWord::Moved, detail) => {
                let fact = Settlement { content, payment }.read_moved(detail);
                said.push(fact.map_or_else(Said::Unbookable, Said::share));
            }
            (ShareWord::Open, _) => open = true,
            (ShareWord::Failed { reason }, detail) => {
                let sentence = format!("a share of {} failed with error_code {reason:?}", payment.channel_trade_no);
                let number = |object, key| text_or_digits(object, key).unwrap_or_default();
                let (request_no, detail_id) = (number(content, "out_request_no"), number(detail, "detail_id"));
                let distinguishing = [payment.channel_trade_no.as_str(), request_no, detail_id, &reason];
                let flag = flag_fact(&payment.account, "share_failed", sentence, &distinguishing, now);
                said.push(Said::about(order_no.clone(), Fact::Flag(flag)));
            }
        }
    }
    let (state, word) = if open { (ShareState::Processing, "PROCESSING") } else { (ShareState::Finished, "FINISHED") };
    Ok(Read { state: ReplyState::Share(state), word: word.to_owned(), said })
}

/// The answer must name what was asked for.
fn same(field: &'static str, content: &Object<'_>, asked: &str) -> Result<(), Doubt> {
    let found = text_or_digits(content, field).ok_or_else(|| Unbookable::missing(field))?;
    if found == asked { Ok(()) } else { Err(not_ours(field, found, asked)) }
}

/// Where the answer may leave it out: what it names must be what was asked for.
fn same_if_named(field: &'static str, content: &Object<'_>, asked: &str) -> Result<(), Doubt> {
    if text_or_digits(content, field).is_none() { Ok(()) } else { same(field, content, asked) }
}
