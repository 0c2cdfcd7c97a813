//! Reading the file: every line is checked, every problem is kept with its line, nothing is guessed.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

use paidonce_channel::OurAccounts;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo, RefundNo};
use paidonce_order::money::{Currency, Money};
use paidonce_order::timestamp::Timestamp;
use serde_json::Value;

use super::Format;
use super::file::csv::Record;

mod csv;

/// What a line may have.
const FIELDS: [&str; 12] = [
    "order_no",
    "amount",
    "amount_minor",
    "currency",
    "account",
    "channel_trade_no",
    "paid_at",
    "description",
    "refund_no",
    "refund_amount",
    "refund_amount_minor",
    "refunded_at",
];

/// One order with its refunds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaidOrder {
    pub(super) line: usize,
    pub(super) order_no: OrderNo,
    pub(super) amount: Money,
    pub(super) account: AccountRef,
    pub(super) channel_trade_no: ChannelTradeNo,
    pub(super) paid_at: Timestamp,
    pub(super) description: Option<String>,
    /// The line as it stands in the file: the evidence.
    pub(super) text: String,
    pub(super) refunds: Vec<PaidRefund>,
}

/// One refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PaidRefund {
    pub(super) line: usize,
    pub(super) refund_no: RefundNo,
    pub(super) amount: Money,
    pub(super) refunded_at: Timestamp,
    /// The line as it stands in the file.
    pub(super) text: String,
}

/// What is wrong with a line, or why the ledger refused it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(super) struct LineProblem {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct ImportFile {
    pub(super) orders: Vec<PaidOrder>,
    pub(super) problems: Vec<LineProblem>,
}

/// One line's fields; empty ones are absent.
struct Line {
    line: usize,
    text: String,
    fields: BTreeMap<String, String>,
}

pub(super) fn read(text: &str, format: Format, ours: &OurAccounts) -> ImportFile {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = match format {
        Format::Csv => csv_lines(text),
        Format::Jsonl => json_lines(text),
    };
    let mut file = ImportFile::default();
    let mut index = HashMap::new();
    for line in lines {
        let order = line.and_then(|line| read_line(&line, ours));
        match order {
            Ok(order) => file.add(order, &mut index),
            Err(mut problems) => file.problems.append(&mut problems),
        }
    }
    if file.orders.is_empty() && file.problems.is_empty() {
        file.problems.push(LineProblem { line: 1, text: "the file has no orders".to_owned() });
    }
    file.problems.sort();
    file
}

impl ImportFile {
    /// A further line of a known order may only add a refund.
    fn add(&mut self, order: PaidOrder, index: &mut HashMap<OrderNo, usize>) {
        let known = index.get(&order.order_no).and_then(|at| self.orders.get_mut(*at));
        let Some(known) = known else {
            index.insert(order.order_no.clone(), self.orders.len());
            self.orders.push(order);
            return;
        };
        let problem = |text: String| LineProblem { line: order.line, text };
        let same = known.amount == order.amount
            && known.account == order.account
            && known.channel_trade_no == order.channel_trade_no
            && known.paid_at == order.paid_at;
        if !same {
            let text = format!("order {} stands with other values in line {}", order.order_no, known.line);
            return self.problems.push(problem(text));
        }
        let Some(refund) = order.refunds.first() else {
            let text = format!("order {} stands in line {} already", order.order_no, known.line);
            return self.problems.push(problem(text));
        };
        if let Some(earlier) = known.refunds.iter().find(|earlier| earlier.refund_no == refund.refund_no) {
            let text = format!("refund {} stands in line {} already", refund.refund_no, earlier.line);
            return self.problems.push(problem(text));
        }
        let back = known
            .refunds
            .iter()
            .chain([refund])
            .try_fold(0_i64, |sum, refund| sum.checked_add(refund.amount.amount_minor));
        if back.is_none_or(|back| back > known.amount.amount_minor) {
            let text = format!("the refunds of order {} exceed its {}", order.order_no, known.amount);
            return self.problems.push(problem(text));
        }
        known.refunds.extend(order.refunds);
    }
}

fn problem(line: usize, text: impl Into<String>) -> Vec<LineProblem> {
    vec![LineProblem { line, text: text.into() }]
}

type LineResult = Result<Line, Vec<LineProblem>>;

fn csv_lines(text: &str) -> Vec<LineResult> {
    let mut records = csv::records(text).into_iter();
    let heading = match records.next() {
        Some(Ok(heading)) => heading,
        Some(Err((line, error))) => return vec![Err(problem(line, error))],
        None => return Vec::new(),
    };
    let names: Vec<String> = heading.cells.iter().map(|name| name.trim().to_owned()).collect();
    let unknown: Vec<LineResult> = names.iter().filter_map(|name| unknown_field(heading.line, name)).map(Err).collect();
    if !unknown.is_empty() {
        return unknown;
    }
    let repeated = names.iter().enumerate().find(|(index, name)| names.iter().take(*index).any(|other| other == *name));
    if let Some((_, name)) = repeated {
        return vec![Err(problem(heading.line, format!("column {name:?} stands twice in the heading")))];
    }
    records.map(|record| csv_line(record, &names)).collect()
}

fn csv_line(record: Result<Record, (usize, String)>, names: &[String]) -> LineResult {
    let record = record.map_err(|(line, error)| problem(line, error))?;
    if record.cells.len() != names.len() {
        let (cells, columns) = (record.cells.len(), names.len());
        return Err(problem(record.line, format!("{cells} values for the {columns} columns of the heading")));
    }
    let pairs = names.iter().cloned().zip(record.cells);
    let fields = pairs.filter(|(_, value)| !value.trim().is_empty()).collect();
    Ok(Line { line: record.line, text: record.text, fields })
}

