//! The rules: (state, command) to events or a rejection. Pure and synchronous.

use crate::command::OrderCommand;
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::ids::OrderNo;
use crate::order::Order;

/// Decides one command.
///
/// Guarantees: no event when the fact is already booked; applying the events never fails.
/// Errors: [`OrderError`], and then nothing has happened.
pub fn decide(_order_no: &OrderNo, _order: &Order, _command: OrderCommand) -> Result<Vec<OrderEvent>, OrderError> {
    Ok(Vec::new())
}
