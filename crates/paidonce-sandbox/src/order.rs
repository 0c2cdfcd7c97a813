//! What a platform knows of an order.

use serde::{Deserialize, Serialize};

use crate::accounts::{Account, Channel};
use crate::moment::Moment;

/// Identity of an order at a platform.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    /// Whose.
    pub account: Account,
    /// Under a service provider: of which sub-merchant.
    pub sub_mchid: Option<String>,
    /// out_trade_no.
    pub order_no: String,
}

/// Whether it can be, was, or can't be paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Waiting for the payer.
    Notpay,
    /// Money came in.
    Paid,
    /// Closed without payment.
    Closed,
}

/// How an Alipay trade was made; it decides which changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Payment, refunds, close and finish are told.
    #[default]
    App,
    /// The same.
    Wap,
    /// Only the payment is told: refunds and closes are silent.
    Page,
    /// The same.
    FaceToFace,
}

impl Product {
    /// Whether more than the payment is told.
    #[must_use]
    pub const fn tells_all(self) -> bool {
        match self {
            Self::App | Self::Wap => true,
            Self::Page | Self::FaceToFace => false,
        }
    }
}

/// In which charset Alipay tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Charset {
    /// UTF-8.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// GBK.
    #[serde(rename = "GBK", alias = "gbk")]
    Gbk,
}

/// An order.
#[derive(Debug, Clone)]
pub struct Order {
    /// Identity.
    pub key: OrderKey,
    /// appid or app_id.
    pub app_id: String,
    /// What is to be paid.
    pub amount_minor: i64,
    /// One sub-order of this combined order.
    pub combine_no: Option<String>,
    /// Where it is told of.
    pub notify_url: String,
    /// Alipay only.
    pub product: Product,
    /// Alipay only.
    pub charset: Charset,
    /// attach / passback_params.
    pub attach: String,
    /// When it was placed.
    pub created_at: Moment,
    /// See [`Status`].
    pub status: Status,
    /// Once it was paid.
    pub payment: Option<Payment>,
    /// Once it was closed.
    pub closed_at: Option<Moment>,
    /// Alipay's TRADE_FINISHED: no refund any more.
    pub finished: bool,
    /// In the order of their requests.
    pub refunds: Vec<Refund>,
    /// In the order of their requests.
    pub shares: Vec<Share>,
    /// In the order of their requests.
    pub share_returns: Vec<ShareReturn>,
}

/// Money that came in.
#[derive(Debug, Clone)]
pub struct Payment {
    /// transaction_id / trade_no.
    pub trade_no: String,
    /// When.
    pub paid_at: Moment,
    /// What the payer paid himself; the rest was a coupon.
    pub payer_minor: i64,
}

/// How a refund stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefundStatus {
    /// Accepted.
    Processing,
    /// Money went back.
    Success,
    /// Could not reach the payer's account; not final.
    Abnormal,
    /// Will never happen.
    Closed,
}

impl RefundStatus {
    /// WeChat Pay's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Success => "SUCCESS",
            Self::Abnormal => "ABNORMAL",
            Self::Closed => "CLOSED",
        }
    }
}

/// Money that goes back.
#[derive(Debug, Clone)]
pub struct Refund {
    /// out_refund_no / out_request_no.
    pub refund_no: String,
    /// refund_id; Alipay has none.
    pub refund_id: String,
    /// How much.
    pub amount_minor: i64,
    /// How it stands.
    pub status: RefundStatus,
    /// When it was asked for.
    pub requested_at: Moment,
    /// When it became final.
    pub done_at: Option<Moment>,
    /// WeChat Pay: where it is told of.
    pub notify_url: Option<String>,
    /// For the payer.
    pub reason: Option<String>,
}

/// How one receiver's part stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ShareResult {
    /// Not yet.
    Pending,
    /// Received.
    #[default]
    Success,
    /// Refused; the money went back to the sharer.
    Closed,
}

