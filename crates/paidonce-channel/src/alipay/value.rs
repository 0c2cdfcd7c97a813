//! Amounts and times as Alipay writes them.

use std::borrow::Cow;

use paidonce_order::money::{Currency, Decimal, Money};
use paidonce_order::timestamp::Timestamp;

use crate::reading::{Unbookable, cut};

/// Named values, of a form or of an answer.
pub(super) trait Fields {
    /// `None` when absent or blank.
    fn get(&self, key: &str) -> Option<Cow<'_, str>>;
}

/// CNY, unless the order was priced in another currency.
pub(super) fn currency(fields: &dyn Fields) -> Result<Currency, Unbookable> {
    match fields.get("trans_currency") {
        None => Ok(Currency::CNY),
        Some(code) => Currency::parse(&code).map_err(|error| Unbookable::amount("trans_currency", error)),
    }
}

/// What an amount must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// More than zero.
    Positive,
    /// Zero is fine: `refund_fee=0.00` stands in plain payment notices, a full coupon leaves nothing to pay.
    NotNegative,
}

/// Exact decimal text of the major unit with at most the currency's decimals (yuan: two).
pub(super) fn money(field: &str, text: &str, currency: Currency, sign: Sign) -> Result<Money, Unbookable> {
    let unusable = |problem: String| Unbookable::amount(field, problem);
    let decimal = Decimal::parse(text).map_err(|error| unusable(error.to_string()))?;
    if decimal.scale > currency.exponent() {
        return Err(unusable(format!("{:?} has more than {} decimals", cut(text), currency.exponent())));
    }
    let money = decimal.to_money(currency).map_err(|error| unusable(error.to_string()))?;
    match sign {
        Sign::Positive if money.amount_minor <= 0 => Err(unusable(format!("{money} is not more than zero"))),
        Sign::NotNegative if money.amount_minor < 0 => Err(unusable(format!("{money} is negative"))),
        Sign::Positive | Sign::NotNegative => Ok(money),
    }
}

/// A named amount, when it is there.
pub(super) fn find_money(
    fields: &dyn Fields,
    field: &str,
    currency: Currency,
    sign: Sign,
) -> Result<Option<Money>, Unbookable> {
    fields.get(field).map(|text| money(field, &text, currency, sign)).transpose()
}

/// `yyyy-MM-dd HH:mm:ss`, optionally with a fraction (`gmt_refund` has milliseconds). Beijing time without an offset: it is
/// attached here, so that the server's own time zone never matters. China has had no daylight saving since 1991.
pub(super) fn beijing_time(field: &str, text: &str) -> Result<Timestamp, Unbookable> {
    let unusable = || Unbookable::time(field, text);
    let (date, time_of_day) = text.split_once(' ').ok_or_else(unusable)?;
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.'));
    if !digits(date) || !digits(time_of_day) {
        return Err(unusable());
    }
    Timestamp::parse(&format!("{date}T{time_of_day}+08:00")).map_err(|_| unusable())
}

/// The first of these fields that is there; `None` when none is.
pub(super) fn first_time(fields: &dyn Fields, names: &[&'static str]) -> Result<Option<Timestamp>, Unbookable> {
    let found = names.iter().find_map(|name| Some((*name, fields.get(name)?)));
    found.map(|(name, text)| beijing_time(name, &text)).transpose()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    fn yuan(text: &str) -> Result<i64, &'static str> {
        money("total_amount", text, Currency::CNY, Sign::Positive).map(|m| m.amount_minor).map_err(|u| u.code)
    }

    #[test]
    fn yuan_become_fen_without_a_float() {
        let cases = [
            ("0.03", 3),
            ("0.29", 29),
            ("0.57", 57),
            ("1.10", 110),
            ("1.15", 115),
            ("4.35", 435),
            ("5.06", 506),
            ("8.80", 880),
            ("19.99", 1999),
            ("64.60", 6460),
            ("1001.05", 100_105),
            ("8.8", 880),
            ("88", 8800),
            ("4503599627370497.51", 450_359_962_737_049_751),
            ("92233720368547758.07", i64::MAX),
        ];
        for (text, fen) in cases {
            assert_eq!(yuan(text), Ok(fen), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_bookable_amount_is_named_so() {
        for text in [
            "0",
            "0.00",
            "-1.00",
            "1.001",
            "88.880",
            "1e2",
            "+1.00",
            " 1.00",
            "1.00 ",
            "1,000.00",
            "１.00",
            ".5",
            "1.",
            "NaN",
            "92233720368547758.08",
            "99999999999999999999999999999999999999999999999999",
        ] {
            assert_eq!(yuan(text), Err("unusable_amount"), "{text}");
        }
    }

    #[test]
    fn times_are_beijing_times_whatever_the_server_thinks() {
        let at = |text: &str| beijing_time("gmt_payment", text).map(|t| t.to_string());
        assert_eq!(at("2026-01-15 00:30:00").unwrap(), "2026-01-14T16:30:00Z");
        assert_eq!(at("2026-01-01 12:30:00.123").unwrap(), "2026-01-01T04:30:00.123Z");
        for text in [
            "2026-01-01",
            "2026-13-01 00:00:00",
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00+08:00",
            "2026-01-01 00:00:00Z",
            "2026-01-01  00:00:00",
            "2026-02-30 00:00:00",
            "",
            " ",
            "20260101 000000",
            "2026-01-01 24:00:00",
        ] {
            assert!(at(text).is_err(), "{text}");
        }
    }
}
