//! What reading a verified message gives, the same for both channels: facts, and what can't be booked but is kept.

use paidonce_order::command::{
    AttemptFact, FlagFact, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOutcome, ShareFact,
};
use paidonce_order::command::{ShareKind, StrayFact};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, IdError, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;

use crate::channel::VerifyError;
use crate::digest::{PartsDigest, digest_of, sha256};
use crate::observation::{Evidence, Fact, Notice, Observation, StrayNotice, VerifyErrorAfterRecording};

/// Longest foreign text in a detail, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// A foreign text, cut, for an error or a detail.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Verified, but not bookable: becomes a stray.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unbookable {
    /// `StrayFact::code`.
    pub(crate) code: &'static str,
    /// One sentence.
    pub(crate) detail: String,
}

impl Unbookable {
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::new("missing_field", format!("{field} is missing"))
    }

    pub(crate) fn amount(field: &str, problem: impl std::fmt::Display) -> Self {
        Self::new("unusable_amount", format!("{field}: {problem}"))
    }

    pub(crate) fn number(field: &str, problem: &IdError) -> Self {
        Self::new("unusable_number", format!("{field}: {problem}"))
    }

    pub(crate) fn time(field: &str, found: &str) -> Self {
        Self::new("unusable_time", format!("{field} {:?} is not a time", cut(found)))
    }
}

/// Why reading stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Refused, nothing is written.
    Refused(VerifyError),
    /// Kept.
    Unbookable(Unbookable),
}

impl From<Unbookable> for Stop {
    fn from(unbookable: Unbookable) -> Self {
        Self::Unbookable(unbookable)
    }
}

/// Signature good, account not ours.
pub(crate) fn not_ours(field: &'static str, found: &str) -> Stop {
    Stop::Refused(VerifyError::NotOurs { field, found: cut(found) })
}

/// One thing that a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// To be recorded.
    Fact(Box<Observation>),
    /// To be kept.
    Unbookable(Unbookable),
}

impl Said {
    pub(crate) fn about(order_no: OrderNo, fact: Fact) -> Self {
        Self::fact(Some(order_no), fact)
    }

    /// Known, books nothing, and names no order.
    pub(crate) fn nothing() -> Self {
        Self::fact(None, Fact::Nothing)
    }

    fn fact(order_no: Option<OrderNo>, fact: Fact) -> Self {
        Self::Fact(Box::new(Observation { order_no, fact }))
    }

    /// A share notice carries no order number.
    pub(crate) fn share(fact: ShareFact) -> Self {
        Self::fact(None, Fact::Share(fact))
    }
}

/// A verified message before it becomes a [`Notice`].
pub(crate) struct Message<'a> {
    /// Whose keys verified it.
    pub(crate) account: &'a AccountRef,
    /// The platform's id of this push.
    pub(crate) push_id: &'a str,
    /// The platform's word for what it is about.
    pub(crate) event_type: Option<&'a str>,
    /// By the channel's clock.
    pub(crate) said_at: Option<Timestamp>,
    /// Digest of what it says, without nonce, push id and time of sending: equal for every resend.
    pub(crate) content: Digest,
    /// The signed bytes.
    pub(crate) evidence: Evidence,
}

