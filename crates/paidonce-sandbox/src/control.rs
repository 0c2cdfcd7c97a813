//! What a person (or a test) does at the platforms: place, pay, refund at the console, share, close. The merchant's own
//! prepay is not the ledger's business, so orders come into being here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounts::{Account, Channel};
use crate::failures::FailNext;
use crate::moment::Moment;
use crate::notice::Wish;
use crate::order::{Charset, Order, OrderKey, Product, Receiver, Refund, RefundStatus, ShareResult, Status};
use crate::platforms::Platforms;
use crate::state::{OrderState, order_state};
use crate::wxpay::shares::NewShare;

/// Why something can't be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such order, refund or account.
    #[error("{0}")]
    NotFound(String),
    /// The platform would refuse it.
    #[error("{0}")]
    Refused(String),
}

fn invalid(text: impl Into<String>) -> ControlError {
    ControlError::Invalid(text.into())
}

fn refused(text: impl Into<String>) -> ControlError {
    ControlError::Refused(text.into())
}

/// Names an order at a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderName {
    /// Where.
    pub channel: Channel,
    /// mchid, sp_mchid or seller_id; the first account of the channel when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Under a service provider; its first sub-merchant when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_mchid: Option<String>,
    /// out_trade_no.
    pub order_no: String,
}

impl OrderName {
    /// An order of the first account of a channel.
    #[must_use]
    pub fn new(channel: Channel, order_no: &str) -> Self {
        Self { channel, account: None, sub_mchid: None, order_no: order_no.to_owned() }
    }
}

/// Places an order, or places and pays it: `POST /sandbox/open`, `/sandbox/pay`, `/sandbox/pay-late`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pay {
    /// Which order.
    #[serde(flatten)]
    pub name: OrderName,
    /// What it costs; needed for an order that the platform does not know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// What the payer pays himself; the rest is a coupon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer_minor: Option<i64>,
    /// Where it is told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_url: Option<String>,
    /// What becomes of the callback.
    #[serde(default)]
    pub callback: Wish,
    /// Alipay: which changes are told.
    #[serde(default)]
    pub product: Product,
    /// Alipay: charset of the notices.
    #[serde(default)]
    pub charset: Charset,
    /// attach / passback_params.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attach: String,
    /// The payment is this old already.
    #[serde(default)]
    pub paid_seconds_ago: u64,
}

impl Pay {
    /// A payment through the first account of a channel.
    #[must_use]
    pub fn new(channel: Channel, order_no: &str, amount_minor: i64) -> Self {
        Self {
            name: OrderName::new(channel, order_no),
            amount_minor: Some(amount_minor),
            payer_minor: None,
            notify_url: None,
            callback: Wish::AsUsual,
            product: Product::default(),
            charset: Charset::default(),
            attach: String::new(),
            paid_seconds_ago: 0,
        }
    }
}

/// `POST /sandbox/open-combined`, `/sandbox/pay-combined`: several WeChat Pay orders in one go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayCombined {
    /// combine_out_trade_no.
    pub combine_no: String,
    /// mchid; the first account when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// 2 to 50 orders; none to pay those that were opened under the number.
    #[serde(default)]
    pub orders: Vec<Part>,
    /// What becomes of the one callback.
    #[serde(default)]
    pub callback: Wish,
}

/// One order of a combined payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// out_trade_no.
    pub order_no: String,
    /// What it costs.
    pub amount_minor: i64,
}

/// `POST /sandbox/refund`: a refund made at the platform's own console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleRefund {
    /// Of which order.
    #[serde(flatten)]
    pub name: OrderName,
    /// How much; all that is left when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    /// Its number; one is made when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund_no: Option<String>,
}

/// `POST /sandbox/settle-refund`: what becomes of a refund that is not final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleRefund {
    /// Of which order.
    #[serde(flatten)]
    pub name: OrderName,
    /// Which.
    pub refund_no: String,
    /// What becomes of it.
    pub status: RefundStatus,
}

