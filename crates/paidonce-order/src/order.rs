//! The state of an order and how events change it. State is a function of the events alone (promise P4).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::{PaymentFact, PaymentRef, RefundFact, RefundOrigin, ShareFact, Terms};
use crate::event::SurplusReason;
use crate::ids::{AccountRef, ChannelTradeNo, RefundNo};
use crate::money::Money;
use crate::timestamp::Timestamp;

/// Where an order stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Only heard of, not opened here.
    #[default]
    Unopened,
    /// Waiting for money.
    Pending,
    /// The settling payment is in.
    Paid,
    /// The settling payment is fully back.
    Refunded,
    /// Closed unpaid.
    Closed,
}

impl Status {
    /// `UNOPENED`, `PENDING`, `PAID`, `REFUNDED`, `CLOSED`: the words of `t_order.status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unopened => "UNOPENED",
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Refunded => "REFUNDED",
            Self::Closed => "CLOSED",
        }
    }
}

/// The aggregate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// See [`Status`].
    pub status: Status,
    /// Set by `OrderOpened`.
    pub terms: Option<Terms>,
    /// Number of events applied = sequence of the last one.
    pub version: i64,
    /// Every payment that came in, in the order of booking.
    pub payments: Vec<Payment>,
    /// Facts that wait for the order or for their payment.
    pub parked: Vec<Parked>,
    /// Accounts whose way to pay is closed.
    pub attempts_closed: BTreeSet<AccountRef>,
    /// Shares already booked, by their idem key.
    pub shares: BTreeMap<String, ShareFact>,
    /// Open and closed items, by item_no.
    pub items: BTreeMap<String, Item>,
    /// Why it was closed, when it was.
    pub close_reason: Option<String>,
    /// Content digests of conflicts and flags already recorded.
    pub flagged_contents: BTreeSet<String>,
}

/// One payment inside an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Payment {
    /// What the channel said.
    pub fact: PaymentFact,
    /// Settling, or why not.
    pub role: PaymentRole,
    /// Its refunds, in the order they were first seen.
    pub refunds: Vec<Refund>,
    /// Largest cumulative refund figure seen.
    pub cumulative_seen_minor: i64,
}

/// What a payment does for its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentRole {
    /// It settled the order.
    Settling,
    /// It settles nothing.
    Surplus(SurplusReason),
}

/// One refund of one payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refund {
    /// Our number.
    pub refund_no: RefundNo,
    /// The channel's number, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_refund_no: Option<ChannelTradeNo>,
    /// Requested or booked amount.
    pub amount: Money,
    /// Where it stands.
    pub state: RefundState,
    /// Where it began.
    pub origin: RefundOrigin,
    /// Booked as a difference of cumulative figures, not yet confirmed by an exact one.
    pub derived: bool,
    /// By the channel's clock, once it spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
}

/// Where a refund stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum RefundState {
    /// Asked for; money reserved.
    Requested,
    /// Stuck at the channel; money reserved.
    Stalled,
    /// Money went back.
    Confirmed,
    /// Final failure; reservation released.
    Failed,
}

/// A verified fact that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parked {
    /// For the order to be opened.
    Payment(PaymentFact),
    /// For its payment.
    Refund(RefundFact),
    /// For its payment.
    Share(ShareFact),
}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// Stable name: the idem key of the event that opened it.
    pub item_no: String,
    /// What kind.
    pub kind: ItemKind,
    /// One sentence for a person.
    pub detail: String,
    /// The payment it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<PaymentRef>,
    /// `false` once resolved, adopted, refunded or accepted.
    pub open: bool,
}

/// Kinds of items (`GET /v1/items?kind=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// Verified but waiting.
    Parked,
    /// Money in that settles nothing.
    Surplus,
    /// Needs a person.
    Flagged,
    /// Names no order.
    Stray,
    /// The writer could not decide it.
    Quarantined,
    /// A refund is stuck.
    Stalled,
}

impl ItemKind {
    /// The lower-case word of the API and of `t_item.kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Surplus => "surplus",
            Self::Flagged => "flagged",
            Self::Stray => "stray",
            Self::Quarantined => "quarantined",
            Self::Stalled => "stalled",
        }
    }
}
