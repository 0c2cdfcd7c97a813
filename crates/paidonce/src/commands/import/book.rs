//! One order through the one door.

use std::sync::Arc;

use paidonce_app::Clock;
use paidonce_channel::{Evidence, operator_statement, payment_fact, refund_fact};
use paidonce_order::command::{Operator, OrderCommand, PaymentRef, RefundAmount, RefundOutcome, Terms};
use paidonce_order::idem_key::IdemKey;
use paidonce_order::ids::AccountRef;
use paidonce_order::order::{Order, Payment, PaymentRole};
use paidonce_store::store::{CommandContext, EvidenceRow, Outcome, Receipt, Store, SubmitError, Target, Work};
use serde::Serialize;

use super::file::{LineProblem, PaidOrder, PaidRefund};
use crate::exit::{Exit, Stop};

/// Books orders of one file.
pub(super) struct Importer {
    store: Arc<dyn Store>,
    by: Operator,
    file_name: String,
    clock: Clock,
}

/// What one order came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Booked {
    is_new: bool,
    refunds: usize,
    refused: Option<LineProblem>,
}

/// What the file came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    /// Orders whose payment was booked now.
    pub(super) imported: usize,
    /// Orders whose payment was there before.
    pub(super) known: usize,
    /// Refunds booked now.
    pub(super) refunds: usize,
    /// Orders that the rules refused, at least in part.
    pub(super) refused: Vec<LineProblem>,
}

impl Tally {
    pub(super) fn add(&mut self, booked: Booked) {
        self.refunds += booked.refunds;
        match booked {
            Booked { refused: Some(refused), .. } => self.refused.push(refused),
            Booked { is_new: true, .. } => self.imported += 1,
            Booked { is_new: false, .. } => self.known += 1,
        }
    }

    pub(super) fn orders(&self) -> usize {
        self.imported + self.known + self.refused.len()
    }
}

/// A step that did not do what the line says.
enum Problem {
    /// The rules refuse: told with its line, other orders go on.
    Refused(LineProblem),
    /// The ledger is away: the import ends.
    Away(Stop),
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        Self::Away(Stop { exit: Exit::Unreachable, text: error.to_string() })
    }
}

/// Whether a step wrote something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    New,
    Known,
}

impl Importer {
    pub(super) fn new(store: Arc<dyn Store>, by: Operator, file_name: String) -> Self {
        Self { store, by, file_name, clock: Clock::default() }
    }

    /// Opens, pays, refunds. Errors: the ledger is away; what was done stays and is not doubled by another run.
    pub(super) async fn book(&self, order: PaidOrder) -> Result<Booked, Stop> {
        let mut booked = Booked::default();
        match self.steps(&order, &mut booked).await {
            Ok(()) => Ok(booked),
            Err(Problem::Refused(refused)) => Ok(Booked { refused: Some(refused), ..booked }),
            Err(Problem::Away(stop)) => Err(stop),
        }
    }

    async fn steps(&self, order: &PaidOrder, booked: &mut Booked) -> Result<(), Problem> {
        self.open(order).await?;
        booked.is_new = self.pay(order).await? == Step::New;
        for refund in &order.refunds {
            if self.refund(order, refund).await? == Step::New {
                booked.refunds += 1;
            }
        }
        Ok(())
    }

    /// An order that the ledger knows with other terms (its real price, more accounts) is left as it is: its payment decides.
    async fn open(&self, order: &PaidOrder) -> Result<(), Problem> {
        let terms = Terms {
            amount: order.amount,
            accounts: vec![order.account.clone()],
            description: order.description.clone(),
            expires_at: None,
            supersedes: None,
            sub_mchid: None,
            combine: None,
        };
        let known = self.store.find_order_row(&order.order_no).await;
        let known = known.map_err(|error| Problem::Away(crate::ledger::stop(error)))?;
        if known.is_some_and(|row| row.amount.is_some()) {
            return Ok(());
        }
        self.submit(order, OrderCommand::OpenOrder(terms), At { line: order.line, text: &order.text }).await?;
        Ok(())
    }