/// One receiver.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// MERCHANT_ID, PERSONAL_OPENID, .. / userId, loginName, ..
    pub kind: String,
    /// Whose account.
    pub account: String,
    /// How much.
    pub amount_minor: i64,
    /// For people.
    pub description: String,
    /// What it becomes when the share is executed.
    pub fate: ShareResult,
    /// How it stands.
    pub result: ShareResult,
    /// Why it was refused.
    pub fail_reason: Option<String>,
    /// The platform's number.
    pub detail_id: String,
}

/// A profit share.
#[derive(Debug, Clone)]
pub struct Share {
    /// out_order_no / out_request_no.
    pub out_order_no: String,
    /// order_id / settle_no.
    pub order_id: String,
    /// Who gets what.
    pub receivers: Vec<Receiver>,
    /// When it was asked for.
    pub created_at: Moment,
    /// When it was executed.
    pub done_at: Option<Moment>,
    /// Frees the rest.
    pub unfreeze: bool,
}

impl Share {
    /// What was or will be shared: refused parts went back.
    #[must_use]
    pub fn shared_minor(&self) -> i64 {
        let parts = self.receivers.iter().filter(|one| one.result != ShareResult::Closed);
        parts.fold(0, |sum, one| sum.saturating_add(one.amount_minor))
    }
}

/// A part of a share that came back.
#[derive(Debug, Clone)]
pub struct ShareReturn {
    /// out_return_no.
    pub out_return_no: String,
    /// return_id.
    pub return_id: String,
    /// Of which share.
    pub out_order_no: String,
    /// From whom.
    pub return_mchid: String,
    /// How much.
    pub amount_minor: i64,
    /// For people.
    pub description: String,
    /// When.
    pub created_at: Moment,
}

impl Order {
    /// Everything asked back that is not refused for good.
    #[must_use]
    pub fn refunding_minor(&self) -> i64 {
        self.sum_refunds(|refund| refund.status != RefundStatus::Closed)
    }

    /// What went back.
    #[must_use]
    pub fn refunded_minor(&self) -> i64 {
        self.sum_refunds(|refund| refund.status == RefundStatus::Success)
    }

    fn sum_refunds(&self, counts: impl Fn(&Refund) -> bool) -> i64 {
        self.refunds.iter().filter(|refund| counts(refund)).fold(0, |sum, one| sum.saturating_add(one.amount_minor))
    }

    /// The refund of this number.
    #[must_use]
    pub fn find_refund(&self, refund_no: &str) -> Option<&Refund> {
        self.refunds.iter().find(|refund| refund.refund_no == refund_no)
    }

    /// The refund of this number, to change it.
    pub fn find_refund_mut(&mut self, refund_no: &str) -> Option<&mut Refund> {
        self.refunds.iter_mut().find(|refund| refund.refund_no == refund_no)
    }

    /// The channel's number; empty before the payment.
    #[must_use]
    pub fn trade_no(&self) -> &str {
        self.payment.as_ref().map_or("", |payment| payment.trade_no.as_str())
    }

    /// The platform's own word for its state.
    #[must_use]
    pub fn platform_state(&self) -> &'static str {
        match (self.key.account.channel, self.status) {
            (Channel::Wxpay, Status::Notpay) => "NOTPAY",
            (Channel::Wxpay, Status::Closed) => "CLOSED",
            // At least one refund was asked for; how much went back, only refund queries say.
            (Channel::Wxpay, Status::Paid) if !self.refunds.is_empty() => "REFUND",
            (Channel::Wxpay, Status::Paid) => "SUCCESS",
            (Channel::Alipay, Status::Notpay) => "WAIT_BUYER_PAY",
            (Channel::Alipay, Status::Closed) => "TRADE_CLOSED",
            (Channel::Alipay, Status::Paid) if self.finished => "TRADE_FINISHED",
            (Channel::Alipay, Status::Paid) if self.refunded_minor() >= self.amount_minor => "TRADE_CLOSED",
            (Channel::Alipay, Status::Paid) => "TRADE_SUCCESS",
        }
    }
}
