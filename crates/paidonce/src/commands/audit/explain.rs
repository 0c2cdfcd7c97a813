//! `paidonce audit explain`: the timeline of an order, from the running ledger.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Call, Client, Remote};
use crate::commands::print::{self, say};
use crate::exit::Exit;
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Example:
  paidonce audit explain A-1001

Repeated and refused messages are kept for 30 days, and under a flood not all of them; events are kept for ever.";

/// Arguments of `audit explain`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The merchant's out_trade_no.
    pub order_no: String,
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: &[Column] = &[
    Column::Text("our_time"),
    Column::Text("channel_time"),
    Column::Text("what"),
    Column::Money("amount_minor"),
    Column::Text("source"),
    Column::Text("detail"),
    Column::Text("place"),
    Column::Text("hash"),
];

/// Hex digits of a hash that are shown to people; `--json` has all of them.
const HASH_DIGITS: usize = 12;

/// Runs it. Errors: the server is away, or does not know the order.
pub async fn run(args: ExplainArgs) -> anyhow::Result<Exit> {
    let path = ["v1", "audit", "orders", &args.order_no, "timeline"];
    let timeline = Client::try_new(&args.remote)?.send(Call::get(&path)).await?;
    if args.remote.json {
        return print::json(&timeline);
    }
    let entries = timeline.get("entries").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rows: Vec<Value> = entries.iter().map(row).collect();
    say!("order {} is {}", args.order_no, text(&timeline, "status"))?;
    say!("{}", table::rows(&rows, COLUMNS))?;
    if timeline.get("complete").and_then(Value::as_bool) != Some(true) {
        say!("there is more than this: the oldest attempts or the newest effects are not shown")?;
    }
    Ok(Exit::Ok)
}

fn row(entry: &Value) -> Value {
    let mut row = match text(entry, "kind") {
        "event" => event(entry),
        "effect" => effect(entry.get("effect").unwrap_or(&Value::Null)),
        _ => attempt(entry),
    };
    if let Some(row) = row.as_object_mut() {
        row.insert("our_time".to_owned(), json!(text(entry, "at")));
        row.insert("channel_time".to_owned(), entry.get("channel_time").cloned().unwrap_or_default());
    }
    row
}

fn event(entry: &Value) -> Value {
    let event = entry.get("event").unwrap_or(&Value::Null);
    let number = |name: &str| event.get(name).and_then(Value::as_i64).unwrap_or_default();
    let evidence = event.get("evidence").and_then(Value::as_str).map(|digest| format!("evidence {}", start(digest)));
    let actor = event.get("actor").and_then(Value::as_str).map(|actor| format!("by {actor}"));
    let detail: Vec<String> = actor.into_iter().chain(evidence).collect();
    json!({
        "what": text(event, "event_type"),
        "amount_minor": entry.get("amount_minor"),
        "currency": entry.get("currency"),
        "source": text(event, "source"),
        "detail": detail.join(", "),
        "place": format!("shard {} position {}", number("shard"), number("position")),
        "hash": start(text(event, "hash")),
    })
}

fn effect(effect: &Value) -> Value {
    let attempts = effect.get("attempts").and_then(Value::as_i64).unwrap_or_default();
    let error = effect.get("last_error").and_then(Value::as_str).map(|error| format!(": {error}"));
    json!({
        "what": format!("  {} {}", text(effect, "kind"), text(effect, "state")),
        "source": text(effect, "subscriber"),
        "detail": format!("tries {attempts}{}", error.unwrap_or_default()),
    })
}

fn attempt(entry: &Value) -> Value {
    let count = entry.get("count").and_then(Value::as_i64).unwrap_or_default();
    json!({
        "what": format!("{} x {count}", text(entry, "result")),
        "source": text(entry, "account"),
        "detail": format!("{}, last at {}", text(entry, "detail"), text(entry, "until")),
    })
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn start(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}
