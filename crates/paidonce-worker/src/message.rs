//! What a subscriber is told of an event. Mapped field by field: the log's payload may change inside, this may only grow.
//!
//! ```json
//! { "type": "PaymentConfirmed", "event_id": "0195…", "order_no": "2025010812345678", "sequence": 2,
//!   "idem_key": "WXPAY:2025010812345678:PAY", "occurred_at": "2025-01-08T12:00:00Z",
//!   "recorded_at": "2025-01-08T12:00:01.123456Z",
//!   "data": { "account": "wxpay:1900000001", "channel_trade_no": "4200…", "amount_minor": 8888, "currency": "CNY" } }
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `event_id` | also the header `webhook-id`; the same for every try |
//! | `order_no` | `null` for what names no order (then `data.stray_id`) |
//! | `sequence` | 1-based inside the order: what came before what |
//! | `idem_key` | of the business fact; `null` for our own decisions (opened, closed, refund requested) |
//! | `occurred_at` | by the channel's clock; for our own decisions the same as `recorded_at` |
//! | `amount_minor`, `currency` | integer minor units, ISO 4217 |

use std::collections::BTreeMap;

use paidonce_order::command::{
    AttemptFact, FlagFact, Operator, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOrigin, ShareFact, Terms,
};
use paidonce_order::event::{DecodeError, LedgerEvent, OrderEvent, SplitPart, StrayEvent};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::EventRow;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The event can't be told.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// A newer node wrote it, or the row was damaged.
    #[error("the event can't be read ({0}): upgrade this node, or look at the row")]
    Unreadable(#[from] DecodeError),
    /// Not a JSON object of texts.
    #[error("the metadata of the event can't be read ({0})")]
    Metadata(serde_json::Error),
    /// The message itself is no JSON: a bug.
    #[error("the message can't be written ({0})")]
    Unwritable(serde_json::Error),
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'a str,
    event_id: String,
    order_no: Option<&'a str>,
    sequence: i64,
    idem_key: Option<&'a str>,
    occurred_at: Timestamp,
    recorded_at: Timestamp,
    data: Map<String, Value>,
}

/// The JSON body for an event. Guarantees: the same bytes for the same event on every try.
pub fn body(event: &EventRow) -> Result<Vec<u8>, MessageError> {
    let metadata: BTreeMap<String, String> = serde_json::from_str(&event.metadata).map_err(MessageError::Metadata)?;
    let (kind, name, version) = (&event.aggregate_type, &event.event_type, &event.event_version);
    let (order_no, told) = match LedgerEvent::from_stored(kind, name, version, &event.payload)? {
        LedgerEvent::Order(fact) => (Some(event.aggregate_id.as_str()), tell(fact)),
        LedgerEvent::Stray(fact) => (None, tell_stray(&event.aggregate_id, fact)),
    };
    let message = Message {
        r#type: &event.event_type,
        event_id: event.event_id.to_string(),
        order_no,
        sequence: event.sequence,
        idem_key: metadata.get("idem_key").map(String::as_str),
        occurred_at: told.occurred_at.unwrap_or(event.recorded_at),
        recorded_at: event.recorded_at,
        data: told.data,
    };
    serde_json::to_vec(&message).map_err(MessageError::Unwritable)
}

/// What an event says, and when it happened outside.
struct Told {
    occurred_at: Option<Timestamp>,
    data: Map<String, Value>,
}

