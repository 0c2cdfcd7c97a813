//! Values of cells: exact numbers and Beijing times. Nothing is rounded, and nothing is a floating point number (gotcha 24).

use paidonce_order::money::{Currency, Decimal, Money};
use paidonce_order::timestamp::Timestamp;

use super::{BillError, FEE_SCALE};

/// A cell and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) line: u64,
    pub(crate) column: &'a str,
    pub(crate) text: &'a str,
}

impl Cell<'_> {
    fn unusable(&self, problem: impl Into<String>) -> BillError {
        BillError::Cell { line: self.line, column: self.column.to_owned(), problem: problem.into() }
    }

    /// In hundred-thousandths. Errors: not a decimal number, or finer than that.
    pub(crate) fn e5(&self) -> Result<i128, BillError> {
        let decimal = Decimal::parse(self.text).map_err(|error| self.unusable(error.to_string()))?;
        scaled(decimal, FEE_SCALE).ok_or_else(|| self.unusable(format!("{:?} has more than five decimals", self.text)))
    }

    /// A fee.
    pub(crate) fn fee_e5(&self) -> Result<i64, BillError> {
        i64::try_from(self.e5()?).map_err(|_| self.unusable("the fee is too large"))
    }

    /// Signed money. Errors: not a decimal number, or finer than the minor unit.
    pub(crate) fn money(&self, currency: Currency) -> Result<Money, BillError> {
        Money::parse_major(self.text, currency).map_err(|error| self.unusable(error.to_string()))
    }

    /// Money that can't be negative.
    pub(crate) fn positive(&self, currency: Currency) -> Result<Money, BillError> {
        let money = self.money(currency)?;
        if money.amount_minor < 0 { Err(self.unusable(format!("{:?} is negative", self.text))) } else { Ok(money) }
    }

    /// Money whose sign says only which way it went.
    pub(crate) fn size(&self, currency: Currency) -> Result<Money, BillError> {
        let money = self.money(currency)?;
        let size = money.amount_minor.checked_abs().ok_or_else(|| self.unusable("the amount is too large"))?;
        Ok(Money::new(size, currency))
    }

    /// A number of rows; WeChat Pay writes `45.0` (gotcha 27).
    pub(crate) fn count(&self) -> Result<u64, BillError> {
        let decimal = Decimal::parse(self.text).map_err(|error| self.unusable(error.to_string()))?;
        let whole = scaled(decimal, 0).and_then(|whole| u64::try_from(whole).ok());
        whole.ok_or_else(|| self.unusable(format!("{:?} is not a number of rows", self.text)))
    }

    /// ISO 4217.
    pub(crate) fn currency(&self) -> Result<Currency, BillError> {
        Currency::parse(self.text).map_err(|error| self.unusable(error.to_string()))
    }

    /// `2026-01-14 12:00:00`, which is Beijing time (gotcha 60).
    pub(crate) fn beijing(&self) -> Result<Timestamp, BillError> {
        let unusable = || self.unusable(format!("{:?} is not a time such as 2026-01-14 12:00:00", self.text));
        let (date, time) = self.text.split_once(' ').ok_or_else(unusable)?;
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b':'));
        if !digits(date) || !digits(time) {
            return Err(unusable());
        }
        Timestamp::parse(&format!("{date}T{time}+08:00")).map_err(|_| unusable())
    }

    /// A number that must be there.
    pub(crate) fn number(&self) -> Result<String, BillError> {
        if self.text.is_empty() { Err(self.unusable("is empty")) } else { Ok(self.text.to_owned()) }
    }
}

/// The same value with so many decimals; `None` when digits would be lost or it is too large.
fn scaled(decimal: Decimal, scale: u8) -> Option<i128> {
    if decimal.scale <= scale {
        let factor = 10_i128.checked_pow(u32::from(scale.checked_sub(decimal.scale)?))?;
        return decimal.units.checked_mul(factor);
    }
    let divisor = 10_i128.checked_pow(u32::from(decimal.scale.checked_sub(scale)?))?;
    (decimal.units.checked_rem(divisor)? == 0).then_some(decimal.units.checked_div(divisor)?)
}

/// Hundred-thousandths as a decimal text.
pub(crate) fn e5_text(e5: i128) -> String {
    Decimal { units: e5, scale: FEE_SCALE }.to_string()
}
