//! Event to row changes: one pure function that the writer, the rebuild and the audit share (promise P4).

use serde::{Deserialize, Serialize};

use crate::command::{CLOSED_AFTER_PAYMENT, CLOSED_WITHOUT_REFUND, PaymentRef, RefundFact, RefundOrigin};
use crate::event::{LedgerEvent, OrderEvent, StrayEvent};
use crate::idem_key::IdemKey;
use crate::ids::{AccountRef, Channel, ChannelTradeNo, Digest, OrderNo};
use crate::money::Money;
use crate::order::{Item, ItemKind, ItemState, Order, RefundState, Status};
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
        /// What was done: `resolved`, `adopted`, `refunded`, `accepted`, `failed`.
        outcome: String,
    },
}

/// A call to a channel that the event asks for (a `t_effect` row in the same tx).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum ChannelCall {
    /// Follow the unpaid order at all its accounts until it is paid, closed or expired.
    Poll,
    /// Ask what the channel knows of the order.
    QueryPayment {
        /// Where.
        account: AccountRef,
    },
    /// Ask what became of a refund that we did not ask for.
    QueryRefund {
        /// Where.
        account: AccountRef,
        /// Which.
        refund_no: String,
    },
    /// Refund, and follow it until it is final.
    Refund {
        /// Where.
        account: AccountRef,
        /// Which.
        refund_no: String,
        /// How long to wait first, since the platform wants some time between two refunds of one payment.
        #[serde(default)]
        spacing_seconds: u32,
    },
    /// Close the way to pay.
    Close {
        /// Where.
        account: AccountRef,
    },
    /// Decide what becomes of a payment that settles nothing.
    Surplus {
        /// Where it came in.
        account: AccountRef,
        /// Which.
        channel_trade_no: ChannelTradeNo,
    },
    /// Follow a profit share until each receiver is final.
    QueryShare {
        /// Where.
        account: AccountRef,
        /// Whose money is shared.
        channel_trade_no: ChannelTradeNo,
        /// Which share.
        out_order_no: String,
    },
}

impl ChannelCall {
    /// The word of `t_effect.kind`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::QueryPayment { .. } => "query_payment",
            Self::QueryRefund { .. } => "query_refund",
            Self::Refund { .. } => "refund",
            Self::Close { .. } => "close",
            Self::Surplus { .. } => "surplus",
            Self::QueryShare { .. } => "query_share",
        }
    }

    /// `t_effect.subscriber`: with the order number the lane, inside which calls are made one after the other. A refund,
    /// a surplus and a share have a lane of their own, so that one that is stuck holds up nothing else of the order.
    #[must_use]
    pub fn lane(&self) -> String {
        match self {
            Self::Poll => "channel:poll".to_owned(),
            Self::QueryPayment { account } => format!("channel:{account}:query"),
            Self::Refund { account, refund_no, .. } | Self::QueryRefund { account, refund_no } => {
                format!("channel:{account}:refund:{refund_no}")
            }
            Self::Close { account } => format!("channel:{account}:close"),
            Self::Surplus { account, channel_trade_no } => format!("channel:{account}:surplus:{channel_trade_no}"),
            Self::QueryShare { account, out_order_no, .. } => format!("channel:{account}:share:{out_order_no}"),
        }
    }
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

/// An aggregate of either kind, as the store holds it while it decides or replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// An order.
    Order(Box<Order>),
    /// A stray.
    Stray(Box<Stray>),
}

impl Aggregate {
    /// The state before the first event; `None` for an aggregate type that this release doesn't know.
    #[must_use]
    pub fn empty(aggregate_type: &str) -> Option<Self> {
        match aggregate_type {
            Order::TYPE_NAME => Some(Self::Order(Box::default())),
            Stray::TYPE_NAME => Some(Self::Stray(Box::default())),
            _ => None,
        }
    }

    /// The state after `event`. An event of the other kind changes nothing: [`LedgerEvent::from_stored`] never gives one
    /// for a row of this aggregate type.
    pub fn apply(&mut self, event: &LedgerEvent) {
        match (self, event) {
            (Self::Order(order), LedgerEvent::Order(event)) => order.apply(event),
            (Self::Stray(stray), LedgerEvent::Stray(event)) => stray.apply(event),
            (Self::Order(_), LedgerEvent::Stray(_)) | (Self::Stray(_), LedgerEvent::Order(_)) => {}
        }
    }

    /// Number of events applied = sequence of the last one.
    #[must_use]
    pub const fn version(&self) -> i64 {
        match self {
            Self::Order(order) => order.version,
            Self::Stray(stray) => stray.version,
        }
    }
}

/// Content hash of a caller's request, for `API:` keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// `API:<token>:<key>`.
    pub idem_key: IdemKey,
    /// SHA-256 of the request (method, path, body).
    pub request: Digest,
}

