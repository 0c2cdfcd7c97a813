//! Live rows against the rows that the log makes, column by column.

use std::collections::{BTreeMap, BTreeSet};

use paidonce_store::audit::{LiveRows, LiveTable};
use paidonce_store::backend::{FlowWrite, KeyWrite, OrderWrite};
use paidonce_store::rebuild::{Folded, RebuiltOrder};

use super::report::Difference;

/// A row that is missing or too many.
const ROW: &str = "row";

/// Live rows by the order that they belong to.
#[derive(Debug, Default)]
pub(super) struct LiveOrder {
    pub(super) order: Option<OrderWrite>,
    flows: Vec<FlowWrite>,
    keys: Vec<KeyWrite>,
}

/// Sorts rows by order number.
pub(super) fn by_order(live: LiveRows) -> BTreeMap<String, LiveOrder> {
    let mut orders: BTreeMap<String, LiveOrder> = BTreeMap::new();
    for order in live.orders {
        let entry = orders.entry(order.row.order_no.to_string()).or_default();
        entry.order = Some(order);
    }
    for flow in live.flows {
        orders.entry(flow.row.order_no.to_string()).or_default().flows.push(flow);
    }
    for key in live.keys {
        orders.entry(key.order_no.clone()).or_default().keys.push(key);
    }
    orders
}

/// The row of `t_order`.
pub(super) fn order(id: &str, live: Option<&OrderWrite>, folded: &Folded, found: &mut Vec<Difference>) {
    let derived = folded.order.as_ref();
    let difference = |column: &str, live: Option<String>, derived: Option<String>| {
        let (order_no, key, column) = (id.to_owned(), id.to_owned(), column.to_owned());
        Difference { order_no, table: LiveTable::TOrder, key, column, live, derived }
    };
    match (live, derived) {
        (None, None) => {}
        (Some(live), None) => found.push(difference(ROW, Some(format!("version {}", live.row.version)), None)),
        (None, Some(derived)) => found.push(difference(ROW, None, Some(format!("version {}", derived.row.version)))),
        (Some(live), Some(derived)) => {
            if is_same(live, derived) {
                return;
            }
            let live = order_columns(&live.row, live.create_time, live.update_time);
            let derived = order_columns(&derived.row, derived.create_time, derived.update_time);
            let columns = live.into_iter().zip(derived).filter(|((_, live), (_, derived))| live != derived);
            found.extend(columns.map(|((column, live), (_, derived))| difference(column, live, derived)));
        }
    }
}

fn is_same(live: &OrderWrite, derived: &RebuiltOrder) -> bool {
    live.row == derived.row && live.create_time == derived.create_time && live.update_time == derived.update_time
}

/// Rows of `t_order_flow` and `t_idempotent` with positions up to `to`.
pub(super) fn flows_and_keys(id: &str, live: &LiveOrder, folded: &Folded, to: i64, found: &mut Vec<Difference>) {
    let flow = |flow: &FlowWrite| (flow.row.idem_key.to_string(), flow_columns(flow));
    let live_flows = live.flows.iter().filter(|row| row.position <= to).map(flow).collect();
    let derived_flows = folded.flows.iter().filter(|row| row.position <= to).map(flow).collect();
    rows((id, LiveTable::TOrderFlow), live_flows, derived_flows, found);
    let key = |key: &KeyWrite| (key.idem_key.clone(), key_columns(key));
    let live_keys = live.keys.iter().filter(|row| row.position <= to).map(key).collect();
    let derived_keys = folded.keys.iter().filter(|row| row.position <= to).map(key).collect();
    rows((id, LiveTable::TIdempotent), live_keys, derived_keys, found);
}

type Columns = Vec<(&'static str, Option<String>)>;

fn rows(
    (id, table): (&str, LiveTable),
    live: BTreeMap<String, Columns>,
    derived: BTreeMap<String, Columns>,
    found: &mut Vec<Difference>,
) {
    if live == derived {
        return;
    }
    let difference = |key: &str, column: &str, live: Option<String>, derived: Option<String>| {
        let (order_no, key, column) = (id.to_owned(), key.to_owned(), column.to_owned());
        Difference { order_no, table, key, column, live, derived }
    };
    let keys: BTreeSet<&String> = live.keys().chain(derived.keys()).collect();
    for key in keys {
        match (live.get(key), derived.get(key)) {
            (Some(live), Some(derived)) => {
                let columns = live.iter().zip(derived).filter(|((_, live), (_, derived))| live != derived);
                found.extend(
                    columns
                        .map(|((column, live), (_, derived))| difference(key, column, live.clone(), derived.clone())),
                );
            }
            (Some(live), None) => found.push(difference(key, ROW, Some(in_words(live)), None)),
            (None, Some(derived)) => found.push(difference(key, ROW, None, Some(in_words(derived)))),
            (None, None) => {}
        }
    }
}

fn in_words(columns: &Columns) -> String {
    let known = columns.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("{name} {value}")));
    known.collect::<Vec<_>>().join(", ")
}

fn order_columns(
    row: &paidonce_order::project::OrderRow,
    create_time: paidonce_order::timestamp::Timestamp,
    update_time: paidonce_order::timestamp::Timestamp,
) -> Columns {
    vec![
        ("status", Some(row.status.as_str().to_owned())),
        ("currency", row.amount.map(|amount| amount.currency.to_string())),
        ("amount_minor", row.amount.map(|amount| amount.amount_minor.to_string())),
        ("paid_minor", Some(row.paid_minor.to_string())),
        ("refunded_minor", Some(row.refunded_minor.to_string())),
        ("surplus_minor", Some(row.surplus_minor.to_string())),
        ("version", Some(row.version.to_string())),
        ("account", row.account.as_ref().map(ToString::to_string)),
        ("channel_trade_no", row.channel_trade_no.as_ref().map(ToString::to_string)),
        ("pay_time", row.pay_time.map(|at| at.to_string())),
        ("expires_at", row.expires_at.map(|at| at.to_string())),
        ("description", row.description.clone()),
        ("supersedes", row.supersedes.as_ref().map(ToString::to_string)),
        ("create_time", Some(create_time.to_string())),
        ("update_time", Some(update_time.to_string())),
    ]
}

fn flow_columns(flow: &FlowWrite) -> Columns {
    let row = &flow.row;
    vec![
        ("trade_type", Some(row.trade_type.as_str().to_owned())),
        ("direction", Some(row.direction.as_str().to_owned())),
        ("account", Some(row.account.to_string())),
        ("channel_trade_no", Some(row.channel_trade_no.to_string())),
        ("refund_no", row.refund_no.clone()),
        ("currency", Some(row.amount.currency.to_string())),
        ("amount_minor", Some(row.amount.amount_minor.to_string())),
        ("occurred_at", Some(row.occurred_at.to_string())),
        ("create_time", Some(flow.create_time.to_string())),
        ("position", Some(flow.position.to_string())),
    ]
}

fn key_columns(key: &KeyWrite) -> Columns {
    vec![
        ("create_time", Some(key.create_time.to_string())),
        ("position", Some(key.position.to_string())),
        ("request_hash", key.request_hash.as_ref().map(ToString::to_string)),
    ]
}
