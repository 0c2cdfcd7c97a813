//! The effects that mean a call to a platform: one try of each kind. The worker claims and reports; what is asked, and when
//! it is over, is decided here, from the effect's row and the log alone, so that a restart, a lost lease or a second node
//! change nothing.
//!
//! | kind | made by | a try | over when |
//! |---|---|---|---|
//! | `poll` | OrderOpened | ask every account; at expiry close | the order is not PENDING any more |
//! | `query_payment` | parked refunds, doubtful notices | ask once more how the payment stands | paid, closed, or patience is over |
//! | `query_refund` | refunds that we did not ask for | ask for its own figure | final, or patience is over |
//! | `refund` | RefundRequested | first send it; later first ask, and send only what is not known there | final |
//! | `close` | OrderClosed | close, then query | closed, paid, or patience is over |
//! | `surplus` | SurplusPaymentRecorded | decide by the policy | decided |
//! | `query_share` | ProfitShareFollowed | ask for every receiver | every receiver is final |

use std::time::Duration;

use async_trait::async_trait;
use paidonce_channel::api::Remedy;
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::{AccountRef, OrderNo};
use paidonce_order::order::Order;
use paidonce_order::project::ChannelCall;
use paidonce_store::store::ClaimedEffect;

use crate::app::App;
use crate::asking::cannot_ask;
use crate::channel_settings::pause_after;
use crate::error::AppError;
use crate::ports::{ChannelEffects, EffectStep};

mod close;
mod poll;
mod query;
mod refund;
mod share;
mod surplus;

/// When only a person can help, and between questions that may take days.
const HOUR: Duration = Duration::from_secs(3_600);

/// An account that can't ask is looked at again every hour, for a day. A ledger that only listens would otherwise gather
/// questions for ever, and ask itself all of them every hour.
const TRIES_WITHOUT_CREDENTIALS: i32 = 24;

/// One try of one effect.
pub(crate) struct Try<'a> {
    pub(crate) app: &'a App,
    pub(crate) claimed: &'a ClaimedEffect,
    pub(crate) order_no: OrderNo,
    /// The event that wants this call.
    pub(crate) event: OrderEvent,
}

#[async_trait]
impl ChannelEffects for App {
    async fn run_channel_effect(&self, claimed: &ClaimedEffect) -> EffectStep {
        let (order_no, kind) = (&claimed.effect.order_no, &claimed.effect.kind);
        let (attempt, call) = match Try::read(self, claimed) {
            Ok(read) => read,
            Err(problem) => {
                tracing::error!(order_no, kind, problem, "an effect can't be read: upgrade this node, or report a bug");
                return EffectStep::Again { after: HOUR, why: problem };
            }
        };
        match attempt.run(&call).await {
            Ok(step) => step,
            Err(error) => {
                tracing::warn!(order_no, kind, %error, "a channel call could not be carried out here; it comes again");
                attempt.again(error.to_string())
            }
        }
    }
}

impl<'a> Try<'a> {
    fn read(app: &'a App, claimed: &'a ClaimedEffect) -> Result<(Self, ChannelCall), String> {
        let (effect, row) = (&claimed.effect, &claimed.event);
        let call = effect.call.as_deref().ok_or("the effect has no call")?;
        let call: ChannelCall = serde_json::from_str(call).map_err(|error| format!("its call: {error}"))?;
        let order_no = OrderNo::parse(&effect.order_no).map_err(|error| error.to_string())?;
        let event = LedgerEvent::from_stored(&row.aggregate_type, &row.event_type, &row.event_version, &row.payload)
            .map_err(|error| error.to_string())?;
        match event {
            LedgerEvent::Order(event) => Ok((Self { app, claimed, order_no, event }, call)),
            LedgerEvent::Stray(_) => Err("a stray makes no calls".to_owned()),
        }
    }

    async fn run(&self, call: &ChannelCall) -> Result<EffectStep, AppError> {
        match call {
            ChannelCall::Poll => self.poll().await,
            ChannelCall::QueryPayment { account } => self.query_payment(account).await,
            ChannelCall::QueryRefund { account, refund_no } => self.query_refund(account, refund_no).await,
            ChannelCall::Refund { .. } => self.refund().await,
            ChannelCall::Close { account } => self.close(account).await,
            ChannelCall::Surplus { .. } => self.surplus().await,
            ChannelCall::QueryShare { .. } => self.share().await,
        }
    }

    async fn order(&self) -> Result<Order, AppError> {
        let order = self.app.store().find_order(&self.order_no).await?;
        order.ok_or_else(|| AppError::NotFound { what: format!("order {}", self.order_no) })
    }

    /// Tries begun so far, this one too. Counted in the row, so a crash in the middle of one counts.
    fn tries(&self) -> i32 {
        self.claimed.effect.attempts
    }

    fn is_patient(&self, tries_max: i32) -> bool {
        self.tries() < tries_max
    }

    /// By the schedule of everything that is followed.
    fn again(&self, why: impl Into<String>) -> EffectStep {
        let after = pause_after(&self.app.channel_settings().refund_follow_seconds, self.tries());
        EffectStep::Again { after, why: why.into() }
    }

    fn person(&self, account: &AccountRef, why: &str) -> EffectStep {
        let (order_no, kind) = (&self.order_no, &self.claimed.effect.kind);
        tracing::error!(%order_no, %account, kind, why, "a platform refuses this call: a person must look");
        EffectStep::Again { after: HOUR, why: why.to_owned() }
    }

    fn by_remedy(&self, account: &AccountRef, remedy: Remedy, why: &str) -> EffectStep {
        match remedy {
            Remedy::Wait => self.again(why),
            Remedy::Person => self.person(account, why),
        }
    }

    /// The account can't ask, and what is asked only completes what the log already says: after a day its item, or the
    /// callbacks, have to do. A refund waits without an end instead ([`Self::no_credentials`]).
    fn nobody_to_ask(&self, account: &AccountRef) -> EffectStep {
        if self.is_patient(TRIES_WITHOUT_CREDENTIALS) {
            return self.no_credentials(account);
        }
        let why = cannot_ask(account);
        tracing::warn!(order_no = %self.order_no, kind = self.claimed.effect.kind, why, "a channel call is given up");
        EffectStep::Done
    }

    /// The account can't ask: nothing is lost, and nothing happens until it is configured.
    fn no_credentials(&self, account: &AccountRef) -> EffectStep {
        let why = cannot_ask(account);
        tracing::warn!(order_no = %self.order_no, kind = self.claimed.effect.kind, why, "a channel call has to wait");
        EffectStep::Again { after: HOUR, why }
    }
}
