//! Members of an opened resource, typed: money is an integer of fen or unusable.

use paidonce_order::command::PaymentRef;
use paidonce_order::ids::AccountRef;
use paidonce_order::money::{Currency, Money};
use paidonce_order::timestamp::Timestamp;

use crate::json::{Json, Object, member, text};
use crate::reading::{Unbookable, channel_no, cut};

/// A text member that is there and not empty.
pub(super) fn filled<'j>(object: &'j Object<'_>, key: &str) -> Option<&'j str> {
    text(object, key).filter(|value| !value.is_empty())
}

/// A text member that must be there.
pub(super) fn required<'j>(object: &'j Object<'_>, key: &'static str) -> Result<&'j str, Unbookable> {
    filled(object, key).ok_or_else(|| Unbookable::missing(key))
}

/// A time member that must be there: RFC 3339, any offset, optional fraction.
pub(super) fn required_time(object: &Object<'_>, key: &'static str) -> Result<Timestamp, Unbookable> {
    let found = required(object, key)?;
    Timestamp::parse(found).map_err(|_| Unbookable::time(key, found))
}

/// An object member that must be there.
pub(super) fn required_object<'j, 'a>(object: &'j Object<'a>, key: &'static str) -> Result<&'j Object<'a>, Unbookable> {
    match member(object, key) {
        Some(Json::Object(inner)) => Ok(inner),
        Some(Json::Null | Json::Bool | Json::Number(_) | Json::Text(_) | Json::Array(_)) | None => {
            Err(Unbookable::missing(key))
        }
    }
}

/// The currency member. Absent means CNY: refund notices have none, and the domestic API knows no other default.
pub(super) fn currency(amount: &Object<'_>, key: &'static str) -> Result<Currency, Unbookable> {
    match filled(amount, key) {
        None => Ok(Currency::CNY),
        Some(code) => Currency::parse(code).map_err(|error| Unbookable::amount(key, error)),
    }
}

/// What an amount must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// More than zero: order and refund amounts.
    Positive,
    /// Zero is fine: with a full coupon the payer spends nothing.
    NotNegative,
}

/// An amount in minor units: a JSON integer (`100.0` and `1e2` are not), within i64. `None` when the member is absent.
pub(super) fn minor(amount: &Object<'_>, key: &'static str, sign: Sign) -> Result<Option<i64>, Unbookable> {
    let digits = match member(amount, key) {
        None => return Ok(None),
        Some(Json::Number(digits)) => *digits,
        Some(Json::Null | Json::Bool | Json::Text(_) | Json::Array(_) | Json::Object(_)) => {
            return Err(Unbookable::amount(key, "not a number"));
        }
    };
    let minor: i64 =
        digits.parse().map_err(|_| Unbookable::amount(key, format!("{:?} is not an integer of fen", cut(digits))))?;
    match sign {
        Sign::Positive if minor <= 0 => Err(Unbookable::amount(key, format!("{minor} is not more than zero"))),
        Sign::NotNegative if minor < 0 => Err(Unbookable::amount(key, format!("{minor} is negative"))),
        Sign::Positive | Sign::NotNegative => Ok(Some(minor)),
    }
}

/// An amount that must be there.
pub(super) fn required_minor(amount: &Object<'_>, key: &'static str, sign: Sign) -> Result<i64, Unbookable> {
    minor(amount, key, sign)?.ok_or_else(|| Unbookable::missing(key))
}

/// What the payer spent or got back, when it is stated: in `payer_currency` if that is, else in the order's.
pub(super) fn payer_amount(
    amount: &Object<'_>,
    key: &'static str,
    order_currency: Currency,
) -> Result<Option<Money>, Unbookable> {
    let Some(minor) = minor(amount, key, Sign::NotNegative)? else { return Ok(None) };
    let payer_currency = match filled(amount, "payer_currency") {
        None => order_currency,
        Some(_) => currency(amount, "payer_currency")?,
    };
    Ok(Some(Money::new(minor, payer_currency)))
}

/// The payment that `transaction_id` names.
pub(super) fn payment_ref(object: &Object<'_>, account: &AccountRef) -> Result<PaymentRef, Unbookable> {
    let channel_trade_no = channel_no("transaction_id", filled(object, "transaction_id"))?;
    Ok(PaymentRef { account: account.clone(), channel_trade_no })
}
