//! What becomes of a payment that settles nothing: decided when it falls due, from the state of then.
//!
//! The refund's number derives from the surplus key, so two workers, a restart and a person all ask for the same refund.

use std::time::Duration;

use paidonce_order::command::{PaymentRef, RefundOrigin, RefundRequest};
use paidonce_order::error::OrderError;
use paidonce_order::event::{OrderEvent, SurplusReason};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order, Payment, PaymentRole};
use paidonce_order::policy::{SurplusAction, SurplusCase, surplus_refund_no};
use paidonce_order::timestamp::Timestamp;

use super::Try;
use crate::app::{Caller, Door};
use crate::channel_settings::Breaker;
use crate::error::AppError;
use crate::ports::EffectStep;

/// The window of the breaker.
const HOUR_MICROS: i64 = 3_600 * 1_000_000;

impl Try<'_> {
    pub(super) async fn surplus(&self) -> Result<EffectStep, AppError> {
        let OrderEvent::SurplusPaymentRecorded { fact, reason } = &self.event else {
            return Ok(self.again("a surplus effect without a SurplusPaymentRecorded event"));
        };
        if let Some(left) = self.delay_left() {
            return Ok(EffectStep::Again { after: left, why: "a person may still decide".to_owned() });
        }
        let order = self.order().await?;
        let Some(payment) = order.find_payment(&fact.payment).filter(|payment| is_undecided(&order, payment)) else {
            return Ok(EffectStep::Done);
        };
        let closed_at = match reason {
            SurplusReason::AfterClose => self.closed_at().await?,
            SurplusReason::SecondPayment | SurplusReason::AmountMismatch | SurplusReason::OtherAccount => None,
        };
        let case = SurplusCase { reason: *reason, occurred_at: fact.occurred_at, closed_at };
        match self.app.channel_settings().surplus.policy.action(case) {
            SurplusAction::Refund => self.give_back(payment).await,
            // The item stays open: a person refunds or accepts.
            SurplusAction::Hold | SurplusAction::Accept => Ok(EffectStep::Done),
        }
    }

    /// The row is due after the delay; a delay that was made longer since still counts.
    fn delay_left(&self) -> Option<Duration> {
        let delay = i64::try_from(self.app.channel_settings().surplus.delay.as_micros()).unwrap_or(i64::MAX);
        let until = self.claimed.event.recorded_at.as_micros().saturating_add(delay);
        let left = until.saturating_sub(self.app.clock().now().as_micros());
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros)
    }

    /// When we closed the order. An order that was closed, settled by an operator and so on has one OrderClosed at most.
    async fn closed_at(&self) -> Result<Option<Timestamp>, AppError> {
        let events = self.app.store().list_order_events(&self.order_no).await?;
        Ok(events.iter().find(|event| event.event_type == "OrderClosed").map(|event| event.recorded_at))
    }

    async fn give_back(&self, payment: &Payment) -> Result<EffectStep, AppError> {
        let name: PaymentRef = payment.fact.payment.clone();
        let amount = Money::new(payment.refundable_minor(), payment.fact.amount.currency);
        if amount.amount_minor == 0 {
            return Ok(EffectStep::Done);
        }
        let _turn = self.app.automatic_refunds.lock().await;
        if let Some(problem) = self.breaker_is_open(&name, amount).await? {
            let (order_no, account) = (&self.order_no, &name.account);
            tracing::error!(%order_no, %account, %amount, problem, "automatic refunds are stopped: a person must look");
            return Ok(EffectStep::Done);
        }
        let request = RefundRequest {
            refund_no: surplus_refund_no(&self.order_no, &name),
            payment: Some(name),
            amount,
            reason: Some("surplus payment".to_owned()),
            origin: RefundOrigin::Surplus,
        };
        let caller = Caller { door: Door::Policy, ..Caller::default() };
        match self.app.ask_refund(&self.order_no, request, &caller).await {
            // Somebody was faster with a refund of it, or accepted or resolved it meanwhile: that decision stays.
            Ok(_)
            | Err(AppError::Rejected(
                OrderError::ExceedsPaid { .. } | OrderError::RefundTermsDiffer { .. } | OrderError::NotAllowed { .. },
            )) => Ok(EffectStep::Done),
            Err(error) => Err(error),
        }
    }

    /// Why no further automatic refund of this account is allowed now. Counted in the log, so a restart forgets nothing; of
    /// nodes that decide in the same moment each may pass by one refund.
    async fn breaker_is_open(&self, payment: &PaymentRef, amount: Money) -> Result<Option<String>, AppError> {
        let since = self.app.clock().now().plus_micros(HOUR_MICROS.saturating_mul(-1));
        let refunds = self.app.store().list_surplus_refunds(&payment.account, since).await?;
        Ok(why_tripped(self.app.channel_settings().surplus.breaker, refunds.as_deref(), amount))
    }
}

/// Why a breaker forbids one more automatic refund of `amount` after those of the last hour, `None` standing for more refunds
/// than can be counted: what can't be counted is not sent.
fn why_tripped(breaker: Breaker, refunds: Option<&[Money]>, amount: Money) -> Option<String> {
    let Some(refunds) = refunds else {
        return Some("more refunds were asked for within an hour than can be counted".to_owned());
    };
    let count = u32::try_from(refunds.len()).unwrap_or(u32::MAX);
    let sum_minor = refunds.iter().fold(amount.amount_minor, |sum, refund| sum.saturating_add(refund.amount_minor));
    if count >= breaker.refunds_per_hour_max {
        return Some(format!("{count} automatic refunds within an hour"));
    }
    (sum_minor > breaker.minor_per_hour_max)
        .then(|| format!("automatic refunds of {sum_minor} minor units within an hour, with this one"))
}

/// Nobody has refunded, accepted or resolved it.
fn is_undecided(order: &Order, payment: &Payment) -> bool {
    let is_surplus = match payment.role {
        PaymentRole::Surplus(_) => true,
        PaymentRole::Settling => false,
    };
    let is_item = |item: &&paidonce_order::order::Item| {
        item.kind == ItemKind::Surplus && item.payment.as_ref() == Some(&payment.fact.payment)
    };
    let is_open = order.items.values().find(is_item).is_some_and(|item| item.is_open());
    let was_asked_for = payment.refunds.iter().any(|refund| !refund.derived);
    is_surplus && is_open && !was_asked_for
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards the account's money when the log holds more requests than one page: a count that is not known is no licence.
    #[test]
    fn refunds_that_cannot_be_counted_trip_the_breaker() {
        let boundless = Breaker { refunds_per_hour_max: u32::MAX, minor_per_hour_max: i64::MAX };
        assert!(why_tripped(boundless, None, Money::fen(1)).is_some());
        assert_eq!(why_tripped(boundless, Some(&[Money::fen(1)]), Money::fen(1)), None);
    }
}
