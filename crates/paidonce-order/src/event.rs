//! What happened. A public, versioned schema: fields are only ever added with a default, or the version is raised and an
//! upcaster written. Payloads carry no personal data.

use cqrs_es::DomainEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::{
    AttemptFact, FlagFact, Operator, PaymentFact, PaymentRef, RefundFact, RefundOrigin, ShareFact, StrayFact, Terms,
};
use crate::ids::RefundNo;
use crate::money::Money;
use crate::order::Order;
use crate::stray::Stray;
use crate::timestamp::Timestamp;
use crate::upcast;

/// An event of the `Order` aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrderEvent {
    /// The order exists.
    OrderOpened(Terms),
    /// The settling payment: PENDING becomes PAID.
    PaymentConfirmed(PaymentFact),
    /// Money came in that settles nothing; the order does not move.
    SurplusPaymentRecorded {
        /// The payment.
        fact: PaymentFact,
        /// Why it settles nothing.
        reason: SurplusReason,
    },
    /// A payment for an order that we have only heard of.
    PaymentParked(PaymentFact),
    /// An operator let a surplus payment settle the order.
    SurplusAccepted {
        /// Which payment.
        payment: PaymentRef,
        /// Its amount.
        amount: Money,
        /// Who and why.
        by: Operator,
    },
    /// We want this refund; money is reserved.
    RefundRequested {
        /// Which payment.
        payment: PaymentRef,
        /// Our number.
        refund_no: RefundNo,
        /// How much.
        amount: Money,
        /// For the log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Who wanted it.
        origin: RefundOrigin,
    },
    /// Money went back.
    RefundConfirmed {
        /// As the channel stated it.
        fact: RefundFact,
        /// What this refund moved: the exact figure, or the booked difference of a cumulative one.
        amount: Money,
        /// Where it began.
        origin: RefundOrigin,
        /// `true` when `amount` is a difference that no exact figure has confirmed.
        derived: bool,
    },
    /// Final failure; the reservation is released.
    RefundFailed {
        /// As the channel stated it.
        fact: RefundFact,
    },
    /// Stuck; the reservation stays.
    RefundStalled {
        /// As the channel stated it.
        fact: RefundFact,
    },
    /// A refund whose payment we don't know yet.
    RefundParked(RefundFact),
    /// An exact figure names (part of) what was booked as a difference; the total is unchanged.
    RefundSplit {
        /// As the channel stated it: the refund that now has a figure of its own.
        fact: RefundFact,
        /// Which derived refunds shrink, and by how much.
        parts: Vec<SplitPart>,
        /// Where the named refund began.
        origin: RefundOrigin,
    },
    /// Our refund number belongs to somebody else's payment at the channel; final.
    RefundNumberTaken {
        /// Which payment we meant.
        payment: PaymentRef,
        /// The number.
        refund_no: RefundNo,
        /// What the channel stated.
        fact: RefundFact,
    },
    /// Shared money moved out.
    ProfitShareConfirmed(ShareFact),
    /// Shared money came back.
    ProfitShareReturned(ShareFact),
    /// A share for an order or payment that we don't know yet.
    ProfitShareParked(ShareFact),
    /// The merchant has started this share at the channel; it sends no notice to the sharer, so we ask.
    ProfitShareFollowed {
        /// Whose money is shared.
        payment: PaymentRef,
        /// out_order_no, out_request_no.
        out_order_no: String,
    },
    /// One way to pay is closed unpaid.
    AttemptClosed(AttemptFact),
    /// The order is closed unpaid.
    OrderClosed {
        /// Why.
        reason: String,
    },
    /// The same fact with other content than before.
    FactConflicted(FlagFact),
    /// A verified statement that needs a person.
    FactFlagged(FlagFact),
    /// An operator closed an open item.
    ItemResolved {
        /// Which item.
        item_no: String,
        /// Who and why.
        by: Operator,
    },
}

/// What a derived refund gives up to an exact one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SplitPart {
    /// The number that the derived refund was booked under.
    pub from: RefundNo,
    /// How much of it belongs to the named refund.
    pub amount: Money,
}

/// Why a payment settles nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SurplusReason {
    /// The order is already paid by another payment.
    SecondPayment,
    /// The order was closed before.
    AfterClose,
    /// Amount or currency differ from the terms.
    AmountMismatch,
    /// The order may not be paid through this account.
    OtherAccount,
}

/// An event of the `Stray` aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrayEvent {
    /// Kept.
    StrayRecorded(StrayFact),
    /// Dealt with.
    StrayResolved {
        /// Who and why.
        by: Operator,
    },
}

