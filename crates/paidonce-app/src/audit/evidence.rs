//! Whether what a platform signed says what the log says: every event that moves money is held against its evidence.
//!
//! The stored bytes go through the same verifiers as on the day they came, with the clock of that day. An event that was made
//! when its order was opened (it had waited, parked) has the evidence of the event that parked it.

use std::collections::BTreeMap;
use std::sync::Arc;

use paidonce_channel::api::{ApiAnswer, ApiCall, ApiResponse, Ask, RefundNumbers, RefundOrder};
use paidonce_channel::{Fact, OurAccounts, RawNotification, VerifyError, evidence_digest};
use paidonce_order::command::{PaymentFact, RefundFact, ShareFact, Terms};
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::{Channel, Digest, OrderNo};
use paidonce_store::audit::{AuditSource, IDS_MAX, Range};
use paidonce_store::codec::{decode, evidence_of, metadata_of};
use paidonce_store::store::{EventRow, EvidenceRow};
use serde::Serialize;

use super::report::{AuditError, Problem};

/// Bodies are read so many at once: some MiB.
const EVIDENCE_PAGE: usize = 200;

/// How far evidence is looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Depth {
    /// Not at all: the chain only.
    None,
    /// Signatures; contents as far as they are in clear.
    #[default]
    Signatures,
    /// WeChat Pay's sealed contents too, with the APIv3 keys of the configuration.
    Contents,
}

/// Events that move money, by what their evidence proves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EvidenceCounts {
    /// The platform's signature is good and its content says the same.
    pub verified: u64,
    /// The platform's signature is good; the content is sealed and was not opened.
    pub not_opened: u64,
    /// A named operator stated it, with a reason.
    pub by_operator: u64,
    /// The evidence was removed when its time was over.
    pub expired: u64,
    /// The key that signed it is not in the configuration.
    pub unknown_key: u64,
    /// The evidence does not prove it: see the problems.
    pub failed: u64,
}

impl EvidenceCounts {
    /// Adds all counts of another part.
    pub fn merge(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.verified, other.verified),
            (&mut self.not_opened, other.not_opened),
            (&mut self.by_operator, other.by_operator),
            (&mut self.expired, other.expired),
            (&mut self.unknown_key, other.unknown_key),
            (&mut self.failed, other.failed),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Whether nothing was left unproven.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.not_opened == 0 && self.expired == 0 && self.unknown_key == 0
    }
}

/// What the money of an event was booked from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stated {
    Payment(PaymentFact),
    Refund(RefundFact),
    Share(ShareFact),
}

/// What one piece of evidence proves.
enum Verdict {
    /// Verified, with what it says.
    Says(Vec<Fact>),
    NotOpened,
    Operator,
    UnknownKey,
    Failed(String),
}

/// Checks the evidence of pages of events.
pub(super) struct EvidenceCheck {
    pub(super) source: Arc<dyn AuditSource>,
    pub(super) accounts: OurAccounts,
    pub(super) depth: Depth,
    /// Positions that may be read.
    pub(super) to: i64,
}

/// What was found in a page.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) counts: EvidenceCounts,
    pub(super) problems: Vec<Problem>,
}

/// An event that moves money and what it needs to be checked.
struct Money<'a> {
    row: &'a EventRow,
    stated: Stated,
    evidence: Option<Digest>,
}

impl EvidenceCheck {
    /// Checks every event of a page of one shard. Errors: the database.
    pub(super) async fn check(&self, shard: u16, page: &[EventRow]) -> Result<Checked, AuditError> {
        let mut checked = Checked::default();
        if self.depth == Depth::None {
            return Ok(checked);
        }
        let mut money: Vec<Money<'_>> = page.iter().filter_map(money_of).collect();
        let orders = self.orders_of(shard, &money).await?;
        for event in &mut money {
            if event.evidence.is_none() {
                event.evidence = orders.get(&event.row.aggregate_id).and_then(|order| order.parked_with(&event.stated));
            }
        }
        for money in money.chunks(EVIDENCE_PAGE) {
            let digests: Vec<Digest> = money.iter().filter_map(|event| event.evidence).collect();
            let rows = self.source.evidence(shard, &digests).await?;
            let rows: BTreeMap<[u8; 32], EvidenceRow> = rows.into_iter().map(|row| (row.digest.0, row)).collect();
            for event in money {
                let terms = orders.get(&event.row.aggregate_id).and_then(|order| order.terms.as_ref());
                self.judge(event, terms, &rows, &mut checked);
            }
        }
        Ok(checked)
    }

