//! What a played case gives: every answer and the ledger at the end, as data that can be judged from outside.

use paidonce_tests::accuse::{self, Tolerate};
use paidonce_tests::app::TestApp;
use paidonce_tests::wire::Reply;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Longest body text shown in a report.
const BODY_CHARS_MAX: usize = 400;

/// One case, played once.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Case id.
    pub case: String,
    /// `sqlite` or `postgres`.
    pub database: String,
    /// Environment variant, when the case runs several times.
    pub variant: String,
    /// `played`, or `not_run` when any step or given value could not be played.
    pub status: String,
    /// Why it is `not_run`.
    pub reasons: Vec<String>,
    /// How words of the script were translated to this ledger.
    pub notes: Vec<String>,
    /// Answers of each top-level step, in order.
    pub answers: Vec<Vec<StepAnswer>>,
    /// The ledger at the end.
    pub ledger: Value,
}

/// What came back from one (inner) step.
#[derive(Debug, Clone, Serialize)]
pub struct StepAnswer {
    /// Kind of the step.
    pub step: String,
    /// `ack`, `nack`, `no_answer`, `ok`, `rejected`, `done`, `not_run`.
    pub verdict: String,
    /// HTTP status, 0 without an answer.
    pub status: u16,
    /// The body (or the reason why there is none), cut.
    pub body: String,
    /// `Location` and `Set-Cookie`, if any: an acknowledgement must have neither.
    pub odd_headers: Vec<String>,
    /// Milliseconds from the first byte sent.
    pub after_ms: u64,
}

impl Report {
    /// Nothing of it could be played.
    pub fn not_run(case: String, database: &str, variant: String, reason: String) -> Self {
        Self {
            case,
            database: database.to_owned(),
            variant,
            status: "not_run".to_owned(),
            reasons: vec![reason],
            notes: Vec::new(),
            answers: Vec::new(),
            ledger: Value::Null,
        }
    }
}

impl StepAnswer {
    /// Something was done that has no answer.
    pub fn done(step: &str) -> Self {
        Self::words(step, "done", "")
    }

    /// It can't be played.
    pub fn not_run(step: &str, reason: impl Into<String>) -> Self {
        Self::words(step, "not_run", &reason.into())
    }

    /// A verdict in words.
    pub fn words(step: &str, verdict: &str, body: &str) -> Self {
        Self {
            step: step.to_owned(),
            verdict: verdict.to_owned(),
            status: 0,
            body: body.to_owned(),
            odd_headers: Vec::new(),
            after_ms: 0,
        }
    }

    /// The answer of a callback or command. `accepted` says what counts as success.
    pub fn of(step: &str, reply: Reply, accepted: fn(u16, &[u8]) -> bool, words: [&str; 2]) -> Self {
        match reply {
            Ok(answer) => Self {
                step: step.to_owned(),
                verdict: words[usize::from(!accepted(answer.status, &answer.body))].to_owned(),
                status: answer.status,
                body: answer.text().chars().take(BODY_CHARS_MAX).collect(),
                odd_headers: ["location", "set-cookie"]
                    .iter()
                    .filter_map(|name| Some(format!("{name}: {}", answer.header(name)?)))
                    .collect(),
                after_ms: milliseconds(answer.after),
            },
            Err(none) => Self { after_ms: milliseconds(none.after), ..Self::words(step, "no_answer", &none.reason) },
        }
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// WeChat counts exactly 200 and 204 as received.
pub fn wechat_accepted(status: u16, _body: &[u8]) -> bool {
    matches!(status, 200 | 204)
}

/// Alipay counts exactly the seven bytes `success` with 200.
pub fn alipay_accepted(status: u16, body: &[u8]) -> bool {
    status == 200 && body == b"success"
}

/// Our own API: any 2xx.
pub fn api_accepted(status: u16, _body: &[u8]) -> bool {
    (200..300).contains(&status)
}

/// The tables at the end, by SQL.
pub fn ledger(app: &TestApp) -> Value {
    let unsettled = Tolerate { unsettled_deliveries: i64::MAX };
    let mut accusations = accuse::accusations(&app.database, &app.warehouse, &unsettled);
    // The clock jumps to what is given; a request on its way then is from another time.
    accusations.extend(app.platforms.problems().into_iter().filter(|problem| !problem.contains(": timestamp ")));
    json!({
        "orders": rows(app, &["order_no", "status", "amount_minor", "currency", "paid_minor", "refunded_minor",
            "surplus_minor", "version", "channel", "account", "channel_trade_no"], "t_order ORDER BY order_no"),
        "events": rows(app, &["aggregate_type", "aggregate_id", "sequence", "event_type", "payload"],
            "events ORDER BY aggregate_type, aggregate_id, sequence"),
        "flows": rows(app, &["idem_key", "order_no", "trade_type", "direction", "amount_minor", "currency",
            "channel_trade_no", "refund_no"], "t_order_flow ORDER BY idem_key"),
        "idempotent": rows(app, &["idem_key", "order_no"], "t_idempotent ORDER BY idem_key"),
        "items": rows(app, &["item_no", "kind", "order_no", "state", "detail"], "t_item ORDER BY item_no"),
        "effects": rows(app, &["order_no", "subscriber", "kind", "state", "attempts"],
            "t_effect ORDER BY order_no, subscriber, kind, position"),
        "deliveries": app.warehouse.deliveries().iter().map(|delivery| json!({
            "webhook_id": delivery.webhook_id, "event_type": delivery.event_type(), "status": delivery.status,
            "signature_ok": delivery.signature_ok
        })).collect::<Vec<_>>(),
        "delivered": app.warehouse.accepted_events(),
        "platform_calls": app.platforms.calls().iter().map(|call| json!({
            "api": format!("{:?}", call.asked.api), "about": call.asked.numbers().next(),
            "amount": call.asked.members.get("amount").or_else(|| call.asked.members.get("refund_amount")),
            "answered": call.answered, "at": call.at, "problem": call.problem
        })).collect::<Vec<_>>(),
        "accusations": accusations,
    })
}

/// Rows as objects; integers and JSON texts become what they are.
fn rows(app: &TestApp, columns: &[&str], from: &str) -> Vec<Value> {
    let selected: Vec<String> = columns.iter().map(|column| format!("CAST({column} AS text)")).collect();
    app.database
        .texts(&format!("SELECT {} FROM {from}", selected.join(", ")))
        .into_iter()
        .map(|row| {
            let members = columns.iter().zip(row).map(|(column, text)| ((*column).to_owned(), typed(column, text)));
            Value::Object(members.collect::<Map<String, Value>>())
        })
        .collect()
}

fn typed(column: &str, text: String) -> Value {
    let number = column.ends_with("_minor") || matches!(column, "sequence" | "version" | "attempts");
    if text.is_empty() {
        return Value::Null;
    }
    if number || column == "payload" {
        return serde_json::from_str(&text).unwrap_or(Value::String(text));
    }
    Value::String(text)
}