impl Message<'_> {
    /// What was read, as facts and strays.
    pub(crate) fn into_notice(self, said: Vec<Said>) -> Notice {
        let mut observations = Vec::new();
        let mut strays = Vec::new();
        for (index, one) in said.into_iter().enumerate() {
            match one {
                Said::Fact(observation) => observations.push(*observation),
                Said::Unbookable(unbookable) => {
                    let index = index.to_string();
                    let content = PartsDigest::new("stray").with(&self.content.0).with(index.as_bytes()).finish();
                    strays.push(self.stray(unbookable, content, &content.to_string()));
                }
            }
        }
        let push_id = self.push_id.to_owned();
        Notice { observations, strays, evidence: self.evidence, push_id, refuse_after_recording: None }
    }

    /// Nothing could be read: kept once under its push id (its content is unknown), and refused.
    pub(crate) fn into_refused_notice(self, why: VerifyErrorAfterRecording, detail: String) -> Notice {
        // Without a push id only the body is left to tell two of them apart.
        let content = match self.push_id {
            "" => sha256(&self.evidence.body),
            push_id => digest_of("push", &[&self.account.to_string(), push_id]),
        };
        let name = if is_plain_id(self.push_id) { self.push_id.to_owned() } else { content.to_string() };
        let stray = self.stray(Unbookable { code: why.code(), detail }, content, &name);
        let push_id = self.push_id.to_owned();
        let refuse_after_recording = Some(why);
        Notice {
            observations: Vec::new(),
            strays: vec![stray],
            evidence: self.evidence,
            push_id,
            refuse_after_recording,
        }
    }

    fn stray(&self, unbookable: Unbookable, content: Digest, name: &str) -> StrayNotice {
        StrayNotice {
            stray_id: format!("{}:{name}", self.account),
            fact: StrayFact {
                account: self.account.clone(),
                code: unbookable.code.to_owned(),
                detail: unbookable.detail,
                channel_event_type: self.event_type.map(cut),
                occurred_at: self.said_at.unwrap_or(self.evidence.received_at),
                content,
            },
        }
    }
}

/// A push id that can stand in an aggregate id as it is.
fn is_plain_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The digest of what a payment says: account, number, amount, currency. Equal for every door it comes through.
pub(crate) fn payment_content(payment: &PaymentRef, amount: Money) -> Digest {
    let (account, minor) = (payment.account.to_string(), amount.amount_minor.to_string());
    digest_of("payment", &[&account, payment.channel_trade_no.as_str(), &minor, amount.currency.as_str()])
}

/// A payment without optional parts: the same fact, whichever door it comes through.
#[must_use]
pub fn payment_fact(payment: PaymentRef, amount: Money, occurred_at: Timestamp) -> PaymentFact {
    let content = payment_content(&payment, amount);
    PaymentFact { payment, amount, payer_amount: None, occurred_at, channel_trade_type: None, content }
}

/// The digest of what a refund says: account, numbers, outcome, amount and what kind of figure it is.
pub(crate) fn refund_content(
    payment: &PaymentRef,
    refund_no: &RefundNo,
    outcome: RefundOutcome,
    amount: RefundAmount,
) -> Digest {
    let outcome = match outcome {
        RefundOutcome::Succeeded => "succeeded",
        RefundOutcome::Failed => "failed",
        RefundOutcome::Stalled => "stalled",
    };
    let (kind, money) = match amount {
        RefundAmount::Exact(money) => ("exact", money),
        RefundAmount::Cumulative(money) => ("cumulative", money),
    };
    let (account, minor) = (payment.account.to_string(), money.amount_minor.to_string());
    let numbers = [account.as_str(), payment.channel_trade_no.as_str(), refund_no.as_str()];
    let figures = [outcome, kind, &minor, money.currency.as_str()];
    digest_of("refund", &[numbers.as_slice(), figures.as_slice()].concat())
}

/// A refund without optional parts: the same fact, whichever door it comes through.
#[must_use]
pub fn refund_fact(
    payment: PaymentRef,
    refund_no: RefundNo,
    outcome: RefundOutcome,
    amount: RefundAmount,
    occurred_at: Timestamp,
) -> RefundFact {
    let content = refund_content(&payment, &refund_no, outcome, amount);
    RefundFact {
        payment,
        refund_no,
        channel_refund_no: None,
        outcome,
        amount,
        payer_amount: None,
        occurred_at,
        content,
    }
}

/// One way to pay is closed unpaid.
pub(crate) fn attempt_fact(
    account: &AccountRef,
    channel_trade_no: Option<ChannelTradeNo>,
    occurred_at: Timestamp,
) -> AttemptFact {
    let trade_no = channel_trade_no.as_ref().map(ChannelTradeNo::as_str).unwrap_or_default();
    let content = digest_of("attempt", &[&account.to_string(), trade_no]);
    AttemptFact { account: account.clone(), channel_trade_no, occurred_at, content }
}

