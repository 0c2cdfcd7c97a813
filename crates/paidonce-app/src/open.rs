//! Opening an order, and replacing an earlier attempt.

use paidonce_order::command::{Combine, OrderCommand, Terms};
use paidonce_order::decide::decide;
use paidonce_order::ids::{AccountRef, OrderNo};
use paidonce_order::money::{Currency, Money};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::store::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{Answer, App, Asked, Caller};
use crate::error::AppError;
use crate::view::OrderView;

/// When an order would be closed unpaid if the caller doesn't say: 7 days, in microseconds.
pub const EXPIRY_DEFAULT_MICROS: i64 = 7 * 24 * 3_600 * 1_000_000;

/// Longest description, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 256;

/// `POST /v1/orders`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenOrder {
    /// The merchant's out_trade_no: 1 to 64 letters, digits and `_-|*@`.
    pub order_no: OrderNo,
    /// What must be paid, in minor units (fen for CNY).
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: Currency,
    /// Through which of our accounts it may be paid, for example `["wxpay:1900000001"]`.
    pub accounts: Vec<AccountRef>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// When it would be closed unpaid; 7 days from now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The earlier attempt that this one replaces: it is closed first, and if it is paid nothing is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<OrderNo>,
    /// Whose order it is at WeChat Pay, when the account is a service provider's: the platform is asked with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_mchid: Option<String>,
    /// The WeChat Pay combine payment that the order is a part of. The platform knows such an order only by that number: it is
    /// asked about, and closed, together with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
}

impl App {
    /// Opens an order. The same terms again change nothing.
    ///
    /// With `supersedes` these are two commits, the old order closed, then the new one opened; the same request again
    /// heals a crash between them.
    ///
    /// Errors: [`AppError::Invalid`]; [`AppError::Rejected`] with other terms than before, or when the superseded order
    /// is paid (then nothing is opened).
    pub async fn open(&self, request: OpenOrder, caller: &Caller) -> Result<Answer<OrderView>, AppError> {
        let order_no = request.order_no.clone();
        let terms = self.check_terms(&request)?;
        if let Some(expires_at) = request.expires_at {
            self.check_expiry(&order_no, expires_at).await?;
        }
        if let Some(superseded) = terms.supersedes.clone() {
            // An order that is open already was opened after its predecessor was closed.
            if self.would_open(&order_no, &terms).await? {
                self.close_superseded(&superseded, &order_no, caller).await?;
            }
        }
        let target = Target::Order { order_no: order_no.clone(), command: OrderCommand::OpenOrder(terms) };
        let Asked { novelty, receipt } = self.ask(target, caller).await?;
        let order = self.state_after(&order_no, &receipt).await?;
        Ok(Answer { novelty, value: OrderView::new(&order_no, &order) })
    }

    /// What the rules can't know; the rest is the rules' own check.
    fn check_terms(&self, request: &OpenOrder) -> Result<Terms, AppError> {
        if let Some(unknown) = request.accounts.iter().find(|account| !self.accounts().knows(account)) {
            return Err(AppError::invalid(
                "accounts",
                format!("{unknown} is not configured here: its notifications could not be verified"),
            ));
        }
        let of_combine = request.combine.as_ref().map(|combine| &combine.account);
        if let Some(unknown) = of_combine.filter(|account| !self.accounts().knows(account)) {
            return Err(AppError::invalid(
                "combine",
                format!("{unknown} is not configured here: it could not be asked"),
            ));
        }
        if let Some(description) = &request.description {
            check_text("description", description, DESCRIPTION_CHARS_MAX)?;
        }
        let mut accounts = request.accounts.clone();
        accounts.sort();
        accounts.dedup();
        let expires_at = request.expires_at.unwrap_or_else(|| self.clock().now().plus_micros(EXPIRY_DEFAULT_MICROS));
        Ok(Terms {
            amount: Money::new(request.amount_minor, request.currency),
            accounts,
            description: request.description.clone(),
            expires_at: Some(expires_at),
            supersedes: request.supersedes.clone(),
            sub_mchid: request.sub_mchid.clone(),
            combine: request.combine.clone(),
        })
    }

    /// A new order can't be expired already; a repeat of an old request may be.
    async fn check_expiry(&self, order_no: &OrderNo, expires_at: Timestamp) -> Result<(), AppError> {
        let now = self.clock().now();
        if expires_at > now {
            return Ok(());
        }
        let opened = self.store().find_order(order_no).await?.is_some_and(|order| order.terms.is_some());
        if opened {
            return Ok(());
        }
        Err(AppError::invalid("expires_at", format!("{expires_at} is not in the future (it is {now} here)")))
    }

    /// Before the old order is closed: would the new one be opened at all? Errors: the rules' rejection.
    async fn would_open(&self, order_no: &OrderNo, terms: &Terms) -> Result<bool, AppError> {
        let order = self.store().find_order(order_no).await?.unwrap_or_default();
        Ok(!decide(order_no, &order, OrderCommand::OpenOrder(terms.clone()))?.is_empty())
    }

    async fn close_superseded(&self, old: &OrderNo, new: &OrderNo, caller: &Caller) -> Result<(), AppError> {
        let command = OrderCommand::CloseOrder { reason: format!("superseded by {new}") };
        let target = Target::Order { order_no: old.clone(), command };
        self.ask(target, &caller.without_api_key()).await.map(|_| ())
    }
}

/// Refuses text that is empty, too long or has control characters (they forge log lines).
pub(crate) fn check_text(field: &'static str, text: &str, chars_max: usize) -> Result<(), AppError> {
    let chars = text.chars().count();
    if text.trim().is_empty() || chars > chars_max {
        return Err(AppError::invalid(field, format!("must have 1 to {chars_max} characters, not {chars}")));
    }
    if text.chars().any(char::is_control) {
        return Err(AppError::invalid(field, "must not have control characters"));
    }
    Ok(())
}
