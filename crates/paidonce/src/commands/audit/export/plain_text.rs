//! Plain text accounting: hledger and beancount. Both check on their own that every entry balances.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};

use anyhow::Context as _;
use paidonce_app::audit::postings::{BookAccount, Entry, decimal};

use super::Sink;

type To = BufWriter<Box<dyn Write + Send>>;

/// Accounts are opened before anything that a ledger can hold.
const OPENED_ON: &str = "1970-01-01";

fn amount(entry: &Entry, sign: i128) -> String {
    let minor = i128::from(entry.amount.amount_minor).saturating_mul(sign);
    format!("{} {}", decimal(minor, entry.amount.currency), entry.amount.currency)
}

/// A journal.
pub(super) struct Hledger(pub(super) To);

impl Sink for Hledger {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let Entry { date, event, payment, number, .. } = entry;
        let number = number.as_ref().map(|number| format!(", number:{number}")).unwrap_or_default();
        let order_no = &event.aggregate_id;
        write!(
            self.0,
            "{date} * ({order_no}) {}  ; channel_trade_no:{}{number}, event:{}\n    {}  {}\n    {}  {}\n\n",
            event.event_type,
            payment.channel_trade_no,
            event.event_id,
            entry.debit,
            amount(entry, 1),
            entry.credit,
            amount(entry, -1)
        )
        .context("write an entry")
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.0.flush().context("write the end")
    }
}

/// A ledger; accounts are opened when they come up.
pub(super) struct Beancount {
    to: To,
    opened: BTreeSet<BookAccount>,
}

impl Beancount {
    pub(super) fn begin(mut to: To) -> anyhow::Result<Self> {
        to.write_all(b"option \"title\" \"paidonce\"\n\n").context("write the beginning")?;
        Ok(Self { to, opened: BTreeSet::new() })
    }

    fn open(&mut self, account: &BookAccount) -> anyhow::Result<()> {
        if self.opened.insert(account.clone()) {
            write!(self.to, "{OPENED_ON} open {account}\n\n").context("open an account")?;
        }
        Ok(())
    }
}

/// Inside of quotation marks.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Sink for Beancount {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        self.open(&entry.debit)?;
        self.open(&entry.credit)?;
        let Entry { date, event, payment, number, .. } = entry;
        let number = number.as_ref().map(|number| format!("  number: {}\n", quoted(number))).unwrap_or_default();
        write!(
            self.to,
            "{date} * {} {}\n  channel_trade_no: {}\n{number}  event: {}\n  {}  {}\n  {}  {}\n\n",
            quoted(&event.aggregate_id),
            quoted(&event.event_type),
            quoted(payment.channel_trade_no.as_str()),
            quoted(&event.event_id.to_string()),
            entry.debit,
            amount(entry, 1),
            entry.credit,
            amount(entry, -1)
        )
        .context("write an entry")
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.to.flush().context("write the end")
    }
}
