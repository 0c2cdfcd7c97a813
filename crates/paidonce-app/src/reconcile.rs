//! A platform's trade bill of one day against the ledger: every row against the flows of its payment, every flow of the day
//! against the rows.
//!
//! Promises: reads only, a file alone never books. Nothing of a bill is used before its hash, footer, account and day are known
//! to be right. Memory: 16 bytes for each row of the bill, and a page of rows.
//!
//! | difference | means |
//! |---|---|
//! | `missing_in_ledger` | the platform lists money that we have not booked |
//! | `missing_at_channel` | we booked a payment of that day that the platform does not list |
//! | `refund_not_listed` | we booked a refund of that day: the platform lists refunds on the day they were asked for |
//! | `amount`, `order_no` | booked, but with another amount, or for another order |
//! | `refund_processing` | the refund was under way when the bill was made, and bills are never corrected: ask the platform |
//! | `reversal`, `unknown_state` | a person looks |
//! | `other_day` | booked, dated on another day than the bill: the edge of midnight |

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use paidonce_channel::bill::{BillDay, BillError, BillOf, TradeKind, TradeRow, TradeTotals, read_trade_bill};
use paidonce_order::ids::{AccountRef, shard_of};
use paidonce_order::order::{Order, RefundState};
use paidonce_order::project::{Aggregate, FlowRow, TradeType};
use paidonce_store::audit::{AuditSource, IDS_MAX, Range};
use paidonce_store::rebuild::Folded;
use paidonce_store::store::StoreError;
use serde::Serialize;
use tokio::sync::mpsc;

/// Batches of rows that are read ahead of the ledger.
const BATCHES_AHEAD: usize = 4;
/// Differences that are kept; all are counted.
pub const DIFFERENCES_MAX: usize = 10_000;

/// A bill could not be reconciled: nothing is proven.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The bill is refused as a whole.
    #[error(transparent)]
    Bill(#[from] BillError),
    /// The ledger can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bill changed while it was read, or a task ended inside.
    #[error("the reconciliation ended inside: {0}")]
    Internal(String),
}

/// What kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// See the table of this module.
    MissingInLedger,
    /// See the table of this module.
    MissingAtChannel,
    /// See the table of this module.
    RefundNotListed,
    /// See the table of this module.
    Amount,
    /// See the table of this module.
    OrderNo,
    /// See the table of this module.
    RefundProcessing,
    /// See the table of this module.
    Reversal,
    /// See the table of this module.
    UnknownState,
    /// See the table of this module.
    OtherDay,
}

