//! What may be asked of an order. Everything a decision needs stands in the command: no clock, no look-up.
//!
//! Callback, active query, bill row and operator correction all become these (promise P3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::OrderError;
use crate::ids::{AccountRef, ChannelTradeNo, CombineNo, Digest, OrderNo, RefundNo};
use crate::money::Money;
use crate::timestamp::Timestamp;

/// One request to one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderCommand {
    /// Register an order with its terms.
    OpenOrder(Terms),
    /// A channel says that a payment came in.
    RecordPayment(PaymentFact),
    /// We want to refund (part of) a payment.
    RequestRefund(RefundRequest),
    /// A channel says what became of a refund.
    RecordRefund(RefundFact),
    /// A channel says that shared money moved.
    RecordProfitShare(ShareFact),
    /// A channel says that one way to pay is closed unpaid.
    RecordAttemptClosed(AttemptFact),
    /// A verified statement that books nothing but needs a person (a success event that says NOTPAY, a close after
    /// payment without refund fields, ...).
    RecordFlag(FlagFact),
    /// Follow a profit share that the merchant has started at the channel, by asking until each receiver is final.
    FollowProfitShare {
        /// Whose money is shared; `None` means the settling payment.
        payment: Option<PaymentRef>,
        /// out_order_no, out_request_no.
        out_order_no: String,
    },
    /// Close the order by our own decision.
    CloseOrder {
        /// Why, for the log.
        reason: String,
    },
    /// An operator lets a surplus payment settle the order.
    AcceptSurplus {
        /// Which payment.
        payment: PaymentRef,
        /// Who and why.
        by: Operator,
    },
    /// An operator closes an open item without moving money.
    ResolveItem {
        /// Its number: the key of the event that opened it.
        item_no: String,
        /// Who and why.
        by: Operator,
    },
}

/// A named person with a reason (promise P5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operator {
    /// Who.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl Operator {
    /// Errors: [`OrderError::NotAllowed`] without a name or without a reason (promise P5).
    pub fn check(&self) -> Result<(), OrderError> {
        if self.name.trim().is_empty() || self.reason.trim().is_empty() {
            return Err(OrderError::NotAllowed { problem: "an operator must give a name and a reason".to_owned() });
        }
        Ok(())
    }
}

/// What an order was opened for. Two openings with equal terms are the same opening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Terms {
    /// What must be paid.
    pub amount: Money,
    /// Through which of our accounts it may be paid; at least one, sorted, no repeats.
    pub accounts: Vec<AccountRef>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// When we would close it unpaid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The earlier attempt that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<OrderNo>,
    /// Whose order it is at WeChat Pay when our account is a service provider's: without it the platform can't be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_mchid: Option<String>,
    /// The WeChat Pay combine payment that the order is a part of: the platform knows it by that number alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
}

/// A WeChat Pay combine payment: one payer, one cash desk, several orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Combine {
    /// Whose payment it is (combine_mchid); it may be another of our accounts than the order's.
    pub account: AccountRef,
    /// Its number.
    pub combine_out_trade_no: CombineNo,
}

/// Names one payment: the account it came in through and the channel's number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct PaymentRef {
    /// Channel and account.
    pub account: AccountRef,
    /// transaction_id / trade_no.
    pub channel_trade_no: ChannelTradeNo,
}

impl PaymentRef {
    /// Same channel and number: channels never give one number twice, whatever the account.
    #[must_use]
    pub fn is_same_trade(&self, other: &Self) -> bool {
        self.account.channel == other.account.channel && self.channel_trade_no == other.channel_trade_no
    }
}

/// Money came in, as the channel states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PaymentFact {
    /// Which payment.
    pub payment: PaymentRef,
    /// The order's money (WeChat amount.total, Alipay total_amount): what is compared with the terms.
    pub amount: Money,
    /// What the payer really spent, when stated (WeChat payer_total, Alipay buyer_pay_amount): less with a coupon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer_amount: Option<Money>,
    /// When it was paid, by the channel's clock.
    pub occurred_at: Timestamp,
    /// The channel's product word (JSAPI, NATIVE, ...), informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_trade_type: Option<String>,
    /// Digest of account, channel_trade_no, amount and currency: equal content, equal digest.
    pub content: Digest,
}

/// A wish to refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundRequest {
    /// Which payment; `None` means the settling one.
    pub payment: Option<PaymentRef>,
    /// Our number, never reused.
    pub refund_no: RefundNo,
    /// How much.
    pub amount: Money,
    /// For the payer and the log.
    pub reason: Option<String>,
    /// Who wants it.
    pub origin: RefundOrigin,
}