    /// The terms and the parked facts of orders whose events need them.
    async fn orders_of(&self, shard: u16, money: &[Money<'_>]) -> Result<BTreeMap<String, OrderFacts>, AuditError> {
        let needs = |event: &&Money<'_>| event.evidence.is_none() || source_of(event.row) == "query";
        let mut ids: Vec<String> = money.iter().filter(needs).map(|event| event.row.aggregate_id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut orders: BTreeMap<String, OrderFacts> = BTreeMap::new();
        for ids in ids.chunks(IDS_MAX) {
            for row in self.source.events_of(shard, ids, Range { after: 0, to: self.to }).await? {
                orders.entry(row.aggregate_id.clone()).or_default().learn(&row);
            }
        }
        Ok(orders)
    }

    fn judge(
        &self,
        event: &Money<'_>,
        terms: Option<&Terms>,
        rows: &BTreeMap<[u8; 32], EvidenceRow>,
        checked: &mut Checked,
    ) {
        let counts = &mut checked.counts;
        let verdict = match event.evidence {
            None => Verdict::Failed(format!("{} has no evidence", event.row.event_type)),
            Some(digest) => match rows.get(&digest.0) {
                None => {
                    counts.expired = counts.expired.saturating_add(1);
                    return;
                }
                Some(row) => self.look(row, event, terms),
            },
        };
        let count = match verdict {
            Verdict::Says(facts) if facts.iter().any(|fact| event.stated.is_said_by(fact)) => &mut counts.verified,
            Verdict::Says(_) => {
                let problem = format!("{} states other amounts or numbers than its evidence", event.row.event_type);
                checked.problems.push(Problem::at(event.row, problem));
                &mut counts.failed
            }
            Verdict::Failed(problem) => {
                checked.problems.push(Problem::at(event.row, problem));
                &mut counts.failed
            }
            Verdict::NotOpened => &mut counts.not_opened,
            Verdict::Operator => &mut counts.by_operator,
            Verdict::UnknownKey => &mut counts.unknown_key,
        };
        *count = count.saturating_add(1);
    }

    fn look(&self, row: &EvidenceRow, event: &Money<'_>, terms: Option<&Terms>) -> Verdict {
        if evidence_digest(&row.headers, &row.body) != row.digest {
            return Verdict::Failed("its evidence was changed: the bytes have another digest".to_owned());
        }
        let headers: Vec<(String, Vec<u8>)> =
            row.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        match row.source.as_str() {
            "callback" => self.look_at_callback(row, &headers),
            "query" => self.look_at_answer(row, &headers, (event, terms)),
            "operator" => {
                let named = |name: &str| row.headers.iter().any(|(key, value)| key == name && !value.is_empty());
                if named("operator") && named("reason") {
                    Verdict::Operator
                } else {
                    Verdict::Failed("its evidence names no operator with a reason".to_owned())
                }
            }
            other => Verdict::Failed(format!("its evidence came through no known door: {other:?}")),
        }
    }

    fn look_at_callback(&self, row: &EvidenceRow, headers: &[(String, Vec<u8>)]) -> Verdict {
        let account = row.account.account.as_str();
        let Some(receiver) = self.accounts.find_receiver(row.account.channel, account) else {
            return Verdict::UnknownKey;
        };
        match receiver.receive(RawNotification { headers, body: &row.body, now: row.received_at }) {
            Ok(_) if row.account.channel == Channel::Wxpay && self.depth != Depth::Contents => Verdict::NotOpened,
            Ok(notice) if notice.get().refuse_after_recording.is_some() => Verdict::NotOpened,
            Ok(notice) => Verdict::Says(
                notice.into_inner().observations.into_iter().map(|observation| observation.fact).collect(),
            ),
            Err(VerifyError::UnknownSerial { .. }) => Verdict::UnknownKey,
            Err(_) if is_of_learned_key(&row.key_id) => Verdict::UnknownKey,
            Err(error) => Verdict::Failed(format!("its evidence does not verify: {error}")),
        }
    }

    /// The answer is read once more for each question that may have been asked.
    fn look_at_answer(
        &self,
        row: &EvidenceRow,
        headers: &[(String, Vec<u8>)],
        (event, terms): (&Money<'_>, Option<&Terms>),
    ) -> Verdict {
        let Some(api) = self.accounts.find_api(&row.account) else { return Verdict::UnknownKey };
        let Ok(order_no) = OrderNo::parse(&event.row.aggregate_id) else {
            return Verdict::Failed("its order number is none".to_owned());
        };
        let mut problem = "is about something else".to_owned();
        for ask in event.stated.questions(&order_no, terms) {
            let sub_mchid = terms.and_then(|terms| terms.sub_mchid.clone());
            let response = ApiResponse { status: 200, headers, body: &row.body, now: row.received_at };
            match api.read(&ApiCall { sub_mchid, ask }, response) {
                ApiAnswer::Final(reply) => {
                    let facts = reply.notice.into_inner().observations.into_iter().map(|observation| observation.fact);
                    return Verdict::Says(facts.collect());
                }
                ApiAnswer::Unknown(doubt) if doubt.code == "unknown_serial" => return Verdict::UnknownKey,
                ApiAnswer::Unknown(doubt) => problem = format!("{}: {}", doubt.code, doubt.detail),
                ApiAnswer::Refused(refusal) => problem = format!("{}: {}", refusal.code, refusal.detail),
            }
        }
        if is_of_learned_key(&row.key_id) {
            return Verdict::UnknownKey;
        }
        Verdict::Failed(format!("its evidence does not verify: {problem}"))
    }
}

/// `2021000000000001/RSA2/<number of a certificate that Alipay handed out>`.
fn is_of_learned_key(key_id: &str) -> bool {
    key_id.split('/').count() > 2
}

fn source_of(row: &EventRow) -> String {
    metadata_of(row).ok().and_then(|mut metadata| metadata.remove("source")).unwrap_or_default()
}

fn money_of(row: &EventRow) -> Option<Money<'_>> {
    let LedgerEvent::Order(event) = decode(row).ok()? else { return None };
    let stated = Stated::by(event)?;
    let evidence = metadata_of(row).ok().and_then(|metadata| evidence_of(&metadata));
    Some(Money { row, stated, evidence })
}

/// What an order's log says beside its money.
#[derive(Default)]
struct OrderFacts {
    terms: Option<Terms>,
    parked: Vec<(Stated, Digest)>,
}

impl OrderFacts {
    fn learn(&mut self, row: &EventRow) {
        let Ok(LedgerEvent::Order(event)) = decode(row) else { return };
        let parked = match event {
            OrderEvent::OrderOpened(terms) => {
                self.terms = Some(terms);
                return;
            }
            OrderEvent::PaymentParked(fact) => Stated::Payment(fact),
            OrderEvent::RefundParked(fact) | OrderEvent::RefundNumberTaken { fact, .. } => Stated::Refund(fact),
            OrderEvent::ProfitShareParked(fact) => Stated::Share(fact),
            OrderEvent::PaymentConfirmed(_)
            | OrderEvent::SurplusPaymentRecorded { .. }
            | OrderEvent::SurplusAccepted { .. }
            | OrderEvent::RefundRequested { .. }
            | OrderEvent::RefundConfirmed { .. }
            | OrderEvent::RefundFailed { .. }
            | OrderEvent::RefundStalled { .. }
            | OrderEvent::RefundSplit { .. }
            | OrderEvent::ProfitShareConfirmed(_)
            | OrderEvent::ProfitShareReturned(_)
            | OrderEvent::ProfitShareFollowed { .. }
            | OrderEvent::AttemptClosed(_)
            | OrderEvent::OrderClosed { .. }
            | OrderEvent::FactConflicted(_)
            | OrderEvent::FactFlagged(_)
            | OrderEvent::ItemResolved { .. } => return,
        };
        let evidence = metadata_of(row).ok().and_then(|metadata| evidence_of(&metadata));
        self.parked.extend(evidence.map(|digest| (parked, digest)));
    }

    fn parked_with(&self, stated: &Stated) -> Option<Digest> {
        let (_, digest) = self.parked.iter().find(|(parked, _)| parked.content() == stated.content())?;
        Some(*digest)
    }
}

impl Stated {
    /// Of an event that moves money.
    fn by(event: OrderEvent) -> Option<Self> {
        match event {
            OrderEvent::PaymentConfirmed(fact) | OrderEvent::SurplusPaymentRecorded { fact, .. } => {
                Some(Self::Payment(fact))
            }
            OrderEvent::RefundConfirmed { fact, .. } | OrderEvent::RefundSplit { fact, .. } => Some(Self::Refund(fact)),
            OrderEvent::ProfitShareConfirmed(fact) | OrderEvent::ProfitShareReturned(fact) => Some(Self::Share(fact)),
            OrderEvent::OrderOpened(_)
            | OrderEvent::PaymentParked(_)
            | OrderEvent::SurplusAccepted { .. }
            | OrderEvent::RefundRequested { .. }
            | OrderEvent::RefundFailed { .. }
            | OrderEvent::RefundStalled { .. }
            | OrderEvent::RefundParked(_)
            | OrderEvent::RefundNumberTaken { .. }
            | OrderEvent::ProfitShareParked(_)
            | OrderEvent::ProfitShareFollowed { .. }
            | OrderEvent::AttemptClosed(_)
            | OrderEvent::OrderClosed { .. }
            | OrderEvent::FactConflicted(_)
            | OrderEvent::FactFlagged(_)
            | OrderEvent::ItemResolved { .. } => None,
        }
    }

    const fn content(&self) -> Digest {
        match self {
            Self::Payment(fact) => fact.content,
            Self::Refund(fact) => fact.content,
            Self::Share(fact) => fact.content,
        }
    }

    /// Field by field, not by digest: whoever edits an event leaves the digest alone. A refund without a number of its own
    /// may have been given another spelling of its alias.
    fn is_said_by(&self, said: &Fact) -> bool {
        match (self, said) {
            (Self::Payment(ours), Fact::Payment(theirs)) => {
                (&ours.payment, ours.amount, ours.occurred_at) == (&theirs.payment, theirs.amount, theirs.occurred_at)
            }
            (Self::Refund(ours), Fact::Refund(theirs)) => {
                let same = ours.refund_no == theirs.refund_no || ours.payment.account.channel == Channel::Alipay;
                same && (&ours.payment, ours.amount, ours.outcome) == (&theirs.payment, theirs.amount, theirs.outcome)
            }
            (Self::Share(ours), Fact::Share(theirs)) => {
                (&ours.payment, ours.amount, ours.kind, &ours.share_no, ours.receiver)
                    == (&theirs.payment, theirs.amount, theirs.kind, &theirs.share_no, theirs.receiver)
            }
            (Self::Payment(_) | Self::Refund(_) | Self::Share(_), _other) => false,
        }
    }

    /// What may have been asked for this answer.
    fn questions(&self, order_no: &OrderNo, terms: Option<&Terms>) -> Vec<Ask> {
        let order_no = order_no.clone();
        match self {
            Self::Payment(fact) => {
                let combine = terms
                    .and_then(|terms| terms.combine.as_ref())
                    .map(|combine| Ask::CombinePayment { combine_out_trade_no: combine.combine_out_trade_no.clone() });
                let channel_trade_no = fact.payment.channel_trade_no.clone();
                let by_order = Ask::Payment { order_no: order_no.clone() };
                [by_order, Ask::PaymentByTradeNo { order_no, channel_trade_no }].into_iter().chain(combine).collect()
            }
            Self::Refund(fact) => {
                let (payment, refund_no) = (fact.payment.clone(), fact.refund_no.clone());
                let numbers = RefundNumbers { payment, order_no, refund_no };
                let amount = fact.amount.stated();
                let refund = RefundOrder { numbers: numbers.clone(), amount, payment_amount: amount, reason: None };
                vec![Ask::RefundState(numbers), Ask::Refund(refund)]
            }
            Self::Share(fact) => {
                let (payment, out_order_no) = (fact.payment.clone(), fact.share_no.clone());
                vec![Ask::Share { order_no, payment, out_order_no }]
            }
        }
    }
}
