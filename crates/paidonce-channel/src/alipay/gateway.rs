//! A message to the application gateway: `msg_method` and `biz_content` (facts B1.2, B5).

use paidonce_order::command::{PaymentRef, ShareFact, ShareKind};
use paidonce_order::ids::AccountRef;
use paidonce_order::money::{Currency, Money};
use paidonce_order::timestamp::Timestamp;

use super::form::Texts;
use super::value::{Sign, beijing_time, money};
use crate::channel::VerifyError;
use crate::json::{Json, Object, member, parse_object, text};
use crate::reading::{
    Receiver, Said, ShareNumbers, Stop, Unbookable, channel_no, cut, receiver_type, share_fact, share_no,
};

/// Most details of one settlement.
const DETAILS_MAX: usize = 50;

/// Reads the message. Errors: `biz_content` is not one JSON object or has a key twice (400); or nothing of it can be booked.
pub(super) fn read(texts: &Texts<'_>, account: &AccountRef) -> Result<Vec<Said>, Stop> {
    let biz_content = texts.get("biz_content").ok_or_else(|| Unbookable::missing("biz_content"))?;
    let unreadable = |problem| VerifyError::Unreadable { problem: format!("biz_content: {problem}") };
    let content = parse_object(biz_content.as_bytes()).map_err(|problem| Stop::Refused(unreadable(problem)))?;
    let method = texts.get("msg_method").unwrap_or_default();
    match method.as_ref() {
        "alipay.trade.order.settle.notify" => Ok(read_settlement(&content, account)?),
        // The bank's part of a refund that is already booked: for the merchant nothing moves, whatever it says.
        "alipay.trade.refund.depositback.completed" => {
            let status = text(&content, "dback_status").unwrap_or_default();
            let detail = format!("the bank's answer to a refund: dback_status {:?}", cut(status));
            Err(Unbookable::new("refund_depositback", detail).into())
        }
        other => Err(Unbookable::new("unknown_type", format!("msg_method {:?}", cut(other))).into()),
    }
}

fn read_settlement(content: &Object<'_>, account: &AccountRef) -> Result<Vec<Said>, Unbookable> {
    let read = |detail| match word(detail)? {
        (ShareWord::Moved, detail) => {
            let channel_trade_no = channel_no("trade_no", text(content, "trade_no"))?;
            let payment = PaymentRef { account: account.clone(), channel_trade_no };
            Ok(Said::share(Settlement { content, payment: &payment }.read_moved(detail)?))
        }
        (ShareWord::Open, _) => Ok(Said::nothing()),
        (ShareWord::Failed { reason }, _) => {
            Err(Unbookable::new("share_failed", format!("a share failed with error_code {reason:?}")))
        }
    };
    Ok(details(content)?.iter().map(|detail| read(detail).unwrap_or_else(Said::Unbookable)).collect())
}

/// The parts of a settlement, of a message or of an answer.
pub(super) fn details<'j, 'a>(content: &'j Object<'a>) -> Result<&'j [Json<'a>], Unbookable> {
    let Some(Json::Array(details)) = member(content, "royalty_detail_list") else {
        return Err(Unbookable::missing("royalty_detail_list"));
    };
    if details.is_empty() || details.len() > DETAILS_MAX {
        let problem = format!("royalty_detail_list has {} members, not 1 to {DETAILS_MAX}", details.len());
        return Err(Unbookable::new("unusable_number", problem));
    }
    Ok(details)
}

/// What became of one detail.
pub(super) enum ShareWord {
    Moved,
    Open,
    Failed { reason: String },
}

