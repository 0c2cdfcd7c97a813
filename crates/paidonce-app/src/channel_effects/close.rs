//! Closing a way to pay after the order was closed in the ledger. A payment that turns up is a surplus by the rules
//! (gotchas 21, 22): accepted, shown, refunded by the policy; never dropped.

use std::time::Duration;

use paidonce_order::ids::AccountRef;

use super::Try;
use crate::asking::Desk;
use crate::close::Attempt;
use crate::error::AppError;
use crate::ports::EffectStep;

/// A platform that does not know the order may get to know it: an Alipay trade is made when the payer scans, and a code may be
/// scanned for two hours after it was made. So it is asked once more when no code of before our close can be paid any more.
const PAYABLE_MICROS: i64 = (2 * 60 + 10) * 60 * 1_000_000;

impl Try<'_> {
    pub(super) async fn close(&self, account: &AccountRef) -> Result<EffectStep, AppError> {
        let order = self.order().await?;
        let is_paid_there = order.payments.iter().any(|payment| payment.fact.payment.account == *account);
        if is_paid_there || order.attempts_closed.contains(account) {
            return Ok(EffectStep::Done);
        }
        let desk = Desk::new(account, &self.order_no, &order);
        if !self.app.can_ask(desk) {
            return Ok(self.nobody_to_ask(desk.asker()));
        }
        match self.app.close_attempt(desk).await? {
            Attempt::Closed(said) => {
                self.app.take_payment(desk, *said, self.app.clock().now()).await?;
                Ok(EffectStep::Done)
            }
            Attempt::Paid => Ok(EffectStep::Done),
            Attempt::NotFound => Ok(self.once_more_when_unpayable()),
            Attempt::Open(why) => Ok(self.again(why)),
            Attempt::Refused(why) => Ok(self.person(account, &why)),
        }
    }

    fn once_more_when_unpayable(&self) -> EffectStep {
        let closed_at = self.claimed.event.recorded_at;
        let left = closed_at.plus_micros(PAYABLE_MICROS).as_micros().saturating_sub(self.app.clock().now().as_micros());
        match u64::try_from(left) {
            Ok(left) if left > 0 => EffectStep::Again {
                after: Duration::from_micros(left),
                why: "the platform does not know the order; a code that was shown before may still be paid".to_owned(),
            },
            Ok(_) | Err(_) => EffectStep::Done,
        }
    }
}
