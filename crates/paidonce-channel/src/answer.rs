//! What the answers of both platforms have in common: from a verified response to one of the three classes.
//!
//! A platform's code has one [`Meaning`] (the tables stand in `wxpay/api/codes.rs` and `alipay/api/codes.rs`); what follows
//! from it depends on what was asked:
//!
//! | meaning | payment | refund state | refund | close | share | certificates |
//! |---|---|---|---|---|---|---|
//! | `NotFound` | not found | not found | refused: person | not found | not found | refused: person |
//! | `NotUnpaid` | unknown | unknown | refused: person | maybe paid | unknown | unknown |
//! | `AlreadyClosed` | unknown | unknown | unknown | closed | unknown | unknown |
//! | `BalanceShort` | unknown | unknown | balance short | unknown | unknown | unknown |
//! | `NoMoreRefunds` | unknown | unknown | failed | unknown | unknown | unknown |
//! | `Busy` | refused: wait, whatever was asked | | | | | |
//! | `Mistake` | refused: person, whatever was asked | | | | | |
//! | `Trouble`, or no row | unknown, whatever was asked | | | | | |

use paidonce_order::command::{RefundAmount, RefundOutcome};
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;

use crate::api::{
    ApiAnswer, ApiResponse, Ask, CloseState, Doubt, PaymentState, RefundOrder, RefundState, Refusal, Remedy, Reply,
    ReplyState, ShareState,
};
use crate::channel::{RawNotification, VerifyError};
use crate::digest::PartsDigest;
use crate::evidence::evidence;
use crate::json::{Json, Object, member, parse_object};
use crate::observation::{Fact, Source, Verified};
use crate::reading::{Message, Said, Stop, Unbookable, cut, refund_fact};

/// A response whose signature is good, on its way to an answer.
pub(crate) struct Answering<'a> {
    /// Who asked.
    pub(crate) account: &'a AccountRef,
    /// What came back.
    pub(crate) response: ApiResponse<'a>,
    /// What must be kept beside the body, so that the signature can be checked again.
    pub(crate) evidence_headers: Vec<(String, String)>,
    /// The key that verified it.
    pub(crate) key_id: String,
}

/// What was read.
pub(crate) struct Read {
    pub(crate) state: ReplyState,
    /// The platform's own word for it.
    pub(crate) word: String,
    pub(crate) said: Vec<Said>,
}

impl Read {
    /// A state that books nothing.
    pub(crate) fn state(state: ReplyState, word: &str) -> Self {
        Self { state, word: cut(word), said: Vec::new() }
    }
}

impl Answering<'_> {
    /// Our clock when it was received.
    pub(crate) const fn now(&self) -> Timestamp {
        self.response.now
    }

    /// The final answer with its evidence, or the doubt.
    pub(crate) fn finish(self, read: Result<Read, Doubt>) -> ApiAnswer {
        let Read { state, word, said } = match read {
            Ok(read) => read,
            Err(doubt) => return ApiAnswer::Unknown(doubt),
        };
        let ApiResponse { headers, body, now, .. } = self.response;
        let raw = RawNotification { headers, body, now };
        let message = Message {
            account: self.account,
            push_id: "",
            event_type: Some(&word),
            said_at: Some(now),
            content: PartsDigest::new("answer").with(body).finish(),
            evidence: evidence(self.account, Source::Query, self.evidence_headers, raw, self.key_id),
        };
        let notice = Verified::new(message.into_notice(said));
        ApiAnswer::Final(Box::new(Reply { state, notice, platform_state: word }))
    }
}

/// Nobody knows.
pub(crate) fn doubt(code: &'static str, detail: impl Into<String>) -> Doubt {
    Doubt { code, detail: detail.into() }
}

/// The answer is about something else than what was asked.
pub(crate) fn not_ours(field: &str, found: &str, asked: &str) -> Doubt {
    doubt("not_ours", format!("asked for {field} {:?}, the answer is about {:?}", cut(asked), cut(found)))
}

/// A verified refusal.
pub(crate) fn refused(code: &str, detail: &str, remedy: Remedy) -> ApiAnswer {
    ApiAnswer::Refused(Refusal { code: cut(code), detail: detail.chars().take(DETAIL_CHARS_MAX).collect(), remedy })
}

/// Longest foreign sentence in a refusal, in characters.
const DETAIL_CHARS_MAX: usize = 200;

impl From<Unbookable> for Doubt {
    fn from(unbookable: Unbookable) -> Self {
        doubt("unreadable", unbookable.detail)
    }
}

impl From<Stop> for Doubt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Unbookable(unbookable) => unbookable.into(),
            Stop::Refused(error @ VerifyError::NotOurs { .. }) => doubt("not_ours", error.to_string()),
            Stop::Refused(error) => doubt("unreadable", error.to_string()),
        }
    }
}

/// The content as one JSON object without repeated keys.
pub(crate) fn object(bytes: &[u8]) -> Result<Object<'_>, Doubt> {
    parse_object(bytes).map_err(|problem| doubt("unreadable", problem))
}

/// A text, or a number by its own digits: platforms write codes and amounts both ways.
pub(crate) fn text_or_digits<'j>(object: &'j Object<'_>, key: &str) -> Option<&'j str> {
    match member(object, key)? {
        Json::Text(text) => Some(text.as_ref()).filter(|text| !text.is_empty()),
        Json::Number(digits) => Some(digits),
        Json::Null | Json::Bool | Json::Array(_) | Json::Object(_) => None,
    }
}

