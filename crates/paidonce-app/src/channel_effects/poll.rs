//! Following an unpaid order: callbacks may be lost, blocked or late, so it is asked for on a schedule that thins out
//! (gotcha 20), until it is paid, closed or expired.

use std::time::Duration;

use paidonce_order::error::OrderError;
use paidonce_order::order::{Order, Status};

use super::{HOUR, Try};
use crate::app::Caller;
use crate::app::Door;
use crate::asking::{AccountAnswer, Desk, PaymentOutcome, cannot_ask};
use crate::channel_settings::pause_after;
use crate::error::AppError;
use crate::ports::EffectStep;

/// `OrderClosed.reason` of an order that nobody paid in time.
const EXPIRED: &str = "expired";

impl Try<'_> {
    pub(super) async fn poll(&self) -> Result<EffectStep, AppError> {
        let order = self.order().await?;
        if order.status != Status::Pending {
            return Ok(EffectStep::Done);
        }
        if self.is_expired(&order) {
            return self.expire().await;
        }
        let accounts = order.terms.iter().flat_map(|terms| &terms.accounts);
        let (mut asked, mut waiting) = (0_u32, Vec::new());
        for account in accounts.filter(|account| !order.attempts_closed.contains(*account)) {
            let desk = Desk::new(account, &self.order_no, &order);
            if !self.app.can_ask(desk) {
                waiting.push(cannot_ask(desk.asker()));
                continue;
            }
            asked = asked.saturating_add(1);
            let answer = self.app.look_at_payment(desk).await?;
            if self.order().await?.status != Status::Pending {
                return Ok(EffectStep::Done);
            }
            waiting.push(in_words(&answer));
        }
        let pause = if asked == 0 { HOUR } else { self.poll_pause() };
        Ok(EffectStep::Again { after: self.not_past_expiry(&order, pause), why: waiting.join("; ") })
    }

    /// Close at each platform, query, then OrderClosed; a payment found on the way wins.
    async fn expire(&self) -> Result<EffectStep, AppError> {
        let caller = Caller { door: Door::Policy, ..Caller::default() };
        match self.app.close_everywhere(&self.order_no, EXPIRED.to_owned(), &caller).await {
            Ok(_) | Err(AppError::Rejected(OrderError::AlreadyPaid { .. })) => Ok(EffectStep::Done),
            Err(AppError::ChannelUnknown { problem }) => {
                Ok(EffectStep::Again { after: self.poll_pause(), why: problem })
            }
            Err(AppError::ChannelRefused { problem }) => {
                tracing::error!(order_no = %self.order_no, problem, "an expired order can't be closed: a person must look");
                Ok(EffectStep::Again { after: HOUR, why: problem })
            }
            Err(error) => Err(error),
        }
    }

    fn is_expired(&self, order: &Order) -> bool {
        let expires_at = order.terms.as_ref().and_then(|terms| terms.expires_at);
        expires_at.is_some_and(|expires_at| expires_at <= self.app.clock().now())
    }

    /// The first pause was over before the first try.
    fn poll_pause(&self) -> Duration {
        pause_after(&self.app.channel_settings().poll_seconds, self.tries().saturating_add(1))
    }

    fn not_past_expiry(&self, order: &Order, pause: Duration) -> Duration {
        let Some(expires_at) = order.terms.as_ref().and_then(|terms| terms.expires_at) else { return pause };
        let left = expires_at.as_micros().saturating_sub(self.app.clock().now().as_micros());
        pause.min(Duration::from_micros(u64::try_from(left).unwrap_or(0)))
    }
}

/// For the effect's row.
fn in_words(answer: &AccountAnswer<PaymentOutcome>) -> String {
    let said = answer.detail.as_deref().or(answer.platform_state.as_deref()).unwrap_or("no answer");
    format!("{}: {said}", answer.account)
}