/// Where a refund began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefundOrigin {
    /// Asked for through our API.
    Request,
    /// Made by the surplus policy.
    Surplus,
    /// First seen at the platform (its console, or a cumulative figure).
    Platform,
}

/// What a channel says of one refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefundFact {
    /// The payment it belongs to.
    pub payment: PaymentRef,
    /// Our number, as the channel repeats it. Alipay: out_biz_no; when it equals trade_no or out_trade_no it names
    /// "the refund without a number of its own".
    pub refund_no: RefundNo,
    /// refund_id, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_refund_no: Option<ChannelTradeNo>,
    /// What became of it.
    pub outcome: RefundOutcome,
    /// How much, and what kind of figure that is.
    pub amount: RefundAmount,
    /// What goes back to the payer, when stated (WeChat payer_refund): less with a coupon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer_amount: Option<Money>,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
    /// Digest of the content (account, numbers, outcome, amount).
    pub content: Digest,
}

/// The channel's verdict on a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefundOutcome {
    /// Done.
    Succeeded,
    /// Final failure; the money stays with us (WeChat CLOSED).
    Failed,
    /// Stuck, may still succeed (WeChat ABNORMAL).
    Stalled,
}

/// A refund figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefundAmount {
    /// This refund alone (WeChat amount.refund, Alipay refund query).
    Exact(Money),
    /// All refunds of this payment so far (Alipay refund_fee): the refund is the difference.
    Cumulative(Money),
}

/// Shared money moved, seen from the receiver or by query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareFact {
    /// The payment whose money was shared.
    pub payment: PaymentRef,
    /// Shared out, or returned.
    pub kind: ShareKind,
    /// out_order_no (shared) or out_return_no (returned); when a return notice has only out_order_no, that.
    pub share_no: String,
    /// The channel's own number (order_id, settle_no), when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_share_no: Option<String>,
    /// Receiver type (MERCHANT_ID, PERSONAL_OPENID, userId, ...).
    pub receiver_type: String,
    /// SHA-256 of the receiver's account: it may be personal data.
    pub receiver: Digest,
    /// How much.
    pub amount: Money,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
    /// Digest of the content.
    pub content: Digest,
}

/// Direction of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareKind {
    /// From the order to a receiver.
    Shared,
    /// From a receiver back.
    Returned,
}

/// One way to pay is closed unpaid, says the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptFact {
    /// Where.
    pub account: AccountRef,
    /// The channel's number, when it already had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_trade_no: Option<ChannelTradeNo>,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
    /// Digest of the content.
    pub content: Digest,
}

/// A verified statement for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlagFact {
    /// Where it came from.
    pub account: AccountRef,
    /// A stable code, for example `trade_state_disagrees`.
    pub code: String,
    /// One sentence with the platform's own field names and values (no personal data).
    pub detail: String,
    /// By the channel's clock.
    pub occurred_at: Timestamp,
    /// Digest of the content: one flag per content.
    pub content: Digest,
}

/// [`FlagFact::code`] of a close that a channel states after its payment was booked: a close never undoes money, so the
/// channel is asked how things stand.
pub const CLOSED_AFTER_PAYMENT: &str = "closed_after_payment";

/// [`FlagFact::code`] of a trade that was paid and is closed, while the channel says no word of the money: it went back as a
/// rule, and the refunds tell.
pub const CLOSED_WITHOUT_REFUND: &str = "closed_without_refund";

/// A request to the second small aggregate: something verified that names no order of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrayCommand {
    /// Keep it.
    RecordStray(StrayFact),
    /// An operator has dealt with it.
    ResolveStray {
        /// Who and why.
        by: Operator,
    },
}

/// Something verified that names no order, or that we can't read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StrayFact {
    /// Where it came from.
    pub account: AccountRef,
    /// A stable code: `unknown_type`, `missing_field`, `unusable_amount`, `unusable_number`, `undecryptable`,
    /// `no_such_payment`.
    pub code: String,
    /// One sentence for a person (no personal data).
    pub detail: String,
    /// The channel's event type, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_event_type: Option<String>,
    /// By the channel's clock, or the time of receipt when it says none.
    pub occurred_at: Timestamp,
    /// SHA-256 of the content without nonce and time.
    pub content: Digest,
}
