//! Closing a way to pay after the order was closed in the ledger. A payment that turns up is a surplus by the rules
//! (gotchas 21, 22): accepted, shown, refunded by the policy; never dropped.

use paidonce_order::ids::AccountRef;

use super::Try;
use crate::asking::Desk;
use crate::close::Attempt;
use crate::error::AppError;
use crate::ports::EffectStep;

/// A platform that does not know the order may get to know it (an Alipay trade is made when the payer scans), but not long
/// after we stopped offering it.
const TRIES_MAX: i32 = 3;

impl Try<'_> {
    pub(super) async fn close(&self, account: &AccountRef) -> Result<EffectStep, AppError> {
        let order = self.order().await?;
        let is_paid_there = order.payments.iter().any(|payment| payment.fact.payment.account == *account);
        if is_paid_there || order.attempts_closed.contains(account) {
            return Ok(EffectStep::Done);
        }
        if self.app.client_for(account).is_none() {
            return Ok(self.nobody_to_ask(account));
        }
        let desk = Desk::new(account, &self.order_no, &order);
        match self.app.close_attempt(desk).await? {
            Attempt::Closed(said) => {
                self.app.take_payment(desk, *said, self.app.clock().now()).await?;
                Ok(EffectStep::Done)
            }
            Attempt::Paid => Ok(EffectStep::Done),
            Attempt::NotFound if self.is_patient(TRIES_MAX) => Ok(self.again("the platform does not know the order")),
            Attempt::NotFound => Ok(EffectStep::Done),
            Attempt::Open(why) => Ok(self.again(why)),
            Attempt::Refused(why) => Ok(self.person(account, &why)),
        }
    }
}
