//! Asking a platform what became of one refund, for whoever asks us.

use paidonce_order::ids::{OrderNo, RefundNo};
use paidonce_order::order::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, Caller};
use crate::asking::{AccountAnswer, Desk, RefundAnswered, cannot_ask};
use crate::error::AppError;
use crate::view::{OrderView, RefundView, refunds_of};

/// `POST /v1/orders/{order_no}/refunds/{refund_no}/query`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefundQuery {
    /// The order.
    pub order_no: String,
    /// Where it stands now.
    pub status: Status,
    /// Whether the platform told anything new.
    pub changed: bool,
    /// One: the account of the payment.
    pub results: Vec<AccountAnswer<RefundAnswered>>,
    /// The refund, as it stands now.
    pub refund: RefundView,
    /// The order, as it stands now.
    pub order: OrderView,
}

impl App {
    /// Asks the platform of the refunded payment, and records what it says. Never sends the refund itself: its effect does.
    ///
    /// Errors: [`AppError::NotFound`]; [`AppError::ChannelNotConfigured`]; what [`App::record`] gives.
    pub async fn query_refund(
        &self,
        order_no: &OrderNo,
        refund_no: &RefundNo,
        caller: &Caller,
    ) -> Result<RefundQuery, AppError> {
        let order = self.get_order_state(order_no).await?;
        let not_found = || AppError::NotFound { what: format!("refund {refund_no} of order {order_no}") };
        let has_it =
            |refunds: &[paidonce_order::order::Refund]| refunds.iter().any(|refund| refund.refund_no == *refund_no);
        let payment = order.payments.iter().find(|payment| has_it(&payment.refunds)).ok_or_else(not_found)?;
        let payment = payment.fact.payment.clone();
        if self.client_for(&payment.account).is_none() {
            return Err(AppError::ChannelNotConfigured { problem: cannot_ask(&payment.account) });
        }
        tracing::debug!(%order_no, %refund_no, actor = caller.actor.as_deref(), "the platform is asked for a refund");
        let desk = Desk::new(&payment.account, order_no, &order);
        let answer = self.look_at_refund(desk, &payment, refund_no).await?;
        let order = self.get_order_state(order_no).await?;
        let refund = refunds_of(&order).into_iter().find(|refund| refund.refund_no == refund_no.as_str());
        Ok(RefundQuery {
            order_no: order_no.to_string(),
            status: order.status,
            changed: !answer.decided.is_empty(),
            results: vec![answer],
            refund: refund.ok_or_else(not_found)?,
            order: OrderView::new(order_no, &order),
        })
    }
}
