//! What a verified 2xx answer says, by the same readers as the notifications, and whether it is about what was asked.

use paidonce_order::ids::{ChannelTradeNo, OrderNo};

use super::certificates;
use crate::accounts::OurAccounts;
use crate::answer::{Answering, Read, doubt, not_ours, object};
use crate::api::{ApiAnswer, ApiCall, Ask, CloseState, Doubt, RefundNumbers, RefundState, ReplyState};
use crate::json::Object;
use crate::observation::Fact;
use crate::reading::Said;
use crate::wxpay::account::WxpayAccount;
use crate::wxpay::plaintext::{filled, required};
use crate::wxpay::{combine, payment, refund, share};

/// What an answer is read with.
pub(super) struct Context<'a> {
    pub(super) account: &'a WxpayAccount,
    pub(super) ours: &'a OurAccounts,
}

/// Reads the answer to a call.
pub(super) fn read(call: &ApiCall, answering: Answering<'_>, context: &Context<'_>) -> ApiAnswer {
    let read = read_content(call, &answering, context);
    answering.finish(read)
}

fn read_content(call: &ApiCall, answering: &Answering<'_>, context: &Context<'_>) -> Result<Read, Doubt> {
    let (status, body, now) = (answering.response.status, answering.response.body, answering.now());
    if !(200..=299).contains(&status) {
        return Err(doubt("unreadable", format!("status {status} is neither an answer nor an error")));
    }
    if let Ask::Close { .. } | Ask::CloseCombine { .. } = &call.ask {
        // 204 without a body: the signature covers no order number, so it is a state and never a fact of its own.
        return Ok(Read::state(ReplyState::Close(CloseState::Closed), "CLOSED"));
    }
    if let Ask::Certificates = &call.ask {
        let keys = certificates::open(body, context.account, now).map_err(|problem| doubt("unreadable", problem))?;
        return Ok(Read::state(ReplyState::Certificates(keys), "OK"));
    }
    let answer = object(body)?;
    match &call.ask {
        Ask::Payment { order_no } => read_payment(&answer, call, (order_no, None), (answering, context)),
        Ask::PaymentByTradeNo { order_no, channel_trade_no } => {
            read_payment(&answer, call, (order_no, Some(channel_trade_no)), (answering, context))
        }
        Ask::CombinePayment { combine_out_trade_no } => {
            same("combine_out_trade_no", &answer, combine_out_trade_no.as_str())?;
            let (known, said) = combine::read_standing(&answer, context.account, context.ours, now)?;
            Ok(Read { state: ReplyState::Combine(Some(known)), word: "OK".to_owned(), said })
        }
        Ask::RefundState(numbers) => read_refund(&answer, numbers, (answering, context)),
        Ask::Refund(refund) => read_refund(&answer, &refund.numbers, (answering, context)),
        Ask::Share { order_no, payment, out_order_no } => {
            same("out_order_no", &answer, out_order_no)?;
            same("transaction_id", &answer, payment.channel_trade_no.as_str())?;
            same_sub_mchid(&answer, call)?;
            let account = context.account;
            let sharer = call.sub_mchid.as_deref().unwrap_or_else(|| account.account.account.as_str());
            let standing = share::read_standing(&answer, &share::Asked { order_no, payment, account, sharer, now })?;
            Ok(Read { state: ReplyState::Share(standing.state), word: standing.word, said: standing.said })
        }
        Ask::Close { .. } | Ask::CloseCombine { .. } | Ask::Certificates | Ask::AlipayCertificate { .. } => {
            Err(doubt("unreadable", "read before"))
        }
    }
}

fn read_payment(
    answer: &Object<'_>,
    call: &ApiCall,
    (order_no, channel_trade_no): (&OrderNo, Option<&ChannelTradeNo>),
    (answering, context): (&Answering<'_>, &Context<'_>),
) -> Result<Read, Doubt> {
    same("out_trade_no", answer, order_no.as_str())?;
    if let Some(asked) = channel_trade_no {
        same("transaction_id", answer, asked.as_str())?;
    }
    same_sub_mchid(answer, call)?;
    let standing = payment::standing_single(answer, context.account, answering.now())?;
    let word = required(answer, "trade_state")?.to_owned();
    Ok(Read { state: ReplyState::Payment(standing.state), word, said: standing.said })
}

/// Refund numbers are merchant-wide at WeChat Pay. When the platform knows ours for another payment, our refund will never be
/// made under it: the fact goes to our order as it is, whose rules give the number up (`RefundNumberTaken`).
fn read_refund(
    answer: &Object<'_>,
    asked: &RefundNumbers,
    (answering, context): (&Answering<'_>, &Context<'_>),
) -> Result<Read, Doubt> {
    same("out_refund_no", answer, asked.refund_no.as_str())?;
    let standing = refund::read_standing(answer, context.account, answering.now())?;
    let word = filled(answer, "status").or_else(|| filled(answer, "refund_status")).unwrap_or_default().to_owned();
    let is_taken = standing.fact.payment != asked.payment;
    if !is_taken && standing.order_no != asked.order_no {
        return Err(not_ours("out_trade_no", standing.order_no.as_str(), asked.order_no.as_str()));
    }
    let state = if is_taken { RefundState::Failed } else { standing.state };
    let fact = Fact::Refund(standing.fact);
    let said = match state {
        // Accepted, not done (gotcha 15): nothing to book.
        RefundState::Processing | RefundState::NotFound => Vec::new(),
        RefundState::Succeeded | RefundState::Failed | RefundState::Stalled | RefundState::BalanceShort => {
            vec![Said::about(asked.order_no.clone(), fact)]
        }
    };
    Ok(Read { state: ReplyState::Refund(state), word, said })
}

/// The answer must name what was asked for.
fn same(field: &'static str, answer: &Object<'_>, asked: &str) -> Result<(), Doubt> {
    let found = required(answer, field)?;
    if found == asked { Ok(()) } else { Err(not_ours(field, found, asked)) }
}

/// A sub-merchant that the answer names must be the one that was asked for.
fn same_sub_mchid(answer: &Object<'_>, call: &ApiCall) -> Result<(), Doubt> {
    let asked = call.sub_mchid.as_deref().unwrap_or_default();
    match filled(answer, "sub_mchid").filter(|found| *found != asked) {
        Some(found) => Err(not_ours("sub_mchid", found, asked)),
        None => Ok(()),
    }
}
