//! Reads of orders, flows and counts.

use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::Order;
use paidonce_order::project::{FlowRow, OrderRow};
use paidonce_order::timestamp::Timestamp;

use crate::columns::Columns;
use crate::postgres::PostgresStore;
use crate::rows::{self, EVENT, FLOW, ORDER, all, read_error};
use crate::store::{EventRow, Gauges, OrderFilter, RowCounts, SURPLUS_REFUNDS_MAX, StoreError};
use crate::{fold, search};

/// Every statement names the shard, so that a distributed database can send it to one node.
fn shard(order_no: &OrderNo) -> i16 {
    i16::try_from(order_no.shard()).unwrap_or(i16::MAX)
}

/// The order folded from its events.
pub(crate) async fn find_order(store: &PostgresStore, order_no: &OrderNo) -> Result<Option<Order>, StoreError> {
    fold::order(&list_order_events(store, order_no).await?)
}

/// The `t_order` row.
pub(crate) async fn find_order_row(store: &PostgresStore, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
    let sql = format!("SELECT {ORDER} FROM t_order WHERE order_no = $1 AND shard = $2");
    let row = sqlx::query(&sql)
        .bind(order_no.as_str())
        .bind(shard(order_no))
        .fetch_optional(&store.pool)
        .await
        .map_err(read_error)?;
    row.as_ref().map(rows::order).transpose()
}

/// Events of one order in sequence. Reads events_stream_key.
pub(crate) async fn list_order_events(store: &PostgresStore, order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError> {
    let sql = format!(
        "SELECT {EVENT} FROM events e WHERE e.aggregate_type = 'Order' AND e.aggregate_id = $1 AND e.shard = $2 ORDER BY e.sequence"
    );
    let rows = sqlx::query(&sql)
        .bind(order_no.as_str())
        .bind(shard(order_no))
        .fetch_all(&store.pool)
        .await
        .map_err(read_error)?;
    all(&rows, rows::event)
}

/// Refunds of surplus payments requested of late. Reads events_refund_requested_idx.
pub(crate) async fn list_surplus_refunds(
    store: &PostgresStore,
    account: &AccountRef,
    since: Timestamp,
) -> Result<Option<Vec<Money>>, StoreError> {
    let sql = format!(
        "SELECT {EVENT} FROM events e WHERE e.event_type = 'RefundRequested' AND e.recorded_at >= $1
         ORDER BY e.recorded_at DESC LIMIT $2"
    );
    let rows = sqlx::query(&sql)
        .bind(since.to_datetime())
        .bind(i64::from(SURPLUS_REFUNDS_MAX))
        .fetch_all(&store.pool)
        .await
        .map_err(read_error)?;
    fold::surplus_refunds(&all(&rows, rows::event)?, account)
}

/// Flows of one order in booking order. Reads t_order_flow_order_idx.
pub(crate) async fn list_order_flows(store: &PostgresStore, order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError> {
    let sql = format!("SELECT {FLOW} FROM t_order_flow WHERE order_no = $1 AND shard = $2 ORDER BY position, idem_key");
    let rows = sqlx::query(&sql)
        .bind(order_no.as_str())
        .bind(shard(order_no))
        .fetch_all(&store.pool)
        .await
        .map_err(read_error)?;
    all(&rows, rows::flow)
}

/// Rows of one order, table by table.
pub(crate) async fn count_rows(store: &PostgresStore, order_no: &OrderNo) -> Result<RowCounts, StoreError> {
    let row = sqlx::query(search::COUNTS)
        .bind(order_no.as_str())
        .bind(shard(order_no))
        .fetch_one(&store.pool)
        .await
        .map_err(read_error)?;
    Ok(RowCounts {
        events: row.integer("events")?,
        idempotent: row.integer("idempotent")?,
        order: row.integer("orders")?,
        flows: row.integer("flows")?,
        deliveries: row.integer("deliveries")?,
        delivered: row.integer("delivered")?,
    })
}

/// Search, ordered by order_no.
pub(crate) async fn list_orders(store: &PostgresStore, filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError> {
    let sql = search::orders(filter);
    let mut query = sqlx::query(&sql);
    if let Some(status) = filter.status {
        query = query.bind(status.as_str());
    }
    for at in [filter.from, filter.to].into_iter().flatten() {
        query = query.bind(at.to_datetime());
    }
    if let Some(channel_trade_no) = &filter.channel_trade_no {
        query = query.bind(channel_trade_no.as_str());
    }
    if let Some(after) = &filter.after {
        query = query.bind(after.as_str());
    }
    let rows = query.bind(i64::from(filter.limit)).fetch_all(&store.pool).await.map_err(read_error)?;
    all(&rows, rows::order)
}

/// The order of a payment: one that was booked (t_order_flow_trade_idx), else one that is parked (t_item_payment_idx).
pub(crate) async fn find_order_by_trade_no(
    store: &PostgresStore,
    account: &AccountRef,
    channel_trade_no: &ChannelTradeNo,
) -> Result<Option<OrderNo>, StoreError> {
    let booked: Option<String> = sqlx::query_scalar(
        "SELECT order_no FROM t_order_flow WHERE channel = $1 AND channel_trade_no = $2 AND account = $3
         ORDER BY create_time, idem_key LIMIT 1",
    )
    .bind(account.channel.as_str())
    .bind(channel_trade_no.as_str())
    .bind(account.account.as_str())
    .fetch_optional(&store.pool)
    .await
    .map_err(read_error)?;
    if let Some(order_no) = booked {
        return rows::order_no(&order_no).map(Some);
    }
    let parked: Option<String> = sqlx::query_scalar(
        "SELECT order_no FROM t_item WHERE payment = $1 AND order_no IS NOT NULL ORDER BY opened_at, item_no LIMIT 1",
    )
    .bind(format!("{account}:{channel_trade_no}"))
    .fetch_optional(&store.pool)
    .await
    .map_err(read_error)?;
    parked.as_deref().map(rows::order_no).transpose()
}

/// Counts for metrics; the store adds its queue depth.
pub(crate) async fn gauges(store: &PostgresStore) -> Result<Gauges, StoreError> {
    let rows = sqlx::query(search::GAUGES).fetch_all(&store.pool).await.map_err(read_error)?;
    let counts = all(&rows, |row| Ok((row.text("word")?, row.integer("n")?)))?;
    Ok(search::gauges(&counts))
}
