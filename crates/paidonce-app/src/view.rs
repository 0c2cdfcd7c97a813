//! What callers see: the JSON shapes of the API, made from the ledger's own types.
//!
//! Promise: names and meanings are public. Amounts are minor units beside their currency, times are RFC 3339 in UTC.

use paidonce_order::command::{Combine, PaymentFact, RefundOrigin, ShareFact, ShareKind};
use paidonce_order::event::SurplusReason;
use paidonce_order::ids::{AccountRef, Channel};
use paidonce_order::order::{
    Item, ItemKind, ItemState, Order, Parked, ParkedFact, Payment, PaymentRole, Refund, RefundState, Status,
};
use paidonce_order::project::{FlowRow, OrderRow};
use paidonce_order::timestamp::Timestamp;
use paidonce_order::{Money, OrderNo};
use paidonce_store::store::{EffectRow, EventRow, FeedPage, Head, ItemRow, RowCounts, Subscriber};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::AppError;

/// An order with its payments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrderView {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// `UNOPENED`, `PENDING`, `PAID`, `REFUNDED`, `CLOSED`.
    pub status: Status,
    /// What must be paid; `null` while UNOPENED.
    pub amount_minor: Option<i64>,
    /// ISO 4217; while UNOPENED that of the first payment heard of.
    pub currency: Option<String>,
    /// Amount of the settling payment.
    pub paid_minor: i64,
    /// Sum of confirmed refunds, of surplus payments too.
    pub refunded_minor: i64,
    /// Sum of payments that settle nothing.
    pub surplus_minor: i64,
    /// Sequence of the last event.
    pub version: i64,
    /// Accounts it may be paid through.
    pub accounts: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// When it would be closed unpaid.
    pub expires_at: Option<Timestamp>,
    /// The attempt that it replaced.
    pub supersedes: Option<String>,
    /// Whose order it is, when its WeChat Pay account is a service provider's.
    pub sub_mchid: Option<String>,
    /// The WeChat Pay combine payment that it is a part of.
    pub combine: Option<Combine>,
    /// Why it was closed, when it was.
    pub close_reason: Option<String>,
    /// When it was paid, by the channel's clock.
    pub pay_time: Option<Timestamp>,
    /// Number of the settling payment.
    pub channel_trade_no: Option<String>,
    /// Every payment that came in.
    pub payments: Vec<PaymentView>,
    /// Refunds of all its payments.
    pub refunds: Vec<RefundView>,
    /// Shares of its payments that moved money.
    pub shares: Vec<ShareView>,
    /// Facts that wait for the order or for their payment.
    pub parked: Vec<ParkedView>,
    /// What needed or needs a person.
    pub items: Vec<OrderItemView>,
}

/// One payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PaymentView {
    /// `wxpay`, `alipay`.
    pub channel: Channel,
    /// `wxpay:1900000001`.
    pub account: String,
    /// transaction_id, trade_no.
    pub channel_trade_no: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// What the payer really spent, when the channel says.
    pub payer_amount_minor: Option<i64>,
    /// What it does for the order.
    pub role: RoleView,
    /// Why it settles nothing.
    pub surplus_reason: Option<SurplusReason>,
    /// Sum of its confirmed refunds.
    pub refunded_minor: i64,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
}

/// What a payment does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleView {
    /// It settled the order.
    Settling,
    /// It settles nothing.
    Surplus,
}

/// One refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefundView {
    /// Our number.
    pub refund_no: String,
    /// refund_id, once known.
    pub channel_refund_no: Option<String>,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// `REQUESTED`, `STALLED`, `CONFIRMED`, `FAILED`, `NUMBER_TAKEN`.
    pub state: RefundState,
    /// Who wanted it.
    pub origin: RefundOrigin,
    /// Booked as a difference of cumulative figures, not yet confirmed by an exact one.
    pub derived: bool,
    /// Account of its payment.
    pub account: String,
    /// Number of its payment.
    pub channel_trade_no: String,
    /// By the channel's clock, once it spoke.
    pub occurred_at: Option<Timestamp>,
}

