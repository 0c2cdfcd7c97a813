//! A verified notice becomes commands, one for each thing it says, and all are durable before anybody is told so (P2).
//!
//! | step | what |
//! |---|---|
//! | 1 | observations in their order: order_no from signed content, else the order of the payment, else a stray |
//! | 2 | strays, within the account's hourly budget |
//! | 3 | success only when every one is committed or was so before; at the first that is not, stop: the resend does the rest |

use std::sync::Arc;

use paidonce_channel::observation::{Evidence, VerifyErrorAfterRecording};
use paidonce_channel::{Fact, Notice, Observation, Source, StrayNotice, Verified};
use paidonce_order::command::{OrderCommand, PaymentRef, StrayCommand, StrayFact};
use paidonce_order::error::OrderError;
use paidonce_order::ids::{AccountRef, Digest, OrderNo};
use paidonce_order::stray::stray_id;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::store::{Attempt, CommandContext, EvidenceRow, Outcome, Target};

use crate::app::App;
use crate::error::AppError;

/// Longest detail of an attempt, in characters.
const ATTEMPT_DETAIL_CHARS_MAX: usize = 200;

/// What became of a notice: every part of it is durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Facts and strays written now.
    pub committed: u32,
    /// Facts and strays that were there before.
    pub duplicates: u32,
    /// Types of the events written now, in their order.
    pub decided: Vec<String>,
    /// Kept, but the platform must send it again.
    pub refuse: Option<VerifyErrorAfterRecording>,
}

/// One notice on its way.
struct Recording<'a> {
    app: &'a App,
    account: AccountRef,
    push_id: String,
    context: CommandContext,
    recorded: Recorded,
}

impl App {
    /// Records everything a verified notice says.
    ///
    /// Guarantees: `Ok` means every part is committed or was committed before.
    /// Errors: [`AppError::Submit`], [`AppError::Store`] or [`AppError::TooManyStrays`]; what was committed until then
    /// stays, and the same notice again does the rest.
    pub async fn record(&self, notice: Verified<Notice>, request_id: Option<String>) -> Result<Recorded, AppError> {
        let notice = notice.into_inner();
        let context = CommandContext {
            source: source_word(notice.evidence.source).to_owned(),
            request_id,
            evidence: Some(Arc::new(evidence_row(&notice.evidence))),
            ..CommandContext::default()
        };
        let recorded = Recorded { refuse: notice.refuse_after_recording, ..Recorded::default() };
        let mut recording =
            Recording { app: self, account: notice.evidence.account, push_id: notice.push_id, context, recorded };
        for observation in notice.observations {
            recording.observation(observation).await?;
        }
        for stray in notice.strays {
            recording.stray(stray).await?;
        }
        Ok(recording.recorded)
    }
}

