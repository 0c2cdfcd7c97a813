//! Following a profit share. FINISHED is executed, not succeeded: the channel gives an observation for each receiver
//! (gotcha 28).

use paidonce_channel::api::{Ask, ReplyState, ShareState};
use paidonce_order::event::OrderEvent;

use super::Try;
use crate::asking::{Desk, Flag, Heard};
use crate::error::AppError;
use crate::ports::EffectStep;

/// Shares are possible within 30 days of the payment (FACTS A5); a number that is unknown longer is a mistake.
const UNKNOWN_MICROS_MAX: i64 = 30 * 24 * 3_600 * 1_000_000;

impl Try<'_> {
    pub(super) async fn share(&self) -> Result<EffectStep, AppError> {
        let OrderEvent::ProfitShareFollowed { payment, out_order_no } = &self.event else {
            return Ok(self.again("a share effect without a ProfitShareFollowed event"));
        };
        let order = self.order().await?;
        let desk = Desk::new(&payment.account, &self.order_no, &order);
        let (order_no, payment, out_order_no) = (self.order_no.clone(), payment.clone(), out_order_no.clone());
        let ask = Ask::Share { order_no, payment, out_order_no: out_order_no.clone() };
        match self.app.put(desk, ask, share_state).await {
            Heard::Final(word) => {
                self.app.record(word.notice, None).await?;
                match word.state {
                    ShareState::Finished => Ok(EffectStep::Done),
                    ShareState::Processing => Ok(self.again(word.platform_state)),
                    ShareState::NotFound => self.unknown_share(desk, &out_order_no).await,
                }
            }
            Heard::Refused(refusal) => {
                let why = format!("{}: {}", refusal.code, refusal.detail);
                Ok(self.by_remedy(desk.account, refusal.remedy, &why))
            }
            Heard::Unknown(doubt) => Ok(self.again(format!("{}: {}", doubt.code, doubt.detail))),
            Heard::NotAsked => Ok(self.no_credentials(desk.account)),
        }
    }

    async fn unknown_share(&self, desk: Desk<'_>, out_order_no: &str) -> Result<EffectStep, AppError> {
        let since = self.claimed.event.recorded_at.as_micros();
        if self.app.clock().now().as_micros().saturating_sub(since) < UNKNOWN_MICROS_MAX {
            return Ok(self.again("the platform does not know this share (yet)"));
        }
        let detail = format!("the platform never knew share {out_order_no}: is the number right?");
        self.app.flag(desk, Flag { code: "share_not_found", content: out_order_no, detail }).await?;
        Ok(EffectStep::Done)
    }
}

fn share_state(state: ReplyState) -> Option<ShareState> {
    let ReplyState::Share(state) = state else { return None };
    Some(state)
}