/// Shared money that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShareView {
    /// out_order_no, or out_return_no of a return.
    pub share_no: String,
    /// `shared` or `returned`.
    pub kind: ShareKind,
    /// The channel's number, when it has one.
    pub channel_share_no: Option<String>,
    /// `MERCHANT_ID`, `PERSONAL_OPENID`, ...
    pub receiver_type: String,
    /// First half of the SHA-256 of the receiver's account, which may be personal data.
    pub receiver: String,
    /// How much, in minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// Account of its payment.
    pub account: String,
    /// Number of its payment.
    pub channel_trade_no: String,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
}

/// A verified fact that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ParkedView {
    /// What it is.
    pub kind: ParkedKind,
    /// Account of its payment.
    pub account: String,
    /// Number of its payment.
    pub channel_trade_no: String,
    /// Refund or share number.
    pub number: Option<String>,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
}

/// Kinds of parked facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParkedKind {
    /// Waits for the order.
    Payment,
    /// Waits for its payment.
    Refund,
    /// Waits for its payment.
    Share,
}

/// An item of one order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrderItemView {
    /// Its name in `/v1/items/{item_no}`.
    pub item_no: String,
    /// What kind.
    pub kind: ItemKind,
    /// One sentence.
    pub detail: String,
    /// `open`, or what closed it.
    pub state: ItemState,
}

/// A row of the order search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OrderSummary {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// `UNOPENED`, `PENDING`, `PAID`, `REFUNDED`, `CLOSED`.
    pub status: Status,
    /// What must be paid; `null` while UNOPENED.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// Amount of the settling payment.
    pub paid_minor: i64,
    /// Sum of confirmed refunds.
    pub refunded_minor: i64,
    /// Sum of payments that settle nothing.
    pub surplus_minor: i64,
    /// Sequence of the last event.
    pub version: i64,
    /// Account of the settling payment.
    pub account: Option<String>,
    /// Number of the settling payment.
    pub channel_trade_no: Option<String>,
    /// When it was paid, by the channel's clock.
    pub pay_time: Option<Timestamp>,
    /// When it would be closed unpaid.
    pub expires_at: Option<Timestamp>,
    /// For people.
    pub description: Option<String>,
    /// The attempt that it replaced.
    pub supersedes: Option<String>,
}

/// Money that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlowView {
    /// The one idempotency key of the fact.
    pub idem_key: String,
    /// The order.
    pub order_no: String,
    /// `PAY`, `SURPLUS`, `REFUND`, `SHARE`, `SHARE_RETURN`.
    pub trade_type: String,
    /// `IN` or `OUT`, seen from the merchant.
    pub direction: String,
    /// `wxpay:1900000001`.
    pub account: String,
    /// Number of the payment.
    pub channel_trade_no: String,
    /// Refund or share number.
    pub refund_no: Option<String>,
    /// Minor units, never negative.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
}

/// How many rows the tables hold for one order: what anyone checks promise P1 by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RowCountsView {
    /// `events`.
    pub events: i64,
    /// `t_idempotent`.
    pub idempotent: i64,
    /// `t_order`: none or one.
    pub order: i64,
    /// `t_order_flow`.
    pub flows: i64,
    /// `t_effect`, deliveries to subscribers.
    pub deliveries: i64,
    /// Those of them that the subscriber took.
    pub delivered: i64,
}

impl From<RowCounts> for RowCountsView {
    fn from(counts: RowCounts) -> Self {
        let RowCounts { events, idempotent, order, flows, deliveries, delivered } = counts;
        Self { events, idempotent, order, flows, deliveries, delivered }
    }
}

/// An event of the log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EventView {
    /// UUIDv7; the `webhook-id` of its deliveries.
    pub event_id: String,
    /// The order; `null` for events of a stray.
    pub order_no: Option<String>,
    /// `Order` or `Stray`.
    pub aggregate_type: String,
    /// order_no or stray id.
    pub aggregate_id: String,
    /// 1-based inside the order.
    pub sequence: i64,
    /// `PaymentConfirmed`, ...
    pub event_type: String,
    /// `1`.
    pub event_version: String,
    /// Commit time.
    pub recorded_at: Timestamp,
    /// Key of the fact, when it has one.
    pub idem_key: Option<String>,
    /// `callback`, `query`, `bill`, `operator`, `api`.
    pub source: Option<String>,
    /// Who asked, when a person or service did.
    pub actor: Option<String>,
    /// Digest of the signed bytes that caused it.
    pub evidence: Option<String>,
    /// 0 to 63.
    pub shard: u16,
    /// Gapless in the shard, from 1.
    pub position: i64,
    /// SHA-256 of the chain up to here, hex.
    pub hash: String,
    /// The event as it is stored: see `schemas/events`.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub payload: Box<RawValue>,
}

