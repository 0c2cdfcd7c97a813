//! The events as a public schema: golden lines that every release must decode, and JSON schemas that are compared.
//!
//! `PAIDONCE_BLESS=1 cargo test -p paidonce-order` writes the schemas anew and adds golden lines for events that have
//! none; a golden line that exists is never changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use paidonce_order::command::{
    AttemptFact, FlagFact, PaymentFact, RefundAmount, RefundFact, RefundOrigin, RefundOutcome, ShareFact, ShareKind,
    StrayFact, Terms,
};
use paidonce_order::event::{DecodeError, KNOWN_EVENTS, SplitPart, SurplusReason};
use paidonce_order::{ChannelTradeNo, LedgerEvent, Money, OrderEvent, StrayEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::support::*;

#[derive(Serialize, Deserialize)]
struct GoldenLine {
    aggregate_type: String,
    event_type: String,
    event_version: String,
    payload: Box<RawValue>,
}

fn golden_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events.jsonl")
}

fn schema_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/events")
}

fn is_blessing() -> bool {
    std::env::var_os("PAIDONCE_BLESS").is_some_and(|value| value == "1")
}

/// One of each event, with every optional field set.
fn samples() -> Vec<LedgerEvent> {
    let of_order = [payment_samples(), refund_samples(), other_samples()].into_iter().flatten();
    of_order.map(LedgerEvent::Order).chain(stray_samples().into_iter().map(LedgerEvent::Stray)).collect()
}

const TRADE: (&str, &str) = (WX, "4200002025010812345678901234");

fn paid_sample() -> PaymentFact {
    PaymentFact {
        payer_amount: Some(Money::fen(8000)),
        channel_trade_type: Some("JSAPI".to_owned()),
        ..payment(TRADE.0, TRADE.1, 8888)
    }
}

fn payment_samples() -> Vec<OrderEvent> {
    let full_terms = Terms {
        description: Some("two tickets".to_owned()),
        expires_at: Some(at(604_800)),
        supersedes: Some(paidonce_order::OrderNo::parse("2025010812345677").unwrap()),
        sub_mchid: Some("1900000109".to_owned()),
        ..terms(Money::fen(8888), &[WX, ALI])
    };
    let paid = paid_sample();
    vec![
        OrderEvent::OrderOpened(full_terms),
        OrderEvent::PaymentConfirmed(paid.clone()),
        OrderEvent::SurplusPaymentRecorded { fact: paid.clone(), reason: SurplusReason::SecondPayment },
        OrderEvent::PaymentParked(paid.clone()),
        OrderEvent::SurplusAccepted { payment: paid.payment, amount: paid.amount, by: operator() },
    ]
}

fn refund_samples() -> Vec<OrderEvent> {
    let payment = paid_sample().payment;
    let fen = |fen| RefundAmount::Exact(Money::fen(fen));
    let back = RefundFact {
        channel_refund_no: Some(ChannelTradeNo::parse("50000000382019052709732678859").unwrap()),
        payer_amount: Some(Money::fen(270)),
        ..refund_fact(TRADE, "R1", RefundOutcome::Succeeded, fen(300))
    };
    let total = RefundAmount::Cumulative(Money::fen(500));
    let in_all = refund_fact((ALI, "2025010822001"), "R2", RefundOutcome::Succeeded, total);
    let (amount, origin) = (Money::fen(300), RefundOrigin::Request);
    let part = SplitPart { from: refund_no("R9"), amount: Money::fen(200) };
    vec![
        OrderEvent::RefundRequested {
            payment: payment.clone(),
            refund_no: refund_no("R1"),
            amount,
            reason: Some("damaged".to_owned()),
            origin,
        },
        OrderEvent::RefundConfirmed { fact: back.clone(), amount, origin, derived: false },
        OrderEvent::RefundFailed { fact: refund_fact(TRADE, "R3", RefundOutcome::Failed, fen(1)) },
        OrderEvent::RefundStalled { fact: refund_fact(TRADE, "R4", RefundOutcome::Stalled, fen(1)) },
        OrderEvent::RefundParked(in_all.clone()),
        OrderEvent::RefundSplit { fact: in_all, parts: vec![part], origin: RefundOrigin::Platform },
        OrderEvent::RefundNumberTaken { payment, refund_no: refund_no("R1"), fact: back },
    ]
}

