//! What the platforms know, in channel-neutral words: what a ledger must agree with.

use serde::{Deserialize, Serialize};

use crate::accounts::{Account, Channel};
use crate::moment::Moment;
use crate::notice::NoticeCounts;
use crate::order::{Order, RefundStatus, ShareResult, Status};
use crate::platforms::Platforms;

/// `GET /sandbox/state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The platforms' clock.
    pub now: String,
    /// Every order, by account and number.
    pub orders: Vec<OrderState>,
    /// Callbacks.
    pub notices: NoticeCounts,
    /// When something happens by itself the next time.
    pub next_due: Option<String>,
}

/// One order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderState {
    /// Where.
    pub channel: Channel,
    /// `wxpay:1900000001`.
    pub account: String,
    /// Under a service provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_mchid: Option<String>,
    /// out_trade_no.
    pub order_no: String,
    /// What it costs.
    pub amount_minor: i64,
    /// NOTPAY, PAID, CLOSED.
    pub status: Status,
    /// The platform's own word.
    pub platform_state: String,
    /// transaction_id / trade_no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_trade_no: Option<String>,
    /// When it was paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_at: Option<String>,
    /// What came in.
    pub paid_minor: i64,
    /// What went back.
    pub refunded_minor: i64,
    /// In the order of their requests.
    pub refunds: Vec<RefundState>,
    /// In the order of their requests.
    pub shares: Vec<ShareState>,
}

/// One refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundState {
    /// out_refund_no / out_request_no.
    pub refund_no: String,
    /// refund_id, where the platform has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_refund_no: Option<String>,
    /// How much.
    pub amount_minor: i64,
    /// How it stands.
    pub status: RefundStatus,
}

/// One share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareState {
    /// out_order_no / out_request_no.
    pub out_order_no: String,
    /// Whether every receiver is final.
    pub finished: bool,
    /// Who got what.
    pub receivers: Vec<ReceiverState>,
}

/// One receiver of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverState {
    /// Whose account.
    pub account: String,
    /// How much.
    pub amount_minor: i64,
    /// How it stands.
    pub result: ShareResult,
}

impl Platforms {
    /// Everything, or one order number at all accounts.
    pub fn state(&mut self, order_no: Option<&str>, now: Moment) -> State {
        self.tick(now);
        let wanted = |order: &&Order| order_no.is_none_or(|wanted| order.key.order_no == wanted);
        State {
            now: now.rfc3339(),
            orders: self.orders.values().filter(wanted).map(order_state).collect(),
            notices: self.outbox.counts(),
            next_due: self.next_due().map(Moment::rfc3339),
        }
    }
}

/// One order in channel-neutral words.
#[must_use]
pub fn order_state(order: &Order) -> OrderState {
    let account: &Account = &order.key.account;
    OrderState {
        channel: account.channel,
        account: account.to_string(),
        sub_mchid: order.key.sub_mchid.clone(),
        order_no: order.key.order_no.clone(),
        amount_minor: order.amount_minor,
        status: order.status,
        platform_state: order.platform_state().to_owned(),
        channel_trade_no: order.payment.as_ref().map(|payment| payment.trade_no.clone()),
        paid_at: order.payment.as_ref().map(|payment| payment.paid_at.rfc3339()),
        paid_minor: if order.payment.is_some() { order.amount_minor } else { 0 },
        refunded_minor: order.refunded_minor(),
        refunds: order
            .refunds
            .iter()
            .map(|refund| RefundState {
                refund_no: refund.refund_no.clone(),
                channel_refund_no: Some(refund.refund_id.clone()).filter(|_| account.channel == Channel::Wxpay),
                amount_minor: refund.amount_minor,
                status: refund.status,
            })
            .collect(),
        shares: order
            .shares
            .iter()
            .map(|share| ShareState {
                out_order_no: share.out_order_no.clone(),
                finished: share.done_at.is_some(),
                receivers: share
                    .receivers
                    .iter()
                    .map(|one| ReceiverState {
                        account: one.account.clone(),
                        amount_minor: one.amount_minor,
                        result: one.result,
                    })
                    .collect(),
            })
            .collect(),
    }
}
