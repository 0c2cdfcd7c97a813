//! The fund flow bill: what moved the balance. It names no account, so whose it is can't be checked.

use std::io::{Read, Seek};

use paidonce_order::money::Currency;

use super::open;
use super::table::{Names, Row, Table};
use crate::bill::{BillError, BillOf, CashDirection, CashRow, CashTotals, Sink};

const TIME: Names = &["记账时间"];
const BUSINESS_NO: Names = &["微信支付业务单号"];
const FLOW_NO: Names = &["资金流水单号"];
const PURPOSE: Names = &["业务名称"];
const DIRECTION: Names = &["收支类型"];
const AMOUNT: Names = &["收支金额(元)", "收支金额（元）"];
const BALANCE: Names = &["账户结余(元)", "账户结余（元）"];
const MERCHANT_NO: Names = &["业务凭证号"];

const NEEDED: &[Names] = &[TIME, BUSINESS_NO, FLOW_NO, PURPOSE, DIRECTION, AMOUNT, BALANCE, MERCHANT_NO];

const TOTAL_COUNT: Names = &["资金流水总笔数"];
const TOTAL_IN_COUNT: Names = &["收入笔数"];
const TOTAL_IN: Names = &["收入金额"];
const TOTAL_OUT_COUNT: Names = &["支出笔数"];
const TOTAL_OUT: Names = &["支出金额"];

/// Hundred-thousandths of a yuan in a fen.
const E5_PER_FEN: i128 = 1_000;

/// Reads it: [`crate::bill::read_cash_bill`].
pub(crate) fn read_cash(
    source: impl Read + Seek,
    of: &BillOf,
    sink: Sink<'_, CashRow>,
) -> Result<CashTotals, BillError> {
    let mut table = Table::open(open(source, of)?)?;
    table.require(NEEDED)?;
    let mut counted = CashTotals::default();
    let footer = table.read("资金流水总笔数", |row| {
        let read = read_row(row, of)?;
        match read.direction {
            CashDirection::In => counted.incoming.add(read.amount),
            CashDirection::Out => counted.outgoing.add(read.amount),
        }
        Ok(sink(read)?)
    })?;
    let CashTotals { incoming, outgoing } = counted;
    let rows = incoming.rows.saturating_add(outgoing.rows);
    footer.require(&[TOTAL_IN, TOTAL_OUT], rows)?;
    footer.foot_count(TOTAL_COUNT, rows, rows)?;
    footer.foot_count(TOTAL_IN_COUNT, incoming.rows, rows)?;
    footer.foot_count(TOTAL_OUT_COUNT, outgoing.rows, rows)?;
    footer.foot_sum(TOTAL_IN, incoming.amount_minor.saturating_mul(E5_PER_FEN))?;
    footer.foot_sum(TOTAL_OUT, outgoing.amount_minor.saturating_mul(E5_PER_FEN))?;
    Ok(counted)
}

fn read_row(row: &Row<'_>, of: &BillOf) -> Result<CashRow, BillError> {
    let time = row.get(TIME)?;
    let at = time.beijing()?;
    if !of.day.contains(at) {
        return Err(BillError::WrongDay { line: row.line, found: time.text.to_owned(), expected: of.day });
    }
    let direction = row.get(DIRECTION)?;
    let direction = match direction.text {
        "收入" => CashDirection::In,
        "支出" => CashDirection::Out,
        other => {
            let problem = format!("{other:?} is neither 收入 nor 支出");
            return Err(BillError::Cell { line: row.line, column: direction.column.to_owned(), problem });
        }
    };
    Ok(CashRow {
        line: row.line,
        at,
        flow_no: row.get(FLOW_NO)?.number()?,
        business_no: row.get(BUSINESS_NO)?.text.to_owned(),
        merchant_no: row.get(MERCHANT_NO)?.text.to_owned(),
        purpose: row.get(PURPOSE)?.text.to_owned(),
        direction,
        amount: row.get(AMOUNT)?.positive(Currency::CNY)?,
        balance: row.get(BALANCE)?.money(Currency::CNY)?,
    })
}