fn other_samples() -> Vec<OrderEvent> {
    let shared = ShareFact {
        channel_share_no: Some("3008450740201411110007820472".to_owned()),
        ..share_fact(TRADE, "P1", "A", 10)
    };
    let returned = ShareFact { kind: ShareKind::Returned, ..share_fact(TRADE, "B1", "A", 10) };
    let attempt = AttemptFact {
        account: account(ALI),
        channel_trade_no: Some(ChannelTradeNo::parse("2025010822001").unwrap()),
        occurred_at: at(30),
        content: digest("closed"),
    };
    let flagged = FlagFact {
        account: account(WX),
        code: "trade_state_disagrees".to_owned(),
        detail: "event TRANSACTION.SUCCESS, trade_state NOTPAY".to_owned(),
        occurred_at: at(10),
        content: digest("flag"),
    };
    let item_no = "WXPAY:2025010812345678:FLAG:0011223344556677".to_owned();
    vec![
        OrderEvent::ProfitShareFollowed { payment: shared.payment.clone(), out_order_no: "P1".to_owned() },
        OrderEvent::ProfitShareConfirmed(shared.clone()),
        OrderEvent::ProfitShareReturned(returned),
        OrderEvent::ProfitShareParked(shared),
        OrderEvent::AttemptClosed(attempt),
        OrderEvent::OrderClosed { reason: "timeout".to_owned() },
        OrderEvent::FactConflicted(flagged.clone()),
        OrderEvent::FactFlagged(flagged),
        OrderEvent::ItemResolved { item_no, by: operator() },
    ]
}

fn stray_samples() -> Vec<StrayEvent> {
    let stray = StrayFact {
        account: account(WX),
        code: "unknown_type".to_owned(),
        detail: "event type COUPON.USE".to_owned(),
        channel_event_type: Some("COUPON.USE".to_owned()),
        occurred_at: at(0),
        content: digest("stray"),
    };
    vec![StrayEvent::StrayRecorded(stray), StrayEvent::StrayResolved { by: operator() }]
}

