//! The account bill (signcustomer): what moved the balance.

use std::io::{Read, Seek};

use paidonce_order::money::Currency;

use super::archive::each_file;
use super::table::{Comments, Name, Row, Table};
use crate::bill::{BillError, BillOf, CashDirection, CashRow, CashTotals, Side, Sink};

const FLOW_NO: Name = "账务流水号";
const BUSINESS_NO: Name = "业务流水号";
const MERCHANT_NO: Name = "商户订单号";
const TIME: Name = "发生时间";
const IN: Name = "收入金额(+元)";
const OUT: Name = "支出金额(-元)";
const BALANCE: Name = "账户余额(元)";
const PURPOSE: Name = "业务类型";

const NEEDED: &[Name] = &[FLOW_NO, BUSINESS_NO, MERCHANT_NO, TIME, IN, OUT, BALANCE, PURPOSE];

const TOTAL_OUT: Name = "支出合计";
const TOTAL_IN: Name = "收入合计";

/// Reads it: [`crate::bill::read_cash_bill`].
pub(crate) fn read_cash(
    source: impl Read + Seek,
    of: &BillOf,
    sink: Sink<'_, CashRow>,
) -> Result<CashTotals, BillError> {
    let (mut counted, mut details) = (CashTotals::default(), 0_u32);
    each_file(source, |file| {
        let Some(table) = Table::open(file)? else { return Ok(()) };
        if !table.has(FLOW_NO) {
            return table.skip();
        }
        details = details.saturating_add(1);
        let of_file = read_detail(table, of, sink)?;
        join(&mut counted.incoming, of_file.incoming);
        join(&mut counted.outgoing, of_file.outgoing);
        Ok(())
    })?;
    if details == 0 {
        return Err(BillError::NoColumn { line: 1, column: FLOW_NO });
    }
    Ok(counted)
}

fn join(side: &mut Side, other: Side) {
    side.rows = side.rows.saturating_add(other.rows);
    side.amount_minor = side.amount_minor.saturating_add(other.amount_minor);
}

fn read_detail(table: Table<'_>, of: &BillOf, sink: Sink<'_, CashRow>) -> Result<CashTotals, BillError> {
    table.require(NEEDED)?;
    table.check(of)?;
    let mut counted = CashTotals::default();
    let comments = table.read(|row| {
        let read = read_row(row)?;
        match read.direction {
            CashDirection::In => counted.incoming.add(read.amount),
            CashDirection::Out => counted.outgoing.add(read.amount),
        }
        Ok(sink(read)?)
    })?;
    foot(&comments, &counted)?;
    Ok(counted)
}

fn foot(comments: &Comments, counted: &CashTotals) -> Result<(), BillError> {
    let rows = counted.incoming.rows.saturating_add(counted.outgoing.rows);
    comments.total(TOTAL_OUT, rows)?.foot(counted.outgoing)?;
    comments.total(TOTAL_IN, rows)?.foot(counted.incoming)
}

fn read_row(row: &Row<'_>) -> Result<CashRow, BillError> {
    // One of the two is zero, or empty.
    let size = |column| {
        let cell = row.get(column)?;
        let empty = cell.text.is_empty();
        Ok::<_, BillError>(if empty {
            None
        } else {
            Some(cell.size(Currency::CNY)?).filter(|money| money.amount_minor > 0)
        })
    };
    let (direction, amount) = match (size(IN)?, size(OUT)?) {
        (Some(amount), None) => (CashDirection::In, amount),
        (None, Some(amount)) => (CashDirection::Out, amount),
        (Some(_), Some(_)) | (None, None) => {
            let problem = format!("exactly one of it and {OUT} must have an amount");
            return Err(BillError::Cell { line: row.line, column: IN.to_owned(), problem });
        }
    };
    Ok(CashRow {
        line: row.line,
        at: row.get(TIME)?.beijing()?,
        flow_no: row.get(FLOW_NO)?.number()?,
        business_no: row.get(BUSINESS_NO)?.text.to_owned(),
        merchant_no: row.get(MERCHANT_NO)?.text.to_owned(),
        purpose: row.get(PURPOSE)?.text.to_owned(),
        direction,
        amount,
        balance: row.get(BALANCE)?.money(Currency::CNY)?,
    })
}