/// `POST /sandbox/share`: a profit share that the merchant starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartShare {
    /// Of which order.
    #[serde(flatten)]
    pub name: OrderName,
    /// out_order_no / out_request_no.
    pub out_order_no: String,
    /// Who gets what.
    pub receivers: Vec<SharePart>,
}

/// One receiver of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharePart {
    /// MERCHANT_ID (default), PERSONAL_OPENID / userId, loginName.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whose account.
    pub account: String,
    /// How much.
    pub amount_minor: i64,
    /// What becomes of it when it is executed.
    #[serde(default)]
    pub result: ShareResult,
    /// Why it is refused, with result CLOSED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_reason: Option<String>,
}

impl Platforms {
    /// Trouble for the calls to come.
    pub fn fail_next(&mut self, fail: FailNext) {
        self.failures.put(fail);
    }

    /// No more trouble on demand.
    pub fn fail_no_more(&mut self) {
        self.failures.clear();
    }

    /// Places an order that waits for its payer; one that is known stays as it is.
    pub fn open(&mut self, wanted: &Pay, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.place(wanted, None, now)?;
        self.state_of(&key)
    }

    /// Pays an order; places it first where it is not known.
    pub fn pay(&mut self, wanted: &Pay, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.place(wanted, None, now)?;
        let status = self.find(&key).map(|order| order.status);
        match status {
            Some(Status::Paid) => return Err(refused("the platform takes no second payment of the same order")),
            Some(Status::Closed) => {
                return Err(refused("the order is closed at the platform; pay-late pays it all the same"));
            }
            Some(Status::Notpay) | None => {}
        }
        self.book(&key, wanted, now);
        self.state_of(&key)
    }

    /// Pays an order that may be closed already: the payer was quicker than the close, its message slower.
    pub fn pay_late(&mut self, wanted: &Pay, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.place(wanted, None, now)?;
        if self.find(&key).is_some_and(|order| order.status == Status::Paid) {
            return Err(refused("the order is paid already"));
        }
        self.book(&key, wanted, now);
        self.state_of(&key)
    }

    /// Pays an order through both platforms (one of them may have been paid before).
    pub fn pay_twice(&mut self, wanted: &Pay, now: Moment) -> Result<Vec<OrderState>, ControlError> {
        let mut states = Vec::new();
        for channel in [Channel::Wxpay, Channel::Alipay] {
            let own = channel == wanted.name.channel;
            let account = if own { wanted.name.account.clone() } else { None };
            let name = OrderName { channel, account, sub_mchid: None, ..wanted.name.clone() };
            let one = Pay { name, ..wanted.clone() };
            let key = self.place(&one, None, now)?;
            let paid = self.find(&key).is_some_and(|order| order.status == Status::Paid);
            states.push(if paid { self.state_of(&key)? } else { self.pay(&one, now)? });
        }
        if wanted.name.channel == Channel::Alipay {
            states.reverse();
        }
        Ok(states)
    }

    /// Places the orders of a combined payment, which wait for their payer.
    pub fn open_combined(&mut self, wanted: &PayCombined, now: Moment) -> Result<Vec<OrderState>, ControlError> {
        self.tick(now);
        let keys = self.place_combined(wanted, now)?;
        keys.iter().map(|key| self.state_of(key)).collect()
    }

    /// Pays several orders of one WeChat Pay merchant in one go; one callback tells of all.
    pub fn pay_combined(&mut self, wanted: &PayCombined, now: Moment) -> Result<Vec<OrderState>, ControlError> {
        self.tick(now);
        let keys = self.place_combined(wanted, now)?;
        for key in &keys {
            self.book_payment(key, None, now, now);
        }
        if let Some(order) = keys.first().and_then(|key| self.find(key)) {
            let notices = crate::wxpay::callback::of_payment(self, order, now);
            self.tell(notices, wanted.callback);
        }
        keys.iter().map(|key| self.state_of(key)).collect()
    }

