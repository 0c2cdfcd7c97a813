//! Asking the platforms how an order's payment stands, for whoever asks us.
//!
//! | promise | how |
//! |---|---|
//! | 100 impatient clicks make one call | the first one's question is everybody's who comes while it is under way |
//! | a click that goes away cancels nothing | the question runs in a task of its own |
//! | a click right after gets the same answer | final answers are reused for `ChannelSettings::fresh`, marked `reused` |
//! | bounded memory | at most [`QUESTIONS_MAX`] orders are remembered |

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use paidonce_order::ids::OrderNo;
use paidonce_order::order::{Order, Status};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::store::SubmitError;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::app::{App, Caller};
use crate::asking::{AccountAnswer, Desk, PaymentOutcome, accounts_of, cannot_ask};
use crate::error::AppError;
use crate::view::OrderView;

/// Questions under way and answers that may be reused, together. Each is a few hundred bytes.
const QUESTIONS_MAX: usize = 4_096;

/// `POST /v1/orders/{order_no}/query-payment`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PaymentQuery {
    /// The order.
    pub order_no: String,
    /// Where it stands now.
    pub status: Status,
    /// Whether the platforms told anything new just now.
    pub changed: bool,
    /// One for each account that the order may be paid through.
    pub results: Vec<AccountAnswer<PaymentOutcome>>,
    /// The order, as it stands now.
    pub order: OrderView,
}

/// What the platforms of all accounts said.
type Answers = Arc<Vec<AccountAnswer<PaymentOutcome>>>;
type Shared = Result<Answers, AppError>;

/// Questions under way, and answers of a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    orders: Mutex<HashMap<OrderNo, Question>>,
}

#[derive(Debug)]
enum Question {
    UnderWay(watch::Receiver<Option<Shared>>),
    Answered { answers: Answers, at: Timestamp },
}

/// What a caller has to do.
enum Turn {
    Wait(watch::Receiver<Option<Shared>>),
    Ask(watch::Sender<Option<Shared>>, watch::Receiver<Option<Shared>>),
    Reuse(Answers),
    TooMany,
}

impl App {
    /// Asks every platform that the order may be paid through, and records what they say.
    ///
    /// Guarantees: callers at the same time share one question; dropping the wait cancels nothing.
    /// Errors: [`AppError::NotFound`]; [`AppError::ChannelNotConfigured`] when no account of the order can ask; what
    /// [`App::record`] gives.
    pub async fn query_payment(
        self: &Arc<Self>,
        order_no: &OrderNo,
        caller: &Caller,
    ) -> Result<PaymentQuery, AppError> {
        let order = self.get_order_state(order_no).await?;
        let accounts = accounts_of(&order);
        let desks: Vec<Desk<'_>> = accounts.iter().map(|account| Desk::new(account, order_no, &order)).collect();
        if !desks.iter().any(|desk| self.can_ask(*desk)) {
            return Err(AppError::ChannelNotConfigured { problem: nobody_can_ask(&desks) });
        }
        tracing::debug!(%order_no, actor = caller.actor.as_deref(), "the platforms are asked on request");
        let (answers, reused) = match self.questions.turn(order_no, self.clock().now(), self.channel_settings().fresh) {
            Turn::Reuse(answers) => (answers, true),
            Turn::Wait(answer) => (shared(answer).await?, false),
            Turn::Ask(tell, answer) => {
                tokio::spawn(Arc::clone(self).ask_everywhere(order_no.clone(), order, tell));
                (shared(answer).await?, false)
            }
            Turn::TooMany => return Err(AppError::Submit(SubmitError::QueueFull)),
        };
        let order = self.get_order_state(order_no).await?;
        let results: Vec<_> = answers.iter().map(|answer| AccountAnswer { reused, ..answer.clone() }).collect();
        Ok(PaymentQuery {
            order_no: order_no.to_string(),
            status: order.status,
            changed: !reused && results.iter().any(|result| !result.decided.is_empty()),
            results,
            order: OrderView::new(order_no, &order),
        })
    }

