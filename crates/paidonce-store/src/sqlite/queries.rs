//! Reads of orders, flows and counts.

use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::order::Order;
use paidonce_order::project::{FlowRow, OrderRow};

use crate::sqlite::SqliteStore;
use crate::store::{EventRow, Gauges, OrderFilter, StoreError};

/// The order folded from its events.
pub(crate) async fn find_order(_store: &SqliteStore, _order_no: &OrderNo) -> Result<Option<Order>, StoreError> {
    Err(StoreError::Invalid("find_order is not built yet".to_owned()))
}

/// The `t_order` row.
pub(crate) async fn find_order_row(_store: &SqliteStore, _order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
    Err(StoreError::Invalid("find_order_row is not built yet".to_owned()))
}

/// Events of one order in sequence.
pub(crate) async fn list_order_events(_store: &SqliteStore, _order_no: &OrderNo) -> Result<Vec<EventRow>, StoreError> {
    Err(StoreError::Invalid("list_order_events is not built yet".to_owned()))
}

/// Flows of one order in booking order.
pub(crate) async fn list_order_flows(_store: &SqliteStore, _order_no: &OrderNo) -> Result<Vec<FlowRow>, StoreError> {
    Err(StoreError::Invalid("list_order_flows is not built yet".to_owned()))
}

/// Search, ordered by order_no.
pub(crate) async fn list_orders(_store: &SqliteStore, _filter: &OrderFilter) -> Result<Vec<OrderRow>, StoreError> {
    Err(StoreError::Invalid("list_orders is not built yet".to_owned()))
}

/// The order of a payment.
pub(crate) async fn find_order_by_trade_no(
    _store: &SqliteStore,
    _account: &AccountRef,
    _channel_trade_no: &ChannelTradeNo,
) -> Result<Option<OrderNo>, StoreError> {
    Err(StoreError::Invalid("find_order_by_trade_no is not built yet".to_owned()))
}

/// Counts for metrics; the store adds its queue depth.
pub(crate) async fn gauges(_store: &SqliteStore) -> Result<Gauges, StoreError> {
    Err(StoreError::Invalid("gauges is not built yet".to_owned()))
}
