//! What the bills of both platforms say, in the same words (protocol facts A7 and B7), and how they are read.
//!
//! A bill is read once, from the beginning to its end, in constant memory: each row goes to a sink as it comes. **Nothing of a
//! bill may be believed before the read returned `Ok`**: only then are its hash, its footer, its account and its day known to
//! be right. Until then the sink keeps rows apart and drops them on an error.
//!
//! | step | module |
//! |---|---|
//! | unpack, at most so many bytes | `unpack` (gzip), `alipay/bill/archive` (zip) |
//! | hash of the unpacked bytes | `hashing` |
//! | lines of at most so many bytes, strictly decoded | `lines` |
//! | cells by the names of their columns | `wxpay/bill/table`, `alipay/bill/table` |
//! | exact numbers, Beijing times | `cell` |
//! | the platform's own totals against ours | `wxpay/bill`, `alipay/bill` |

pub(crate) mod cell;
mod day;
mod error;
pub(crate) mod hashing;
pub(crate) mod lines;
pub(crate) mod unpack;

use std::io::{self, Read, Seek};

use paidonce_order::ids::{AccountRef, Channel};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

pub use day::{BillDay, BillDayError};
pub use error::BillError;

/// Decimals of a fee: units named `_e5` are hundred-thousandths of the currency's major unit (0.06000 yuan is 6000).
pub const FEE_SCALE: u8 = 5;

/// Whose bill of which day is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillOf {
    /// The account.
    pub account: AccountRef,
    /// The day, in Beijing.
    pub day: BillDay,
    /// The hash that the platform named, when it names one.
    pub hash: Option<BillHash>,
}

/// WeChat Pay's `hash_type` and `hash_value`: SHA-1 over the uncompressed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillHash(pub(crate) [u8; 20]);

impl BillHash {
    /// Reads hex digits of either case. Errors: another `hash_type` than `SHA1`, or not 40 hex digits.
    pub fn parse(hash_type: &str, hash_value: &str) -> Result<Self, BillError> {
        let unusable =
            || BillError::UnusableHash { found: format!("{hash_type} {hash_value}").chars().take(80).collect() };
        if hash_type != "SHA1" {
            return Err(unusable());
        }
        let bytes = hex::decode(hash_value).map_err(|_| unusable())?;
        bytes.try_into().map(Self).map_err(|_| unusable())
    }
}

/// What a row of a trade bill is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TradeKind {
    /// Money came in.
    Payment,
    /// Money goes back. The status is the one of the day the bill was made, and is never corrected (gotcha 26).
    Refund {
        /// out_refund_no, out_request_no; empty when the platform has none.
        refund_no: String,
        /// refund_id; empty at Alipay.
        channel_refund_no: String,
        /// `SUCCESS`, `PROCESSING`, ..; empty at Alipay, whose bill lists what is done.
        status: String,
    },
    /// A scan payment was reversed: money goes back under the number of the payment.
    Reversal,
    /// A state that we don't know: a person looks, the day stays open.
    Unknown {
        /// The platform's word.
        word: String,
    },
}

/// A row of a trade bill. Amounts are never negative, [`TradeKind`] says which way they went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TradeRow {
    /// 1-based, in its file.
    pub line: u64,
    /// What it is about.
    pub kind: TradeKind,
    /// When the platform lists it. Of a refund: when it was asked for.
    pub at: Timestamp,
    /// out_trade_no.
    pub order_no: String,
    /// transaction_id, trade_no.
    pub channel_trade_no: String,
    /// As the API says it: amount.total or amount.refund; total_amount or refund_amount.
    pub amount: Money,
    /// Fee. Units: hundred-thousandths of the major unit. Positive: it was taken from us; negative: it came back.
    pub fee_e5: i64,
}

/// Which way cash went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CashDirection {
    /// To us.
    In,
    /// From us.
    Out,
}

/// A row of a fund flow bill (WeChat Pay) or an account bill (Alipay): what moved the balance. A fee is a row of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CashRow {
    /// 1-based, in its file.
    pub line: u64,
    /// When it was booked.
    pub at: Timestamp,
    /// The number of this movement.
    pub flow_no: String,
    /// The channel's number of the payment or refund behind it.
    pub business_no: String,
    /// Ours: an order or refund number; may be empty.
    pub merchant_no: String,
    /// What it is for, in the platform's words (`扣除交易手续费`, `交易退款`, ..).
    pub purpose: String,
    /// Which way.
    pub direction: CashDirection,
    /// Never negative.
    pub amount: Money,
    /// Balance afterwards.
    pub balance: Money,
}

/// Number and sum of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Side {
    /// Rows.
    pub rows: u64,
    /// Sum. Units: minor units.
    pub amount_minor: i128,
}

impl Side {
    /// One more.
    pub fn add(&mut self, money: Money) {
        self.rows = self.rows.saturating_add(1);
        self.amount_minor = self.amount_minor.saturating_add(i128::from(money.amount_minor));
    }
}

/// What the rows of a trade bill add up to; they foot with the platform's own totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TradeTotals {
    /// Payments.
    pub payments: Side,
    /// Refunds and reversals.
    pub refunds: Side,
    /// Rows in a state that we don't know.
    pub unknown: Side,
    /// Fees taken less fees given back. Units: hundred-thousandths.
    pub fee_e5: i128,
}

impl TradeTotals {
    pub(crate) fn add(&mut self, row: &TradeRow) {
        match &row.kind {
            TradeKind::Payment => self.payments.add(row.amount),
            TradeKind::Refund { .. } | TradeKind::Reversal => self.refunds.add(row.amount),
            TradeKind::Unknown { .. } => self.unknown.add(row.amount),
        }
        self.fee_e5 = self.fee_e5.saturating_add(i128::from(row.fee_e5));
    }

    /// Rows in all.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.payments.rows.saturating_add(self.refunds.rows).saturating_add(self.unknown.rows)
    }
}

/// What the rows of a cash bill add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CashTotals {
    /// To us.
    pub incoming: Side,
    /// From us.
    pub outgoing: Side,
}

/// Takes rows as they come. Its own error ends the read as [`BillError::Io`].
pub type Sink<'s, Row> = &'s mut dyn FnMut(Row) -> io::Result<()>;

/// Reads a trade bill: WeChat Pay's ALL, SUCCESS or REFUND, plain or gzip, with today's or the old names of the columns;
/// Alipay's business bill, as the zip it is delivered in or one of its files.
///
/// Guarantees: constant memory; rows are in the order of the file. Errors: [`BillError`] names line, column and remedy;
/// whatever the sink got is then worth nothing.
pub fn read_trade_bill(
    source: impl Read + Seek,
    of: &BillOf,
    sink: Sink<'_, TradeRow>,
) -> Result<TradeTotals, BillError> {
    match of.account.channel {
        Channel::Wxpay => crate::wxpay::bill::read_trades(source, of, sink),
        Channel::Alipay => crate::alipay::bill::read_trades(source, of, sink),
    }
}

/// Reads a cash bill: WeChat Pay's fund flow bill (which names no account: that can't be checked) or Alipay's account bill.
///
/// Guarantees and errors: as [`read_trade_bill`].
pub fn read_cash_bill(source: impl Read + Seek, of: &BillOf, sink: Sink<'_, CashRow>) -> Result<CashTotals, BillError> {
    match of.account.channel {
        Channel::Wxpay => crate::wxpay::bill::read_cash(source, of, sink),
        Channel::Alipay => crate::alipay::bill::read_cash(source, of, sink),
    }
}