    /// A refund at the platform's console: nobody asked the ledger.
    pub fn console_refund(&mut self, wanted: &ConsoleRefund, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.known(&wanted.name)?;
        let refund_id = self.next_number("50300001", now);
        let order = self.orders.get_mut(&key).ok_or_else(|| unknown_order(&wanted.name))?;
        if order.status != Status::Paid || order.finished {
            return Err(refused("only a paid order that is not finished can be refunded"));
        }
        let left = order.amount_minor.saturating_sub(order.refunding_minor());
        let amount_minor = wanted.amount_minor.unwrap_or(left);
        if amount_minor <= 0 || amount_minor > left {
            return Err(refused(format!("{amount_minor} can't be refunded: {left} is left")));
        }
        let refund_no = wanted.refund_no.clone().unwrap_or_else(|| format!("C{refund_id}"));
        if order.find_refund(&refund_no).is_some() {
            return Err(refused("this refund number is used already"));
        }
        order.refunds.push(Refund {
            refund_no: refund_no.clone(),
            refund_id,
            amount_minor,
            status: RefundStatus::Processing,
            requested_at: now,
            done_at: None,
            notify_url: None,
            reason: None,
        });
        self.by_refund_no.insert((key.account.clone(), refund_no.clone()), key.clone());
        match key.account.channel {
            Channel::Wxpay => self.plan_refund(&key, &refund_no, RefundStatus::Success, now),
            Channel::Alipay => self.settle_refund(&key, &refund_no, RefundStatus::Success, now),
        }
        self.state_of(&key)
    }

    /// Decides a refund that is processing or abnormal; it is told of.
    pub fn decide_refund(&mut self, wanted: &SettleRefund, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.known(&wanted.name)?;
        let refund = self.find(&key).and_then(|order| order.find_refund(&wanted.refund_no));
        match refund.map(|refund| refund.status) {
            None => return Err(ControlError::NotFound(format!("no refund {}", wanted.refund_no))),
            Some(RefundStatus::Success | RefundStatus::Closed) => return Err(refused("this refund is final")),
            Some(RefundStatus::Processing | RefundStatus::Abnormal) => {}
        }
        self.settle_refund(&key, &wanted.refund_no, wanted.status, now);
        self.state_of(&key)
    }

    /// A share that the merchant starts.
    pub fn start_share_of(&mut self, wanted: &StartShare, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.known(&wanted.name)?;
        let usual = match key.account.channel {
            Channel::Wxpay => "MERCHANT_ID",
            Channel::Alipay => "userId",
        };
        let receivers = wanted.receivers.iter().map(|part| Receiver {
            kind: part.kind.clone().unwrap_or_else(|| usual.to_owned()),
            account: part.account.clone(),
            amount_minor: part.amount_minor,
            description: "分账".to_owned(),
            fate: part.result,
            result: ShareResult::Pending,
            fail_reason: part.fail_reason.clone(),
            detail_id: String::new(),
        });
        let new =
            NewShare { out_order_no: wanted.out_order_no.clone(), receivers: receivers.collect(), unfreeze: false };
        self.start_share(&key, new, now).map_err(|refusal| refused(refusal.message))?;
        self.state_of(&key)
    }

    /// The platform closes an unpaid order (its time is over).
    pub fn close(&mut self, name: &OrderName, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.known(name)?;
        if self.find(&key).is_some_and(|order| order.status == Status::Paid) {
            return Err(refused("the order is paid"));
        }
        self.close_order(&key, now, Wish::AsUsual);
        self.state_of(&key)
    }

    /// Alipay: the time for refunds is over.
    pub fn finish(&mut self, name: &OrderName, now: Moment) -> Result<OrderState, ControlError> {
        self.tick(now);
        let key = self.known(name)?;
        let order = self.orders.get_mut(&key).ok_or_else(|| unknown_order(name))?;
        if key.account.channel != Channel::Alipay || order.status != Status::Paid {
            return Err(refused("only a paid Alipay trade becomes TRADE_FINISHED"));
        }
        order.finished = true;
        let order = order.clone();
        self.tell(crate::alipay::callback::of_finish(&order, now), Wish::AsUsual);
        self.state_of(&key)
    }

