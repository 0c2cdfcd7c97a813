//! Asking a platform about an order and taking its answer in: the steps that the API, the poll and the followers share.
//!
//! | answer | becomes |
//! |---|---|
//! | final | its notice goes through [`App::record`] (one door, P3), whatever its state |
//! | refused, unknown | never a fact: words for a person, and the same question again later |

use paidonce_channel::api::{
    ApiAnswer, ApiCall, Ask, Doubt, PaymentState, RefundNumbers, RefundState, Refusal, Reply, ReplyState,
};
use paidonce_channel::{Notice, Verified};
use paidonce_order::command::{Combine, FlagFact, OrderCommand, PaymentRef};
use paidonce_order::ids::{AccountRef, Channel, OrderNo, RefundNo};
use paidonce_order::order::{Order, ParkedFact, Payment, RefundState as BookedState};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::store::{CommandContext, Target};
use schemars::JsonSchema;
use serde::Serialize;

use crate::api_key::sha256_of_parts;
use crate::app::App;
use crate::combine;
use crate::error::AppError;

/// Refunds of one payment that are asked about when the payment's answer speaks of refunds: WeChat Pay allows 50.
const REFUNDS_ASKED_MAX: usize = 50;

/// What a platform said about the payment of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentOutcome {
    /// Money came in.
    Paid,
    /// Money came in, and at least one refund was made.
    PaidWithRefunds,
    /// Known there, not paid (yet).
    Unpaid,
    /// Closed there.
    Closed,
    /// Not known there (yet): pending, never failed.
    NotFound,
    /// The platform refuses to answer: see `detail`.
    Refused,
    /// No answer that could be believed: ask again.
    Unknown,
    /// This account has no credentials to ask with.
    NotAsked,
}

/// What a platform said about a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefundAnswered {
    /// Money went back.
    Succeeded,
    /// It will never be made.
    Failed,
    /// Stuck there; may still succeed.
    Stalled,
    /// Our balance there is short: top it up, the same refund goes on by itself.
    BalanceShort,
    /// Accepted, not done.
    Processing,
    /// Not known there (yet).
    NotFound,
    /// The platform refuses to answer: see `detail`.
    Refused,
    /// No answer that could be believed: ask again.
    Unknown,
    /// This account has no credentials to ask with.
    NotAsked,
}

/// What one account's platform said, and what the ledger made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AccountAnswer<S> {
    /// `wxpay:1900000001`.
    pub account: String,
    /// How things stand there.
    pub outcome: S,
    /// The platform's own word (`SUCCESS`, `TRADE_CLOSED`, ...); `null` when it gave none.
    pub platform_state: Option<String>,
    /// Why there is no answer, or what a person has to do.
    pub detail: Option<String>,
    /// Types of the events that the answer caused, in their order; empty when it told nothing new. An answer about a combine
    /// payment causes those of its other orders too.
    pub decided: Vec<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Given from an answer of a moment ago: the platform was not asked again.
    pub reused: bool,
}

/// Whom a question is put to, and for which order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Desk<'a> {
    pub(crate) account: &'a AccountRef,
    pub(crate) order_no: &'a OrderNo,
    /// Of the order's terms.
    pub(crate) sub_mchid: Option<&'a str>,
    /// Of the order's terms: how its payment stands is asked of the whole.
    pub(crate) combine: Option<&'a Combine>,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(account: &'a AccountRef, order_no: &'a OrderNo, order: &'a Order) -> Self {
        let terms = order.terms.as_ref().filter(|_| account.channel == Channel::Wxpay);
        let sub_mchid = terms.and_then(|terms| terms.sub_mchid.as_deref());
        let combine = terms.and_then(|terms| terms.combine.as_ref());
        Self { account, order_no, sub_mchid, combine }
    }

    /// The account whose credentials a question about the payment needs.
    pub(crate) fn asker(&self) -> &'a AccountRef {
        self.combine.map_or(self.account, |combine| &combine.account)
    }
}

/// An answer whose state fits the question, not recorded yet.
pub(crate) enum Heard<S> {
    Final(FinalWord<S>),
    Refused(Refusal),
    Unknown(Doubt),
    NotAsked,
}