/// The row changes of `event`, which has just been applied to `before` and gave `after`.
///
/// Guarantees: a pure function; the writer, the rebuild and the audit get the same rows from the same log (P4).
/// `aggregate_id` is what the log holds; one that is no order number makes no order rows (the log can't hold one).
#[must_use]
pub fn project(aggregate_id: &str, event: &LedgerEvent, before: &Aggregate, after: &Aggregate) -> RowChanges {
    match (event, before, after) {
        (LedgerEvent::Order(event), Aggregate::Order(before), Aggregate::Order(after)) => OrderNo::parse(aggregate_id)
            .map_or_else(|_| RowChanges::default(), |order_no| order_changes(&order_no, event, before, after)),
        (LedgerEvent::Stray(event), Aggregate::Stray(_), Aggregate::Stray(_)) => stray_changes(aggregate_id, event),
        (LedgerEvent::Order(_) | LedgerEvent::Stray(_), _, _) => RowChanges::default(),
    }
}

fn order_changes(order_no: &OrderNo, event: &OrderEvent, before: &Order, after: &Order) -> RowChanges {
    let idem_key = before.key_of(event).map(|key| key.in_order(order_no));
    let flow = idem_key.as_ref().and_then(|key| flow_row(order_no, event, key));
    RowChanges {
        order: Some(order_row(order_no, after)),
        flows: flow.into_iter().collect(),
        items: item_changes(order_no, before, after),
        calls: channel_calls(event, before),
        idem_key,
    }
}

/// The `t_order` row of a state.
#[must_use]
pub fn order_row(order_no: &OrderNo, order: &Order) -> OrderRow {
    let settling = order.settling_payment();
    let terms = order.terms.as_ref();
    let sums = order.sums();
    OrderRow {
        order_no: order_no.clone(),
        status: order.status,
        amount: terms.map(|terms| terms.amount),
        paid_minor: sums.paid_minor,
        refunded_minor: sums.refunded_minor,
        surplus_minor: sums.surplus_minor,
        version: order.version,
        account: settling.map(|payment| payment.fact.payment.account.clone()),
        channel_trade_no: settling.map(|payment| payment.fact.payment.channel_trade_no.clone()),
        pay_time: settling.map(|payment| payment.fact.occurred_at),
        expires_at: terms.and_then(|terms| terms.expires_at),
        description: terms.and_then(|terms| terms.description.clone()),
        supersedes: terms.and_then(|terms| terms.supersedes.clone()),
    }
}

