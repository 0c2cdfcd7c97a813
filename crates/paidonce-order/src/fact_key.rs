//! Keys of facts inside one order, and the idempotency keys that they become (the table of DESIGN section 3).
//!
//! An order's state does not hold its own number (events don't repeat it), so state is keyed by [`FactKey`]
//! (`WXPAY:SURPLUS:4200..`) and [`FactKey::in_order`] puts the order number in (`WXPAY:<order_no>:SURPLUS:4200..`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::{FlagFact, PaymentRef, RefundAmount, RefundFact, RefundOutcome, ShareFact, ShareKind};
use crate::event::OrderEvent;
use crate::idem_key::{IdemKey, escape};
use crate::ids::{Channel, OrderNo};

/// Names one fact inside one order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FactKey(String);

impl FactKey {
    /// From the channel and the parts behind the order number.
    fn new(channel: Channel, parts: &[&str]) -> Self {
        let escaped: Vec<String> = parts.iter().map(|part| escape(part)).collect();
        Self(format!("{}:{}", channel.key_word(), escaped.join(":")))
    }

    /// The whole key, as `t_idempotent`, `t_order_flow` and `t_item` hold it.
    #[must_use]
    pub fn in_order(&self, order_no: &OrderNo) -> IdemKey {
        let (channel, rest) = self.0.split_once(':').unwrap_or((self.0.as_str(), ""));
        IdemKey::from_stored(format!("{channel}:{order_no}:{rest}"))
    }

    /// The key inside the order of a whole key; `None` when it is not one.
    #[must_use]
    pub fn from_whole(key: &str) -> Option<Self> {
        let (channel, rest) = key.split_once(':')?;
        let (_order_no, rest) = rest.split_once(':')?;
        Some(Self(format!("{channel}:{rest}")))
    }

    /// The text without the order number.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same fact booked for the `count`-th time (a second difference booked on notices that name one number).
    pub(crate) fn again(self, count: u32) -> Self {
        if count <= 1 { self } else { Self(format!("{}:{count}", self.0)) }
    }

    /// `SHARE:<share_no>:<receiver type>-<receiver>` or `SHARE-RETURN:<share_no>`.
    pub(crate) fn of_share(fact: &ShareFact) -> Self {
        let receiver = format!("{}-{}", fact.receiver_type, fact.receiver.short());
        match fact.kind {
            ShareKind::Shared => Self::new(fact.payment.account.channel, &["SHARE", &fact.share_no, &receiver]),
            ShareKind::Returned => Self::new(fact.payment.account.channel, &["SHARE-RETURN", &fact.share_no]),
        }
    }

    /// `SURPLUS:<channel_trade_no>`, also the item of that payment.
    pub(crate) fn of_surplus(payment: &PaymentRef) -> Self {
        Self::new(payment.account.channel, &["SURPLUS", payment.channel_trade_no.as_str()])
    }

    /// `REFUND:<refund_no>:STALLED`, also the item of that refund.
    pub(crate) fn of_stalled(fact: &RefundFact) -> Self {
        Self::of_refund(fact, &["STALLED"])
    }

    fn of_refund(fact: &RefundFact, suffix: &[&str]) -> Self {
        let mut parts = vec!["REFUND", fact.refund_no.as_str()];
        parts.extend_from_slice(suffix);
        Self::new(fact.payment.account.channel, &parts)
    }

    pub(crate) fn of_parked_refund(fact: &RefundFact) -> Self {
        let detail = match (fact.outcome, fact.amount) {
            (RefundOutcome::Stalled, _) => Some("STALLED".to_owned()),
            (RefundOutcome::Failed, _) => Some("FAILED".to_owned()),
            (RefundOutcome::Succeeded, RefundAmount::Exact(_)) => None,
            (RefundOutcome::Succeeded, RefundAmount::Cumulative(total)) => Some(total.amount_minor.to_string()),
        };
        let mut parts = vec!["PARKED", "REFUND", fact.refund_no.as_str()];
        parts.extend(detail.as_deref());
        Self::new(fact.payment.account.channel, &parts)
    }

    fn of_parked_share(fact: &ShareFact) -> Self {
        let channel = fact.payment.account.channel;
        let receiver = format!("{}-{}", fact.receiver_type, fact.receiver.short());
        match fact.kind {
            ShareKind::Shared => Self::new(channel, &["PARKED", "SHARE", &fact.share_no, &receiver]),
            ShareKind::Returned => Self::new(channel, &["PARKED", "SHARE-RETURN", &fact.share_no]),
        }
    }

    fn of_flag(word: &str, fact: &FlagFact) -> Self {
        Self::new(fact.account.channel, &[word, &fact.content.short()])
    }

    /// The key of the fact that an event books; `None` for internal events, which have none.
    pub(crate) fn of_event(event: &OrderEvent) -> Option<Self> {
        match event {
            OrderEvent::PaymentConfirmed(fact) => Some(Self::new(fact.payment.account.channel, &["PAY"])),
            OrderEvent::SurplusPaymentRecorded { fact, .. } => Some(Self::of_surplus(&fact.payment)),
            OrderEvent::PaymentParked(fact) => {
                let trade_no = fact.payment.channel_trade_no.as_str();
                Some(Self::new(fact.payment.account.channel, &["PARKED", "PAY", trade_no]))
            }
            OrderEvent::RefundConfirmed { fact, .. } => Some(Self::of_refund(fact, &[])),
            OrderEvent::RefundFailed { fact } => Some(Self::of_refund(fact, &["FAILED"])),
            OrderEvent::RefundStalled { fact } => Some(Self::of_stalled(fact)),
            OrderEvent::RefundSplit { fact, .. } => Some(Self::of_refund(fact, &["SPLIT"])),
            OrderEvent::RefundNumberTaken { fact, .. } => Some(Self::of_refund(fact, &["TAKEN"])),
            OrderEvent::RefundParked(fact) => Some(Self::of_parked_refund(fact)),
            OrderEvent::ProfitShareConfirmed(fact) | OrderEvent::ProfitShareReturned(fact) => {
                Some(Self::of_share(fact))
            }
            OrderEvent::ProfitShareParked(fact) => Some(Self::of_parked_share(fact)),
            OrderEvent::AttemptClosed(fact) => {
                Some(Self::new(fact.account.channel, &["CLOSED", fact.account.account.as_str()]))
            }
            OrderEvent::FactConflicted(fact) => Some(Self::of_flag("CONFLICT", fact)),
            OrderEvent::FactFlagged(fact) => Some(Self::of_flag("FLAG", fact)),
            OrderEvent::OrderOpened(_)
            | OrderEvent::SurplusAccepted { .. }
            | OrderEvent::RefundRequested { .. }
            | OrderEvent::ProfitShareFollowed { .. }
            | OrderEvent::OrderClosed { .. }
            | OrderEvent::ItemResolved { .. } => None,
        }
    }
}
