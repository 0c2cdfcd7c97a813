//! What shall become of a surplus payment. Pure answers only: nothing here emits an event; whoever acts on them (the
//! automatic refund) brings the delay, the breaker and the clock.

use crate::command::PaymentRef;
use crate::event::SurplusReason;
use crate::fact_key::FactKey;
use crate::ids::{OrderNo, RefundNo, fnv1a_64};
use crate::timestamp::Timestamp;

/// What to do with a surplus payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurplusAction {
    /// Send it back (after a delay).
    Refund,
    /// Leave it for a person.
    Hold,
    /// Let it settle the order; only ever done in the name of an operator.
    Accept,
}

/// The action for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurplusPolicy {
    /// The order is already paid by another payment.
    pub second_payment: SurplusAction,
    /// The order was closed before.
    pub after_close: SurplusAction,
    /// Amount or currency differ from the terms.
    pub amount_mismatch: SurplusAction,
    /// The order may not be paid through this account.
    pub other_account: SurplusAction,
}

impl Default for SurplusPolicy {
    /// SecondPayment and AfterClose are refunded; AmountMismatch and OtherAccount are held.
    fn default() -> Self {
        Self {
            second_payment: SurplusAction::Refund,
            after_close: SurplusAction::Refund,
            amount_mismatch: SurplusAction::Hold,
            other_account: SurplusAction::Hold,
        }
    }
}

/// A surplus payment as the policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurplusCase {
    /// Why it settles nothing.
    pub reason: SurplusReason,
    /// When it was paid, by the channel's clock.
    pub occurred_at: Timestamp,
    /// When we closed the order (`recorded_at` of `OrderClosed`), if we did.
    pub closed_at: Option<Timestamp>,
}

impl SurplusPolicy {
    /// The action for one payment.
    ///
    /// Guarantees: money that was paid before our close is held, never refunded by itself: the payer was in time, and our
    /// close was the mistake.
    #[must_use]
    pub fn action(&self, case: SurplusCase) -> SurplusAction {
        match case.reason {
            SurplusReason::SecondPayment => self.second_payment,
            SurplusReason::AmountMismatch => self.amount_mismatch,
            SurplusReason::OtherAccount => self.other_account,
            SurplusReason::AfterClose => match case.closed_at {
                Some(closed_at) if case.occurred_at < closed_at => SurplusAction::Hold,
                Some(_) | None => self.after_close,
            },
        }
    }
}

/// The number of the automatic refund of a surplus payment.
///
/// Guarantees: derived from the surplus key alone, so that two nodes, a retry and a restart ask for the same refund; it
/// holds the order number as far as 64 bytes allow.
#[must_use]
pub fn surplus_refund_no(order_no: &OrderNo, payment: &PaymentRef) -> RefundNo {
    let key = FactKey::of_surplus(payment).in_order(order_no);
    let hash = format!("{:016x}", fnv1a_64(key.as_str()));
    let prefix: String = order_no.as_str().chars().take(64 - 2 - hash.len()).collect();
    RefundNo::of_allowed(format!("{prefix}-S{hash}"))
}