/// A page of the feed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FeedView {
    /// Gapless per shard.
    pub events: Vec<EventView>,
    /// Give it back as `cursor` for the next page; opaque.
    pub next_cursor: String,
    /// Heads of the shards at the time of reading.
    pub heads: Vec<HeadView>,
}

/// The head of a shard.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct HeadView {
    /// 0 to 63.
    pub shard: u16,
    /// Last position.
    pub position: i64,
    /// SHA-256 chain value, hex.
    pub hash: String,
}

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ItemView {
    /// Its name.
    pub item_no: String,
    /// What kind.
    pub kind: ItemKind,
    /// The order, when it has one.
    pub order_no: Option<String>,
    /// The stray, when it is one.
    pub stray_id: Option<String>,
    /// One sentence.
    pub detail: String,
    /// `channel:account:channel_trade_no`, when it is about a payment.
    pub payment: Option<String>,
    /// `open`, or what closed it: `resolved`, `adopted`, `refunded`, `accepted`, `failed`.
    pub state: String,
    /// Since when.
    pub opened_at: Timestamp,
    /// Until when.
    pub closed_at: Option<Timestamp>,
}

/// A business effect or a channel call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EffectView {
    /// Its name in `/v1/effects/{effect_id}`.
    pub effect_id: String,
    /// First half of its lane.
    pub order_no: String,
    /// Second half: subscriber; for channel calls a text that begins with `channel:`.
    pub subscriber: String,
    /// `deliver`, or a channel call: `poll`, `query_payment`, `query_refund`, `refund`, `close`, `surplus`, `query_share`.
    pub kind: String,
    /// The event that caused it.
    pub event_id: String,
    /// `pending`, `leased`, `delivered`, `dead`, `discarded`.
    pub state: String,
    /// Tries so far.
    pub attempts: i32,
    /// Next try.
    pub due_at: Timestamp,
    /// Result of the last try.
    pub last_error: Option<String>,
}

/// Who gets business effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SubscriberView {
    /// Its name.
    pub name: String,
    /// Event types; `["*"]` means all.
    pub events: Vec<String>,
    /// Where to POST.
    pub url: String,
    /// Name of the secret in the configuration.
    pub secret_ref: String,
    /// Nothing is sent while `true`.
    pub paused: bool,
}

impl OrderView {
    /// Of an order's state.
    #[must_use]
    pub fn new(order_no: &OrderNo, order: &Order) -> Self {
        let (settling, sums) = (order.settling_payment(), order.sums());
        let terms = order.terms.as_ref();
        let parked: Vec<ParkedView> = order.parked.iter().map(ParkedView::new).collect();
        let currency = terms.map(|terms| terms.amount.currency.to_string());
        Self {
            order_no: order_no.to_string(),
            status: order.status,
            amount_minor: terms.map(|terms| terms.amount.amount_minor),
            currency: currency.or_else(|| parked.first().map(|parked| parked.currency.clone())),
            paid_minor: sums.paid_minor,
            refunded_minor: sums.refunded_minor,
            surplus_minor: sums.surplus_minor,
            version: order.version,
            accounts: terms.map(|terms| terms.accounts.iter().map(AccountRef::to_string).collect()).unwrap_or_default(),
            description: terms.and_then(|terms| terms.description.clone()),
            expires_at: terms.and_then(|terms| terms.expires_at),
            supersedes: terms.and_then(|terms| terms.supersedes.as_ref()).map(OrderNo::to_string),
            sub_mchid: terms.and_then(|terms| terms.sub_mchid.clone()),
            combine: terms.and_then(|terms| terms.combine.clone()),
            close_reason: order.close_reason.clone(),
            pay_time: settling.map(|payment| payment.fact.occurred_at),
            channel_trade_no: settling.map(|payment| payment.fact.payment.channel_trade_no.to_string()),
            payments: order.payments.iter().map(PaymentView::new).collect(),
            refunds: refunds_of(order),
            shares: shares_of(order),
            parked,
            items: order
                .items
                .iter()
                .map(|(key, item)| OrderItemView::new(key.in_order(order_no).to_string(), item))
                .collect(),
        }
    }
}

