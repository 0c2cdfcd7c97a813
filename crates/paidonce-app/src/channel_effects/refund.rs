//! One refund, from the request in the log to a final answer. Number and amount are those of the event and never change.
//!
//! | try | what |
//! |---|---|
//! | first | send it |
//! | every later one | ask what became of it; send it again, with the same number and amount, only when the platform does not know it |
//!
//! The first try is known by the row's count of tries, which is written before the try begins: whatever happened in it, also
//! a crash or a lost lease, the next one asks before it sends (gotchas 16, 52, 66).

use std::time::Duration;

use paidonce_channel::api::{Ask, RefundNumbers, RefundOrder, RefundState as Stands, Remedy};
use paidonce_order::command::PaymentRef;
use paidonce_order::event::OrderEvent;
use paidonce_order::ids::{Channel, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::order::{Order, RefundState};

use super::{HOUR, Try};
use crate::asking::{Desk, Flag, Heard, RefundAnswered, refund_state};
use crate::channel_settings::pause_after;
use crate::error::AppError;
use crate::ports::EffectStep;

/// Alipay's refund query may not know a refund earlier (gotcha 52).
const ALIPAY_QUERY_AFTER: Duration = Duration::from_secs(10);

/// As it was requested.
struct Wanted<'a> {
    payment: &'a PaymentRef,
    refund_no: &'a RefundNo,
    amount: Money,
    reason: Option<&'a str>,
}

impl Try<'_> {
    pub(super) async fn refund(&self) -> Result<EffectStep, AppError> {
        let OrderEvent::RefundRequested { payment, refund_no, amount, reason, .. } = &self.event else {
            return Ok(self.again("a refund effect without a RefundRequested event"));
        };
        let wanted = Wanted { payment, refund_no, amount: *amount, reason: reason.as_deref() };
        let order = self.order().await?;
        if has_ended(&order, &wanted) {
            return Ok(EffectStep::Done);
        }
        if self.app.client_for(&payment.account).is_none() {
            return Ok(self.no_credentials(&payment.account));
        }
        if self.tries() <= 1 {
            return self.send(&order, &wanted).await;
        }
        let heard =
            self.app.put(self.desk(&order, &wanted), Ask::RefundState(self.numbers(&wanted)), refund_state).await;
        match &heard {
            Heard::Final(word) if word.state == Stands::NotFound => self.send(&order, &wanted).await,
            Heard::Final(_) | Heard::Refused(_) | Heard::Unknown(_) | Heard::NotAsked => {
                self.follow(&order, &wanted, heard).await
            }
        }
    }

    async fn send(&self, order: &Order, wanted: &Wanted<'_>) -> Result<EffectStep, AppError> {
        let payment = order.find_payment(wanted.payment);
        let payment_amount = payment.map_or(wanted.amount, |payment| payment.fact.amount);
        let ask = Ask::Refund(RefundOrder {
            numbers: self.numbers(wanted),
            amount: wanted.amount,
            payment_amount,
            reason: wanted.reason.map(ToOwned::to_owned),
        });
        let heard = self.app.put(self.desk(order, wanted), ask, refund_state).await;
        self.follow(order, wanted, heard).await
    }

    async fn follow(&self, order: &Order, wanted: &Wanted<'_>, heard: Heard<Stands>) -> Result<EffectStep, AppError> {
        let desk = self.desk(order, wanted);
        let refusal = match &heard {
            Heard::Refused(refusal) => Some((refusal.code.clone(), refusal.remedy)),
            Heard::Final(_) | Heard::Unknown(_) | Heard::NotAsked => None,
        };
        let answer = self.app.take_refund(desk, heard, self.app.clock().now()).await?;
        let why = answer.detail.unwrap_or_else(|| answer.platform_state.unwrap_or_default());
        match answer.outcome {
            RefundAnswered::Succeeded | RefundAnswered::Failed => self.end(wanted, &why).await,
            RefundAnswered::Stalled
            | RefundAnswered::BalanceShort
            | RefundAnswered::Processing
            | RefundAnswered::NotFound
            | RefundAnswered::Unknown => Ok(self.again_at(wanted, why)),
            RefundAnswered::Refused => match refusal {
                Some((code, Remedy::Person)) => self.refused(desk, wanted, (&code, &why)).await,
                Some((_, Remedy::Wait)) | None => Ok(self.again_at(wanted, why)),
            },
            RefundAnswered::NotAsked => Ok(self.no_credentials(&wanted.payment.account)),
        }
    }

    /// A final answer ends the refund in the ledger too; one that doesn't is for a person, and the refund stays followed.
    async fn end(&self, wanted: &Wanted<'_>, why: &str) -> Result<EffectStep, AppError> {
        if has_ended(&self.order().await?, wanted) {
            return Ok(EffectStep::Done);
        }
        let (order_no, refund_no) = (&self.order_no, wanted.refund_no);
        tracing::error!(%order_no, %refund_no, why, "the platform's final answer does not end this refund here");
        Ok(EffectStep::Again { after: HOUR, why: format!("answered {why}, but the refund is still open here") })
    }

    async fn refused(
        &self,
        desk: Desk<'_>,
        wanted: &Wanted<'_>,
        (code, why): (&str, &str),
    ) -> Result<EffectStep, AppError> {
        let refund_no = wanted.refund_no;
        let content = format!("{refund_no}/{code}");
        let detail = format!("refund {refund_no} of {} is refused: {why}", wanted.amount);
        self.app.flag(desk, Flag { code: "refund_refused", content: &content, detail }).await?;
        Ok(self.person(desk.account, why))
    }

    fn desk<'b>(&'b self, order: &'b Order, wanted: &Wanted<'b>) -> Desk<'b> {
        Desk::new(&wanted.payment.account, &self.order_no, order)
    }

    fn numbers(&self, wanted: &Wanted<'_>) -> RefundNumbers {
        RefundNumbers {
            payment: wanted.payment.clone(),
            order_no: self.order_no.clone(),
            refund_no: wanted.refund_no.clone(),
        }
    }

    fn again_at(&self, wanted: &Wanted<'_>, why: String) -> EffectStep {
        let pause = pause_after(&self.app.channel_settings().refund_follow_seconds, self.tries());
        let after = match wanted.payment.account.channel {
            Channel::Wxpay => pause,
            Channel::Alipay => pause.max(ALIPAY_QUERY_AFTER),
        };
        EffectStep::Again { after, why }
    }
}

/// Whether the log has a final word on it.
fn has_ended(order: &Order, wanted: &Wanted<'_>) -> bool {
    let known = order.find_payment(wanted.payment).and_then(|payment| payment.find_refund(wanted.refund_no));
    known.is_some_and(|refund| match refund.state {
        RefundState::Requested | RefundState::Stalled => false,
        RefundState::Confirmed | RefundState::Failed | RefundState::NumberTaken => true,
    })
}
