//! The trade bill.

use std::io::{Read, Seek};

use super::open;
use super::table::{Footer, Names, Row, Table};
use crate::bill::{BillError, BillOf, Sink, TradeKind, TradeRow, TradeTotals};

const TIME: Names = &["交易时间"];
/// Only the REFUND bill has it; there it is the time that counts.
const REFUND_TIME: Names = &["退款申请时间"];
const MCHID: Names = &["商户号"];
const TRADE_NO: Names = &["微信订单号"];
const ORDER_NO: Names = &["商户订单号"];
const STATE: Names = &["交易状态"];
const CURRENCY: Names = &["货币种类"];
const SETTLED: Names = &["应结订单金额", "总金额"];
const REFUND_ID: Names = &["微信退款单号"];
const REFUND_NO: Names = &["商户退款单号"];
const REFUNDED: Names = &["退款金额"];
const REFUNDED_COUPON: Names = &["充值券退款金额", "代金券或立减优惠退款金额", "企业红包退款金额"];
const REFUND_STATUS: Names = &["退款状态"];
const FEE: Names = &["手续费"];
/// amount.total; the old form has only the amount that is settled.
const AMOUNT: Names = &["订单金额", "应结订单金额", "总金额"];
/// amount.refund.
const REFUND_AMOUNT: Names = &["申请退款金额", "退款金额"];
/// Without the fallback: what the footer's totals are about.
const ORDER_AMOUNT: Names = &["订单金额"];
const REFUND_ASKED: Names = &["申请退款金额"];

const NEEDED: &[Names] = &[TIME, MCHID, TRADE_NO, ORDER_NO, STATE, CURRENCY, SETTLED, FEE];
/// A bill that has one of them has refunds.
const NEEDED_FOR_REFUNDS: &[Names] = &[REFUND_ID, REFUND_NO, REFUNDED, REFUND_STATUS];

const TOTAL_COUNT: Names = &["总交易单数"];
const TOTAL_SETTLED: Names = &["应结订单总金额", "总交易额"];
const TOTAL_FEE: Names = &["手续费总金额"];

/// The footer's totals and the columns they are the plain sums of.
const TOTALS: &[(Names, Names)] = &[
    (TOTAL_SETTLED, SETTLED),
    (&["退款总金额", "总退款金额"], REFUNDED),
    (&["充值券退款总金额", "总代金券或立减优惠退款金额", "总企业红包退款金额"], REFUNDED_COUPON),
    (TOTAL_FEE, FEE),
    (&["订单总金额"], ORDER_AMOUNT),
    (&["申请退款总金额"], REFUND_ASKED),
];

/// Reads it: [`crate::bill::read_trade_bill`].
pub(crate) fn read_trades(
    source: impl Read + Seek,
    of: &BillOf,
    sink: Sink<'_, TradeRow>,
) -> Result<TradeTotals, BillError> {
    let mut table = Table::open(open(source, of)?)?;
    table.require(NEEDED)?;
    let mut counted = TradeTotals::default();
    let mut sums_e5 = [0_i128; TOTALS.len()];
    let footer = table.read("总交易单数", |row| {
        for (sum, (_, column)) in sums_e5.iter_mut().zip(TOTALS) {
            *sum = sum.saturating_add(row.e5_or_zero(column)?);
        }
        let read = read_row(row, of)?;
        counted.add(&read);
        Ok(sink(read)?)
    })?;
    foot(&footer, &counted, &sums_e5)?;
    Ok(counted)
}

fn foot(footer: &Footer, counted: &TradeTotals, sums_e5: &[i128]) -> Result<(), BillError> {
    let rows = counted.rows();
    footer.require(&[TOTAL_SETTLED, TOTAL_FEE], rows)?;
    footer.foot_count(TOTAL_COUNT, rows, rows)?;
    TOTALS.iter().zip(sums_e5).try_for_each(|((total, _), sum)| footer.foot_sum(total, *sum))
}

fn read_row(row: &Row<'_>, of: &BillOf) -> Result<TradeRow, BillError> {
    let mchid = row.get(MCHID)?;
    let ours = of.account.account.as_str();
    if mchid.text != ours {
        let (found, expected) = (mchid.text.to_owned(), ours.to_owned());
        return Err(BillError::WrongAccount { line: row.line, found, expected });
    }
    let asked = row.find(REFUND_TIME).filter(|cell| !cell.text.is_empty());
    let time = asked.map_or_else(|| row.get(TIME), Ok)?;
    let at = time.beijing()?;
    if !of.day.contains(at) {
        return Err(BillError::WrongDay { line: row.line, found: time.text.to_owned(), expected: of.day });
    }
    let currency = row.get(CURRENCY)?.currency()?;
    let kind = kind(row)?;
    let amount = match &kind {
        TradeKind::Payment => row.get(AMOUNT)?.positive(currency)?,
        TradeKind::Refund { .. } | TradeKind::Reversal => row.get(REFUND_AMOUNT)?.positive(currency)?,
        TradeKind::Unknown { .. } => {
            let (came, went) = (row.get(AMOUNT)?.positive(currency)?, row.find(REFUND_AMOUNT));
            let went = went.map(|cell| cell.positive(currency)).transpose()?;
            went.filter(|_| came.amount_minor == 0).unwrap_or(came)
        }
    };
    Ok(TradeRow {
        line: row.line,
        kind,
        at,
        order_no: row.get(ORDER_NO)?.number()?,
        channel_trade_no: row.get(TRADE_NO)?.number()?,
        amount,
        fee_e5: row.get(FEE)?.fee_e5()?,
    })
}

/// Nothing is left out because of its state: money that a bill lists has moved.
fn kind(row: &Row<'_>) -> Result<TradeKind, BillError> {
    match row.get(STATE)?.text {
        "SUCCESS" => Ok(TradeKind::Payment),
        "REFUND" => {
            for names in NEEDED_FOR_REFUNDS {
                row.get(names)?;
            }
            Ok(TradeKind::Refund {
                refund_no: row.get(REFUND_NO)?.number()?,
                channel_refund_no: row.get(REFUND_ID)?.number()?,
                status: row.get(REFUND_STATUS)?.text.to_owned(),
            })
        }
        "REVOKED" => Ok(TradeKind::Reversal),
        other => Ok(TradeKind::Unknown { word: other.chars().take(64).collect() }),
    }
}
