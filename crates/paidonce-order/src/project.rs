//! Event to row changes: one pure function that the writer, the rebuild and the audit share (promise P4).

use serde::{Deserialize, Serialize};

use crate::event::LedgerEvent;
use crate::idem_key::IdemKey;
use crate::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo};
use crate::money::Money;
use crate::order::{ItemKind, Order, Status};
use crate::stray::Stray;
use crate::timestamp::Timestamp;

/// A row of `t_order`: the whole row after an event. The store writes the last one of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRow {
    /// Key.
    pub order_no: OrderNo,
    /// Current status.
    pub status: Status,
    /// Terms; `None` while UNOPENED.
    pub amount: Option<Money>,
    /// Amount of the settling payment.
    pub paid_minor: i64,
    /// Sum of all confirmed refunds, of surplus payments too.
    pub refunded_minor: i64,
    /// Sum of payments that settle nothing.
    pub surplus_minor: i64,
    /// Sequence of the last event.
    pub version: i64,
    /// Account of the settling payment.
    pub account: Option<AccountRef>,
    /// Channel's number of the settling payment.
    pub channel_trade_no: Option<ChannelTradeNo>,
    /// When it was paid (channel's clock).
    pub pay_time: Option<Timestamp>,
    /// When it would be closed.
    pub expires_at: Option<Timestamp>,
    /// For people.
    pub description: Option<String>,
    /// The attempt that it replaced.
    pub supersedes: Option<OrderNo>,
}

/// A row of `t_order_flow`: money moved. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Key of the fact.
    pub idem_key: IdemKey,
    /// Order.
    pub order_no: OrderNo,
    /// PAY, SURPLUS, REFUND, SHARE, SHARE_RETURN.
    pub trade_type: TradeType,
    /// Seen from the merchant.
    pub direction: Direction,
    /// Where the money moved.
    pub account: AccountRef,
    /// The payment it belongs to.
    pub channel_trade_no: ChannelTradeNo,
    /// Refund number, share number; `None` for payments.
    pub refund_no: Option<String>,
    /// How much, always positive or zero.
    pub amount: Money,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
}

/// Our trade types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TradeType {
    /// Settling payment.
    Pay,
    /// Payment that settles nothing.
    Surplus,
    /// Refund.
    Refund,
    /// Shared out.
    Share,
    /// Share came back.
    ShareReturn,
}

impl TradeType {
    /// The word of `t_order_flow.trade_type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pay => "PAY",
            Self::Surplus => "SURPLUS",
            Self::Refund => "REFUND",
            Self::Share => "SHARE",
            Self::ShareReturn => "SHARE_RETURN",
        }
    }
}

/// Seen from the merchant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Direction {
    /// Money came in.
    In,
    /// Money went out.
    Out,
}

impl Direction {
    /// The word of `t_order_flow.direction`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "IN",
            Self::Out => "OUT",
        }
    }
}

/// A change of `t_item`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemChange {
    /// A new open item.
    Opened {
        /// Key.
        item_no: String,
        /// What kind.
        kind: ItemKind,
        /// One sentence.
        detail: String,
        /// The payment it is about, as `channel:account:channel_trade_no`.
        payment: Option<String>,
    },
    /// An open item is dealt with.
    Closed {
        /// Key.
        item_no: String,
        /// What was done: `resolved`, `adopted`, `refunded`, `accepted`.
        outcome: String,
    },
}

/// A call to a channel that the event asks for (a `t_effect` row in the same tx).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum ChannelCall {
    /// Ask what the channel knows of the order.
    QueryPayment {
        /// Where.
        account: AccountRef,
    },
    /// Ask what became of a refund.
    QueryRefund {
        /// Where.
        account: AccountRef,
        /// Which.
        refund_no: String,
    },
    /// Refund.
    Refund {
        /// Where.
        account: AccountRef,
        /// Which.
        refund_no: String,
    },
    /// Close the way to pay.
    Close {
        /// Where.
        account: AccountRef,
    },
}

/// All row changes of one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowChanges {
    /// `t_idempotent` key, for events that have one.
    pub idem_key: Option<IdemKey>,
    /// Whole `t_order` row after the event; `None` for strays.
    pub order: Option<OrderRow>,
    /// `t_order_flow` rows: none or one.
    pub flows: Vec<FlowRow>,
    /// `t_item` changes.
    pub items: Vec<ItemChange>,
    /// Channel calls.
    pub calls: Vec<ChannelCall>,
}

/// The aggregate after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// An order.
    Order(Box<Order>),
    /// A stray.
    Stray(Box<Stray>),
}

/// Content hash of a caller's request, for `API:` keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// `API:<token>:<key>`.
    pub idem_key: IdemKey,
    /// SHA-256 of the request (method, path, body).
    pub request: Digest,
}

/// The row changes of `event`, which has just been applied and gave `after`. `before` is the state it was applied to.
#[must_use]
pub fn project(_aggregate_id: &str, _event: &LedgerEvent, _before: &Aggregate, _after: &Aggregate) -> RowChanges {
    RowChanges::default()
}
