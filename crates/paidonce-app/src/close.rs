//! Closing an unpaid order by our own decision: at each platform first, then in the ledger.
//!
//! | step | at each account that can ask and is not closed yet | why |
//! |---|---|---|
//! | 1 | close | nobody can pay there any more |
//! | 2 | query, whatever the close answered | a payer may have been faster: a payment found on the way wins |
//! | 3 | (once) `OrderClosed` in the ledger | only when every answer says closed or not known there |
//!
//! Anything unknown or refused leaves the order PENDING; the same request again is right. Accounts that can't ask are closed
//! in the ledger alone: money that still comes in there is a surplus.

use paidonce_channel::Fact;
use paidonce_channel::api::{Ask, CloseState, PaymentState, ReplyState};
use paidonce_order::command::OrderCommand;
use paidonce_order::error::OrderError;
use paidonce_order::ids::{AccountRef, OrderNo};
use paidonce_order::order::{Order, Status};
use paidonce_store::store::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{Answer, App, Asked, Caller};
use crate::asking::{Desk, Heard};
use crate::error::AppError;
use crate::open::check_text;
use crate::view::OrderView;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 500;

/// `POST /v1/orders/{order_no}/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseOrder {
    /// Why, for the log.
    pub reason: String,
}

/// How one way to pay stands after it was asked to close.
pub(crate) enum Attempt {
    /// Nobody can pay there any more.
    Closed(Box<Heard<PaymentState>>),
    /// The platform has no such order (yet).
    NotFound,
    /// Money came in; it is recorded.
    Paid,
    /// Nothing that could be relied on: the same again later.
    Open(String),
    /// A person has to do something first.
    Refused(String),
}

impl App {
    /// Closes an unpaid order; a closed one stays closed.
    ///
    /// Errors: [`AppError::Rejected`] when it is paid (refund it instead) or not open here; [`AppError::ChannelUnknown`] or
    /// [`AppError::ChannelRefused`] when a platform's answer leaves it open whether it can still be paid: nothing is closed
    /// then.
    pub async fn close(
        &self,
        order_no: &OrderNo,
        request: CloseOrder,
        caller: &Caller,
    ) -> Result<Answer<OrderView>, AppError> {
        check_text("reason", &request.reason, REASON_CHARS_MAX)?;
        let Asked { novelty, receipt } = self.close_everywhere(order_no, request.reason, caller).await?;
        let order = self.state_after(order_no, &receipt).await?;
        Ok(Answer { novelty, value: OrderView::new(order_no, &order) })
    }

    /// Steps 1 to 3. Errors: as [`App::close`].
    pub(crate) async fn close_everywhere(
        &self,
        order_no: &OrderNo,
        reason: String,
        caller: &Caller,
    ) -> Result<Asked, AppError> {
        let order = self.store().find_order(order_no).await?.unwrap_or_default();
        let mut closed = Vec::new();
        if order.status == Status::Pending {
            closed = self.close_at_platforms(order_no, &order).await?;
        }
        let command = OrderCommand::CloseOrder { reason };
        let target = Target::Order { order_no: order_no.clone(), command };
        let asked = self.ask(target, caller).await?;
        // After our own event, so that the order carries our reason and not that its last way to pay was closed.
        self.note_closed(order_no, &order, closed).await?;
        Ok(asked)
    }

    /// Steps 1 and 2. Gives what the platforms said about ways that are closed, not recorded yet.
    async fn close_at_platforms(&self, order_no: &OrderNo, order: &Order) -> Result<Closed, AppError> {
        let accounts = order.terms.iter().flat_map(|terms| &terms.accounts);
        let (mut closed, mut problem) = (Closed::new(), None);
        for account in accounts.filter(|account| !order.attempts_closed.contains(*account)) {
            let desk = Desk::new(account, order_no, order);
            if !self.can_ask(desk) {
                continue;
            }
            match self.close_attempt(desk).await? {
                Attempt::Closed(said) => closed.push((account.clone(), said)),
                Attempt::NotFound => {}
                Attempt::Paid => {
                    let now = self.get_order_state(order_no).await?;
                    if now.status != Status::Pending {
                        self.note_closed(order_no, order, closed).await?;
                        return Err(OrderError::AlreadyPaid { order_no: order_no.clone() }.into());
                    }
                    if !now.payments.iter().any(|payment| payment.fact.payment.account == *account) {
                        // A surplus may be closed over, money that is in no book may not.
                        let why = still_open(order_no, account, "it is paid there, but the answer can't be booked");
                        tracing::error!(%order_no, %account, why, "a person must look at what was kept of this payment");
                        problem.get_or_insert(AppError::ChannelUnknown { problem: why });
                    }
                }
                Attempt::Open(why) => {
                    problem.get_or_insert(AppError::ChannelUnknown { problem: still_open(order_no, account, &why) });
                }
                Attempt::Refused(why) => {
                    problem.get_or_insert(AppError::ChannelRefused { problem: still_open(order_no, account, &why) });
                }
            }
        }
        match problem {
            None => Ok(closed),
            Some(problem) => {
                self.note_closed(order_no, order, closed).await?;
                Err(problem)
            }
        }
    }

