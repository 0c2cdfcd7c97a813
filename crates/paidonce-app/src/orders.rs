//! Reading: orders, their events and flows, the feed, effects.

use paidonce_order::ids::OrderNo;
use paidonce_store::store::OrderFilter;
use uuid::Uuid;

use crate::app::App;
use crate::error::AppError;
use crate::view::{
    EffectView, EventView, FeedView, FlowView, OrderSummary, OrderView, RefundView, RowCountsView, refunds_of,
};

/// Rows of a page if the caller doesn't say.
pub const PAGE_ROWS_DEFAULT: u32 = 50;

/// Rows of a page at most.
pub const PAGE_ROWS_MAX: u32 = 500;

/// Checks a page size. Errors: [`AppError::Invalid`].
pub fn page_rows(limit: Option<u32>) -> Result<u32, AppError> {
    match limit {
        None => Ok(PAGE_ROWS_DEFAULT),
        Some(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        Some(limit) => Err(AppError::invalid("limit", format!("must be 1 to {PAGE_ROWS_MAX}, not {limit}"))),
    }
}

impl App {
    /// One order. Errors: [`AppError::NotFound`].
    pub async fn get_order(&self, order_no: &OrderNo) -> Result<OrderView, AppError> {
        let order = self.get_order_state(order_no).await?;
        Ok(OrderView::new(order_no, &order))
    }

    /// Search, ordered by order_no.
    pub async fn list_orders(&self, filter: &OrderFilter) -> Result<Vec<OrderSummary>, AppError> {
        let rows = self.store().list_orders(filter).await?;
        Ok(rows.into_iter().map(OrderSummary::from).collect())
    }

    /// Its events in sequence. Errors: [`AppError::NotFound`] when there are none.
    pub async fn list_order_events(&self, order_no: &OrderNo) -> Result<Vec<EventView>, AppError> {
        let rows = self.store().list_order_events(order_no).await?;
        if rows.is_empty() {
            return Err(not_found(order_no));
        }
        rows.into_iter().map(EventView::try_new).collect()
    }

    /// Its flows in booking order. Errors: [`AppError::NotFound`] when the order is unknown.
    pub async fn list_order_flows(&self, order_no: &OrderNo) -> Result<Vec<FlowView>, AppError> {
        let rows = self.store().list_order_flows(order_no).await?;
        if rows.is_empty() && self.store().find_order_row(order_no).await?.is_none() {
            return Err(not_found(order_no));
        }
        Ok(rows.into_iter().map(FlowView::from).collect())
    }

    /// How many rows the tables hold for it. Errors: [`AppError::NotFound`] when it is unknown.
    pub async fn count_order_rows(&self, order_no: &OrderNo) -> Result<RowCountsView, AppError> {
        let counts = self.store().count_rows(order_no).await?;
        if counts.events == 0 {
            return Err(not_found(order_no));
        }
        Ok(counts.into())
    }

    /// Refunds of all its payments. Errors: [`AppError::NotFound`].
    pub async fn list_refunds(&self, order_no: &OrderNo) -> Result<Vec<RefundView>, AppError> {
        Ok(refunds_of(self.get_order_state(order_no).await?.as_ref()))
    }

    /// The feed over all shards. Errors: [`AppError::Store`] with an unreadable cursor or a hole.
    pub async fn read_feed(&self, cursor: &str, limit: u32) -> Result<FeedView, AppError> {
        FeedView::try_new(self.store().read_feed(cursor, limit).await?)
    }

    /// Effects, oldest first.
    pub async fn list_effects(
        &self,
        state: Option<&str>,
        order_no: Option<&str>,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<EffectView>, AppError> {
        let rows = self.store().list_effects(state, order_no, after, limit).await?;
        Ok(rows.into_iter().map(EffectView::from).collect())
    }

    /// A dead effect is tried again, from the first attempt. Errors: [`AppError::NotAllowed`] when it is not dead.
    pub async fn requeue_effect(&self, effect_id: Uuid, by: &str) -> Result<(), AppError> {
        if !self.store().requeue_effect(effect_id, by).await? {
            let problem = format!("effect {effect_id} is not dead: only a dead effect is sent again by hand");
            return Err(AppError::NotAllowed { problem });
        }
        tracing::warn!(%effect_id, by, "effect requeued by hand");
        self.tell_relays();
        Ok(())
    }

    /// An effect that is dead or waits is given up. Errors: [`AppError::NotAllowed`] when it is neither.
    pub async fn discard_effect(&self, effect_id: Uuid, by: &str) -> Result<(), AppError> {
        if !self.store().discard_effect(effect_id, by).await? {
            let problem = format!("effect {effect_id} is neither dead nor pending: there is nothing to discard");
            return Err(AppError::NotAllowed { problem });
        }
        tracing::warn!(%effect_id, by, "effect discarded by hand");
        self.tell_relays();
        Ok(())
    }
}

fn not_found(order_no: &OrderNo) -> AppError {
    AppError::NotFound { what: format!("order {order_no}") }
}