/// A final answer.
pub(crate) struct FinalWord<S> {
    pub(crate) state: S,
    pub(crate) platform_state: String,
    pub(crate) notice: Verified<Notice>,
}

impl App {
    /// Puts one question. Nothing is recorded yet.
    pub(crate) async fn put<S>(&self, desk: Desk<'_>, ask: Ask, fitting: fn(ReplyState) -> Option<S>) -> Heard<S> {
        let is_of_whole = matches!(ask, Ask::CombinePayment { .. } | Ask::CloseCombine { .. });
        let account = if is_of_whole { desk.asker() } else { desk.account };
        let Some(client) = self.client_for(account) else { return Heard::NotAsked };
        let call = ApiCall { sub_mchid: desk.sub_mchid.map(ToOwned::to_owned), ask };
        match client.ask(account, &call).await {
            ApiAnswer::Refused(refusal) => Heard::Refused(refusal),
            ApiAnswer::Unknown(doubt) => Heard::Unknown(doubt),
            ApiAnswer::Final(reply) => {
                let Reply { state, notice, platform_state } = *reply;
                match fitting(state) {
                    Some(state) => Heard::Final(FinalWord { state, platform_state, notice }),
                    None => Heard::Unknown(Doubt {
                        code: "unreadable",
                        detail: "the answer is about something else than was asked".to_owned(),
                    }),
                }
            }
        }
    }

    /// Whether the payment of an order can be asked about.
    pub(crate) fn can_ask(&self, desk: Desk<'_>) -> bool {
        self.client_for(desk.asker()).is_some()
    }

    /// Asks how the payment of an order stands at an account, by our number. A part of a combine payment is asked about with
    /// the others, and the answer's notice speaks of all.
    pub(crate) async fn ask_payment(&self, desk: Desk<'_>) -> Heard<PaymentState> {
        match desk.combine {
            None => self.put(desk, Ask::Payment { order_no: desk.order_no.clone() }, payment_state).await,
            Some(combine) => combine::part_of(desk, combine, self.ask_combine(desk, combine).await),
        }
    }

    /// [`App::ask_payment`], and records the answer. When it speaks of refunds, those that are not final are asked about too: the
    /// payment's own answer never says how much.
    ///
    /// Errors: the answer could not be recorded.
    pub(crate) async fn look_at_payment(&self, desk: Desk<'_>) -> Result<AccountAnswer<PaymentOutcome>, AppError> {
        let asked_at = self.clock().now();
        let heard = self.ask_payment(desk).await;
        self.take_payment(desk, heard, asked_at).await
    }

    /// Records what was heard of a payment.
    pub(crate) async fn take_payment(
        &self,
        desk: Desk<'_>,
        heard: Heard<PaymentState>,
        asked_at: Timestamp,
    ) -> Result<AccountAnswer<PaymentOutcome>, AppError> {
        let (state, mut answer) = self.take(desk, heard, asked_at).await?;
        answer.outcome = match state {
            Ok(PaymentState::Paid) => PaymentOutcome::Paid,
            Ok(PaymentState::PaidWithRefunds) => PaymentOutcome::PaidWithRefunds,
            Ok(PaymentState::Unpaid) => PaymentOutcome::Unpaid,
            Ok(PaymentState::Closed) => PaymentOutcome::Closed,
            Ok(PaymentState::NotFound) => PaymentOutcome::NotFound,
            Err(NoAnswer::Refused) => PaymentOutcome::Refused,
            Err(NoAnswer::Unknown) => PaymentOutcome::Unknown,
            Err(NoAnswer::NotAsked) => PaymentOutcome::NotAsked,
        };
        if let Ok(state @ (PaymentState::PaidWithRefunds | PaymentState::Closed)) = state {
            self.look_at_refunds(desk, state, &mut answer.decided).await?;
        }
        Ok(answer)
    }

    /// Asks what became of a refund and records the answer.
    pub(crate) async fn look_at_refund(
        &self,
        desk: Desk<'_>,
        payment: &PaymentRef,
        refund_no: &RefundNo,
    ) -> Result<AccountAnswer<RefundAnswered>, AppError> {
        let asked_at = self.clock().now();
        let numbers = RefundNumbers {
            payment: payment.clone(),
            order_no: desk.order_no.clone(),
            refund_no: number_to_ask_with(desk.order_no, payment, refund_no),
        };
        let heard = self.put(desk, Ask::RefundState(numbers), refund_state).await;
        self.take_refund(desk, heard, asked_at).await
    }

