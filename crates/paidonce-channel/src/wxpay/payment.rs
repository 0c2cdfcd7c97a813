//! Payments: direct and partner (fact A1.8); the parts of a combine payment read like them.

use paidonce_order::command::PaymentFact;
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use super::ownership::{check_app, check_merchant};
use super::plaintext::{
    Sign, currency, filled, payer_amount, payment_ref, required, required_minor, required_object, required_time,
};
use crate::accounts::OurAccounts;
use crate::answer::doubt;
use crate::api::{Doubt, PaymentState};
use crate::json::Object;
use crate::observation::Fact;
use crate::reading::{
    Said, Stop, Unbookable, attempt_fact, channel_no, cut, flag_fact, order_no, payment_fact, product_word,
};

/// What a payment is read with.
pub(super) struct Context<'a> {
    /// The account of the path.
    pub(super) account: &'a WxpayAccount,
    /// All of ours.
    pub(super) ours: &'a OurAccounts,
    /// A hint.
    pub(super) event_type: &'a str,
    /// For a flag about a payment that never happened.
    pub(super) said_at: Timestamp,
}

/// Names of the amount members: they differ between single and combine payments.
pub(super) struct AmountNames {
    total: &'static str,
    payer: &'static str,
}

const SINGLE: AmountNames = AmountNames { total: "total", payer: "payer_total" };
pub(super) const COMBINE: AmountNames = AmountNames { total: "total_amount", payer: "payer_amount" };

/// A payment of one order.
pub(super) fn read_single(plaintext: &Object<'_>, context: &Context<'_>) -> Result<Vec<Said>, Stop> {
    check_merchant(plaintext, context.account)?;
    check_app(plaintext, context.account)?;
    Ok(vec![read_one(plaintext, context.account, &SINGLE, context)?])
}

/// How orders stand, as an answer of the API says it.
pub(super) struct Standing {
    pub(super) state: PaymentState,
    pub(super) said: Vec<Said>,
}

/// The answer to a query of one order.
pub(super) fn standing_single(answer: &Object<'_>, account: &WxpayAccount, now: Timestamp) -> Result<Standing, Doubt> {
    check_merchant(answer, account)?;
    check_app(answer, account)?;
    standing_of(answer, account, &SINGLE, now)
}

/// One order in an answer, or one part of it.
pub(super) fn standing_of(
    object: &Object<'_>,
    account: &WxpayAccount,
    names: &AmountNames,
    now: Timestamp,
) -> Result<Standing, Doubt> {
    let order_no = order_no("out_trade_no", filled(object, "out_trade_no"))?;
    let trade_state = required(object, "trade_state")?;
    let state = match trade_state {
        "SUCCESS" => PaymentState::Paid,
        // Says that a refund was asked for, not how much went back (gotcha 13); the payment itself is proven.
        "REFUND" => PaymentState::PaidWithRefunds,
        // PAYERROR: a payment code that was refused; the order can still be paid.
        "NOTPAY" | "USERPAYING" | "PAYERROR" | "ACCEPT" => PaymentState::Unpaid,
        "CLOSED" | "REVOKED" => PaymentState::Closed,
        other => return Err(doubt("unknown_code", format!("trade_state {:?} is unknown", cut(other)))),
    };
    let said = match state {
        PaymentState::Paid | PaymentState::PaidWithRefunds => match read_paid(object, account, names) {
            Ok(fact) => vec![Said::about(order_no, Fact::Payment(fact))],
            // Paid it is, whatever else is wrong with the answer: kept for a person.
            Err(unbookable) => vec![Said::Unbookable(unbookable)],
        },
        PaymentState::Closed => {
            let number = filled(object, "transaction_id");
            let channel_trade_no = number.map(|text| channel_no("transaction_id", Some(text))).transpose()?;
            vec![Said::about(order_no, Fact::AttemptClosed(attempt_fact(&account.account, channel_trade_no, now)))]
        }
        PaymentState::Unpaid | PaymentState::NotFound => Vec::new(),
    };
    Ok(Standing { state, said })
}

/// One order in a notice, or one part of it.
pub(super) fn read_one(
    object: &Object<'_>,
    account: &WxpayAccount,
    names: &AmountNames,
    context: &Context<'_>,
) -> Result<Said, Unbookable> {
    let order_no = order_no("out_trade_no", filled(object, "out_trade_no"))?;
    let trade_state = required(object, "trade_state")?;
    let failed_event = context.event_type == "TRANSACTION.FAIL";
    if trade_state == "SUCCESS" && !failed_event {
        return Ok(Said::about(order_no, Fact::Payment(read_paid(object, account, names)?)));
    }
    // The plaintext states the result; where the event says otherwise, nothing is booked and a person looks at it.
    let code = if failed_event && trade_state != "SUCCESS" { "attempt_failed" } else { "trade_state_disagrees" };
    let detail = format!("{} says trade_state {:?}", cut(context.event_type), cut(trade_state));
    let distinguishing = [order_no.as_str(), filled(object, "transaction_id").unwrap_or_default(), trade_state];
    let flag = flag_fact(&account.account, code, detail, &distinguishing, context.said_at);
    Ok(Said::about(order_no, Fact::Flag(flag)))
}

fn read_paid(object: &Object<'_>, account: &WxpayAccount, names: &AmountNames) -> Result<PaymentFact, Unbookable> {
    let payment = payment_ref(object, &account.account)?;
    let amount = required_object(object, "amount")?;
    let order_currency = currency(amount, "currency")?;
    let total = Money::new(required_minor(amount, names.total, Sign::Positive)?, order_currency);
    let payer_amount = payer_amount(amount, names.payer, order_currency)?;
    let success_time = required_time(object, "success_time")?;
    Ok(PaymentFact {
        payer_amount,
        channel_trade_type: product_word(filled(object, "trade_type")),
        ..payment_fact(payment, total, success_time)
    })
}
