//! What must hold at the end of every test, read by plain SQL from the tables; none of it is asked of the product.
//!
//! | accusation | promise |
//! |---|---|
//! | a delivery is still waiting, leased or dead | P7 |
//! | the warehouse took an event twice without a repeat of ours, or one without a good signature | P1, P7 |
//! | positions of a shard have a hole, its head is not its last event, or its hash chain is broken (see [`chain`]) | P8 |
//! | an order's sequence has a hole, or its version is not its last event | P4 |
//! | paid, refunded, surplus or status of an order differ from its flows and events | P4 |
//! | a flow without its key, a key without its event, evidence that is named but absent | P1, P8 |

use std::collections::BTreeMap;

use crate::chain;
use crate::database::Database;
use crate::warehouse::Warehouse;

/// What a test made on purpose and so does not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tolerate {
    /// Deliveries that wait for a later try or are dead.
    pub unsettled_deliveries: i64,
}

impl Tolerate {
    /// Everything is accused.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { unsettled_deliveries: 0 }
    }
}

/// Panics with every accusation that holds.
pub fn accuse(database: &Database, warehouse: &Warehouse, tolerate: &Tolerate) {
    let accusations = accusations(database, warehouse, tolerate);
    assert!(accusations.is_empty(), "at the end of the test:\n- {}", accusations.join("\n- "));
}

/// Every accusation that holds, in words.
#[must_use]
pub fn accusations(database: &Database, warehouse: &Warehouse, tolerate: &Tolerate) -> Vec<String> {
    let mut found = Vec::new();
    for (sql, words) in COUNTS_THAT_MUST_BE_ZERO {
        let count = database.count(sql);
        if count != 0 {
            found.push(format!("{count} {words}"));
        }
    }
    let unsettled = database.count(UNSETTLED_DELIVERIES);
    if unsettled > tolerate.unsettled_deliveries {
        found.push(format!("{unsettled} deliveries are still pending, leased or dead"));
    }
    let unsigned = warehouse.deliveries().iter().filter(|delivery| !delivery.signature_ok).count();
    if unsigned > 0 {
        found.push(format!("{unsigned} deliveries without a good signature"));
    }
    found.extend(events_accusations(database));
    found.extend(chain::broken_links(database));
    found
}

/// Deliveries being sent, or first in their lane and never tried: they end by themselves.
pub const IN_FLIGHT: &str = "SELECT count(*) FROM t_effect f WHERE kind = 'deliver' AND (state = 'leased'
    OR (state = 'pending' AND attempts = 0 AND NOT EXISTS (SELECT 1 FROM t_effect e WHERE e.order_no = f.order_no
    AND e.subscriber = f.subscriber AND e.position < f.position AND e.state IN ('pending', 'leased', 'dead'))))";

const UNSETTLED_DELIVERIES: &str =
    "SELECT count(*) FROM t_effect WHERE kind = 'deliver' AND state IN ('pending', 'leased', 'dead')";