/// All shares of an order that moved money.
pub(crate) fn shares_of(order: &Order) -> Vec<ShareView> {
    order.shares.values().map(ShareView::new).collect()
}

/// All refunds of an order.
pub(crate) fn refunds_of(order: &Order) -> Vec<RefundView> {
    let of_payment = |payment: &Payment| -> Vec<RefundView> {
        payment.refunds.iter().map(|refund| RefundView::new(&payment.fact, refund)).collect()
    };
    order.payments.iter().flat_map(of_payment).collect()
}

impl PaymentView {
    fn new(payment: &Payment) -> Self {
        let fact = &payment.fact;
        let (role, surplus_reason) = match payment.role {
            PaymentRole::Settling => (RoleView::Settling, None),
            PaymentRole::Surplus(reason) => (RoleView::Surplus, Some(reason)),
        };
        Self {
            channel: fact.payment.account.channel,
            account: fact.payment.account.to_string(),
            channel_trade_no: fact.payment.channel_trade_no.to_string(),
            amount_minor: fact.amount.amount_minor,
            currency: fact.amount.currency.to_string(),
            payer_amount_minor: fact.payer_amount.map(|amount| amount.amount_minor),
            role,
            surplus_reason,
            refunded_minor: payment.refunded_minor(),
            occurred_at: fact.occurred_at,
        }
    }
}

impl RefundView {
    fn new(fact: &PaymentFact, refund: &Refund) -> Self {
        Self {
            refund_no: refund.refund_no.to_string(),
            channel_refund_no: refund.channel_refund_no.as_ref().map(ToString::to_string),
            amount_minor: refund.amount.amount_minor,
            currency: refund.amount.currency.to_string(),
            state: refund.state,
            origin: refund.origin,
            derived: refund.derived,
            account: fact.payment.account.to_string(),
            channel_trade_no: fact.payment.channel_trade_no.to_string(),
            occurred_at: refund.occurred_at,
        }
    }
}

impl ShareView {
    fn new(fact: &ShareFact) -> Self {
        Self {
            share_no: fact.share_no.clone(),
            kind: fact.kind,
            channel_share_no: fact.channel_share_no.clone(),
            receiver_type: fact.receiver_type.clone(),
            receiver: fact.receiver.short(),
            amount_minor: fact.amount.amount_minor,
            currency: fact.amount.currency.to_string(),
            account: fact.payment.account.to_string(),
            channel_trade_no: fact.payment.channel_trade_no.to_string(),
            occurred_at: fact.occurred_at,
        }
    }
}

impl ParkedView {
    fn new(parked: &Parked) -> Self {
        use paidonce_order::command::RefundAmount::{Cumulative, Exact};
        let (kind, payment, number, amount, occurred_at) = match &parked.fact {
            ParkedFact::Payment(fact) => (ParkedKind::Payment, &fact.payment, None, fact.amount, fact.occurred_at),
            ParkedFact::Refund(fact) => {
                let (Exact(amount) | Cumulative(amount)) = fact.amount;
                (ParkedKind::Refund, &fact.payment, Some(fact.refund_no.to_string()), amount, fact.occurred_at)
            }
            ParkedFact::Share(fact) => {
                (ParkedKind::Share, &fact.payment, Some(fact.share_no.clone()), fact.amount, fact.occurred_at)
            }
        };
        let Money { amount_minor, currency } = amount;
        Self {
            kind,
            account: payment.account.to_string(),
            channel_trade_no: payment.channel_trade_no.to_string(),
            number,
            amount_minor,
            currency: currency.to_string(),
            occurred_at,
        }
    }
}

impl OrderItemView {
    fn new(item_no: String, item: &Item) -> Self {
        Self { item_no, kind: item.kind, detail: item.detail.clone(), state: item.state }
    }
}