    async fn ask_everywhere(
        self: Arc<Self>,
        order_no: OrderNo,
        order: Arc<Order>,
        tell: watch::Sender<Option<Shared>>,
    ) {
        // Taken away however this task ends, so that a panic of it is not waited for for ever.
        let place = Place { questions: &self.questions, order_no: &order_no };
        let accounts = accounts_of(&order);
        let looks = accounts.iter().map(|account| self.look_at_payment(Desk::new(account, &order_no, &order)));
        let answers: Result<Vec<_>, AppError> = join_all(looks).await.into_iter().collect();
        let result = answers.map(Arc::new);
        place.leave(&result, self.clock().now());
        tell.send_replace(Some(result));
    }
}

impl Questions {
    fn orders(&self) -> MutexGuard<'_, HashMap<OrderNo, Question>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, order_no: &OrderNo, now: Timestamp, fresh: Duration) -> Turn {
        let fresh_micros = i64::try_from(fresh.as_micros()).unwrap_or(i64::MAX);
        let is_fresh = |at: Timestamp| now >= at && now.as_micros().saturating_sub(at.as_micros()) < fresh_micros;
        let mut orders = self.orders();
        match orders.get(order_no) {
            Some(Question::UnderWay(answer)) => return Turn::Wait(answer.clone()),
            Some(Question::Answered { answers, at }) if is_fresh(*at) => return Turn::Reuse(Arc::clone(answers)),
            Some(Question::Answered { .. }) | None => {}
        }
        if orders.len() >= QUESTIONS_MAX {
            orders.retain(|_, question| match question {
                Question::UnderWay(_) => true,
                Question::Answered { at, .. } => is_fresh(*at),
            });
            if orders.len() >= QUESTIONS_MAX {
                return Turn::TooMany;
            }
        }
        let (tell, answer) = watch::channel(None);
        orders.insert(order_no.clone(), Question::UnderWay(answer.clone()));
        Turn::Ask(tell, answer)
    }
}

/// A question's place among those under way.
struct Place<'a> {
    questions: &'a Questions,
    order_no: &'a OrderNo,
}

impl Place<'_> {
    /// What was final may be reused; anything else is asked again by whoever comes next.
    fn leave(self, result: &Shared, at: Timestamp) {
        let Ok(answers) = result else { return };
        if answers.iter().all(|answer| is_final(answer.outcome)) {
            let answered = Question::Answered { answers: Arc::clone(answers), at };
            self.questions.orders().insert(self.order_no.clone(), answered);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut orders = self.questions.orders();
        if let Some(Question::UnderWay(_)) = orders.get(self.order_no) {
            orders.remove(self.order_no);
        }
    }
}

const fn is_final(outcome: PaymentOutcome) -> bool {
    match outcome {
        PaymentOutcome::Paid
        | PaymentOutcome::PaidWithRefunds
        | PaymentOutcome::Unpaid
        | PaymentOutcome::Closed
        | PaymentOutcome::NotFound
        | PaymentOutcome::NotAsked => true,
        PaymentOutcome::Refused | PaymentOutcome::Unknown => false,
    }
}

async fn shared(mut answer: watch::Receiver<Option<Shared>>) -> Shared {
    let told = answer.wait_for(Option::is_some).await;
    let result = told.ok().and_then(|result| result.clone());
    result.unwrap_or_else(|| {
        // Only a panic of the asking task ends here.
        Err(AppError::ChannelUnknown { problem: "the question ended without an answer: ask again".to_owned() })
    })
}

/// One sentence for all of them.
fn nobody_can_ask(desks: &[Desk<'_>]) -> String {
    let problems: Vec<String> = desks.iter().map(|desk| cannot_ask(desk.asker())).collect();
    problems.join("; ")
}