fn golden_lines() -> Vec<GoldenLine> {
    let text = fs::read_to_string(golden_path()).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn add_missing_golden_lines() {
    let mut text = fs::read_to_string(golden_path()).unwrap_or_default();
    let known = golden_lines();
    for event in samples() {
        let (event_type, event_version) = (event.event_type(), event.event_version());
        if known.iter().any(|line| line.event_type == event_type && line.event_version == event_version) {
            continue;
        }
        let line = GoldenLine {
            aggregate_type: event.aggregate_type().to_owned(),
            event_type: event_type.to_owned(),
            event_version: event_version.to_owned(),
            payload: RawValue::from_string(event.to_payload_json().unwrap()).unwrap(),
        };
        text.push_str(&serde_json::to_string(&line).unwrap());
        text.push('\n');
    }
    fs::write(golden_path(), text).unwrap();
}

#[test]
fn every_event_ever_written_is_still_decoded() {
    if is_blessing() {
        add_missing_golden_lines();
    }
    let lines = golden_lines();
    for line in &lines {
        let read =
            LedgerEvent::from_stored(&line.aggregate_type, &line.event_type, &line.event_version, line.payload.get());
        let event = read.unwrap_or_else(|error| panic!("{} version {}: {error}", line.event_type, line.event_version));
        if line.event_version == event.event_version() {
            assert_eq!(
                event.to_payload_json().unwrap(),
                line.payload.get(),
                "what is written has changed: raise the version"
            );
        }
    }
    let have: BTreeSet<(&str, &str)> =
        lines.iter().map(|it| (it.event_type.as_str(), it.event_version.as_str())).collect();
    let known: BTreeSet<(&str, &str)> = KNOWN_EVENTS.iter().copied().collect();
    assert_eq!(have, known, "one golden line for each event type and version");
}

#[test]
fn the_list_of_known_events_holds_every_event() {
    let known: BTreeSet<(&str, &str)> = KNOWN_EVENTS.iter().copied().collect();
    assert_eq!(known.len(), KNOWN_EVENTS.len());
    let samples = samples();
    let made: BTreeSet<(&str, &str)> =
        samples.iter().map(|event| (event.event_type(), event.event_version())).collect();
    assert_eq!(made, known);
}

#[test]
fn what_this_release_does_not_know_is_told_apart_from_what_is_damaged() {
    let payload = r#"{"OrderClosed":{"reason":"timeout"}}"#;
    let read =
        |aggregate, name, version, payload| LedgerEvent::from_stored(aggregate, name, version, payload).unwrap_err();
    assert!(matches!(read("Order", "OrderClosed", "2", payload), DecodeError::UnknownEvent { .. }));
    assert!(matches!(read("Order", "OrderTeleported", "1", payload), DecodeError::UnknownEvent { .. }));
    assert!(matches!(read("Invoice", "OrderClosed", "1", payload), DecodeError::UnknownEvent { .. }));
    assert!(matches!(read("Order", "OrderClosed", "1", "{"), DecodeError::Payload { .. }));
    assert!(matches!(read("Order", "OrderClosed", "1", r#"{"OrderClosed":{}}"#), DecodeError::Payload { .. }));
    assert!(matches!(read("Order", "OrderOpened", "1", payload), DecodeError::TypeDiffers { .. }));
    assert!(matches!(read("Stray", "OrderClosed", "1", payload), DecodeError::Payload { .. }));
}

/// A schema of one event: its arm of the enum, with the definitions that it uses.
fn event_schemas() -> Vec<(String, Value)> {
    let roots = [schemars::schema_for!(OrderEvent).to_value(), schemars::schema_for!(StrayEvent).to_value()];
    let mut schemas = Vec::new();
    for root in roots {
        let definitions = root["$defs"].as_object().unwrap();
        for arm in root["oneOf"].as_array().unwrap() {
            let name = arm["required"][0].as_str().unwrap().to_owned();
            let mut schema = Map::new();
            schema.insert("$schema".to_owned(), root["$schema"].clone());
            schema.insert("title".to_owned(), format!("{name} version 1").into());
            schema.extend(arm.as_object().unwrap().clone());
            let used = used_definitions(arm, definitions);
            if !used.is_empty() {
                schema.insert("$defs".to_owned(), Value::Object(used));
            }
            schemas.push((name, Value::Object(schema)));
        }
    }
    schemas
}

fn used_definitions(schema: &Value, definitions: &Map<String, Value>) -> Map<String, Value> {
    let mut used = Map::new();
    let mut open = vec![schema.clone()];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(object) => {
                if let Some(name) =
                    object.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix("#/$defs/"))
                    && !used.contains_key(name)
                {
                    used.insert(name.to_owned(), definitions[name].clone());
                    open.push(definitions[name].clone());
                }
                open.extend(object.into_iter().map(|(_, value)| value));
            }
            Value::Array(values) => open.extend(values),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    used
}

#[test]
fn the_published_schemas_are_those_of_the_code() {
    let schemas = event_schemas();
    assert_eq!(schemas.len(), KNOWN_EVENTS.len());
    if is_blessing() {
        fs::create_dir_all(schema_dir()).unwrap();
    }
    for (name, schema) in &schemas {
        let path = schema_dir().join(format!("{name}.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(schema).unwrap());
        if is_blessing() {
            fs::write(&path, &text).unwrap();
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(published == text, "{} differs: raise the version, or run with PAIDONCE_BLESS=1", path.display());
    }
    let files = fs::read_dir(schema_dir()).unwrap().count();
    assert_eq!(files, schemas.len(), "a schema of an event that is no more");
}