/// Errors: no word, or one that we don't know.
pub(super) fn word<'j, 'a>(detail: &'j Json<'a>) -> Result<(ShareWord, &'j Object<'a>), Unbookable> {
    let Json::Object(detail) = detail else { return Err(Unbookable::missing("royalty_detail_list[].state")) };
    let word = match text(detail, "state") {
        Some("SUCCESS") => ShareWord::Moved,
        Some("PROCESSING") => ShareWord::Open,
        Some("FAIL") => ShareWord::Failed { reason: cut(text(detail, "error_code").unwrap_or_default()) },
        Some(other) => return Err(Unbookable::new("unknown_type", format!("state {:?} is unknown", cut(other)))),
        None => return Err(Unbookable::missing("royalty_detail_list[].state")),
    };
    Ok((word, detail))
}

/// A message or an answer about the shares of one payment.
pub(super) struct Settlement<'a> {
    pub(super) content: &'a Object<'a>,
    pub(super) payment: &'a PaymentRef,
}

impl Settlement<'_> {
    /// A detail whose money moved.
    pub(super) fn read_moved(&self, detail: &Object<'_>) -> Result<ShareFact, Unbookable> {
        let kind = match text(detail, "operation_type") {
            Some("transfer" | "replenish") => ShareKind::Shared,
            Some("transfer_refund" | "replenish_refund") => ShareKind::Returned,
            Some(other) => {
                return Err(Unbookable::new("unknown_type", format!("operation_type {:?} is unknown", cut(other))));
            }
            None => return Err(Unbookable::missing("operation_type")),
        };
        let amount = amount(detail)?;
        let occurred_at = self.moved_at(detail)?;
        let receiver = receiver(detail, kind)?;
        let numbers = self.numbers(detail, kind)?;
        Ok(share_fact(self.payment.clone(), kind, numbers, &receiver, (amount, occurred_at)))
    }

    /// One request may return money from several receivers, and a return is known by its number alone: there the detail's
    /// number is part of it.
    fn numbers(&self, detail: &Object<'_>, kind: ShareKind) -> Result<ShareNumbers, Unbookable> {
        let request_no = share_no("out_request_no", text(self.content, "out_request_no"))?;
        let number = match (kind, text(detail, "detail_id").filter(|id| !id.is_empty())) {
            (ShareKind::Returned, Some(detail_id)) => format!("{request_no}-{detail_id}"),
            (ShareKind::Returned, None) | (ShareKind::Shared, _) => request_no,
        };
        let channel_share_no = text(self.content, "settle_no").filter(|no| !no.is_empty()).map(str::to_owned);
        Ok(ShareNumbers { share_no: share_no("detail_id", Some(&number))?, channel_share_no })
    }

    fn moved_at(&self, detail: &Object<'_>) -> Result<Timestamp, Unbookable> {
        let found = text(detail, "execute_dt").or_else(|| text(self.content, "operation_dt"));
        beijing_time("execute_dt", found.ok_or_else(|| Unbookable::missing("execute_dt"))?)
    }
}

/// Who is on the other side of the money: the one it goes to, or the one it comes back from.
fn receiver<'j>(detail: &'j Object<'_>, kind: ShareKind) -> Result<Receiver<'j>, Unbookable> {
    let (account, account_type) = match kind {
        ShareKind::Shared => ("trans_in", "trans_in_type"),
        ShareKind::Returned => ("trans_out", "trans_out_type"),
    };
    let account = text(detail, account).filter(|text| !text.is_empty()).ok_or_else(|| Unbookable::missing(account))?;
    Ok(Receiver { receiver_type: receiver_type(account_type, text(detail, account_type))?, account })
}

/// A decimal as text, or as a number by its own text: never through a float.
fn amount(detail: &Object<'_>) -> Result<Money, Unbookable> {
    let digits = match member(detail, "amount") {
        Some(Json::Text(digits)) => digits.as_ref(),
        Some(Json::Number(digits)) => digits,
        Some(Json::Null | Json::Bool | Json::Array(_) | Json::Object(_)) | None => {
            return Err(Unbookable::missing("amount"));
        }
    };
    money("amount", digits, Currency::CNY, Sign::Positive)
}