fn unknown_field(line: usize, name: &str) -> Option<Vec<LineProblem>> {
    if FIELDS.contains(&name) {
        return None;
    }
    Some(problem(line, format!("{name:?} is not a known field: known are {}", FIELDS.join(", "))))
}

fn json_lines(text: &str) -> Vec<LineResult> {
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    lines.map(|(index, text)| json_line(index + 1, text)).collect()
}

fn json_line(line: usize, text: &str) -> LineResult {
    let fields: BTreeMap<String, Value> =
        serde_json::from_str(text).map_err(|error| problem(line, format!("not a JSON object: {error}")))?;
    let mut found = Line { line, text: text.to_owned(), fields: BTreeMap::new() };
    let mut problems = Vec::new();
    for (name, value) in fields {
        problems.extend(unknown_field(line, &name).into_iter().flatten());
        match value {
            Value::String(text) if text.trim().is_empty() => {}
            Value::String(text) => drop(found.fields.insert(name, text)),
            Value::Number(number) if number.is_i64() && name.ends_with("_minor") => {
                drop(found.fields.insert(name, number.to_string()));
            }
            Value::Null => {}
            Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                problems.extend(problem(line, format!("{name} must be a text in quotes")));
            }
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Reads the fields of one line and keeps going after a problem.
struct Reader<'a> {
    line: &'a Line,
    problems: Vec<LineProblem>,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.line.fields.get(name).map(|value| value.trim())
    }

    fn say(&mut self, text: impl Into<String>) {
        self.problems.push(LineProblem { line: self.line.line, text: text.into() });
    }

    fn required<T, E: Display>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        let parsed = self.get(name).map(parse);
        match parsed {
            Some(Ok(value)) => Some(value),
            Some(Err(error)) => {
                self.say(format!("{name}: {error}"));
                None
            }
            None => {
                self.say(format!("{name} is missing"));
                None
            }
        }
    }

    /// `amount` in the major unit, or `amount_minor`; above zero.
    fn money(&mut self, name: &str, currency: Currency) -> Option<Money> {
        let minor_name = format!("{name}_minor");
        let (major, minor) = (self.get(name), self.get(&minor_name));
        let parsed = match (major, minor) {
            (Some(text), None) => Money::parse_major(text, currency).map_err(|error| format!("{name}: {error}")),
            (None, Some(text)) => text
                .parse::<i64>()
                .map(|minor| Money::new(minor, currency))
                .map_err(|_| format!("{minor_name} must be a whole number, not {text:?}")),
            (Some(_), Some(_)) => Err(format!("give either {name} or {minor_name}")),
            (None, None) => Err(format!("{name} is missing")),
        };
        let checked =
            parsed.and_then(
                |money| {
                    if money.amount_minor > 0 { Ok(money) } else { Err(format!("{name} must be above zero")) }
                },
            );
        checked.map_err(|text| self.say(text)).ok()
    }
}

fn read_line(line: &Line, ours: &OurAccounts) -> Result<PaidOrder, Vec<LineProblem>> {
    let mut reader = Reader { line, problems: Vec::new() };
    let order_no = reader.required("order_no", OrderNo::parse);
    let currency = match reader.get("currency").map(Currency::parse) {
        None => Some(Currency::CNY),
        Some(Ok(currency)) => Some(currency),
        Some(Err(error)) => {
            reader.say(format!("currency: {error}"));
            None
        }
    };
    let amount = currency.and_then(|currency| reader.money("amount", currency));
    let account = reader.required("account", AccountRef::parse);
    if let Some(account) = account.as_ref().filter(|account| !ours.contains(account)) {
        reader.say(format!("account {account} is not in the configuration"));
    }
    let channel_trade_no = reader.required("channel_trade_no", ChannelTradeNo::parse);
    let paid_at = reader.required("paid_at", Timestamp::parse);
    let description = reader.get("description").map(ToOwned::to_owned);
    let refunds = read_refund(&mut reader, amount);
    let text = line.text.clone();
    match (order_no, amount, account, channel_trade_no, paid_at) {
        (Some(order_no), Some(amount), Some(account), Some(channel_trade_no), Some(paid_at))
            if reader.problems.is_empty() =>
        {
            let line = line.line;
            Ok(PaidOrder { line, order_no, amount, account, channel_trade_no, paid_at, description, text, refunds })
        }
        _ => Err(reader.problems),
    }
}

fn read_refund(reader: &mut Reader<'_>, paid: Option<Money>) -> Vec<PaidRefund> {
    let named = ["refund_no", "refund_amount", "refund_amount_minor", "refunded_at"];
    let (Some(paid), true) = (paid, named.iter().any(|name| reader.get(name).is_some())) else { return Vec::new() };
    let refund_no = reader.required("refund_no", RefundNo::parse);
    let amount = reader.money("refund_amount", paid.currency);
    let refunded_at = reader.required("refunded_at", Timestamp::parse);
    if let Some(amount) = amount.filter(|amount| amount.amount_minor > paid.amount_minor) {
        reader.say(format!("refund of {amount} exceeds the payment of {paid}"));
    }
    let (Some(refund_no), Some(amount), Some(refunded_at)) = (refund_no, amount, refunded_at) else {
        return Vec::new();
    };
    let (line, text) = (reader.line.line, reader.line.text.clone());
    vec![PaidRefund { line, refund_no, amount, refunded_at, text }]
}
