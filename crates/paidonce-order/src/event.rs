//! What happened. A public, versioned schema: fields are only ever added with a default, or the version is raised and an
//! upcaster written. Payloads carry no personal data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::{
    AttemptFact, FlagFact, Operator, PaymentFact, PaymentRef, RefundFact, RefundOrigin, ShareFact, StrayFact, Terms,
};
use crate::ids::RefundNo;
use crate::money::Money;

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
    /// An exact figure splits a derived one; the total is unchanged.
    RefundSplit {
        /// Which payment.
        payment: PaymentRef,
        /// The derived refund that shrinks.
        from: RefundNo,
        /// What is left of it.
        from_amount: Money,
        /// The refund that the exact figure names.
        refund_no: RefundNo,
        /// Its exact amount.
        amount: Money,
        /// As the channel stated it.
        fact: RefundFact,
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