impl Recording<'_> {
    async fn observation(&mut self, observation: Observation) -> Result<(), AppError> {
        let trade = trade_of(&observation.fact).cloned();
        let Some((command, content, occurred_at)) = command_for(observation.fact) else { return Ok(()) };
        let order_no = match (observation.order_no, &trade) {
            (Some(order_no), _) => Some(order_no),
            (None, Some(trade)) => {
                self.app.store().find_order_by_trade_no(&trade.account, &trade.channel_trade_no).await?
            }
            (None, None) => None,
        };
        let Some(order_no) = order_no else {
            let detail = trade.map_or_else(
                || "the message names no order".to_owned(),
                |trade| format!("no payment {} of account {} is in this ledger", trade.channel_trade_no, trade.account),
            );
            return self.stray(self.stray_for("no_such_payment", detail, content, occurred_at)).await;
        };
        let target = Target::Order { order_no: order_no.clone(), command };
        match self.submit(target, Some(&order_no)).await? {
            None => Ok(()),
            Some(error) => {
                // The rules have no place for it, yet it is verified: kept for a person, never dropped (P6).
                tracing::error!(%order_no, code = error.code(), "a verified fact was rejected and is kept as a stray");
                let detail = format!("order {order_no}: {error}");
                self.stray(self.stray_for("rejected", detail, content, occurred_at)).await
            }
        }
    }

    fn stray_for(&self, code: &str, detail: String, content: Digest, occurred_at: Timestamp) -> StrayNotice {
        let account = self.account.clone();
        let stray_id = stray_id(&account, &content);
        let code = code.to_owned();
        StrayNotice {
            stray_id,
            fact: StrayFact { account, code, detail, channel_event_type: None, occurred_at, content },
        }
    }

    async fn stray(&mut self, stray: StrayNotice) -> Result<(), AppError> {
        let now = self.app.clock().now();
        let budget = &self.app.strays;
        if !budget.has_room(&self.account, now) {
            tracing::error!(account = %self.account, "too many unreadable messages in this hour: check the account's keys");
            return Err(AppError::TooManyStrays { account: self.account.to_string(), strays_max: budget.strays_max() });
        }
        tracing::warn!(account = %self.account, stray_id = stray.stray_id, code = stray.fact.code, "keeping a stray");
        let committed_before = self.recorded.committed;
        let target = Target::Stray { stray_id: stray.stray_id, command: StrayCommand::RecordStray(stray.fact) };
        if let Some(error) = self.submit(target, None).await? {
            return Err(AppError::Rejected(error));
        }
        if self.recorded.committed > committed_before {
            budget.spend(&self.account, now);
        }
        Ok(())
    }

    /// `Some` is the rules' rejection: nothing was written.
    async fn submit(&mut self, target: Target, order_no: Option<&OrderNo>) -> Result<Option<OrderError>, AppError> {
        let rejection = match self.app.submit(target, self.context.clone()).await? {
            Outcome::Committed(receipt) => {
                self.recorded.committed = self.recorded.committed.saturating_add(1);
                self.recorded.decided.extend(receipt.events.into_iter().map(|event| event.event_type));
                return Ok(None);
            }
            // Notices have no API key, so a reused one can't be theirs; both say that nothing new was written.
            Outcome::Duplicate(_) | Outcome::ApiKeyReused => {
                self.recorded.duplicates = self.recorded.duplicates.saturating_add(1);
                None
            }
            Outcome::Rejected(error) => Some(error),
        };
        let (result, detail) = match &rejection {
            None => ("duplicate", self.push_id.clone()),
            Some(error) => ("rejected", error.to_string()),
        };
        self.app.store().note_attempt(Attempt {
            at: self.app.clock().now(),
            account: self.account.clone(),
            order_no: order_no.cloned(),
            result: result.to_owned(),
            detail: detail.chars().take(ATTEMPT_DETAIL_CHARS_MAX).collect(),
        });
        Ok(rejection)
    }
}

/// The command of a fact with its content digest and time; `None` when it needs nobody.
fn command_for(fact: Fact) -> Option<(OrderCommand, Digest, Timestamp)> {
    match fact {
        Fact::Payment(fact) => {
            let (content, at) = (fact.content, fact.occurred_at);
            Some((OrderCommand::RecordPayment(fact), content, at))
        }
        Fact::Refund(fact) => {
            let (content, at) = (fact.content, fact.occurred_at);
            Some((OrderCommand::RecordRefund(fact), content, at))
        }
        Fact::Share(fact) => {
            let (content, at) = (fact.content, fact.occurred_at);
            Some((OrderCommand::RecordProfitShare(fact), content, at))
        }
        Fact::AttemptClosed(fact) => {
            let (content, at) = (fact.content, fact.occurred_at);
            Some((OrderCommand::RecordAttemptClosed(fact), content, at))
        }
        Fact::Flag(fact) => {
            let (content, at) = (fact.content, fact.occurred_at);
            Some((OrderCommand::RecordFlag(fact), content, at))
        }
        Fact::Nothing => None,
    }
}

/// The payment a fact is about, when it names one.
const fn trade_of(fact: &Fact) -> Option<&PaymentRef> {
    match fact {
        Fact::Payment(fact) => Some(&fact.payment),
        Fact::Refund(fact) => Some(&fact.payment),
        Fact::Share(fact) => Some(&fact.payment),
        Fact::AttemptClosed(_) | Fact::Flag(_) | Fact::Nothing => None,
    }
}

const fn source_word(source: Source) -> &'static str {
    match source {
        Source::Callback => "callback",
        Source::Query => "query",
        Source::Bill => "bill",
        Source::Operator => "operator",
    }
}

fn evidence_row(evidence: &Evidence) -> EvidenceRow {
    EvidenceRow {
        digest: evidence.digest,
        account: evidence.account.clone(),
        source: source_word(evidence.source).to_owned(),
        headers: evidence.headers.clone(),
        body: evidence.body.clone(),
        key_id: evidence.key_id.clone(),
        received_at: evidence.received_at,
    }
}
