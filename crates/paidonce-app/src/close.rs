//! Closing an unpaid order by our own decision.

use paidonce_order::command::OrderCommand;
use paidonce_order::ids::OrderNo;
use paidonce_store::store::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{Answer, App, Asked, Caller};
use crate::error::AppError;
use crate::open::check_text;
use crate::view::OrderView;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 500;

/// `POST /v1/orders/{order_no}/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseOrder {
    /// Why, for the log.
    pub reason: String,
}

impl App {
    /// Closes an unpaid order; a closed one stays closed.
    ///
    /// Errors: [`AppError::Rejected`] when it is paid (refund it instead) or not open here.
    pub async fn close(
        &self,
        order_no: &OrderNo,
        request: CloseOrder,
        caller: &Caller,
    ) -> Result<Answer<OrderView>, AppError> {
        check_text("reason", &request.reason, REASON_CHARS_MAX)?;
        let command = OrderCommand::CloseOrder { reason: request.reason };
        let target = Target::Order { order_no: order_no.clone(), command };
        let Asked { novelty, receipt } = self.ask(target, caller).await?;
        let order = self.state_after(order_no, &receipt).await?;
        Ok(Answer { novelty, value: OrderView::new(order_no, &order) })
    }
}
