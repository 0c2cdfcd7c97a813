//! Why a command is rejected. A rejection writes nothing and is final for this state of the order.

use crate::ids::{OrderNo, RefundNo};
use crate::money::{Money, MoneyError};

/// One variant for each decision a caller can make. `code()` is the stable word of the API's problem type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The order is not open in this ledger.
    #[error("order {order_no} is not open in this ledger: POST /v1/orders first")]
    NotOpened {
        /// Which order.
        order_no: OrderNo,
    },
    /// Opened before with other terms.
    #[error(
        "order {order_no} was opened with other terms ({field} differs): use a new order_no, with supersedes if it replaces this one"
    )]
    OrderTermsDiffer {
        /// Which order.
        order_no: OrderNo,
        /// First field that differs.
        field: &'static str,
    },
    /// The terms themselves are wrong.
    #[error("{field}: {problem}")]
    InvalidTerms {
        /// Which field.
        field: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Can't close a paid order.
    #[error("order {order_no} is already paid: refund it instead of closing it")]
    AlreadyPaid {
        /// Which order.
        order_no: OrderNo,
    },
    /// No such payment on this order.
    #[error("order {order_no} has no such payment: name one of its payments (GET /v1/orders/{order_no})")]
    NoSuchPayment {
        /// Which order.
        order_no: OrderNo,
    },
    /// More than is left of the payment.
    #[error("refund of {amount} exceeds what is left of the payment: {refundable}")]
    ExceedsPaid {
        /// Asked for.
        amount: Money,
        /// Still refundable (paid - done - open).
        refundable: Money,
    },
    /// Same refund number, other amount or payment.
    #[error(
        "refund_no {refund_no} was already used with another amount or payment: repeat it unchanged or use a new number"
    )]
    RefundTermsDiffer {
        /// Which number.
        refund_no: RefundNo,
    },
    /// No such open item.
    #[error("order {order_no} has no open item {item_no:?}")]
    NoSuchItem {
        /// Which order.
        order_no: OrderNo,
        /// What was asked for.
        item_no: String,
    },
    /// The action does not fit the item (accept a refunded surplus, settle a paid order, ...).
    #[error("{problem}")]
    NotAllowed {
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A sum left i64 or mixed currencies.
    #[error("amounts of the order can't be added")]
    Money(#[from] MoneyError),
}

impl OrderError {
    /// Stable code for clients.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotOpened { .. } => "order_not_opened",
            Self::OrderTermsDiffer { .. } => "order_terms_differ",
            Self::InvalidTerms { .. } => "invalid_terms",
            Self::AlreadyPaid { .. } => "already_paid",
            Self::NoSuchPayment { .. } => "no_such_payment",
            Self::ExceedsPaid { .. } => "exceeds_paid",
            Self::RefundTermsDiffer { .. } => "refund_terms_differ",
            Self::NoSuchItem { .. } => "no_such_item",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Money(_) => "amount_out_of_range",
        }
    }
}
