//! Texts of the searches, the same for both databases: only the conditions that a filter has, so that each can use its index.
//!
//! Values are bound in the order of the fields of the filter.

use crate::rows::{EFFECT, ITEM, ORDER};
use crate::store::{Gauges, OnlyOpen, OrderFilter};

/// Collects `AND` conditions with numbered places.
struct Conditions {
    sql: String,
    places: usize,
}

impl Conditions {
    fn new(select: String) -> Self {
        Self { sql: format!("{select} WHERE TRUE"), places: 0 }
    }

    /// Adds a condition whose `?` are the next places.
    fn and(&mut self, condition: &str) {
        self.sql.push_str(" AND ");
        self.push(condition);
    }

    fn push(&mut self, text: &str) {
        for piece in text.split_inclusive('?') {
            match piece.strip_suffix('?') {
                Some(before) => {
                    self.places = self.places.saturating_add(1);
                    self.sql.push_str(&format!("{before}${}", self.places));
                }
                None => self.sql.push_str(piece),
            }
        }
    }

    fn order_by(mut self, columns: &str) -> String {
        self.push(&format!(" ORDER BY {columns} LIMIT ?"));
        self.sql
    }
}

/// Reads t_order_status_idx, t_order_time_idx, t_order_flow_trade_idx or the primary key. Places: the filter's fields that are
/// set, then the limit.
pub(crate) fn orders(filter: &OrderFilter) -> String {
    let mut sql = Conditions::new(format!("SELECT {ORDER} FROM t_order"));
    if filter.status.is_some() {
        sql.and("status = ?");
    }
    if filter.from.is_some() {
        sql.and("create_time >= ?");
    }
    if filter.to.is_some() {
        sql.and("create_time < ?");
    }
    if filter.channel_trade_no.is_some() {
        sql.and(
            "order_no IN (SELECT f.order_no FROM t_order_flow f
                          WHERE f.channel IN ('wxpay', 'alipay') AND f.channel_trade_no = ?)",
        );
    }
    if filter.after.is_some() {
        sql.and("order_no > ?");
    }
    sql.order_by("order_no")
}

/// Reads t_item_open_idx or t_item_time_idx. Places: kind when `has_kind`, opened_at and item_no of the item to continue behind
/// when there is one, limit.
pub(crate) fn items(kind: Option<&str>, open_only: OnlyOpen, after: Option<&str>) -> String {
    let mut sql = Conditions::new(format!("SELECT {ITEM} FROM t_item"));
    if kind.is_some() {
        sql.and("kind = ?");
    }
    match open_only {
        OnlyOpen::Yes => sql.and("state = 'open'"),
        OnlyOpen::No => {}
    }
    if after.is_some() {
        sql.and("(opened_at, item_no) < (?, ?)");
    }
    sql.order_by("opened_at DESC, item_no DESC")
}

/// Reads t_effect_lane_idx with an order number, t_effect_dead_idx for dead ones, else the primary key (UUIDv7: oldest first).
/// Places: state, order_no and after when set, limit.
pub(crate) fn effects(state: Option<&str>, order_no: Option<&str>, after: Option<uuid::Uuid>) -> String {
    let mut sql = Conditions::new(format!("SELECT {EFFECT} FROM t_effect t"));
    if state == Some("dead") {
        // The literal, so that the partial index fits; the place is bound all the same.
        sql.and("t.state = 'dead'");
    }
    if state.is_some() {
        sql.and("t.state = ?");
    }
    if order_no.is_some() {
        sql.and("t.order_no = ?");
    }
    if after.is_some() {
        sql.and("t.effect_id > ?");
    }
    sql.order_by("t.effect_id")
}

/// Rows of one order, table by table. Reads the primary keys and the `_order_idx` and `_lane_idx` indexes. Places: order_no,
/// shard.
pub(crate) const COUNTS: &str = "SELECT
    (SELECT count(*) FROM events WHERE aggregate_type = 'Order' AND aggregate_id = $1 AND shard = $2) AS events,
    (SELECT count(*) FROM t_idempotent WHERE order_no = $1 AND shard = $2) AS idempotent,
    (SELECT count(*) FROM t_order WHERE order_no = $1 AND shard = $2) AS orders,
    (SELECT count(*) FROM t_order_flow WHERE order_no = $1 AND shard = $2) AS flows,
    (SELECT count(*) FROM t_effect WHERE order_no = $1 AND shard = $2 AND kind = 'deliver') AS deliveries,
    (SELECT count(*) FROM t_effect
     WHERE order_no = $1 AND shard = $2 AND kind = 'deliver' AND state = 'delivered') AS delivered";

/// Counts by word, for [`gauges`]. Reads t_effect_due_idx, t_effect_dead_idx, t_item_open_idx and the 64 heads.
pub(crate) const GAUGES: &str = "
    SELECT state AS word, count(*) AS n FROM t_effect WHERE state IN ('pending', 'leased') GROUP BY state
    UNION ALL SELECT 'dead', count(*) FROM t_effect WHERE state = 'dead'
    UNION ALL SELECT 'item:' || kind, count(*) FROM t_item WHERE state = 'open' GROUP BY kind
    UNION ALL SELECT 'events', CAST(sum(position) AS bigint) FROM t_log_head";

/// Gauges from the counts by word; words without rows count zero, so that a metric never disappears.
pub(crate) fn gauges(counts: &[(String, i64)]) -> Gauges {
    let count = |word: &str| counts.iter().find(|(found, _)| found == word).map_or(0, |(_, n)| *n);
    let effects = ["pending", "leased", "dead"];
    let kinds = ["parked", "surplus", "flagged", "stray", "quarantined", "stalled"];
    Gauges {
        effects: effects.iter().map(|state| ((*state).to_owned(), count(state))).collect(),
        items_open: kinds.iter().map(|kind| ((*kind).to_owned(), count(&format!("item:{kind}")))).collect(),
        events_total: count("events"),
        ..Gauges::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_in_the_order_of_the_fields() {
        let filter = OrderFilter { status: Some(paidonce_order::order::Status::Paid), ..OrderFilter::default() };
        assert!(orders(&filter).ends_with("WHERE TRUE AND status = $1 ORDER BY order_no LIMIT $2"));
        let text = items(Some("stray"), OnlyOpen::Yes, Some("x"));
        assert!(text.contains("kind = $1 AND state = 'open' AND (opened_at, item_no) < ($2, $3)"), "{text}");
    }
}