    async fn pay(&self, order: &PaidOrder) -> Result<Step, Problem> {
        let fact = payment_fact(payment(order), order.amount, order.paid_at);
        let at = At { line: order.line, text: &order.text };
        let (step, receipt) = self.submit(order, OrderCommand::RecordPayment(fact), at).await?;
        let settles = |paid: &Payment| paid.role == PaymentRole::Settling && paid.fact.payment == payment(order);
        if receipt.order.as_ref().is_some_and(|state| state.payments.iter().any(settles)) {
            return Ok(step);
        }
        let kept = receipt.events.iter().map(|event| event.event_type.as_str()).collect::<Vec<_>>().join(", ");
        let kept = if kept.is_empty() { "was kept before and" } else { &format!("was kept as {kept} and") };
        Err(at.refused(format!(
            "the payment {kept} does not settle the order: see `paidonce order get {}`",
            order.order_no
        )))
    }

    /// The ledger flags every refund that it did not ask for. This one a person has just answered for: its item is closed
    /// with the same reason.
    async fn refund(&self, order: &PaidOrder, refund: &PaidRefund) -> Result<Step, Problem> {
        let amount = RefundAmount::Exact(refund.amount);
        let fact =
            refund_fact(payment(order), refund.refund_no.clone(), RefundOutcome::Succeeded, amount, refund.refunded_at);
        let at = At { line: refund.line, text: &refund.text };
        let (step, receipt) = self.submit(order, OrderCommand::RecordRefund(fact), at).await?;
        if let Some(event) = receipt.events.iter().find(|event| event.event_type != "RefundConfirmed") {
            let text = format!("the refund was kept as {}: see `paidonce items list`", event.event_type);
            return Err(at.refused(text));
        }
        let channel = order.account.channel.key_word();
        let key = IdemKey::from_parts(&[channel, order.order_no.as_str(), "REFUND", refund.refund_no.as_str()]);
        if receipt.order.as_ref().is_some_and(|state| has_open_item(state, order, &key)) {
            let command = OrderCommand::ResolveItem { item_no: key.to_string(), by: self.by.clone() };
            self.submit(order, command, at).await?;
        }
        Ok(step)
    }

    async fn submit(&self, order: &PaidOrder, command: OrderCommand, at: At<'_>) -> Result<(Step, Receipt), Problem> {
        let target = Target::Order { order_no: order.order_no.clone(), command };
        match self.store.submit(Work { target, context: self.context(&order.account, at) }).await? {
            Outcome::Committed(receipt) => Ok((Step::New, receipt)),
            Outcome::Duplicate(receipt) => Ok((Step::Known, receipt)),
            Outcome::Rejected(error) => Err(at.refused(error.to_string())),
            Outcome::ApiKeyReused => Err(at.refused("the ledger took this for another request".to_owned())),
        }
    }

    fn context(&self, account: &AccountRef, at: At<'_>) -> CommandContext {
        let named = |name: &str, value: String| (name.to_owned(), value);
        let headers = vec![
            named("operator", self.by.name.clone()),
            named("reason", self.by.reason.clone()),
            named("file", self.file_name.clone()),
            named("line", at.line.to_string()),
        ];
        let evidence = operator_statement(account, headers, at.text.as_bytes().to_vec(), self.clock.now());
        CommandContext {
            source: "operator".to_owned(),
            actor: Some(self.by.name.clone()),
            evidence: Some(Arc::new(row(evidence))),
            ..CommandContext::default()
        }
    }
}

/// A line of the file.
#[derive(Clone, Copy)]
struct At<'a> {
    line: usize,
    text: &'a str,
}

impl At<'_> {
    fn refused(self, text: String) -> Problem {
        Problem::Refused(LineProblem { line: self.line, text })
    }
}

fn payment(order: &PaidOrder) -> PaymentRef {
    PaymentRef { account: order.account.clone(), channel_trade_no: order.channel_trade_no.clone() }
}

fn has_open_item(state: &Order, order: &PaidOrder, key: &IdemKey) -> bool {
    state.items.iter().any(|(found, item)| item.is_open() && found.in_order(&order.order_no) == *key)
}

fn row(evidence: Evidence) -> EvidenceRow {
    let Evidence { account, source: _, headers, body, key_id, received_at, digest } = evidence;
    EvidenceRow { digest, account, source: "operator".to_owned(), headers, body, key_id, received_at }
}
