//! One row an entry: CSV and JSON lines.

use std::io::{BufWriter, Write};

use anyhow::Context as _;
use paidonce_app::audit::postings::{Entry, decimal};
use serde::Serialize;

use super::Sink;

/// What a row has, in this order.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) date: String,
    pub(super) recorded_at: String,
    pub(super) order_no: String,
    pub(super) event_type: String,
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) channel_trade_no: String,
    pub(super) number: Option<String>,
    pub(super) debit: String,
    pub(super) credit: String,
    pub(super) currency: String,
    pub(super) amount: String,
    pub(super) amount_minor: i64,
    pub(super) shard: u16,
    pub(super) position: i64,
    pub(super) event_id: String,
}

pub(super) const HEADINGS: [&str; 16] = [
    "date",
    "recorded_at",
    "order_no",
    "event_type",
    "channel",
    "account",
    "channel_trade_no",
    "number",
    "debit",
    "credit",
    "currency",
    "amount",
    "amount_minor",
    "shard",
    "position",
    "event_id",
];

impl Row {
    pub(super) fn of(entry: &Entry) -> Self {
        let Entry { date, event, payment, number, amount, debit, credit } = entry;
        Self {
            date: date.to_string(),
            recorded_at: event.recorded_at.to_string(),
            order_no: event.aggregate_id.clone(),
            event_type: event.event_type.clone(),
            channel: payment.account.channel.as_str().to_owned(),
            account: payment.account.account.to_string(),
            channel_trade_no: payment.channel_trade_no.to_string(),
            number: number.clone(),
            debit: debit.to_string(),
            credit: credit.to_string(),
            currency: amount.currency.to_string(),
            amount: decimal(i128::from(amount.amount_minor), amount.currency),
            amount_minor: amount.amount_minor,
            shard: event.shard,
            position: event.position,
            event_id: event.event_id.to_string(),
        }
    }
}

/// A spreadsheet takes a cell that begins like this for a formula: an apostrophe makes it a text.
pub(super) fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

/// RFC 4180, with headings.
pub(super) struct Csv(csv::Writer<BufWriter<Box<dyn Write + Send>>>);

impl Csv {
    pub(super) fn begin(to: BufWriter<Box<dyn Write + Send>>) -> anyhow::Result<Self> {
        let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(to);
        writer.write_record(HEADINGS).context("write the headings")?;
        Ok(Self(writer))
    }
}

impl Sink for Csv {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let row = Row::of(entry);
        let (minor, shard, position) = (row.amount_minor.to_string(), row.shard.to_string(), row.position.to_string());
        let texts = [&row.order_no, &row.event_type, &row.channel, &row.account, &row.channel_trade_no];
        let mut record = vec![row.date.clone(), row.recorded_at.clone()];
        record.extend(texts.into_iter().map(|text| harmless(text)));
        record.push(harmless(row.number.as_deref().unwrap_or_default()));
        record.extend([row.debit, row.credit, row.currency, row.amount, minor, shard, position, row.event_id]);
        self.0.write_record(record).context("write a row")
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.0.flush().context("write the end")
    }
}

/// One JSON object a line.
pub(super) struct Jsonl(pub(super) BufWriter<Box<dyn Write + Send>>);

impl Sink for Jsonl {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, &Row::of(entry)).context("write a line")?;
        self.0.write_all(b"\n").context("write a line")
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.0.flush().context("write the end")
    }
}
