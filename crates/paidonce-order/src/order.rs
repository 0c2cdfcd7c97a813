//! The state of an order. It is a function of the events alone (promise P4); [`crate::apply`] is that function.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::{PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOrigin, ShareFact, Terms};
use crate::event::SurplusReason;
use crate::fact_key::FactKey;
use crate::ids::{AccountRef, ChannelTradeNo, Digest, RefundNo};
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
    /// Shares already booked.
    pub shares: BTreeMap<FactKey, ShareFact>,
    /// Shares that we ask the channel about: payment and out_order_no.
    pub shares_followed: BTreeSet<(PaymentRef, String)>,
    /// Open and closed items; the key inside the order, [`FactKey::in_order`] is the item_no.
    pub items: BTreeMap<FactKey, Item>,
    /// Why it was closed, when it was.
    pub close_reason: Option<String>,
    /// Content digests of conflicts and flags already recorded: each is recorded once.
    pub flagged_contents: BTreeSet<Digest>,
    /// How often the key of a refund or of a parked share was used: two payments may carry one refund number, and one
    /// number may name two differences of a cumulative figure.
    pub key_counts: BTreeMap<FactKey, u32>,
}

impl Order {
    /// `events.aggregate_type`.
    pub const TYPE_NAME: &'static str = "Order";

    /// The payment that settled the order.
    #[must_use]
    pub fn settling_payment(&self) -> Option<&Payment> {
        self.payments.iter().find(|payment| payment.role == PaymentRole::Settling)
    }

    /// The payment with this number at this channel. The account is not compared: it is part of the content, so that
    /// the same number from another account is a conflict and not a second payment.
    #[must_use]
    pub fn find_payment(&self, payment: &PaymentRef) -> Option<&Payment> {
        self.payments.iter().find(|known| known.is_named_by(payment))
    }

    /// Whether a fact can't be decided yet.
    #[must_use]
    pub fn must_wait(&self, fact: &ParkedFact) -> bool {
        match (fact, self.status) {
            (ParkedFact::Payment(_), status) => status == Status::Unopened,
            (ParkedFact::Refund(refund), _) => self.find_payment(&refund.payment).is_none(),
            (ParkedFact::Share(_), Status::Unopened | Status::Pending) => true,
            (ParkedFact::Share(share), Status::Paid | Status::Refunded) => self.find_payment(&share.payment).is_none(),
            // Nothing settles a closed order any more, so a share can't wait for it: it goes to a person.
            (ParkedFact::Share(_), Status::Closed) => false,
        }
    }
}

/// What an order's money adds up to. Units: minor units of the terms' currency;
/// money in another currency is a surplus that only the flows and [`Order::payments`] show, since it can't be added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// The settling payment.
    pub paid_minor: i64,
    /// Payments that settle nothing. An accepted surplus counts as paid from then on.
    pub surplus_minor: i64,
    /// Confirmed refunds of all payments.
    pub refunded_minor: i64,
}

impl Order {
    /// What the money adds up to. `decide` books no payment that would leave i64, so nothing saturates here.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let currency = self.terms.as_ref().map(|terms| terms.amount.currency);
        let mut sums = Sums::default();
        for payment in self.payments.iter().filter(|payment| Some(payment.fact.amount.currency) == currency) {
            let amount_minor = payment.fact.amount.amount_minor;
            match payment.role {
                PaymentRole::Settling => sums.paid_minor = sums.paid_minor.saturating_add(amount_minor),
                PaymentRole::Surplus(_) => sums.surplus_minor = sums.surplus_minor.saturating_add(amount_minor),
            }
            sums.refunded_minor = sums.refunded_minor.saturating_add(payment.refunded_minor());
        }
        sums
    }
}

/// One payment inside an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Payment {
    /// What the channel said.
    pub fact: PaymentFact,
    /// Settling, or why not.
    pub role: PaymentRole,
    /// Its refunds, in the order they were first seen. A number may stand twice: once with a figure of its own and once
    /// derived (a difference booked on a notice that named it).
    pub refunds: Vec<Refund>,
    /// The fact with the largest cumulative refund figure that was booked.
    pub cumulative: Option<RefundFact>,
    /// Numbers that differences were booked under: a cumulative notice named them as done, even if exact figures have
    /// explained the money since.
    pub numbers_of_totals: BTreeSet<RefundNo>,
}