    /// Steps 1 and 2 at one account.
    pub(crate) async fn close_attempt(&self, desk: Desk<'_>) -> Result<Attempt, AppError> {
        let closing = match desk.combine {
            None => self.put(desk, Ask::Close { order_no: desk.order_no.clone() }, close_state).await,
            Some(combine) => self.close_combine(desk, combine).await,
        };
        let asked_at = self.clock().now();
        let heard = self.ask_payment(desk).await;
        let state = match &heard {
            Heard::Final(word) => word.state,
            Heard::Unknown(doubt) => return Ok(Attempt::Open(format!("{}: {}", doubt.code, doubt.detail))),
            Heard::Refused(refusal) => return Ok(refused(refusal)),
            Heard::NotAsked => return Ok(Attempt::NotFound),
        };
        match state {
            PaymentState::Paid | PaymentState::PaidWithRefunds => {
                self.take_payment(desk, heard, asked_at).await?;
                Ok(Attempt::Paid)
            }
            PaymentState::Closed if says_unpaid(desk, &heard) => Ok(Attempt::Closed(Box::new(heard))),
            // Alipay calls a paid trade closed once all of it went back: that it was paid wins.
            PaymentState::Closed => {
                self.take_payment(desk, heard, asked_at).await?;
                Ok(Attempt::Paid)
            }
            PaymentState::Unpaid => Ok(unpaid(&closing)),
            PaymentState::NotFound => match &closing {
                Heard::Final(word) if word.state != CloseState::MaybePaid => Ok(Attempt::NotFound),
                Heard::Final(_) | Heard::Refused(_) | Heard::Unknown(_) | Heard::NotAsked => Ok(unpaid(&closing)),
            },
        }
    }

    async fn note_closed(&self, order_no: &OrderNo, order: &Order, closed: Closed) -> Result<(), AppError> {
        for (account, said) in closed {
            self.take_payment(Desk::new(&account, order_no, order), *said, self.clock().now()).await?;
        }
        Ok(())
    }
}

/// Ways to pay that are closed, with the platform's words.
type Closed = Vec<(AccountRef, Box<Heard<PaymentState>>)>;

fn still_open(order_no: &OrderNo, account: &AccountRef, why: &str) -> String {
    format!("order {order_no} may still be paid through {account}, so it stays open: {why}")
}

/// Whether a closed order was never paid, in the words of the notice itself; it may speak of other orders too.
fn says_unpaid(desk: Desk<'_>, heard: &Heard<PaymentState>) -> bool {
    match heard {
        Heard::Final(word) => {
            let said = word.notice.get().observations.iter();
            let mut of_order = said.filter(|observation| observation.order_no.as_ref() == Some(desk.order_no));
            of_order.any(|observation| matches!(observation.fact, Fact::AttemptClosed(_)))
        }
        Heard::Refused(_) | Heard::Unknown(_) | Heard::NotAsked => false,
    }
}

/// Not paid, but not closed either: what the close had answered says why.
fn unpaid(closing: &Heard<CloseState>) -> Attempt {
    match closing {
        Heard::Final(word) => Attempt::Open(format!(
            "the close was answered {}, but the order is not closed there (yet)",
            word.platform_state
        )),
        Heard::Unknown(doubt) => Attempt::Open(format!("{}: {}", doubt.code, doubt.detail)),
        Heard::Refused(refusal) => refused(refusal),
        Heard::NotAsked => Attempt::Open("the account can't ask any more".to_owned()),
    }
}

fn refused(refusal: &paidonce_channel::api::Refusal) -> Attempt {
    use paidonce_channel::api::Remedy;
    let why = format!("{}: {}", refusal.code, refusal.detail);
    match refusal.remedy {
        Remedy::Wait => Attempt::Open(why),
        Remedy::Person => Attempt::Refused(why),
    }
}

pub(crate) fn close_state(state: ReplyState) -> Option<CloseState> {
    let ReplyState::Close(state) = state else { return None };
    Some(state)
}
