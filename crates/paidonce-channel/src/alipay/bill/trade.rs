//! The business bill: one detail file (a big day's may have several) beside a summary.

use std::io::{Read, Seek};

use paidonce_order::money::Currency;

use super::archive::each_file;
use super::table::{Comments, Name, Row, Table};
use crate::bill::{BillError, BillOf, Side, Sink, TradeKind, TradeRow, TradeTotals};

const TRADE_NO: Name = "支付宝交易号";
const ORDER_NO: Name = "商户订单号";
const KIND: Name = "业务类型";
const TIME: Name = "完成时间";
const AMOUNT: Name = "订单金额(元)";
const RECEIVED: Name = "商家实收(元)";
const REFUND_NO: Name = "退款批次号/请求号";
const FEE: Name = "服务费(元)";

const NEEDED: &[Name] = &[TRADE_NO, ORDER_NO, KIND, TIME, AMOUNT, RECEIVED, REFUND_NO, FEE];

const TOTAL_PAYMENTS: Name = "交易合计";
const TOTAL_REFUNDS: Name = "退款合计";

/// What a file's footer counts: `商家实收`, signed, by the side a row is on.
#[derive(Debug, Default)]
struct Received {
    payments: Side,
    refunds: Side,
}

/// Reads it: [`crate::bill::read_trade_bill`].
pub(crate) fn read_trades(
    source: impl Read + Seek,
    of: &BillOf,
    sink: Sink<'_, TradeRow>,
) -> Result<TradeTotals, BillError> {
    let (mut counted, mut details) = (TradeTotals::default(), 0_u32);
    each_file(source, |file| {
        let Some(table) = Table::open(file)? else { return Ok(()) };
        if !table.has(TRADE_NO) {
            return table.skip();
        }
        details = details.saturating_add(1);
        read_detail(table, of, &mut counted, sink)
    })?;
    if details == 0 {
        return Err(BillError::NoColumn { line: 1, column: TRADE_NO });
    }
    Ok(counted)
}

fn read_detail(
    table: Table<'_>,
    of: &BillOf,
    counted: &mut TradeTotals,
    sink: Sink<'_, TradeRow>,
) -> Result<(), BillError> {
    table.require(NEEDED)?;
    table.check(of)?;
    let mut received = Received::default();
    let comments = table.read(|row| {
        let read = read_row(row)?;
        let money = row.get(RECEIVED)?.money(Currency::CNY)?;
        match &read.kind {
            TradeKind::Payment => received.payments.add(money),
            TradeKind::Refund { .. } | TradeKind::Reversal => received.refunds.add(money),
            TradeKind::Unknown { .. } if money.amount_minor < 0 => received.refunds.add(money),
            TradeKind::Unknown { .. } => received.payments.add(money),
        }
        counted.add(&read);
        Ok(sink(read)?)
    })?;
    foot(&comments, &received)
}

fn foot(comments: &Comments, received: &Received) -> Result<(), BillError> {
    let rows = received.payments.rows.saturating_add(received.refunds.rows);
    comments.total(TOTAL_PAYMENTS, rows)?.foot(received.payments)?;
    comments.total(TOTAL_REFUNDS, rows)?.foot(received.refunds)
}

fn read_row(row: &Row<'_>) -> Result<TradeRow, BillError> {
    let amount = row.get(AMOUNT)?;
    let (kind, amount) = match row.get(KIND)?.text {
        "交易" => (TradeKind::Payment, amount.positive(Currency::CNY)?),
        "退款" => {
            let refund_no = row.get(REFUND_NO)?.text.to_owned();
            let kind = TradeKind::Refund { refund_no, channel_refund_no: String::new(), status: String::new() };
            (kind, amount.size(Currency::CNY)?)
        }
        other => (TradeKind::Unknown { word: other.chars().take(64).collect() }, amount.size(Currency::CNY)?),
    };
    // Alipay writes what was taken as negative.
    let fee_e5 = row.get(FEE)?.fee_e5()?.saturating_neg();
    Ok(TradeRow {
        line: row.line,
        kind,
        at: row.get(TIME)?.beijing()?,
        order_no: row.get(ORDER_NO)?.number()?,
        channel_trade_no: row.get(TRADE_NO)?.number()?,
        amount,
        fee_e5,
    })
}