    /// Records what was heard of a refund.
    pub(crate) async fn take_refund(
        &self,
        desk: Desk<'_>,
        heard: Heard<RefundState>,
        asked_at: Timestamp,
    ) -> Result<AccountAnswer<RefundAnswered>, AppError> {
        // A refund is asked about at its own account, whatever its payment was a part of.
        let (state, mut answer) = self.take(Desk { combine: None, ..desk }, heard, asked_at).await?;
        answer.outcome = match state {
            Ok(RefundState::Succeeded) => RefundAnswered::Succeeded,
            Ok(RefundState::Failed) => RefundAnswered::Failed,
            Ok(RefundState::Stalled) => RefundAnswered::Stalled,
            Ok(RefundState::BalanceShort) => RefundAnswered::BalanceShort,
            Ok(RefundState::Processing) => RefundAnswered::Processing,
            Ok(RefundState::NotFound) => RefundAnswered::NotFound,
            Err(NoAnswer::Refused) => RefundAnswered::Refused,
            Err(NoAnswer::Unknown) => RefundAnswered::Unknown,
            Err(NoAnswer::NotAsked) => RefundAnswered::NotAsked,
        };
        Ok(answer)
    }

    /// Keeps a verified refusal, or another thing that only a person can end, as an open item; once for each content.
    pub(crate) async fn flag(&self, desk: Desk<'_>, flag: Flag<'_>) -> Result<(), AppError> {
        let Flag { code, content, detail } = flag;
        let account = desk.account.to_string();
        let content = sha256_of_parts(&[code.as_bytes(), account.as_bytes(), content.as_bytes()]);
        let fact = FlagFact {
            account: desk.account.clone(),
            code: code.to_owned(),
            detail,
            occurred_at: self.clock().now(),
            content,
        };
        let target = Target::Order { order_no: desk.order_no.clone(), command: OrderCommand::RecordFlag(fact) };
        let context = CommandContext { source: "query".to_owned(), ..CommandContext::default() };
        self.submit(target, context).await.map(|_| ())
    }

    /// The state, or why there is none, and the answer in words with a placeholder for its outcome.
    async fn take<S: Copy, O: Placeholder>(
        &self,
        desk: Desk<'_>,
        heard: Heard<S>,
        asked_at: Timestamp,
    ) -> Result<(Result<S, NoAnswer>, AccountAnswer<O>), AppError> {
        let mut answer = AccountAnswer {
            account: desk.account.to_string(),
            outcome: O::PLACEHOLDER,
            platform_state: None,
            detail: None,
            decided: Vec::new(),
            asked_at,
            reused: false,
        };
        let state = match heard {
            Heard::Final(word) => {
                answer.decided = self.record(word.notice, None).await?.decided;
                answer.platform_state = Some(word.platform_state);
                Ok(word.state)
            }
            Heard::Refused(refusal) => {
                answer.detail = Some(format!("{}: {}", refusal.code, refusal.detail));
                answer.platform_state = Some(refusal.code);
                Err(NoAnswer::Refused)
            }
            Heard::Unknown(doubt) => {
                answer.detail = Some(format!("{}: {}", doubt.code, doubt.detail));
                Err(NoAnswer::Unknown)
            }
            Heard::NotAsked => {
                answer.detail = Some(cannot_ask(desk.asker()));
                Err(NoAnswer::NotAsked)
            }
        };
        Ok((state, answer))
    }

