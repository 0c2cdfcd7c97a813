//! Rows of one order, table by table: what anyone checks promise P1 by. One statement, the same on both databases.

use crate::store::RowCounts;

/// `$1` order_no, `$2` its shard. Deliveries are found through the order's events and `t_effect_once_key`, because no index
/// of `t_effect` leads from an order to its delivered rows.
pub(crate) const COUNT_ROWS: &str = "\
SELECT (SELECT count(*) FROM events WHERE aggregate_type = 'Order' AND aggregate_id = $1 AND shard = $2) AS events,
       (SELECT count(*) FROM t_idempotent WHERE order_no = $1 AND shard = $2) AS idempotent,
       (SELECT count(*) FROM t_order WHERE order_no = $1 AND shard = $2) AS orders,
       (SELECT count(*) FROM t_order_flow WHERE order_no = $1 AND shard = $2) AS flows,
       (SELECT count(*) FROM events e JOIN t_effect f ON f.event_id = e.event_id
         WHERE e.aggregate_type = 'Order' AND e.aggregate_id = $1 AND e.shard = $2 AND f.kind = 'deliver') AS deliveries,
       (SELECT count(*) FROM events e JOIN t_effect f ON f.event_id = e.event_id
         WHERE e.aggregate_type = 'Order' AND e.aggregate_id = $1 AND e.shard = $2 AND f.kind = 'deliver'
           AND f.state = 'delivered') AS delivered";

/// The row that [`COUNT_ROWS`] gives.
pub(crate) type CountRow = (i64, i64, i64, i64, i64, i64);

impl From<CountRow> for RowCounts {
    fn from((events, idempotent, order, flows, deliveries, delivered): CountRow) -> Self {
        Self { events, idempotent, order, flows, deliveries, delivered }
    }
}
