//! The channel-neutral fact.

use paidonce_order::command::{AttemptFact, FlagFact, PaymentFact, RefundFact, ShareFact, StrayFact};
use paidonce_order::ids::{AccountRef, Digest, OrderNo};
use paidonce_order::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// Proof that the value went through a verifier: there is no public constructor.
#[derive(Debug, Clone)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// Only for the verifiers of this crate.
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// The verified value.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// A look at the verified value.
    pub const fn get(&self) -> &T {
        &self.0
    }
}

/// Everything one verified message says: 1 to 50 observations or strays, in the order to record them, and its evidence.
#[derive(Debug, Clone)]
pub struct Notice {
    /// What it says.
    pub observations: Vec<Observation>,
    /// What can't be booked but must be kept.
    pub strays: Vec<StrayNotice>,
    /// The signed bytes.
    pub evidence: Evidence,
    /// The platform's id of this push, for logs only.
    pub push_id: String,
    /// Set when a Stray was kept for a message that must NOT be acknowledged: record it, then answer
    /// [`VerifyErrorAfterRecording::http_status`].
    pub refuse_after_recording: Option<VerifyErrorAfterRecording>,
}

/// Why a kept message is still refused: its signature is good, but no plaintext can be had from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyErrorAfterRecording {
    /// The APIv3 key does not open it: the resend after the key is fixed books it.
    Undecryptable,
    /// The resource itself is broken (no ciphertext, nonce of another length than 12 bytes, ...).
    BrokenResource,
}

impl VerifyErrorAfterRecording {
    /// Stable word for metrics and logs; also the code of the stray.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Undecryptable => "undecryptable",
            Self::BrokenResource => "broken_resource",
        }
    }

    /// HTTP status of the refusal, once the stray is committed.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Undecryptable => 500,
            Self::BrokenResource => 400,
        }
    }

    /// For the FAIL body.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Undecryptable => "the resource can't be decrypted, please send it again",
            Self::BrokenResource => "the resource is malformed",
        }
    }
}

/// One fact about one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// From signed content only; `None` for share notices, which carry only a channel_trade_no.
    pub order_no: Option<OrderNo>,
    /// What happened.
    pub fact: Fact,
}

/// Kinds of facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// Money came in.
    Payment(PaymentFact),
    /// A refund moved.
    Refund(RefundFact),
    /// Shared money moved.
    Share(ShareFact),
    /// One way to pay is closed unpaid.
    AttemptClosed(AttemptFact),
    /// Verified, books nothing, needs a person.
    Flag(FlagFact),
    /// Verified, known, books nothing and needs nobody (WAIT_BUYER_PAY): acknowledged, nothing written.
    Nothing,
}

/// Something verified that names no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayNotice {
    /// aggregate id: `channel:account:<digest>`.
    pub stray_id: String,
    /// What is kept.
    pub fact: StrayFact,
}

/// The signed bytes and what is needed to check them again years later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Where it came in.
    pub account: AccountRef,
    /// How.
    pub source: Source,
    /// Signature headers (lower-case names) for WeChat; empty for Alipay, whose body holds the signature.
    pub headers: Vec<(String, String)>,
    /// Exact body bytes.
    pub body: Vec<u8>,
    /// Serial or id of the key that verified it.
    pub key_id: String,
    /// When we received it.
    pub received_at: Timestamp,
    /// SHA-256 over length-prefixed headers and body.
    pub digest: Digest,
}

/// The door a fact came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The platform pushed it.
    Callback,
    /// We asked.
    Query,
    /// A bill row.
    Bill,
    /// A named person.
    Operator,
}