    async fn look_at_refunds(
        &self,
        desk: Desk<'_>,
        state: PaymentState,
        decided: &mut Vec<String>,
    ) -> Result<(), AppError> {
        let Some(order) = self.store().find_order(desk.order_no).await? else { return Ok(()) };
        let of_account = order.payments.iter().filter(|payment| payment.fact.payment.account == *desk.account);
        for payment in of_account.filter(|payment| !payment.is_fully_refunded()) {
            let open = numbers_without_an_end(payment, desk.order_no, state);
            if open.is_empty() && state == PaymentState::PaidWithRefunds && !has_refunds(payment) {
                let trade_no = payment.fact.payment.channel_trade_no.as_str();
                let detail = format!(
                    "the platform says that payment {trade_no} has refunds, and this ledger knows of none: look at the \
                     platform's own console"
                );
                self.flag(desk, Flag { code: "refunds_not_known", content: trade_no, detail }).await?;
            }
            for refund_no in open {
                let answer = self.look_at_refund(desk, &payment.fact.payment, &refund_no).await?;
                decided.extend(answer.decided);
            }
        }
        Ok(())
    }
}

/// Something for a person.
pub(crate) struct Flag<'a> {
    /// Stable word.
    pub(crate) code: &'a str,
    /// What makes it one and the same flag, beside code and account.
    pub(crate) content: &'a str,
    /// One sentence.
    pub(crate) detail: String,
}

enum NoAnswer {
    Refused,
    Unknown,
    NotAsked,
}

/// An outcome stands in an answer before its state is looked at.
trait Placeholder {
    const PLACEHOLDER: Self;
}

impl Placeholder for PaymentOutcome {
    const PLACEHOLDER: Self = Self::Unknown;
}

impl Placeholder for RefundAnswered {
    const PLACEHOLDER: Self = Self::Unknown;
}

/// Refunds to ask about. An Alipay trade that is closed after it was paid may have been refunded without a number of its
/// own, silently: such a refund is known under the order's number (gotcha 40).
fn numbers_without_an_end(payment: &Payment, order_no: &OrderNo, state: PaymentState) -> Vec<RefundNo> {
    let open = payment
        .refunds
        .iter()
        .filter(|refund| refund.derived || matches!(refund.state, BookedState::Requested | BookedState::Stalled));
    let mut numbers: Vec<RefundNo> = open.map(|refund| refund.refund_no.clone()).collect();
    if state == PaymentState::Closed && payment.fact.payment.account.channel == Channel::Alipay {
        numbers.extend(RefundNo::parse(order_no.as_str()).ok());
    }
    numbers.dedup();
    numbers.truncate(REFUNDS_ASKED_MAX);
    numbers
}

/// A refund that Alipay was given no number for is booked under the trade's number, and asked for under the order's.
fn number_to_ask_with(order_no: &OrderNo, payment: &PaymentRef, refund_no: &RefundNo) -> RefundNo {
    let is_unnumbered =
        payment.account.channel == Channel::Alipay && refund_no.as_str() == payment.channel_trade_no.as_str();
    let of_order = is_unnumbered.then(|| RefundNo::parse(order_no.as_str()).ok()).flatten();
    of_order.unwrap_or_else(|| refund_no.clone())
}

fn has_refunds(payment: &Payment) -> bool {
    !payment.refunds.is_empty()
}

/// The accounts that an order may have been paid through: those of its terms, else those of what waits for it.
pub(crate) fn accounts_of(order: &Order) -> Vec<AccountRef> {
    if let Some(terms) = &order.terms {
        return terms.accounts.clone();
    }
    let of_parked = order.parked.iter().map(|parked| match &parked.fact {
        ParkedFact::Payment(fact) => fact.payment.account.clone(),
        ParkedFact::Refund(fact) => fact.payment.account.clone(),
        ParkedFact::Share(fact) => fact.payment.account.clone(),
    });
    let mut accounts: Vec<AccountRef> = of_parked.collect();
    accounts.sort();
    accounts.dedup();
    accounts
}

/// What to add to the configuration.
pub(crate) fn cannot_ask(account: &AccountRef) -> String {
    let what = match account.channel {
        Channel::Wxpay => "merchant_serial and merchant_private_key_file to its [[wxpay]]",
        Channel::Alipay => "app_private_key_file to one of its [[alipay.apps]]",
    };
    format!("{account} can't ask its platform: add {what}")
}

pub(crate) fn payment_state(state: ReplyState) -> Option<PaymentState> {
    let ReplyState::Payment(state) = state else { return None };
    Some(state)
}

pub(crate) fn refund_state(state: ReplyState) -> Option<RefundState> {
    let ReplyState::Refund(state) = state else { return None };
    Some(state)
}