/// The row of an event that moves money. `SurplusAccepted` has none: its money is already booked as SURPLUS.
/// `RefundSplit` has none: its money is already booked as a difference.
fn flow_row(order_no: &OrderNo, event: &OrderEvent, idem_key: &IdemKey) -> Option<FlowRow> {
    let row = |trade_type, direction, payment: &PaymentRef, refund_no, amount, occurred_at| {
        Some(FlowRow {
            idem_key: idem_key.clone(),
            order_no: order_no.clone(),
            trade_type,
            direction,
            account: payment.account.clone(),
            channel_trade_no: payment.channel_trade_no.clone(),
            refund_no,
            amount,
            occurred_at,
        })
    };
    match event {
        OrderEvent::PaymentConfirmed(fact) => {
            row(TradeType::Pay, Direction::In, &fact.payment, None, fact.amount, fact.occurred_at)
        }
        OrderEvent::SurplusPaymentRecorded { fact, .. } => {
            row(TradeType::Surplus, Direction::In, &fact.payment, None, fact.amount, fact.occurred_at)
        }
        OrderEvent::RefundConfirmed { fact, amount, .. } => {
            let refund_no = Some(fact.refund_no.to_string());
            row(TradeType::Refund, Direction::Out, &fact.payment, refund_no, *amount, fact.occurred_at)
        }
        OrderEvent::ProfitShareConfirmed(fact) => {
            let share_no = Some(fact.share_no.clone());
            row(TradeType::Share, Direction::Out, &fact.payment, share_no, fact.amount, fact.occurred_at)
        }
        OrderEvent::ProfitShareReturned(fact) => {
            let share_no = Some(fact.share_no.clone());
            row(TradeType::ShareReturn, Direction::In, &fact.payment, share_no, fact.amount, fact.occurred_at)
        }
        OrderEvent::OrderOpened(_)
        | OrderEvent::PaymentParked(_)
        | OrderEvent::SurplusAccepted { .. }
        | OrderEvent::RefundRequested { .. }
        | OrderEvent::RefundFailed { .. }
        | OrderEvent::RefundStalled { .. }
        | OrderEvent::RefundParked(_)
        | OrderEvent::RefundSplit { .. }
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

/// Items are state, so that their rows are the difference of two states.
fn item_changes(order_no: &OrderNo, before: &Order, after: &Order) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    for (key, item) in &after.items {
        let item_no = || key.in_order(order_no).to_string();
        let was_open = before.items.get(key).map(Item::is_open);
        match (was_open, item.is_open()) {
            (None, _) => changes.push(ItemChange::Opened {
                item_no: item_no(),
                kind: item.kind,
                detail: item.detail.clone(),
                payment: item.payment.as_ref().map(|it| format!("{}:{}", it.account, it.channel_trade_no)),
            }),
            (Some(true), false) => {
                changes.push(ItemChange::Closed { item_no: item_no(), outcome: item.state.as_str().to_owned() });
            }
            (Some(_), _) => {}
        }
    }
    changes
}

/// What an event wants to know from a channel, or wants it to do.
fn channel_calls(event: &OrderEvent, before: &Order) -> Vec<ChannelCall> {
    match event {
        OrderEvent::OrderOpened(_) => vec![ChannelCall::Poll],
        // The refund proves a payment that nobody has told us of: ask.
        OrderEvent::RefundParked(fact) => {
            vec![ChannelCall::QueryPayment { account: fact.payment.account.clone() }]
        }
        OrderEvent::FactFlagged(fact) if asks_for_a_query(&fact.code) => {
            vec![ChannelCall::QueryPayment { account: fact.account.clone() }]
        }
        OrderEvent::RefundRequested { payment, refund_no, .. } => {
            let (account, refund_no) = (payment.account.clone(), refund_no.to_string());
            vec![ChannelCall::Refund { account, refund_no, spacing_seconds: refund_spacing(before, payment) }]
        }
        // A difference of cumulative figures: only the refund's own query has an exact one.
        OrderEvent::RefundConfirmed { fact, derived: true, .. } => vec![query_refund(fact)],
        OrderEvent::RefundStalled { fact } if !is_followed(before, fact) => vec![query_refund(fact)],
        OrderEvent::SurplusPaymentRecorded { fact, .. } => {
            let PaymentRef { account, channel_trade_no } = fact.payment.clone();
            vec![ChannelCall::Surplus { account, channel_trade_no }]
        }
        OrderEvent::ProfitShareFollowed { payment, out_order_no } => {
            let PaymentRef { account, channel_trade_no } = payment.clone();
            vec![ChannelCall::QueryShare { account, channel_trade_no, out_order_no: out_order_no.clone() }]
        }
        OrderEvent::OrderClosed { .. } => {
            let accounts = before.terms.iter().flat_map(|terms| &terms.accounts);
            let open = accounts.filter(|account| !before.attempts_closed.contains(*account));
            open.map(|account| ChannelCall::Close { account: account.clone() }).collect()
        }
        OrderEvent::PaymentConfirmed(_)
        | OrderEvent::PaymentParked(_)
        | OrderEvent::SurplusAccepted { .. }
        | OrderEvent::RefundConfirmed { .. }
        | OrderEvent::RefundFailed { .. }
        | OrderEvent::RefundStalled { .. }
        | OrderEvent::RefundSplit { .. }
        | OrderEvent::RefundNumberTaken { .. }
        | OrderEvent::ProfitShareConfirmed(_)
        | OrderEvent::ProfitShareReturned(_)
        | OrderEvent::ProfitShareParked(_)
        | OrderEvent::AttemptClosed(_)
        | OrderEvent::FactConflicted(_)
        | OrderEvent::FactFlagged(_)
        | OrderEvent::ItemResolved { .. } => Vec::new(),
    }
}

/// Flags that the platform's own answer may explain. The words are those of the channels' adapters.
fn asks_for_a_query(code: &str) -> bool {
    [CLOSED_AFTER_PAYMENT, CLOSED_WITHOUT_REFUND, "refund_without_amount", "trade_state_disagrees"].contains(&code)
}

fn query_refund(fact: &RefundFact) -> ChannelCall {
    ChannelCall::QueryRefund { account: fact.payment.account.clone(), refund_no: fact.refund_no.to_string() }
}

/// Whether the refund was asked for by us: then its `refund` call follows it to the end.
fn is_followed(before: &Order, fact: &RefundFact) -> bool {
    let known = before.find_payment(&fact.payment).and_then(|payment| payment.find_refund(&fact.refund_no));
    known.is_some_and(|refund| match refund.origin {
        RefundOrigin::Request | RefundOrigin::Surplus => true,
        RefundOrigin::Platform => false,
    })
}

/// Between two refunds of one payment: WeChat Pay one minute, Alipay three seconds.
/// Source: WeChat Pay document 4012556457; Alipay refund guide.
fn refund_spacing(before: &Order, payment: &PaymentRef) -> u32 {
    let seconds = match payment.account.channel {
        Channel::Wxpay => 60,
        Channel::Alipay => 3,
    };
    let refunds = before.find_payment(payment).map(|known| known.refunds.as_slice()).unwrap_or_default();
    let open = refunds.iter().filter(|refund| matches!(refund.state, RefundState::Requested | RefundState::Stalled));
    u32::try_from(open.count()).unwrap_or(u32::MAX).saturating_mul(seconds)
}

fn stray_changes(stray_id: &str, event: &StrayEvent) -> RowChanges {
    let item = match event {
        StrayEvent::StrayRecorded(fact) => ItemChange::Opened {
            item_no: stray_id.to_owned(),
            kind: ItemKind::Stray,
            detail: format!("{}: {}", fact.code, fact.detail),
            payment: None,
        },
        StrayEvent::StrayResolved { .. } => {
            ItemChange::Closed { item_no: stray_id.to_owned(), outcome: ItemState::Resolved.as_str().to_owned() }
        }
    };
    RowChanges { items: vec![item], ..RowChanges::default() }
}