impl Payment {
    /// Same channel and number.
    #[must_use]
    pub fn is_named_by(&self, payment: &PaymentRef) -> bool {
        self.fact.payment.is_same_trade(payment)
    }

    /// The refund with a figure of its own (asked for, stuck, done or failed) under this number.
    #[must_use]
    pub fn find_refund(&self, refund_no: &RefundNo) -> Option<&Refund> {
        self.refunds.iter().find(|refund| !refund.derived && refund.refund_no == *refund_no)
    }

    /// Money that went back. Units: minor units of the payment's currency.
    #[must_use]
    pub fn refunded_minor(&self) -> i64 {
        self.sum_of(|refund| refund.state == RefundState::Confirmed)
    }

    /// Money that is asked for or stuck on its way back. Units: minor units of the payment's currency.
    #[must_use]
    pub fn open_refunds_minor(&self) -> i64 {
        self.sum_of(|refund| matches!(refund.state, RefundState::Requested | RefundState::Stalled))
    }

    /// Money booked as a difference that no refund of its own figure explains yet.
    #[must_use]
    pub fn derived_minor(&self) -> i64 {
        self.sum_of(|refund| refund.derived)
    }

    /// What may still be asked for: amount - done - open, never negative.
    #[must_use]
    pub fn refundable_minor(&self) -> i64 {
        let used = self.refunded_minor().saturating_add(self.open_refunds_minor());
        self.fact.amount.amount_minor.saturating_sub(used).max(0)
    }

    /// Whether all of it went back.
    #[must_use]
    pub fn is_fully_refunded(&self) -> bool {
        self.fact.amount.amount_minor > 0 && self.refunded_minor() >= self.fact.amount.amount_minor
    }

    /// Largest cumulative refund figure that was booked, 0 when none was.
    #[must_use]
    pub const fn cumulative_minor(&self) -> i64 {
        match &self.cumulative {
            Some(RefundFact { amount: RefundAmount::Cumulative(total), .. }) => total.amount_minor,
            Some(_) | None => 0,
        }
    }

    /// Saturates: open refunds of a platform may be as absurd as the platform likes, and a sum that is too large only
    /// makes the ceiling tighter. Booked refunds never exceed the payment.
    fn sum_of(&self, wanted: impl Fn(&Refund) -> bool) -> i64 {
        let wanted = self.refunds.iter().filter(|refund| wanted(refund));
        wanted.fold(0_i64, |sum, refund| sum.saturating_add(refund.amount.amount_minor))
    }
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
    /// Booked as a difference of cumulative figures, not yet named by an exact one.
    pub derived: bool,
    /// By the channel's clock, once it spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
}

/// Where a refund stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefundState {
    /// Asked for; money reserved.
    Requested,
    /// Stuck at the channel; money reserved.
    Stalled,
    /// Money went back.
    Confirmed,
    /// Final failure; reservation released.
    Failed,
    /// The number belongs to somebody else's refund at the channel; final, reservation released.
    NumberTaken,
}

/// A verified fact that waits, and the key of the event that parked it (also its item).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parked {
    /// Key inside the order.
    pub key: FactKey,
    /// What waits.
    pub fact: ParkedFact,
}

/// What can wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParkedFact {
    /// For the order to be opened.
    Payment(PaymentFact),
    /// For its payment.
    Refund(RefundFact),
    /// For the order to be paid, or for its payment.
    Share(ShareFact),
}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// What kind.
    pub kind: ItemKind,
    /// One sentence for a person.
    pub detail: String,
    /// The payment it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<PaymentRef>,
    /// Open, or what closed it.
    pub state: ItemState,
}

impl Item {
    /// Whether it still needs a person.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == ItemState::Open
    }
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// Needs a person.
    Open,
    /// A person dealt with it.
    Resolved,
    /// What it waited for came, and it was decided.
    Adopted,
    /// The money went back.
    Refunded,
    /// The payment settles the order now.
    Accepted,
    /// The stuck refund failed for good.
    Failed,
}

impl ItemState {
    /// The word of `t_item.state`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
            Self::Adopted => "adopted",
            Self::Refunded => "refunded",
            Self::Accepted => "accepted",
            Self::Failed => "failed",
        }
    }
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
