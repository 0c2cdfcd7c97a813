//! Compares a report with the expectation that lies beside the script (`expect/<id>.json`).
//!
//! | member | meaning |
//! |---|---|
//! | `title`, `source`, `why` | the report and the right behaviour in a sentence, for people |
//! | `answers` | one entry for each top-level step: a text for all of its answers, or a list, one for each |
//! | `orders` | order number to `{status, paid, refunded, surplus}` (fen), all orders; with `count`, `{i}` stands for 1, 2, .. |
//! | `events` | count by type, all types |
//! | `flows` | count by trade type, all types |
//! | `idempotent` | rows of `t_idempotent` |
//! | `items` | open items by kind, all kinds |
//! | `effects` | deliveries by state, all states |
//! | `delivered` | different events that the warehouse took, by type |
//! | `calls` | optional: calls to the platforms by API, those that are counted |
//! | `refund_numbers` | optional: different numbers (with their amounts) in all refund calls |
//! | `facts` | optional: members of stored events (`order`, `event`, JSON pointer `member`, `value`) |
//!
//! An answer is `verdict`, `verdict status`, or either with `<milliseconds` behind; `a | b` allows both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::report::{Report, StepAnswer};
use super::script::{list, text};

/// Every difference, in words.
pub fn differences(report: &Report, expected: &Value) -> Vec<String> {
    let mut found: Vec<String> = report.reasons.iter().map(|reason| format!("not played: {reason}")).collect();
    found.extend(list(&report.ledger["accusations"]).iter().map(|accusation| format!("accused: {accusation}")));
    let steps = list(&expected["answers"]);
    if steps.len() != report.answers.len() {
        found.push(format!("{} steps have answers, {} are expected", report.answers.len(), steps.len()));
    }
    for (number, (answers, wanted)) in report.answers.iter().zip(&steps).enumerate() {
        found.extend(answer_differences(number + 1, answers, wanted));
    }
    let actual = summary(&report.ledger);
    let expected = &with_copies(expected);
    for member in ["orders", "events", "flows", "idempotent", "items", "effects", "delivered"] {
        if actual[member] != expected[member] {
            found.push(format!("{member}: {} (expected {})", actual[member], expected[member]));
        }
    }
    let calls = &report.ledger["platform_calls"];
    for (api, count) in expected["calls"].as_object().into_iter().flatten() {
        if &actual["calls"][api] != count {
            found.push(format!("{} calls of {api} (expected {count}), of {calls}", actual["calls"][api]));
        }
    }
    if expected["refund_numbers"].is_u64() && actual["refund_numbers"] != expected["refund_numbers"] {
        found.push(format!("{} different refunds were called for, of {calls}", actual["refund_numbers"]));
    }
    found.extend(list(&expected["facts"]).iter().filter_map(|fact| fact_difference(&report.ledger, fact)));
    found
}

/// An order number with `{i}` and a `count` stands for that many orders.
fn with_copies(expected: &Value) -> Value {
    let mut orders = Map::new();
    for (order_no, figures) in expected["orders"].as_object().into_iter().flatten() {
        let mut figures = figures.clone();
        let count =
            figures.as_object_mut().and_then(|members| members.remove("count")).and_then(|count| count.as_u64());
        for number in 1..=count.unwrap_or(1) {
            orders.insert(order_no.replace("{i}", &number.to_string()), figures.clone());
        }
    }
    let mut expected = expected.clone();
    expected["orders"] = Value::Object(orders);
    expected
}

fn fact_difference(ledger: &Value, fact: &Value) -> Option<String> {
    let (order, event, member) = (text(fact, "order"), text(fact, "event"), text(fact, "member"));
    let events = list(&ledger["events"]);
    let stored = events.iter().find(|row| text(row, "aggregate_id") == order && text(row, "event_type") == event);
    let value = stored.and_then(|row| row["payload"].pointer(member));
    let wanted = &fact["value"];
    (value != Some(wanted)).then(|| format!("{event} of {order}: {member} is {value:?} (expected {wanted})"))
}

/// The ledger as an expectation would state it.
pub fn summary(ledger: &Value) -> Value {
    let orders: Map<String, Value> = list(&ledger["orders"])
        .iter()
        .map(|row| {
            let figures = json!({
                "status": row["status"], "paid": row["paid_minor"], "refunded": row["refunded_minor"],
                "surplus": row["surplus_minor"]
            });
            (text(row, "order_no").to_owned(), figures)
        })
        .collect();
    let open = |row: &&Value| text(row, "state") == "open";
    let deliveries = |row: &&Value| text(row, "kind") == "deliver";
    json!({
        "orders": orders,
        "events": counts(list(&ledger["events"]).iter(), "event_type"),
        "flows": counts(list(&ledger["flows"]).iter(), "trade_type"),
        "idempotent": list(&ledger["idempotent"]).len(),
        "items": counts(list(&ledger["items"]).iter().filter(open), "kind"),
        "effects": counts(list(&ledger["effects"]).iter().filter(deliveries), "state"),
        "delivered": ledger["delivered"],
        "calls": counts(list(&ledger["platform_calls"]).iter(), "api"),
        "refund_numbers": refund_numbers(ledger),
    })
}

/// A refund call that is repeated must carry the same number and amount.
fn refund_numbers(ledger: &Value) -> usize {
    let calls = list(&ledger["platform_calls"]);
    let refunds = calls.iter().filter(|call| matches!(text(call, "api"), "WechatRefund" | "AlipayRefund"));
    refunds.map(|call| format!("{} {}", call["about"], call["amount"])).collect::<BTreeSet<_>>().len()
}

fn counts<'a>(rows: impl Iterator<Item = &'a Value>, column: &str) -> Value {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        *counts.entry(text(row, column).to_owned()).or_default() += 1;
    }
    json!(counts)
}

fn answer_differences(step: usize, answers: &[StepAnswer], wanted: &Value) -> Vec<String> {
    let each: Vec<&str> = match wanted {
        Value::String(same) => vec![same; answers.len()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if each.len() != answers.len() {
        return vec![format!("step {step}: {} answers, {} are expected", answers.len(), each.len())];
    }
    let mut found = Vec::new();
    for (answer, wanted) in answers.iter().zip(each) {
        if !wanted.split('|').any(|one| fits(answer, one.trim())) {
            let StepAnswer { verdict, status, body, after_ms, .. } = answer;
            found.push(format!("step {step}: {verdict} {status} after {after_ms} ms {body:?} (expected {wanted})"));
        }
        if answer.verdict == "ack" && !answer.odd_headers.is_empty() {
            found.push(format!("step {step}: an acknowledgement with {:?}", answer.odd_headers));
        }
    }
    found
}

fn fits(answer: &StepAnswer, wanted: &str) -> bool {
    wanted.split_whitespace().all(|word| {
        if let Some(limit) = word.strip_prefix('<') {
            return limit.parse().is_ok_and(|limit: u64| answer.after_ms < limit);
        }
        word.parse::<u16>().map_or(answer.verdict == word, |status| answer.status == status)
    })
}