    pub(crate) fn close_order(&mut self, key: &OrderKey, now: Moment, wish: Wish) {
        let Some(order) = self.orders.get_mut(key) else { return };
        if order.status != Status::Notpay {
            return;
        }
        order.status = Status::Closed;
        order.closed_at = Some(now);
        let order = order.clone();
        // WeChat Pay tells nobody.
        if key.account.channel == Channel::Alipay {
            self.tell(crate::alipay::callback::of_close(&order, now), wish);
        }
    }

    fn book(&mut self, key: &OrderKey, wanted: &Pay, now: Moment) {
        let paid_at = now.minus(Duration::from_secs(wanted.paid_seconds_ago));
        self.book_payment(key, wanted.payer_minor, paid_at, now);
        let Some(order) = self.find(key) else { return };
        let notices = match key.account.channel {
            Channel::Wxpay => crate::wxpay::callback::of_payment(self, order, now),
            Channel::Alipay => crate::alipay::callback::of_payment(self, order, now),
        };
        self.tell(notices, wanted.callback);
    }

    /// All orders of a combined payment, made where it is not known; each must be open.
    fn place_combined(&mut self, wanted: &PayCombined, now: Moment) -> Result<Vec<OrderKey>, ControlError> {
        let account = self.accounts.choose(Channel::Wxpay, wanted.account.as_deref());
        let account = account.ok_or_else(|| ControlError::NotFound("the sandbox has no such account".to_owned()))?;
        let is_part =
            |order: &&Order| order.combine_no.as_ref() == Some(&wanted.combine_no) && order.key.account == account;
        let mut keys: Vec<OrderKey> = self.orders.values().filter(is_part).map(|order| order.key.clone()).collect();
        if keys.is_empty() {
            if !(2..=50).contains(&wanted.orders.len()) {
                return Err(invalid("a combined payment has 2 to 50 orders"));
            }
            for part in &wanted.orders {
                let mut one = Pay::new(Channel::Wxpay, &part.order_no, part.amount_minor);
                one.name.account = wanted.account.clone();
                if self.find(&self.key_of(&one.name)?).is_some() {
                    return Err(refused(format!("order {} belongs to another payment", part.order_no)));
                }
                keys.push(self.place(&one, Some(&wanted.combine_no), now)?);
            }
        } else if !wanted.orders.is_empty() && !self.has_parts(&keys, &wanted.orders) {
            return Err(refused(format!("combined payment {} is known with other orders", wanted.combine_no)));
        }
        let is_open = |key: &OrderKey| self.find(key).is_some_and(|order| order.status == Status::Notpay);
        match keys.iter().find(|key| !is_open(key)) {
            Some(key) => Err(refused(format!("order {} is paid or closed", key.order_no))),
            None => Ok(keys),
        }
    }

    fn has_parts(&self, keys: &[OrderKey], parts: &[Part]) -> bool {
        let is_named = |key: &OrderKey| {
            let amount_minor = self.find(key).map(|order| order.amount_minor);
            parts.iter().any(|part| part.order_no == key.order_no && Some(part.amount_minor) == amount_minor)
        };
        keys.len() == parts.len() && keys.iter().all(is_named)
    }