/// Who received shared money, with the account hashed: it may be personal data.
pub(crate) struct Receiver<'a> {
    pub(crate) receiver_type: &'a str,
    pub(crate) account: &'a str,
}

/// The numbers of a share.
pub(crate) struct ShareNumbers {
    pub(crate) share_no: String,
    pub(crate) channel_share_no: Option<String>,
}

/// A share.
pub(crate) fn share_fact(
    payment: PaymentRef,
    kind: ShareKind,
    numbers: ShareNumbers,
    receiver: &Receiver<'_>,
    (amount, occurred_at): (Money, Timestamp),
) -> ShareFact {
    let ShareNumbers { share_no, channel_share_no } = numbers;
    let hashed = sha256(receiver.account.as_bytes());
    let kind_word = match kind {
        ShareKind::Shared => "shared",
        ShareKind::Returned => "returned",
    };
    let (account, minor) = (payment.account.to_string(), amount.amount_minor.to_string());
    let names = [account.as_str(), payment.channel_trade_no.as_str(), kind_word, &share_no];
    let receiver_hex = hashed.to_string();
    let figures = [receiver.receiver_type, &receiver_hex, &minor, amount.currency.as_str()];
    let content = digest_of("share", &[names.as_slice(), figures.as_slice()].concat());
    ShareFact {
        payment,
        kind,
        share_no,
        channel_share_no,
        receiver_type: receiver.receiver_type.to_owned(),
        receiver: hashed,
        amount,
        occurred_at,
        content,
    }
}

/// A flag: one for each content.
pub(crate) fn flag_fact(
    account: &AccountRef,
    code: &str,
    detail: String,
    distinguishing: &[&str],
    occurred_at: Timestamp,
) -> FlagFact {
    let account_text = account.to_string();
    let parts: Vec<&str> = [account_text.as_str(), code].into_iter().chain(distinguishing.iter().copied()).collect();
    let content = digest_of("flag", &parts);
    FlagFact { account: account.clone(), code: code.to_owned(), detail, occurred_at, content }
}

/// Reads the merchant's order number.
pub(crate) fn order_no(field: &str, text: Option<&str>) -> Result<OrderNo, Unbookable> {
    let text = text.ok_or_else(|| Unbookable::missing(field))?;
    OrderNo::parse(text).map_err(|error| Unbookable::number(field, &error))
}

/// Reads the merchant's refund number.
pub(crate) fn refund_no(field: &str, text: Option<&str>) -> Result<RefundNo, Unbookable> {
    let text = text.ok_or_else(|| Unbookable::missing(field))?;
    RefundNo::parse(text).map_err(|error| Unbookable::number(field, &error))
}

/// Reads a number that the channel gave.
pub(crate) fn channel_no(field: &str, text: Option<&str>) -> Result<ChannelTradeNo, Unbookable> {
    let text = text.ok_or_else(|| Unbookable::missing(field))?;
    ChannelTradeNo::parse(text).map_err(|error| Unbookable::number(field, &error))
}

/// A channel's word for its product, if it looks like one.
pub(crate) fn product_word(text: Option<&str>) -> Option<String> {
    text.filter(|word| {
        (1..=32).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    })
    .map(str::to_owned)
}

/// A number of a share: it becomes part of an idempotency key.
pub(crate) fn share_no(field: &str, text: Option<&str>) -> Result<String, Unbookable> {
    const BYTES_MAX: usize = 64;
    let text = text.ok_or_else(|| Unbookable::missing(field))?;
    let usable = text.len() <= BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    let problem =
        || Unbookable::new("unusable_number", format!("{field} is not up to {BYTES_MAX} visible ASCII bytes"));
    usable.then(|| text.to_owned()).ok_or_else(problem)
}

/// A receiver's type: it becomes part of an idempotency key.
pub(crate) fn receiver_type<'t>(field: &str, text: Option<&'t str>) -> Result<&'t str, Unbookable> {
    const BYTES_MAX: usize = 32;
    let text = text.ok_or_else(|| Unbookable::missing(field))?;
    let usable = text.len() <= BYTES_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    usable.then_some(text).ok_or_else(|| Unbookable::new("unusable_number", format!("{field} is not a type word")))
}