impl From<OrderRow> for OrderSummary {
    fn from(row: OrderRow) -> Self {
        Self {
            order_no: row.order_no.to_string(),
            status: row.status,
            amount_minor: row.amount.map(|amount| amount.amount_minor),
            currency: row.amount.map(|amount| amount.currency.to_string()),
            paid_minor: row.paid_minor,
            refunded_minor: row.refunded_minor,
            surplus_minor: row.surplus_minor,
            version: row.version,
            account: row.account.map(|account| account.to_string()),
            channel_trade_no: row.channel_trade_no.map(|number| number.to_string()),
            pay_time: row.pay_time,
            expires_at: row.expires_at,
            description: row.description,
            supersedes: row.supersedes.map(|order_no| order_no.to_string()),
        }
    }
}

impl From<FlowRow> for FlowView {
    fn from(row: FlowRow) -> Self {
        Self {
            idem_key: row.idem_key.to_string(),
            order_no: row.order_no.to_string(),
            trade_type: row.trade_type.as_str().to_owned(),
            direction: row.direction.as_str().to_owned(),
            account: row.account.to_string(),
            channel_trade_no: row.channel_trade_no.to_string(),
            refund_no: row.refund_no,
            amount_minor: row.amount.amount_minor,
            currency: row.amount.currency.to_string(),
            occurred_at: row.occurred_at,
        }
    }
}

/// The members of an event's metadata that callers see.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Metadata {
    idem_key: Option<String>,
    source: Option<String>,
    actor: Option<String>,
    evidence: Option<String>,
}

impl EventView {
    /// Errors: [`AppError::Store`] when the stored text is not JSON.
    pub fn try_new(row: EventRow) -> Result<Self, AppError> {
        let unreadable = |error: serde_json::Error| {
            let position = (row.shard, row.position);
            paidonce_store::StoreError::Corrupt(format!("event at (shard, position) {position:?}: {error}"))
        };
        let metadata: Metadata = serde_json::from_str(&row.metadata).map_err(unreadable)?;
        let payload: Box<RawValue> = serde_json::from_str(&row.payload).map_err(unreadable)?;
        Ok(Self {
            event_id: row.event_id.to_string(),
            order_no: (row.aggregate_type == "Order").then(|| row.aggregate_id.clone()),
            aggregate_type: row.aggregate_type,
            aggregate_id: row.aggregate_id,
            sequence: row.sequence,
            event_type: row.event_type,
            event_version: row.event_version,
            recorded_at: row.recorded_at,
            idem_key: metadata.idem_key,
            source: metadata.source,
            actor: metadata.actor,
            evidence: metadata.evidence,
            shard: row.shard,
            position: row.position,
            hash: row.hash.to_string(),
            payload,
        })
    }
}

impl FeedView {
    /// Errors: as [`EventView::try_new`].
    pub fn try_new(page: FeedPage) -> Result<Self, AppError> {
        Ok(Self {
            events: page.events.into_iter().map(EventView::try_new).collect::<Result<_, _>>()?,
            next_cursor: page.next_cursor,
            heads: page.heads.into_iter().map(HeadView::from).collect(),
        })
    }
}

impl From<Head> for HeadView {
    fn from(head: Head) -> Self {
        Self { shard: head.shard, position: head.position, hash: head.hash.to_string() }
    }
}

impl From<ItemRow> for ItemView {
    fn from(row: ItemRow) -> Self {
        Self {
            item_no: row.item_no,
            kind: row.kind,
            order_no: row.order_no,
            stray_id: row.stray_id,
            detail: row.detail,
            payment: row.payment,
            state: row.state,
            opened_at: row.opened_at,
            closed_at: row.closed_at,
        }
    }
}

impl From<EffectRow> for EffectView {
    fn from(row: EffectRow) -> Self {
        Self {
            effect_id: row.effect_id.to_string(),
            order_no: row.order_no,
            subscriber: row.subscriber,
            kind: row.kind,
            event_id: row.event_id.to_string(),
            state: row.state,
            attempts: row.attempts,
            due_at: row.due_at,
            last_error: row.last_error,
        }
    }
}

impl From<Subscriber> for SubscriberView {
    fn from(row: Subscriber) -> Self {
        Self { name: row.name, events: row.events, url: row.url, secret_ref: row.secret_ref, paused: row.paused }
    }
}
