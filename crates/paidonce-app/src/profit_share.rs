//! Following a profit share that the merchant started: the platform tells its receivers, never the sharer, so we ask.

use std::sync::Arc;

use paidonce_order::command::{OrderCommand, PaymentRef};
use paidonce_order::error::OrderError;
use paidonce_order::ids::OrderNo;
use paidonce_order::order::Order;
use paidonce_store::store::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{Answer, App, Asked, Caller};
use crate::error::AppError;
use crate::refund::PaymentName;
use crate::view::{ShareView, shares_of};

/// `POST /v1/orders/{order_no}/profit-shares`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FollowProfitShare {
    /// The number that the merchant gave the share: out_order_no, out_request_no.
    pub out_order_no: String,
    /// Whose money is shared; the settling payment if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<PaymentName>,
}

/// A share that is followed, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FollowedShare {
    /// The order.
    pub order_no: String,
    /// The share's number.
    pub out_order_no: String,
    /// Whose money is shared.
    pub payment: PaymentName,
    /// Receivers that have theirs, as far as the platform has told; failures are open items.
    pub shares: Vec<ShareView>,
}

impl App {
    /// Follows a share from now on; the same again changes nothing.
    ///
    /// Errors: [`AppError::Rejected`] when the order is not open here or has no such payment.
    pub async fn follow_profit_share(
        &self,
        order_no: &OrderNo,
        request: FollowProfitShare,
        caller: &Caller,
    ) -> Result<Answer<FollowedShare>, AppError> {
        let FollowProfitShare { out_order_no, payment } = request;
        let payment = payment.map(|PaymentName { account, channel_trade_no }| PaymentRef { account, channel_trade_no });
        let command = OrderCommand::FollowProfitShare { payment: payment.clone(), out_order_no: out_order_no.clone() };
        let target = Target::Order { order_no: order_no.clone(), command };
        let Asked { novelty, receipt } = self.ask(target, caller).await?;
        let order: Arc<Order> = self.state_after(order_no, &receipt).await?;
        let payment = payment.or_else(|| order.settling_payment().map(|known| known.fact.payment.clone()));
        let payment = payment.ok_or_else(|| OrderError::NoSuchPayment { order_no: order_no.clone() })?;
        let shares = shares_of(&order).into_iter().filter(|share| {
            share.share_no == out_order_no && share.channel_trade_no == payment.channel_trade_no.as_str()
        });
        let value = FollowedShare {
            order_no: order_no.to_string(),
            shares: shares.collect(),
            out_order_no,
            payment: PaymentName { account: payment.account, channel_trade_no: payment.channel_trade_no },
        };
        Ok(Answer { novelty, value })
    }
}