/// Any event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEvent {
    /// Of an order.
    Order(OrderEvent),
    /// Of a stray.
    Stray(StrayEvent),
}

/// Version of every event of this release.
const VERSION_1: &str = "1";

/// Every (event type, version) that this release can decode. A log that holds another pair is refused at start.
pub const KNOWN_EVENTS: &[(&str, &str)] = &[
    ("OrderOpened", VERSION_1),
    ("PaymentConfirmed", VERSION_1),
    ("SurplusPaymentRecorded", VERSION_1),
    ("PaymentParked", VERSION_1),
    ("SurplusAccepted", VERSION_1),
    ("RefundRequested", VERSION_1),
    ("RefundConfirmed", VERSION_1),
    ("RefundFailed", VERSION_1),
    ("RefundStalled", VERSION_1),
    ("RefundParked", VERSION_1),
    ("RefundSplit", VERSION_1),
    ("RefundNumberTaken", VERSION_1),
    ("ProfitShareConfirmed", VERSION_1),
    ("ProfitShareReturned", VERSION_1),
    ("ProfitShareParked", VERSION_1),
    ("ProfitShareFollowed", VERSION_1),
    ("AttemptClosed", VERSION_1),
    ("OrderClosed", VERSION_1),
    ("FactConflicted", VERSION_1),
    ("FactFlagged", VERSION_1),
    ("ItemResolved", VERSION_1),
    ("StrayRecorded", VERSION_1),
    ("StrayResolved", VERSION_1),
];

impl OrderEvent {
    /// The stable name, `events.event_type`.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::OrderOpened(_) => "OrderOpened",
            Self::PaymentConfirmed(_) => "PaymentConfirmed",
            Self::SurplusPaymentRecorded { .. } => "SurplusPaymentRecorded",
            Self::PaymentParked(_) => "PaymentParked",
            Self::SurplusAccepted { .. } => "SurplusAccepted",
            Self::RefundRequested { .. } => "RefundRequested",
            Self::RefundConfirmed { .. } => "RefundConfirmed",
            Self::RefundFailed { .. } => "RefundFailed",
            Self::RefundStalled { .. } => "RefundStalled",
            Self::RefundParked(_) => "RefundParked",
            Self::RefundSplit { .. } => "RefundSplit",
            Self::RefundNumberTaken { .. } => "RefundNumberTaken",
            Self::ProfitShareConfirmed(_) => "ProfitShareConfirmed",
            Self::ProfitShareReturned(_) => "ProfitShareReturned",
            Self::ProfitShareParked(_) => "ProfitShareParked",
            Self::ProfitShareFollowed { .. } => "ProfitShareFollowed",
            Self::AttemptClosed(_) => "AttemptClosed",
            Self::OrderClosed { .. } => "OrderClosed",
            Self::FactConflicted(_) => "FactConflicted",
            Self::FactFlagged(_) => "FactFlagged",
            Self::ItemResolved { .. } => "ItemResolved",
        }
    }
}

impl OrderEvent {
    /// When it happened, by the channel's clock; `None` for what the channel did not say.
    #[must_use]
    pub const fn occurred_at(&self) -> Option<Timestamp> {
        match self {
            Self::PaymentConfirmed(fact) | Self::PaymentParked(fact) | Self::SurplusPaymentRecorded { fact, .. } => {
                Some(fact.occurred_at)
            }
            Self::RefundConfirmed { fact, .. }
            | Self::RefundFailed { fact }
            | Self::RefundStalled { fact }
            | Self::RefundParked(fact)
            | Self::RefundSplit { fact, .. }
            | Self::RefundNumberTaken { fact, .. } => Some(fact.occurred_at),
            Self::ProfitShareConfirmed(fact) | Self::ProfitShareReturned(fact) | Self::ProfitShareParked(fact) => {
                Some(fact.occurred_at)
            }
            Self::AttemptClosed(fact) => Some(fact.occurred_at),
            Self::FactConflicted(fact) | Self::FactFlagged(fact) => Some(fact.occurred_at),
            Self::OrderOpened(_)
            | Self::SurplusAccepted { .. }
            | Self::RefundRequested { .. }
            | Self::ProfitShareFollowed { .. }
            | Self::OrderClosed { .. }
            | Self::ItemResolved { .. } => None,
        }
    }

