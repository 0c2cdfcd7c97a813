//! The rules: (state, command) to events or a rejection. Pure and synchronous.
//!
//! One file per family of commands; the table of DESIGN section 3 is spread over them, a cell a match arm:
//!
//! | file | commands |
//! |---|---|
//! | `open` | OpenOrder |
//! | `payment` | RecordPayment |
//! | `refund` | RequestRefund, RecordRefund |
//! | `share` | RecordProfitShare, FollowProfitShare |
//! | `close` | CloseOrder, RecordAttemptClosed |
//! | `item` | AcceptSurplus, ResolveItem, RecordFlag |
//! | `adopt` | what waited for one of these, decided in the same command |

mod adopt;
mod close;
mod draft;
mod item;
mod open;
mod payment;
mod refund;
mod share;

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
        OrderCommand::RequestRefund(request) => refund::request_refund(&mut draft, request)?,
        OrderCommand::RecordRefund(fact) => refund::record_refund(&mut draft, fact),
        OrderCommand::RecordProfitShare(fact) => share::record_share(&mut draft, fact),
        OrderCommand::FollowProfitShare { payment, out_order_no } => {
            share::follow_share(&mut draft, payment, out_order_no)?;
        }
        OrderCommand::RecordAttemptClosed(fact) => close::record_attempt_closed(&mut draft, fact),
        OrderCommand::RecordFlag(fact) => item::record_flag(&mut draft, fact),
        OrderCommand::AcceptSurplus { payment, by } => item::accept_surplus(&mut draft, &payment, by)?,
        OrderCommand::ResolveItem { item_no, by } => item::resolve_item(&mut draft, item_no, by)?,
    }
    Ok(draft.into_events())
}