impl DifferenceKind {
    /// Whether nothing needs to be done: the next or the last day's bill, or a query, explains it.
    #[must_use]
    pub const fn is_expected(self) -> bool {
        match self {
            Self::OtherDay | Self::RefundNotListed | Self::RefundProcessing => true,
            Self::MissingInLedger
            | Self::MissingAtChannel
            | Self::Amount
            | Self::OrderNo
            | Self::Reversal
            | Self::UnknownState => false,
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BillDifference {
    /// What kind.
    pub kind: DifferenceKind,
    /// Line of the bill; none for what only the ledger has.
    pub line: Option<u64>,
    /// out_trade_no.
    pub order_no: String,
    /// transaction_id, trade_no.
    pub channel_trade_no: String,
    /// Of a refund.
    pub refund_no: Option<String>,
    /// ISO 4217.
    pub currency: String,
    /// What the platform lists, minor units.
    pub bill_minor: Option<i64>,
    /// What we booked, minor units.
    pub ledger_minor: Option<i64>,
    /// One sentence: what to do.
    pub note: String,
}

/// Number and sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Rows.
    pub count: u64,
    /// Minor units.
    pub amount_minor: i128,
}

impl Sum {
    fn add(&mut self, minor: i64) {
        self.count = self.count.saturating_add(1);
        self.amount_minor = self.amount_minor.saturating_add(i128::from(minor));
    }
}

/// What was found. `is_balanced`: no difference but those that another day or a query explains.
#[derive(Debug, Clone, Serialize)]
pub struct Reconciliation {
    /// `wxpay:1900000001`.
    pub account: String,
    /// The day, in Beijing.
    pub day: String,
    /// Payments of the bill.
    pub bill_payments: Sum,
    /// Refunds of the bill.
    pub bill_refunds: Sum,
    /// Fees taken less fees given back. Units: hundred-thousandths of the major unit.
    pub bill_fee_e5: i128,
    /// Payments of the ledger on that day.
    pub ledger_payments: Sum,
    /// Refunds of the ledger on that day.
    pub ledger_refunds: Sum,
    /// Rows that agree in every respect.
    pub agreed: u64,
    /// At most [`DIFFERENCES_MAX`].
    pub differences: Vec<BillDifference>,
    /// All of them.
    pub differences_total: u64,
    /// See above.
    pub is_balanced: bool,
}

/// Reconciles one bill. Errors: [`ReconcileError`], and then nothing is proven.
pub async fn reconcile<B>(source: Arc<dyn AuditSource>, of: &BillOf, bill: B) -> Result<Reconciliation, ReconcileError>
where
    B: Read + Seek + Send + 'static,
{
    let (totals, listed, bill) = first_reading(of.clone(), bill).await?;
    let mut found = Found { totals, ..Found::new(of.clone()) };
    found.compare_rows(source.as_ref(), bill).await?;
    found.compare_flows(source.as_ref(), &listed).await?;
    Ok(found.report())
}

/// Names a movement among those of one account: the payment alone, or with the refund's number.
type Mark = [u8; 16];

fn mark(channel_trade_no: &str, refund_no: Option<&str>) -> Mark {
    let mut hash = Context::new(&SHA256);
    for part in [channel_trade_no, refund_no.unwrap_or_default()] {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    let mut out = [0; 16];
    out.iter_mut().zip(hash.finish().as_ref()).for_each(|(out, byte)| *out = *byte);
    out
}

/// The whole bill once, only to know that it may be believed, and which movements it lists.
async fn first_reading<B>(of: BillOf, mut bill: B) -> Result<(TradeTotals, Vec<Mark>, B), ReconcileError>
where
    B: Read + Seek + Send + 'static,
{
    let reading = move || {
        let mut listed = Vec::new();
        let totals = read_trade_bill(&mut bill, &of, &mut |row: TradeRow| {
            let refund_no = refund_no_of(&row);
            listed.push(mark(&row.channel_trade_no, refund_no));
            Ok(())
        })?;
        listed.sort_unstable();
        Ok::<_, ReconcileError>((totals, listed, bill))
    };
    tokio::task::spawn_blocking(reading).await.map_err(|error| ReconcileError::Internal(error.to_string()))?
}

fn refund_no_of(row: &TradeRow) -> Option<&str> {
    match &row.kind {
        TradeKind::Refund { refund_no, .. } => Some(refund_no),
        TradeKind::Reversal => Some(""),
        TradeKind::Payment | TradeKind::Unknown { .. } => None,
    }
}

struct Found {
    of: BillOf,
    totals: TradeTotals,
    ledger_payments: Sum,
    ledger_refunds: Sum,
    agreed: u64,
    differences: Vec<BillDifference>,
    beyond: u64,
    unexpected: u64,
}

impl Found {
    fn new(of: BillOf) -> Self {
        Self {
            of,
            totals: TradeTotals::default(),
            ledger_payments: Sum::default(),
            ledger_refunds: Sum::default(),
            agreed: 0,
            differences: Vec::new(),
            beyond: 0,
            unexpected: 0,
        }
    }

    fn add(&mut self, difference: BillDifference) {
        if !difference.kind.is_expected() {
            self.unexpected = self.unexpected.saturating_add(1);
        }
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(difference);
        } else {
            self.beyond = self.beyond.saturating_add(1);
        }
    }

    /// The bill again, row by row, against the flows of each payment.
    async fn compare_rows<B>(&mut self, source: &dyn AuditSource, mut bill: B) -> Result<(), ReconcileError>
    where
        B: Read + Seek + Send + 'static,
    {
        let (send, mut receive) = mpsc::channel::<Vec<TradeRow>>(BATCHES_AHEAD);
        let of = self.of.clone();
        let reading = tokio::task::spawn_blocking(move || {
            bill.seek(SeekFrom::Start(0)).map_err(BillError::Io)?;
            let mut batch = Vec::new();
            let gone = |_| std::io::Error::other("nobody wants the rows any more");
            let totals = read_trade_bill(&mut bill, &of, &mut |row| {
                batch.push(row);
                if batch.len() < IDS_MAX {
                    Ok(())
                } else {
                    send.blocking_send(std::mem::take(&mut batch)).map_err(gone)
                }
            })?;
            send.blocking_send(batch).map_err(gone).map_err(BillError::Io)?;
            Ok::<TradeTotals, BillError>(totals)
        });
        while let Some(batch) = receive.recv().await {
            let mut trade_nos: Vec<String> = batch.iter().map(|row| row.channel_trade_no.clone()).collect();
            trade_nos.sort_unstable();
            trade_nos.dedup();
            let mut flows: BTreeMap<String, Vec<FlowRow>> = BTreeMap::new();
            for flow in source.flows_of_trades(&self.of.account, &trade_nos).await? {
                flows.entry(flow.row.channel_trade_no.to_string()).or_default().push(flow.row);
            }
            for row in &batch {
                let flows = flows.get(&row.channel_trade_no).map_or(&[][..], Vec::as_slice);
                let Some(difference) = self.compare_row(row, flows) else {
                    self.agreed = self.agreed.saturating_add(1);
                    continue;
                };
                let order_no = flows.first().map_or(row.order_no.as_str(), |flow| flow.order_no.as_str());
                if self.is_in_state(source, row, order_no).await? {
                    self.agreed = self.agreed.saturating_add(1);
                } else {
                    self.add(difference);
                }
            }
        }
        let totals = reading.await.map_err(|error| ReconcileError::Internal(error.to_string()))??;
        if totals == self.totals {
            Ok(())
        } else {
            Err(ReconcileError::Internal("the bill was changed while it was read".to_owned()))
        }
    }

    /// A refund that was booked as a difference of totals and named later (RefundSplit): its flows stay as they were booked, and
    /// only the order knows its number.
    async fn is_in_state(&self, source: &dyn AuditSource, row: &TradeRow, order_no: &str) -> Result<bool, StoreError> {
        let TradeKind::Refund { refund_no, .. } = &row.kind else { return Ok(false) };
        let ids = [order_no.to_owned()];
        let events = source.events_of(shard_of(order_no), &ids, Range { after: 0, to: i64::MAX }).await?;
        let Some(mut folded) = Folded::empty(Order::TYPE_NAME) else { return Ok(false) };
        let is_readable = events.iter().all(|event| folded.fold(event).is_ok());
        let Aggregate::Order(order) = folded.state() else { return Ok(false) };
        let mut payments = order.payments.iter().filter(|payment| {
            let named = &payment.fact.payment;
            named.account == self.of.account && named.channel_trade_no.as_str() == row.channel_trade_no
        });
        Ok(is_readable
            && payments.any(|payment| {
                payment.refunds.iter().any(|refund| {
                    let is_done = refund.state == RefundState::Confirmed && !refund.derived;
                    is_done && refund.refund_no.as_str() == refund_no && refund.amount == row.amount
                })
            }))
    }

    fn compare_row(&self, row: &TradeRow, flows: &[FlowRow]) -> Option<BillDifference> {
        let of_kind: Vec<&FlowRow> = flows.iter().filter(|flow| is_of(flow, row)).collect();
        let booked = of_kind.iter().fold(0_i64, |sum, flow| sum.saturating_add(flow.amount.amount_minor));
        let difference = |kind: DifferenceKind, note: &str| BillDifference {
            kind,
            line: Some(row.line),
            order_no: row.order_no.clone(),
            channel_trade_no: row.channel_trade_no.clone(),
            refund_no: refund_no_of(row).map(str::to_owned),
            currency: row.amount.currency.to_string(),
            bill_minor: Some(row.amount.amount_minor),
            ledger_minor: (!of_kind.is_empty()).then_some(booked),
            note: note.to_owned(),
        };
        let is_open = matches!(&row.kind, TradeKind::Refund { status, .. } if status == "PROCESSING");
        match (&row.kind, of_kind.first()) {
            (TradeKind::Unknown { word }, _) => Some(difference(
                DifferenceKind::UnknownState,
                &format!("state {word:?} is unknown: look at the platform"),
            )),
            (TradeKind::Reversal, None) => Some(difference(
                DifferenceKind::Reversal,
                "a scan payment was reversed, and this ledger has no refund of it: query it, then book it as an operator",
            )),
            (_, None) if is_open => Some(difference(
                DifferenceKind::RefundProcessing,
                "the refund was under way when the bill was made: paidonce order query, or the refund's own query, tells",
            )),
            (_, None) => Some(difference(
                DifferenceKind::MissingInLedger,
                "not booked here: query the order; money that the platform confirms is booked by that",
            )),
            (_, Some(_)) if booked != row.amount.amount_minor => {
                Some(difference(DifferenceKind::Amount, "booked with another amount: look at the order's timeline"))
            }
            (_, Some(flow)) if flow.amount.currency != row.amount.currency => {
                Some(difference(DifferenceKind::Amount, "booked in another currency: look at the order's timeline"))
            }
            (_, Some(flow)) if flow.order_no.as_str() != row.order_no => {
                let note = format!("booked for order {}: look at both orders", flow.order_no);
                Some(difference(DifferenceKind::OrderNo, &note))
            }
            (TradeKind::Payment, Some(flow)) if !self.of.day.contains(flow.occurred_at) => Some(difference(
                DifferenceKind::OtherDay,
                &format!("booked, dated {}: the edge of midnight", BillDay::at(flow.occurred_at)),
            )),
            (_, Some(_)) => None,
        }
    }

    /// Every flow of the account on that day that the bill does not list.
    async fn compare_flows(&mut self, source: &dyn AuditSource, listed: &[Mark]) -> Result<(), ReconcileError> {
        let mut after = String::new();
        loop {
            let page = source.flows_page(&after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.row.idem_key.as_str().to_owned();
            for flow in page.into_iter().map(|flow| flow.row) {
                if flow.account == self.of.account && self.of.day.contains(flow.occurred_at) {
                    self.compare_flow(&flow, listed);
                }
            }
        }
    }

    fn compare_flow(&mut self, flow: &FlowRow, listed: &[Mark]) {
        let trade_no = flow.channel_trade_no.as_str();
        let is_listed = |refund_no: Option<&str>| listed.binary_search(&mark(trade_no, refund_no)).is_ok();
        let (kind, note, is_listed) = match flow.trade_type {
            TradeType::Pay | TradeType::Surplus => {
                self.ledger_payments.add(flow.amount.amount_minor);
                let note =
                    "booked here, not in the bill: is it the right account and day? Query the order at the platform";
                (DifferenceKind::MissingAtChannel, note, is_listed(None))
            }
            TradeType::Refund => {
                self.ledger_refunds.add(flow.amount.amount_minor);
                let note = "refunds are listed on the day they were asked for: see the bill of the day before";
                let number = flow.refund_no.as_deref();
                let aliases = [number, Some(""), Some(trade_no), Some(flow.order_no.as_str())];
                (DifferenceKind::RefundNotListed, note, aliases.into_iter().any(is_listed))
            }
            // Trade bills don't list them.
            TradeType::Share | TradeType::ShareReturn => return,
        };
        if !is_listed {
            self.add(BillDifference {
                kind,
                line: None,
                order_no: flow.order_no.to_string(),
                channel_trade_no: trade_no.to_owned(),
                refund_no: flow.refund_no.clone(),
                currency: flow.amount.currency.to_string(),
                bill_minor: None,
                ledger_minor: Some(flow.amount.amount_minor),
                note: note.to_owned(),
            });
        }
    }

    fn report(mut self) -> Reconciliation {
        self.differences.sort();
        let kept = u64::try_from(self.differences.len()).unwrap_or(u64::MAX);
        let side = |side: paidonce_channel::bill::Side| Sum { count: side.rows, amount_minor: side.amount_minor };
        Reconciliation {
            account: self.of.account.to_string(),
            day: self.of.day.to_string(),
            bill_payments: side(self.totals.payments),
            bill_refunds: side(self.totals.refunds),
            bill_fee_e5: self.totals.fee_e5,
            ledger_payments: self.ledger_payments,
            ledger_refunds: self.ledger_refunds,
            agreed: self.agreed,
            differences_total: kept.saturating_add(self.beyond),
            differences: self.differences,
            is_balanced: self.unexpected == 0,
        }
    }
}

/// Whether a flow is the booking of this row. Alipay names a refund without a number of its own by its trade or its order.
fn is_of(flow: &FlowRow, row: &TradeRow) -> bool {
    match (&row.kind, flow.trade_type) {
        (TradeKind::Payment, TradeType::Pay | TradeType::Surplus) => true,
        (TradeKind::Refund { refund_no, .. }, TradeType::Refund) => {
            let number = flow.refund_no.as_deref().unwrap_or_default();
            let is_alias = |number: &str| number.is_empty() || number == row.channel_trade_no || number == row.order_no;
            number == refund_no || (is_alias(number) && is_alias(refund_no))
        }
        (TradeKind::Reversal, TradeType::Refund) => true,
        (
            TradeKind::Payment | TradeKind::Refund { .. } | TradeKind::Reversal | TradeKind::Unknown { .. },
            TradeType::Pay | TradeType::Surplus | TradeType::Refund | TradeType::Share | TradeType::ShareReturn,
        ) => false,
    }
}

/// The account and the day of a bill. Errors: one sentence.
pub fn bill_of(account: &str, day: &str) -> Result<BillOf, String> {
    let account = AccountRef::parse(account).map_err(|error| error.to_string())?;
    let day = BillDay::parse(day).map_err(|error| error.to_string())?;
    Ok(BillOf { account, day, hash: None })
}