    /// Money that the event is about, as it was stated or asked for.
    #[must_use]
    pub const fn amount(&self) -> Option<Money> {
        match self {
            Self::OrderOpened(terms) => Some(terms.amount),
            Self::PaymentConfirmed(fact) | Self::PaymentParked(fact) | Self::SurplusPaymentRecorded { fact, .. } => {
                Some(fact.amount)
            }
            Self::SurplusAccepted { amount, .. }
            | Self::RefundRequested { amount, .. }
            | Self::RefundConfirmed { amount, .. } => Some(*amount),
            Self::RefundFailed { fact }
            | Self::RefundStalled { fact }
            | Self::RefundParked(fact)
            | Self::RefundSplit { fact, .. }
            | Self::RefundNumberTaken { fact, .. } => Some(fact.amount.stated()),
            Self::ProfitShareConfirmed(fact) | Self::ProfitShareReturned(fact) | Self::ProfitShareParked(fact) => {
                Some(fact.amount)
            }
            Self::ProfitShareFollowed { .. }
            | Self::AttemptClosed(_)
            | Self::OrderClosed { .. }
            | Self::FactConflicted(_)
            | Self::FactFlagged(_)
            | Self::ItemResolved { .. } => None,
        }
    }
}

impl StrayEvent {
    /// The stable name, `events.event_type`.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::StrayRecorded(_) => "StrayRecorded",
            Self::StrayResolved { .. } => "StrayResolved",
        }
    }
}

impl DomainEvent for OrderEvent {
    fn event_type(&self) -> String {
        Self::event_type(self).to_owned()
    }

    fn event_version(&self) -> String {
        VERSION_1.to_owned()
    }
}

impl DomainEvent for StrayEvent {
    fn event_type(&self) -> String {
        Self::event_type(self).to_owned()
    }

    fn event_version(&self) -> String {
        VERSION_1.to_owned()
    }
}

/// A stored event that this release can't read. The store refuses to start, or stops writing.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Written by a newer release: upgrade this node.
    #[error("event {event_type} version {event_version} of {aggregate_type} is not known to this release")]
    UnknownEvent {
        /// `Order` or `Stray`, or something newer.
        aggregate_type: String,
        /// As stored.
        event_type: String,
        /// As stored.
        event_version: String,
    },
    /// Known by name, but the payload is not what that name promises: the row was damaged.
    #[error("the payload of {event_type} can't be read")]
    Payload {
        /// As stored.
        event_type: String,
        /// What serde says.
        source: serde_json::Error,
    },
    /// The payload is another event than the row says.
    #[error("the row says {event_type} but the payload is {payload_type}")]
    TypeDiffers {
        /// As stored.
        event_type: String,
        /// What the payload is.
        payload_type: &'static str,
    },
}

impl LedgerEvent {
    /// `Order` or `Stray`.
    #[must_use]
    pub const fn aggregate_type(&self) -> &'static str {
        match self {
            Self::Order(_) => Order::TYPE_NAME,
            Self::Stray(_) => Stray::TYPE_NAME,
        }
    }

    /// The stable name.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match self {
            Self::Order(event) => event.event_type(),
            Self::Stray(event) => event.event_type(),
        }
    }

    /// The version that [`Self::to_payload_json`] writes.
    #[must_use]
    pub const fn event_version(&self) -> &'static str {
        VERSION_1
    }

    /// The payload as postgres-es stores it: `{"PaymentConfirmed": {..}}`.
    ///
    /// Errors: none that a caller can meet (all keys are text); kept as a result because serde has one.
    pub fn to_payload_json(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Order(event) => serde_json::to_string(event),
            Self::Stray(event) => serde_json::to_string(event),
        }
    }

    /// Reads a stored event, upcasting older versions.
    ///
    /// Errors: [`DecodeError`]; unknown (type, version) is told apart from a damaged payload.
    pub fn from_stored(
        aggregate_type: &str,
        event_type: &str,
        event_version: &str,
        payload: &str,
    ) -> Result<Self, DecodeError> {
        let is_known = KNOWN_EVENTS.contains(&(event_type, event_version));
        let unknown = || DecodeError::UnknownEvent {
            aggregate_type: aggregate_type.to_owned(),
            event_type: event_type.to_owned(),
            event_version: event_version.to_owned(),
        };
        let damaged = |source| DecodeError::Payload { event_type: event_type.to_owned(), source };
        if !is_known {
            return Err(unknown());
        }
        let payload = upcast::upcast_payload(event_type, event_version, payload).map_err(damaged)?;
        let event = match aggregate_type {
            Order::TYPE_NAME => Self::Order(serde_json::from_str(&payload).map_err(damaged)?),
            Stray::TYPE_NAME => Self::Stray(serde_json::from_str(&payload).map_err(damaged)?),
            _ => return Err(unknown()),
        };
        if event.event_type() == event_type {
            Ok(event)
        } else {
            Err(DecodeError::TypeDiffers { event_type: event_type.to_owned(), payload_type: event.event_type() })
        }
    }
}
