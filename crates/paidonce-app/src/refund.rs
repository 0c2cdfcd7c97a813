//! Asking for a refund: recorded through the one door. The call to the platform is an effect of the event.

use paidonce_order::command::{OrderCommand, PaymentRef, RefundOrigin, RefundRequest};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, ORDER_NO_BYTES_MAX, OrderNo, RefundNo};
use paidonce_order::money::{Currency, Money};
use paidonce_store::store::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::api_key::sha256_of_parts;
use crate::app::{Answer, App, Asked, Caller};
use crate::close::REASON_CHARS_MAX;
use crate::error::AppError;
use crate::open::check_text;
use crate::view::{RefundView, refunds_of};

/// `POST /v1/orders/{order_no}/refunds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestRefund {
    /// How much goes back, in minor units.
    pub amount_minor: i64,
    /// ISO 4217; that of the order if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// Our number. If absent one is made: from the `Idempotency-Key` if there is one (so that a retry is the same
    /// refund), else a fresh one (so that a retry is another refund).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund_no: Option<RefundNo>,
    /// Which payment; the settling one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<PaymentName>,
    /// For the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Names a payment of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaymentName {
    /// `wxpay:1900000001`.
    pub account: AccountRef,
    /// transaction_id, trade_no.
    pub channel_trade_no: ChannelTradeNo,
}

impl App {
    /// Asks for a refund; the same refund_no and amount again change nothing.
    ///
    /// Errors: [`AppError::Invalid`]; [`AppError::Rejected`] when there is no such payment, or more than is left of it,
    /// or the number was used before with another amount.
    pub async fn request_refund(
        &self,
        order_no: &OrderNo,
        request: RequestRefund,
        caller: &Caller,
    ) -> Result<Answer<RefundView>, AppError> {
        if request.amount_minor < 1 {
            return Err(AppError::invalid("amount_minor", format!("must be at least 1, not {}", request.amount_minor)));
        }
        if let Some(reason) = &request.reason {
            check_text("reason", reason, REASON_CHARS_MAX)?;
        }
        let currency = match request.currency {
            Some(currency) => currency,
            None => self.currency_of(order_no).await?,
        };
        let refund_no = match request.refund_no {
            Some(refund_no) => refund_no,
            None => make_refund_no(order_no, caller)?,
        };
        let command = RefundRequest {
            payment: request
                .payment
                .map(|PaymentName { account, channel_trade_no }| PaymentRef { account, channel_trade_no }),
            refund_no,
            amount: Money::new(request.amount_minor, currency),
            reason: request.reason,
            origin: RefundOrigin::Request,
        };
        self.ask_refund(order_no, command, caller).await
    }

    pub(crate) async fn ask_refund(
        &self,
        order_no: &OrderNo,
        request: RefundRequest,
        caller: &Caller,
    ) -> Result<Answer<RefundView>, AppError> {
        let refund_no = request.refund_no.to_string();
        let target = Target::Order { order_no: order_no.clone(), command: OrderCommand::RequestRefund(request) };
        let Asked { novelty, receipt } = self.ask(target, caller).await?;
        let order = self.state_after(order_no, &receipt).await?;
        let refund = refunds_of(&order).into_iter().find(|refund| refund.refund_no == refund_no);
        let value =
            refund.ok_or_else(|| AppError::NotFound { what: format!("refund {refund_no} of order {order_no}") })?;
        Ok(Answer { novelty, value })
    }

    async fn currency_of(&self, order_no: &OrderNo) -> Result<Currency, AppError> {
        let row = self.store().find_order_row(order_no).await?;
        let row = row.ok_or_else(|| AppError::NotFound { what: format!("order {order_no}") })?;
        let amount = row.amount.ok_or_else(|| paidonce_order::OrderError::NotOpened { order_no: order_no.clone() })?;
        Ok(amount.currency)
    }
}

fn make_refund_no(order_no: &OrderNo, caller: &Caller) -> Result<RefundNo, AppError> {
    let seed = match &caller.api_key {
        Some(key) => key.idem_key.as_str().to_owned(),
        None => Uuid::now_v7().to_string(),
    };
    derived_refund_no(order_no, 'R', &seed)
}

/// A refund number that contains the order number: `<order_no>-<mark><16 hex digits of the seed's digest>`. An order
/// number too long for that is cut; the digest covers all of it.
pub(crate) fn derived_refund_no(order_no: &OrderNo, mark: char, seed: &str) -> Result<RefundNo, AppError> {
    let suffix = format!("-{mark}{}", sha256_of_parts(&[order_no.as_str().as_bytes(), seed.as_bytes()]).short());
    let room = ORDER_NO_BYTES_MAX.saturating_sub(suffix.len());
    let prefix: String = order_no.as_str().chars().take(room).collect();
    RefundNo::parse(&format!("{prefix}{suffix}")).map_err(|error| AppError::invalid("refund_no", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_refund_number_contains_the_order_number_and_repeats_with_its_seed() {
        let order_no = OrderNo::parse("2025010812345678").unwrap();
        let made = derived_refund_no(&order_no, 'R', "seed").unwrap();
        assert!(made.as_str().starts_with("2025010812345678-R"), "{made}");
        assert_eq!(made, derived_refund_no(&order_no, 'R', "seed").unwrap());
        assert_ne!(made, derived_refund_no(&order_no, 'R', "other seed").unwrap());
    }

    #[test]
    fn long_order_numbers_that_differ_only_at_their_end_give_different_refund_numbers() {
        let made = |end: char| {
            let order_no = OrderNo::parse(&format!("{}{end}", "x".repeat(63))).unwrap();
            derived_refund_no(&order_no, 'R', "seed").unwrap()
        };
        assert_ne!(made('a'), made('b'));
        assert_eq!(made('a').as_str().len(), ORDER_NO_BYTES_MAX);
    }
}