const COUNTS_THAT_MUST_BE_ZERO: &[(&str, &str)] = &[
    (
        "SELECT count(*) FROM (SELECT shard FROM events GROUP BY shard
           HAVING min(position) <> 1 OR max(position) <> count(*)) holes",
        "shards have a hole in their positions",
    ),
    (
        "SELECT count(*) FROM t_log_head h LEFT JOIN
           (SELECT shard, max(position) AS last FROM events GROUP BY shard) e ON e.shard = h.shard
           WHERE h.position <> coalesce(e.last, 0)",
        "shard heads are not at their last event",
    ),
    (
        "SELECT count(*) FROM t_log_head h JOIN events e ON e.shard = h.shard AND e.position = h.position
           WHERE h.hash <> e.hash",
        "shard heads have another hash than their last event",
    ),
    ("SELECT 64 - count(*) FROM t_log_head", "shard heads are missing"),
    (
        "SELECT count(*) FROM (SELECT aggregate_id FROM events GROUP BY aggregate_type, aggregate_id
           HAVING min(sequence) <> 1 OR max(sequence) <> count(*)) holes",
        "aggregates have a hole in their sequence",
    ),
    (
        "SELECT count(*) FROM (SELECT aggregate_id, max(sequence) AS last FROM events
           WHERE aggregate_type = 'Order' GROUP BY aggregate_id) e
           LEFT JOIN t_order o ON o.order_no = e.aggregate_id WHERE o.version IS NULL OR o.version <> e.last",
        "orders have events but no t_order row of that version",
    ),
    (
        "SELECT count(*) FROM t_order WHERE order_no NOT IN
           (SELECT aggregate_id FROM events WHERE aggregate_type = 'Order')",
        "t_order rows have no event",
    ),
    (
        "SELECT count(*) FROM t_order o WHERE
           o.paid_minor <> coalesce((SELECT sum(f.amount_minor) FROM t_order_flow f
             WHERE f.order_no = o.order_no AND f.trade_type = 'PAY'), 0)
           AND NOT EXISTS (SELECT 1 FROM events e WHERE e.aggregate_id = o.order_no
             AND e.event_type = 'SurplusAccepted')",
        "orders have a paid_minor that is not the sum of their PAY flows",
    ),
    (
        "SELECT count(*) FROM t_order o WHERE
           o.surplus_minor <> coalesce((SELECT sum(f.amount_minor) FROM t_order_flow f
             WHERE f.order_no = o.order_no AND f.trade_type = 'SURPLUS'), 0)
           AND NOT EXISTS (SELECT 1 FROM events e WHERE e.aggregate_id = o.order_no
             AND e.event_type = 'SurplusAccepted')",
        "orders have a surplus_minor that is not the sum of their SURPLUS flows",
    ),
    (
        "SELECT count(*) FROM t_order o WHERE
           o.refunded_minor <> coalesce((SELECT sum(f.amount_minor) FROM t_order_flow f
             WHERE f.order_no = o.order_no AND f.trade_type = 'REFUND'), 0)",
        "orders have a refunded_minor that is not the sum of their REFUND flows",
    ),
    (
        "SELECT count(*) FROM t_order_flow f LEFT JOIN t_idempotent i ON i.idem_key = f.idem_key
           WHERE i.idem_key IS NULL OR i.order_no <> f.order_no",
        "flows have no t_idempotent row",
    ),
    (
        "SELECT count(*) FROM t_idempotent i LEFT JOIN events e ON e.shard = i.shard AND e.position = i.position
           WHERE e.sequence IS NULL OR e.aggregate_id <> i.order_no",
        "t_idempotent rows point at no event of their order",
    ),
    (
        "SELECT count(*) FROM t_order_flow f LEFT JOIN events e ON e.shard = f.shard AND e.position = f.position
           WHERE e.sequence IS NULL OR e.aggregate_id <> f.order_no",
        "flows point at no event of their order",
    ),
    (
        "SELECT count(*) FROM t_effect f LEFT JOIN events e ON e.event_id = f.event_id WHERE e.sequence IS NULL",
        "effects tell of no event",
    ),
];

/// Status and counts of each order, folded here from the events' types alone.
fn events_accusations(database: &Database) -> Vec<String> {
    let events = database.texts(
        "SELECT aggregate_id, event_type FROM events WHERE aggregate_type = 'Order' ORDER BY aggregate_id, sequence",
    );
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for row in &events {
        types.entry(&row[0]).or_default().push(&row[1]);
    }
    for row in database.texts(
        "SELECT order_no, status, CAST(paid_minor AS text),
           CAST((SELECT coalesce(sum(f.amount_minor), 0) FROM t_order_flow f JOIN t_order_flow p
             ON p.order_no = f.order_no AND p.trade_type = 'PAY' AND p.channel = f.channel
             AND p.account = f.account AND p.channel_trade_no = f.channel_trade_no
             WHERE f.order_no = o.order_no AND f.trade_type = 'REFUND') AS text)
           FROM t_order o",
    ) {
        let paid: i64 = row[2].parse().expect("paid_minor");
        let back: i64 = row[3].parse().expect("refunds of the settling payment");
        let expected = expected_status(types.get(row[0].as_str()).map_or(&[][..], Vec::as_slice), paid, back);
        // An accepted surplus settles without a PAY flow of its own: its events say PAID, the sums can't tell more.
        if row[1] != expected && !(row[1] == "REFUNDED" && expected == "PAID") {
            found.push(format!("order {} is {}, its events say {expected}", row[0], row[1]));
        }
    }
    found
}

fn expected_status(types: &[&str], paid: i64, back: i64) -> &'static str {
    let has = |event_type: &str| types.contains(&event_type);
    if has("PaymentConfirmed") || has("SurplusAccepted") {
        if paid > 0 && back == paid { "REFUNDED" } else { "PAID" }
    } else if has("OrderClosed") {
        "CLOSED"
    } else if has("OrderOpened") {
        "PENDING"
    } else {
        "UNOPENED"
    }
}
