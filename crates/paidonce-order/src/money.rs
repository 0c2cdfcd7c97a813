//! Money as checked integer minor units with an ISO-4217 currency, and exact decimal text. No float anywhere.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a text or a sum is not money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not `[-]digits[.digits]`.
    #[error("{text:?} is not a decimal number such as 88.88")]
    NotDecimal {
        /// What was given.
        text: String,
    },
    /// More non-zero decimals than the currency has.
    #[error("{text:?} is finer than the smallest unit of {currency}")]
    TooFine {
        /// What was given.
        text: String,
        /// The currency.
        currency: Currency,
    },
    /// Beyond i64 minor units.
    #[error("the amount is too large")]
    Overflow,
    /// Not an ISO-4217 code that we know.
    #[error("{code:?} is not an ISO 4217 currency code")]
    UnknownCurrency {
        /// What was given.
        code: String,
    },
    /// Two currencies in one sum.
    #[error("{left} and {right} can't be added or compared")]
    CurrencyDiffers {
        /// One.
        left: Currency,
        /// The other.
        right: Currency,
    },
}

/// An ISO-4217 code, upper case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Currency([u8; 3]);

/// Codes with an exponent other than 2 (ISO 4217, List One), and the common ones with 2. A code outside of both is refused.
const EXPONENT_0: &[&str] = &[
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF",
    "XPF",
];
const EXPONENT_3: &[&str] = &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];
const EXPONENT_4: &[&str] = &["CLF", "UYW"];
const EXPONENT_2: &[&str] = &[
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT", "BMD", "BND", "BOB", "BRL",
    "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF", "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DKK", "DOP",
    "DZD", "EGP", "ERN", "ETB", "EUR", "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GTQ", "GYD", "HKD", "HNL",
    "HTG", "HUF", "IDR", "ILS", "INR", "IRR", "JMD", "KES", "KGS", "KHR", "KPW", "KYD", "KZT", "LAK", "LBP", "LKR",
    "LRD", "LSL", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MYR", "MZN",
    "NAD", "NGN", "NIO", "NOK", "NPR", "NZD", "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "QAR", "RON", "RSD", "RUB",
    "SAR", "SBD", "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB",
    "TJS", "TMT", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH", "USD", "UYU", "UZS", "VED", "VES", "WST", "XCD", "YER",
    "ZAR", "ZMW",
];

impl Currency {
    /// Chinese yuan, minor unit fen.
    pub const CNY: Self = Self(*b"CNY");

    /// Reads an upper-case code. Errors: [`MoneyError::UnknownCurrency`].
    pub fn parse(code: &str) -> Result<Self, MoneyError> {
        let unknown = || MoneyError::UnknownCurrency { code: code.chars().take(8).collect() };
        let bytes: [u8; 3] = code.as_bytes().try_into().map_err(|_| unknown())?;
        let currency = Self(bytes);
        if [EXPONENT_0, EXPONENT_2, EXPONENT_3, EXPONENT_4].iter().any(|list| list.contains(&currency.as_str())) {
            Ok(currency)
        } else {
            Err(unknown())
        }
    }

    /// The code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("???")
    }

    /// Decimals of the minor unit.
    #[must_use]
    pub fn exponent(self) -> u8 {
        let code = self.as_str();
        if EXPONENT_0.contains(&code) {
            0
        } else if EXPONENT_3.contains(&code) {
            3
        } else if EXPONENT_4.contains(&code) {
            4
        } else {
            2
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Currency {
    type Error = MoneyError;
    fn try_from(code: String) -> Result<Self, MoneyError> {
        Self::parse(&code)
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

/// An amount. Units: minor units of the currency (fen for CNY).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Money {
    /// Minor units.
    pub amount_minor: i64,
    /// ISO-4217 code.
    pub currency: Currency,
}

impl Money {
    /// From minor units.
    #[must_use]
    pub const fn new(amount_minor: i64, currency: Currency) -> Self {
        Self { amount_minor, currency }
    }

    /// Fen.
    #[must_use]
    pub const fn fen(amount_minor: i64) -> Self {
        Self::new(amount_minor, Currency::CNY)
    }

    /// Exact decimal text of the major unit (`88.88` yuan). Errors: not a decimal, finer than a minor unit, too large.
    pub fn parse_major(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        Decimal::parse(text)?.to_money(currency)
    }

    /// Sum of equal currencies, checked.
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        self.same_currency(other)?;
        let amount_minor = self.amount_minor.checked_add(other.amount_minor).ok_or(MoneyError::Overflow)?;
        Ok(Self { amount_minor, ..self })
    }

    /// Difference of equal currencies, checked.
    pub fn checked_sub(self, other: Self) -> Result<Self, MoneyError> {
        self.same_currency(other)?;
        let amount_minor = self.amount_minor.checked_sub(other.amount_minor).ok_or(MoneyError::Overflow)?;
        Ok(Self { amount_minor, ..self })
    }

    fn same_currency(self, other: Self) -> Result<(), MoneyError> {
        if self.currency == other.currency {
            Ok(())
        } else {
            Err(MoneyError::CurrencyDiffers { left: self.currency, right: other.currency })
        }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.amount_minor < 0 { "-" } else { "" };
        let exponent = self.currency.exponent();
        let unit = 10_u64.pow(u32::from(exponent));
        let minor = self.amount_minor.unsigned_abs();
        if exponent == 0 {
            write!(f, "{sign}{minor} {}", self.currency)
        } else {
            let (major, rest, width) = (minor / unit, minor % unit, usize::from(exponent));
            write!(f, "{sign}{major}.{rest:0width$} {}", self.currency)
        }
    }
}

/// Longest decimal text that is read, in bytes: i64 needs 19 digits, fees have five decimals.
const DECIMAL_BYTES_MAX: usize = 40;

/// An exact decimal: `units / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// All digits as one integer.
    pub units: i128,
    /// Digits behind the point.
    pub scale: u8,
}

impl Decimal {
    /// Reads `[-]digits[.digits]`; no exponent, no plus sign, no spaces, no digit grouping.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        let bad = || MoneyError::NotDecimal { text: text.chars().take(DECIMAL_BYTES_MAX).collect() };
        if text.len() > DECIMAL_BYTES_MAX {
            return Err(bad());
        }
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return Err(bad()),
            Some(parts) => parts,
            None => (digits, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return Err(bad());
        }
        let units = whole
            .bytes()
            .chain(fraction.bytes())
            .try_fold(0_i128, |sum, b| sum.checked_mul(10)?.checked_add(i128::from(b - b'0')));
        let units = units.ok_or(MoneyError::Overflow)?;
        let scale = u8::try_from(fraction.len()).map_err(|_| bad())?;
        Ok(Self { units: if negative { -units } else { units }, scale })
    }

    /// As money; trailing zeros beyond the minor unit are fine, other digits are [`MoneyError::TooFine`].
    pub fn to_money(self, currency: Currency) -> Result<Money, MoneyError> {
        let (exponent, scale) = (u32::from(currency.exponent()), u32::from(self.scale));
        let minor = if scale <= exponent {
            self.units.checked_mul(10_i128.pow(exponent - scale)).ok_or(MoneyError::Overflow)?
        } else {
            let divisor = 10_i128.checked_pow(scale - exponent).ok_or(MoneyError::Overflow)?;
            if self.units % divisor != 0 {
                return Err(MoneyError::TooFine { text: self.to_string(), currency });
            }
            self.units / divisor
        };
        Ok(Money::new(i64::try_from(minor).map_err(|_| MoneyError::Overflow)?, currency))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.units < 0 { "-" } else { "" };
        let digits = self.units.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}