fn told(occurred_at: Option<Timestamp>, data: Value) -> Told {
    let data = match data {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    Told { occurred_at, data }
}

fn tell(event: OrderEvent) -> Told {
    match event {
        OrderEvent::OrderOpened(terms) => tell_terms(&terms),
        OrderEvent::PaymentConfirmed(fact) | OrderEvent::PaymentParked(fact) => tell_payment(&fact, Value::Null),
        OrderEvent::SurplusPaymentRecorded { fact, reason } => tell_payment(&fact, json!(reason)),
        OrderEvent::SurplusAccepted { payment, amount, by } => tell_accepted(&payment, amount, &by),
        OrderEvent::RefundRequested { payment, refund_no, amount, reason, origin } => told(
            None,
            with_payment(
                &payment,
                with_money(amount, json!({ "refund_no": refund_no, "reason": reason, "origin": origin })),
            ),
        ),
        OrderEvent::RefundConfirmed { fact, amount, origin, derived } => {
            tell_refund(&fact, amount, json!({ "origin": origin, "derived": derived }))
        }
        OrderEvent::RefundFailed { fact } | OrderEvent::RefundStalled { fact } | OrderEvent::RefundParked(fact) => {
            tell_refund(&fact, stated(&fact), json!({}))
        }
        OrderEvent::RefundSplit { fact, parts, origin } => tell_split(&fact, &parts, origin),
        OrderEvent::RefundNumberTaken { payment, refund_no, fact } => {
            told(Some(fact.occurred_at), with_payment(&payment, json!({ "refund_no": refund_no })))
        }
        OrderEvent::ProfitShareConfirmed(fact)
        | OrderEvent::ProfitShareReturned(fact)
        | OrderEvent::ProfitShareParked(fact) => tell_share(&fact),
        OrderEvent::ProfitShareFollowed { payment, out_order_no } => {
            told(None, with_payment(&payment, json!({ "out_order_no": out_order_no })))
        }
        OrderEvent::AttemptClosed(fact) => tell_attempt(&fact),
        OrderEvent::OrderClosed { reason } => told(None, json!({ "reason": reason })),
        OrderEvent::FactConflicted(fact) | OrderEvent::FactFlagged(fact) => tell_flag(&fact),
        OrderEvent::ItemResolved { item_no, by } => told(None, with_operator(&by, json!({ "item_no": item_no }))),
    }
}

fn tell_stray(stray_id: &str, event: StrayEvent) -> Told {
    match event {
        StrayEvent::StrayRecorded(fact) => told(
            Some(fact.occurred_at),
            json!({ "stray_id": stray_id, "account": fact.account, "code": fact.code, "detail": fact.detail,
                    "channel_event_type": fact.channel_event_type }),
        ),
        StrayEvent::StrayResolved { by } => told(None, with_operator(&by, json!({ "stray_id": stray_id }))),
    }
}

fn merged(mut data: Value, more: Value) -> Value {
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    data
}

fn with_money(amount: Money, data: Value) -> Value {
    merged(data, json!({ "amount_minor": amount.amount_minor, "currency": amount.currency }))
}

fn with_payment(payment: &PaymentRef, data: Value) -> Value {
    merged(data, json!({ "account": payment.account, "channel_trade_no": payment.channel_trade_no }))
}

fn with_operator(by: &Operator, data: Value) -> Value {
    merged(data, json!({ "operator": by.name, "operator_reason": by.reason }))
}

fn tell_terms(terms: &Terms) -> Told {
    let data = json!({ "accounts": terms.accounts, "description": terms.description, "expires_at": terms.expires_at,
                       "supersedes": terms.supersedes, "sub_mchid": terms.sub_mchid, "combine": terms.combine });
    told(None, with_money(terms.amount, data))
}

fn tell_payment(fact: &PaymentFact, surplus_reason: Value) -> Told {
    let data = json!({ "payer_amount_minor": fact.payer_amount.map(|amount| amount.amount_minor),
                       "channel_trade_type": fact.channel_trade_type, "surplus_reason": surplus_reason });
    told(Some(fact.occurred_at), with_payment(&fact.payment, with_money(fact.amount, data)))
}

fn tell_accepted(payment: &PaymentRef, amount: Money, by: &Operator) -> Told {
    told(None, with_payment(payment, with_money(amount, with_operator(by, json!({})))))
}

fn stated(fact: &RefundFact) -> Money {
    match fact.amount {
        RefundAmount::Exact(amount) | RefundAmount::Cumulative(amount) => amount,
    }
}

fn tell_refund(fact: &RefundFact, amount: Money, more: Value) -> Told {
    let data = json!({ "refund_no": fact.refund_no, "channel_refund_no": fact.channel_refund_no,
                       "payer_amount_minor": fact.payer_amount.map(|amount| amount.amount_minor) });
    told(Some(fact.occurred_at), with_payment(&fact.payment, with_money(amount, merged(data, more))))
}

fn tell_split(fact: &RefundFact, parts: &[SplitPart], origin: RefundOrigin) -> Told {
    let part = |part: &SplitPart| with_money(part.amount, json!({ "from_refund_no": part.from }));
    let parts: Vec<Value> = parts.iter().map(part).collect();
    tell_refund(fact, stated(fact), json!({ "origin": origin, "parts": parts }))
}

fn tell_share(fact: &ShareFact) -> Told {
    let data = json!({ "share_no": fact.share_no, "channel_share_no": fact.channel_share_no, "kind": fact.kind,
                       "receiver_type": fact.receiver_type });
    told(Some(fact.occurred_at), with_payment(&fact.payment, with_money(fact.amount, data)))
}

fn tell_attempt(fact: &AttemptFact) -> Told {
    told(Some(fact.occurred_at), json!({ "account": fact.account, "channel_trade_no": fact.channel_trade_no }))
}

fn tell_flag(fact: &FlagFact) -> Told {
    told(Some(fact.occurred_at), json!({ "account": fact.account, "code": fact.code, "detail": fact.detail }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use paidonce_order::ids::Digest;
    use uuid::Uuid;

    use super::*;

    fn row(event: &OrderEvent, event_type: &str, metadata: &str) -> EventRow {
        EventRow {
            shard: 3,
            position: 7,
            event_id: Uuid::from_u128(0x0195_0000_0000_7000_8000_0000_0000_0001),
            aggregate_type: "Order".to_owned(),
            aggregate_id: "A-1".to_owned(),
            sequence: 2,
            event_type: event_type.to_owned(),
            event_version: "1".to_owned(),
            payload: serde_json::to_string(event).unwrap(),
            metadata: metadata.to_owned(),
            recorded_at: Timestamp::from_micros(1_736_308_801_000_001),
            hash: Digest([0; 32]),
        }
    }

    fn payment() -> PaymentFact {
        serde_json::from_value(json!({
            "payment": { "account": "wxpay:1900000001", "channel_trade_no": "4200001" },
            "amount": { "amount_minor": 8888, "currency": "CNY" },
            "occurred_at": "2025-01-08T12:00:00+08:00", "channel_trade_type": "JSAPI", "content": "00".repeat(32),
        }))
        .unwrap()
    }

    #[test]
    fn a_payment_is_told_with_its_key_its_times_and_integer_money() {
        let metadata = r#"{"idem_key":"WXPAY:A-1:PAY","evidence":"secret-looking"}"#;
        let told: Value = serde_json::from_slice(
            &body(&row(&OrderEvent::PaymentConfirmed(payment()), "PaymentConfirmed", metadata)).unwrap(),
        )
        .unwrap();
        let wanted = json!({
            "type": "PaymentConfirmed", "event_id": "01950000-0000-7000-8000-000000000001", "order_no": "A-1", "sequence": 2,
            "idem_key": "WXPAY:A-1:PAY", "occurred_at": "2025-01-08T04:00:00Z", "recorded_at": "2025-01-08T04:00:01.000001Z",
            "data": { "account": "wxpay:1900000001", "channel_trade_no": "4200001", "amount_minor": 8888, "currency": "CNY",
                      "channel_trade_type": "JSAPI" },
        });
        assert_eq!(told, wanted);
    }

    #[test]
    fn our_own_decision_has_no_key_and_happened_when_it_was_recorded() {
        let event = OrderEvent::OrderClosed { reason: "expired".to_owned() };
        let told: Value = serde_json::from_slice(&body(&row(&event, "OrderClosed", "{}")).unwrap()).unwrap();
        assert_eq!(told["idem_key"], Value::Null);
        assert_eq!(told["occurred_at"], told["recorded_at"]);
        assert_eq!(told["data"], json!({ "reason": "expired" }));
    }

    #[test]
    fn an_event_of_a_later_version_is_an_error_and_not_an_empty_message() {
        let mut event = row(&OrderEvent::PaymentConfirmed(payment()), "PaymentConfirmed", "{}");
        event.event_version = "2".to_owned();
        assert!(body(&event).unwrap_err().to_string().contains("upgrade this node"));
    }
}
