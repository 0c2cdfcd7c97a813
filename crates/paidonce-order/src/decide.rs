//! The rules: (state, command) to events or a rejection. Pure and synchronous.
//!
//! One file per family of commands; the table of DESIGN section 3 is spread over them, a cell a match arm:
//! [`open`] (OpenOrder), [`payment`] (RecordPayment, AcceptSurplus), [`close`] (CloseOrder, platform closes).

mod close;
mod draft;
mod open;
mod payment;

use crate::command::OrderCommand;
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::ids::OrderNo;
use crate::order::Order;
use draft::Draft;

/// Decides one command.
///
/// Guarantees: no event when the fact is already booked; applying the events never fails; what a channel states is never
/// rejected (it is booked, parked, flagged or already known), only requests of our own are.
/// Errors: [`OrderError`], and then nothing has happened.
pub fn decide(order_no: &OrderNo, order: &Order, command: OrderCommand) -> Result<Vec<OrderEvent>, OrderError> {
    let mut draft = Draft::new(order_no, order);
    match command {
        OrderCommand::OpenOrder(terms) => open::open_order(&mut draft, terms)?,
        OrderCommand::RecordPayment(fact) => payment::record_payment(&mut draft, fact),
        OrderCommand::CloseOrder { reason } => close::close_order(&mut draft, reason)?,
        OrderCommand::RequestRefund(_)
        | OrderCommand::RecordRefund(_)
        | OrderCommand::RecordProfitShare(_)
        | OrderCommand::RecordAttemptClosed(_)
        | OrderCommand::RecordFlag(_)
        | OrderCommand::AcceptSurplus { .. }
        | OrderCommand::ResolveItem { .. } => {
            return Err(OrderError::NotAllowed { problem: "not built yet".to_owned() });
        }
    }
    Ok(draft.into_events())
}
