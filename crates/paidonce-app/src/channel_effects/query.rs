//! One more look at a payment or a refund that something made doubtful. The item that a person sees is open meanwhile, so
//! that patience may end.

use paidonce_channel::api::{Ask, PaymentState, Remedy};
use paidonce_order::command::PaymentRef;
use paidonce_order::event::OrderEvent;
use paidonce_order::ids::{AccountRef, RefundNo};
use paidonce_order::order::{Order, ParkedFact, RefundState};

use super::Try;
use crate::asking::{Desk, Heard, PaymentOutcome, RefundAnswered, payment_state};
use crate::error::AppError;
use crate::ports::EffectStep;

/// With the default schedule, two days: then the item alone waits for a person.
const TRIES_MAX: i32 = 50;

impl Try<'_> {
    pub(super) async fn query_payment(&self, account: &AccountRef) -> Result<EffectStep, AppError> {
        let order = self.order().await?;
        let desk = Desk::new(account, &self.order_no, &order);
        let asked_at = self.app.clock().now();
        let heard = self.question(desk).await;
        let remedy = remedy_of(&heard);
        let answer = self.app.take_payment(desk, heard, asked_at).await?;
        let why = answer.detail.unwrap_or_else(|| answer.platform_state.unwrap_or_default());
        match answer.outcome {
            PaymentOutcome::Paid | PaymentOutcome::PaidWithRefunds | PaymentOutcome::Closed => Ok(EffectStep::Done),
            PaymentOutcome::Unpaid | PaymentOutcome::NotFound if self.is_patient(TRIES_MAX) => Ok(self.again(why)),
            PaymentOutcome::Unpaid | PaymentOutcome::NotFound => Ok(self.out_of_patience(account)),
            PaymentOutcome::Unknown => Ok(self.again(why)),
            PaymentOutcome::Refused => Ok(self.by_remedy(account, remedy, &why)),
            PaymentOutcome::NotAsked => Ok(self.nobody_to_ask(desk.asker())),
        }
    }

    /// A refund names its payment by the channel's number, which finds the parts of a combine payment too.
    async fn question(&self, desk: Desk<'_>) -> Heard<PaymentState> {
        let OrderEvent::RefundParked(fact) = &self.event else { return self.app.ask_payment(desk).await };
        let channel_trade_no = fact.payment.channel_trade_no.clone();
        let ask = Ask::PaymentByTradeNo { order_no: self.order_no.clone(), channel_trade_no };
        self.app.put(desk, ask, payment_state).await
    }

    pub(super) async fn query_refund(&self, account: &AccountRef, refund_no: &str) -> Result<EffectStep, AppError> {
        let order = self.order().await?;
        let Some((payment, refund_no)) = find_refund(&order, account, refund_no) else { return Ok(EffectStep::Done) };
        if is_settled(&order, &payment, &refund_no) {
            return Ok(EffectStep::Done);
        }
        let desk = Desk::new(account, &self.order_no, &order);
        let answer = self.app.look_at_refund(desk, &payment, &refund_no).await?;
        let why = answer.detail.unwrap_or_else(|| answer.platform_state.unwrap_or_default());
        match answer.outcome {
            RefundAnswered::Succeeded | RefundAnswered::Failed => Ok(EffectStep::Done),
            RefundAnswered::Stalled | RefundAnswered::BalanceShort | RefundAnswered::Processing => Ok(self.again(why)),
            RefundAnswered::NotFound if self.is_patient(TRIES_MAX) => Ok(self.again(why)),
            RefundAnswered::NotFound => Ok(self.out_of_patience(account)),
            RefundAnswered::Unknown => Ok(self.again(why)),
            // Whether time or a person helps, the item is open already.
            RefundAnswered::Refused => Ok(self.again(why)),
            RefundAnswered::NotAsked => Ok(self.nobody_to_ask(account)),
        }
    }

    fn out_of_patience(&self, account: &AccountRef) -> EffectStep {
        let (order_no, kind, tries) = (&self.order_no, &self.claimed.effect.kind, self.tries());
        tracing::warn!(%order_no, %account, kind, tries, "the platform keeps knowing nothing of it: its item stays open");
        EffectStep::Done
    }
}

fn remedy_of<S>(heard: &Heard<S>) -> Remedy {
    match heard {
        Heard::Refused(refusal) => refusal.remedy,
        Heard::Final(_) | Heard::Unknown(_) | Heard::NotAsked => Remedy::Wait,
    }
}

fn find_refund(order: &Order, account: &AccountRef, refund_no: &str) -> Option<(PaymentRef, RefundNo)> {
    let booked = order.payments.iter().filter(|payment| payment.fact.payment.account == *account).find_map(|payment| {
        let refund = payment.refunds.iter().find(|refund| refund.refund_no.as_str() == refund_no)?;
        Some((payment.fact.payment.clone(), refund.refund_no.clone()))
    });
    booked.or_else(|| {
        order.parked.iter().find_map(|parked| match &parked.fact {
            ParkedFact::Refund(fact) if fact.refund_no.as_str() == refund_no && fact.payment.account == *account => {
                Some((fact.payment.clone(), fact.refund_no.clone()))
            }
            ParkedFact::Refund(_) | ParkedFact::Payment(_) | ParkedFact::Share(_) => None,
        })
    })
}

/// Nothing of it is a mere difference any more, and it has an end.
fn is_settled(order: &Order, payment: &PaymentRef, refund_no: &RefundNo) -> bool {
    let Some(payment) = order.find_payment(payment) else { return false };
    let mut of_number = payment.refunds.iter().filter(|refund| refund.refund_no == *refund_no).peekable();
    of_number.peek().is_some()
        && of_number.all(|refund| match refund.state {
            RefundState::Requested | RefundState::Stalled => false,
            RefundState::Confirmed => !refund.derived,
            RefundState::Failed | RefundState::NumberTaken => true,
        })
}
