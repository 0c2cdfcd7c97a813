//! Refunds (fact A1.9): each has its own notification with its own amount, nothing is cumulative.

use paidonce_order::command::{RefundAmount, RefundFact, RefundOutcome};
use paidonce_order::ids::OrderNo;
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use super::ownership::{check_merchant, check_merchant_if_named};
use super::plaintext::{
    Sign, currency, filled, payer_amount, payment_ref, required_minor, required_object, required_time,
};
use crate::answer::doubt;
use crate::api::{Doubt, RefundState};
use crate::json::{Object, member};
use crate::observation::Fact;
use crate::reading::{Said, Stop, Unbookable, channel_no, cut, flag_fact, order_no, refund_fact, refund_no};

/// A refund notice. `said_at` stands in for `success_time`, which only a success has.
pub(super) fn read(plaintext: &Object<'_>, account: &WxpayAccount, said_at: Timestamp) -> Result<Vec<Said>, Stop> {
    check_merchant(plaintext, account)?;
    let order_no = order_no("out_trade_no", filled(plaintext, "out_trade_no"))?;
    let outcome = match status(plaintext)? {
        "SUCCESS" => RefundOutcome::Succeeded,
        "CLOSED" => RefundOutcome::Failed,
        "ABNORMAL" => RefundOutcome::Stalled,
        // No news, but also no notice that the platform documents: a person should know.
        "PROCESSING" => {
            let refund_no = filled(plaintext, "out_refund_no").unwrap_or_default();
            let detail = format!("refund {:?} says refund_status \"PROCESSING\"", cut(refund_no));
            let distinguishing = [order_no.as_str(), refund_no, "PROCESSING"];
            let flag = flag_fact(&account.account, "refund_status_disagrees", detail, &distinguishing, said_at);
            return Ok(vec![Said::about(order_no, Fact::Flag(flag))]);
        }
        other => {
            return Err(Unbookable::new("unknown_type", format!("refund_status {:?} is unknown", cut(other))).into());
        }
    };
    let fact = read_fact(plaintext, account, outcome, said_at)?;
    Ok(vec![Said::about(order_no, Fact::Refund(fact))])
}

/// A refund as an answer of the API says it.
pub(super) struct Standing {
    pub(super) state: RefundState,
    pub(super) order_no: OrderNo,
    /// Of a refund that is under way: stated as stalled.
    pub(super) fact: RefundFact,
}

/// The answer to a refund or to a query of one. It need not name the merchant.
pub(super) fn read_standing(answer: &Object<'_>, account: &WxpayAccount, now: Timestamp) -> Result<Standing, Doubt> {
    check_merchant_if_named(answer, account)?;
    let order_no = order_no("out_trade_no", filled(answer, "out_trade_no"))?;
    let (state, outcome) = match status(answer)? {
        "SUCCESS" => (RefundState::Succeeded, RefundOutcome::Succeeded),
        "CLOSED" => (RefundState::Failed, RefundOutcome::Failed),
        // Not final: the same refund_id may still succeed (gotcha 14).
        "ABNORMAL" => (RefundState::Stalled, RefundOutcome::Stalled),
        "PROCESSING" => (RefundState::Processing, RefundOutcome::Stalled),
        other => return Err(doubt("unknown_code", format!("status {:?} is unknown", cut(other)))),
    };
    Ok(Standing { state, order_no, fact: read_fact(answer, account, outcome, now)? })
}

/// `refund_status` in a notice, `status` in an answer of the API: one word, two names.
fn status<'j>(plaintext: &'j Object<'_>) -> Result<&'j str, Unbookable> {
    match (filled(plaintext, "refund_status"), filled(plaintext, "status")) {
        (Some(notice), Some(answer)) if notice != answer => {
            let detail = format!("refund_status {:?} and status {:?} disagree", cut(notice), cut(answer));
            Err(Unbookable::new("unknown_type", detail))
        }
        (Some(status), _) | (None, Some(status)) => Ok(status),
        (None, None) => Err(Unbookable::missing("refund_status")),
    }
}

fn read_fact(
    plaintext: &Object<'_>,
    account: &WxpayAccount,
    outcome: RefundOutcome,
    said_at: Timestamp,
) -> Result<RefundFact, Unbookable> {
    let payment = payment_ref(plaintext, &account.account)?;
    let refund_no = refund_no("out_refund_no", filled(plaintext, "out_refund_no"))?;
    let channel_refund_no = match member(plaintext, "refund_id") {
        None => None,
        Some(_) => Some(channel_no("refund_id", filled(plaintext, "refund_id"))?),
    };
    let amount = required_object(plaintext, "amount")?;
    let order_currency = currency(amount, "currency")?;
    let refunded = Money::new(required_minor(amount, "refund", Sign::Positive)?, order_currency);
    let payer_amount = payer_amount(amount, "payer_refund", order_currency)?;
    let occurred_at = match outcome {
        RefundOutcome::Succeeded => required_time(plaintext, "success_time")?,
        RefundOutcome::Failed | RefundOutcome::Stalled => said_at,
    };
    let fact = refund_fact(payment, refund_no, outcome, RefundAmount::Exact(refunded), occurred_at);
    Ok(RefundFact { channel_refund_no, payer_amount, ..fact })
}