/// What a platform's code means, before one looks at what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The platform has no such order, refund or share.
    NotFound,
    /// The order is paid, or in another state that can't be closed.
    NotUnpaid,
    /// The order is closed.
    AlreadyClosed,
    /// Our balance is too small for this refund.
    BalanceShort,
    /// The payment can't be refunded any more.
    NoMoreRefunds,
    /// Too many calls.
    Busy,
    /// Rights, parameters, configuration.
    Mistake,
    /// Something may or may not have happened.
    Trouble,
}

/// A platform's error code.
pub(crate) struct Code<'a> {
    /// As the platform writes it.
    pub(crate) word: &'a str,
    /// Its sentence.
    pub(crate) detail: &'a str,
}

/// What follows from a code for this question: the table at the top.
pub(crate) fn resolve(meaning: Option<Meaning>, code: &Code<'_>, ask: &Ask, answering: Answering<'_>) -> ApiAnswer {
    let unknown = |class| ApiAnswer::Unknown(doubt(class, format!("{}: {}", cut(code.word), cut(code.detail))));
    let person = || refused(code.word, code.detail, Remedy::Person);
    let state = match (meaning, ask) {
        (Some(Meaning::Busy), _) => return refused(code.word, code.detail, Remedy::Wait),
        (Some(Meaning::Mistake), _)
        | (Some(Meaning::NotFound), Ask::Refund(_) | Ask::Certificates | Ask::AlipayCertificate { .. })
        | (Some(Meaning::NotUnpaid), Ask::Refund(_)) => return person(),
        (Some(Meaning::NotFound), Ask::Payment { .. } | Ask::PaymentByTradeNo { .. }) => {
            ReplyState::Payment(PaymentState::NotFound)
        }
        (Some(Meaning::NotFound), Ask::CombinePayment { .. }) => ReplyState::Combine(None),
        (Some(Meaning::NotFound), Ask::RefundState(_)) => ReplyState::Refund(RefundState::NotFound),
        (Some(Meaning::NotFound), Ask::Close { .. } | Ask::CloseCombine { .. }) => {
            ReplyState::Close(CloseState::NotFound)
        }
        (Some(Meaning::NotFound), Ask::Share { .. }) => ReplyState::Share(ShareState::NotFound),
        (Some(Meaning::NotUnpaid), Ask::Close { .. } | Ask::CloseCombine { .. }) => {
            ReplyState::Close(CloseState::MaybePaid)
        }
        (Some(Meaning::AlreadyClosed), Ask::Close { .. } | Ask::CloseCombine { .. }) => {
            ReplyState::Close(CloseState::Closed)
        }
        (Some(Meaning::BalanceShort), Ask::Refund(refund)) => {
            let said = vec![not_refunded(refund, RefundOutcome::Stalled, answering.now())];
            let state = ReplyState::Refund(RefundState::BalanceShort);
            return answering.finish(Ok(Read { state, word: cut(code.word), said }));
        }
        (Some(Meaning::NoMoreRefunds), Ask::Refund(refund)) => {
            let said = vec![not_refunded(refund, RefundOutcome::Failed, answering.now())];
            let state = ReplyState::Refund(RefundState::Failed);
            return answering.finish(Ok(Read { state, word: cut(code.word), said }));
        }
        (Some(Meaning::Trouble), _) => return unknown("server_error"),
        (
            None | Some(Meaning::NotUnpaid | Meaning::AlreadyClosed | Meaning::BalanceShort | Meaning::NoMoreRefunds),
            _,
        ) => return unknown("unknown_code"),
    };
    answering.finish(Ok(Read::state(state, code.word)))
}

/// The refund that was asked for did not happen: the refusal itself says so, its numbers are those of the question.
fn not_refunded(refund: &RefundOrder, outcome: RefundOutcome, now: Timestamp) -> Said {
    let numbers = &refund.numbers;
    let amount = RefundAmount::Exact(refund.amount);
    let fact = refund_fact(numbers.payment.clone(), numbers.refund_no.clone(), outcome, amount, now);
    Said::about(numbers.order_no.clone(), Fact::Refund(fact))
}

/// Why an answer is not verified, with what it says for people: the code in it is worth no more than a hint.
pub(crate) fn unverified_doubt(error: &VerifyError, response: ApiResponse<'_>) -> Doubt {
    let is_signed = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Wechatpay-Signature"));
    let code = match error {
        VerifyError::Probe => "probe",
        _unsigned if !is_signed && response.status >= 500 => "server_error",
        _unsigned if !is_signed => "unsigned",
        VerifyError::UnknownSerial { .. } => "unknown_serial",
        VerifyError::Malformed { .. }
        | VerifyError::BadSignature { .. }
        | VerifyError::Stale { .. }
        | VerifyError::AlgorithmNotAllowed { .. } => "bad_signature",
        VerifyError::NotOurs { .. } | VerifyError::Unreadable { .. } => "unreadable",
    };
    let said = parse_object(response.body).ok();
    let said = said.as_ref().and_then(|body| text_or_digits(body, "code")).map(cut).unwrap_or_default();
    doubt(code, format!("{error} (status {}, unverified code {said:?})", response.status))
}