    /// The order, made where it is not known.
    fn place(&mut self, wanted: &Pay, combine_no: Option<&str>, now: Moment) -> Result<OrderKey, ControlError> {
        let key = self.key_of(&wanted.name)?;
        if let Some(known) = self.find(&key) {
            return match wanted.amount_minor {
                Some(amount) if amount != known.amount_minor => {
                    Err(refused(format!("the order is known with the amount {}", known.amount_minor)))
                }
                Some(_) | None => Ok(key),
            };
        }
        check_number(&key)?;
        let amount_minor = wanted.amount_minor.filter(|amount| *amount > 0);
        let amount_minor = amount_minor.ok_or_else(|| invalid("amount_minor is needed, and above zero"))?;
        let app_id = match key.account.channel {
            Channel::Wxpay => self.accounts.find_merchant(&key.account.id).map(|known| known.merchant.appid.clone()),
            Channel::Alipay => self.accounts.find_seller(&key.account.id).map(|known| known.seller.app_id.clone()),
        };
        let notify_url = wanted.notify_url.clone().unwrap_or_else(|| self.notify_url(&key.account));
        let order = Order {
            key: key.clone(),
            app_id: app_id.unwrap_or_default(),
            amount_minor,
            combine_no: combine_no.map(str::to_owned),
            notify_url,
            product: wanted.product,
            charset: wanted.charset,
            attach: wanted.attach.clone(),
            created_at: now,
            status: Status::Notpay,
            payment: None,
            closed_at: None,
            finished: false,
            refunds: Vec::new(),
            shares: Vec::new(),
            share_returns: Vec::new(),
        };
        self.orders.insert(key.clone(), order);
        Ok(key)
    }

    fn known(&self, name: &OrderName) -> Result<OrderKey, ControlError> {
        let key = self.key_of(name)?;
        if self.find(&key).is_some() { Ok(key) } else { Err(unknown_order(name)) }
    }

    fn key_of(&self, name: &OrderName) -> Result<OrderKey, ControlError> {
        let account = self.accounts.choose(name.channel, name.account.as_deref());
        let account = account.ok_or_else(|| ControlError::NotFound("the sandbox has no such account".to_owned()))?;
        let sub_mchid = self.sub_mchid(&account, name.sub_mchid.as_deref())?;
        Ok(OrderKey { account, sub_mchid, order_no: name.order_no.clone() })
    }

    fn sub_mchid(&self, account: &Account, wanted: Option<&str>) -> Result<Option<String>, ControlError> {
        let merchant = match account.channel {
            Channel::Wxpay => self.accounts.find_merchant(&account.id),
            Channel::Alipay => None,
        };
        match (merchant.and_then(|known| known.merchant.sub_mchids.as_ref()), wanted) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(invalid("only an order under a service provider has a sub_mchid")),
            (Some(known), None) => Ok(known.first().cloned()),
            (Some(known), Some(wanted)) if known.iter().any(|one| one == wanted) => Ok(Some(wanted.to_owned())),
            (Some(_), Some(_)) => Err(ControlError::NotFound("the service provider has no such sub_mchid".to_owned())),
        }
    }

    fn state_of(&self, key: &OrderKey) -> Result<OrderState, ControlError> {
        self.find(key).map(order_state).ok_or_else(|| ControlError::NotFound("the order is gone".to_owned()))
    }
}

fn unknown_order(name: &OrderName) -> ControlError {
    ControlError::NotFound(format!("{} knows no order {}", name.channel.word(), name.order_no))
}

/// What each platform takes as out_trade_no.
fn check_number(key: &OrderKey) -> Result<(), ControlError> {
    let (lengths, allowed, rule): (_, &[u8], _) = match key.account.channel {
        Channel::Wxpay => {
            (6..=32, b"_-|*@", "WeChat Pay takes order numbers of 6 to 32 characters A-Z a-z 0-9 _ - | * @")
        }
        Channel::Alipay => (1..=64, b"_", "Alipay takes order numbers of 1 to 64 characters A-Z a-z 0-9 _"),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || allowed.contains(&byte);
    // Alipay's documents allow letters, digits and the underscore; production takes the hyphen too.
    let fits_channel = |byte: u8| fits(byte) || (key.account.channel == Channel::Alipay && byte == b'-');
    if lengths.contains(&key.order_no.len()) && key.order_no.bytes().all(fits_channel) {
        Ok(())
    } else {
        Err(invalid(rule))
    }
}
