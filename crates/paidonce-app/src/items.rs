//! What needs a person, and what a person can do about it: always named, always with a reason (P5).
//!
//! | action | for | does |
//! |---|---|---|
//! | resolve | every kind | closes the item, moves no money |
//! | adopt | a payment parked for an order never opened | opens the order with the payment's own terms, which settles it |
//! | accept | surplus | lets the payment settle the order |
//! | refund | surplus | asks for what is left of the payment back |

use paidonce_order::command::{Operator, OrderCommand, PaymentRef, RefundOrigin, RefundRequest, StrayCommand, Terms};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo};
use paidonce_order::money::Money;
use paidonce_order::order::{ItemKind, Order, ParkedFact, RefundState, Status};
use paidonce_order::policy::surplus_refund_no;
use paidonce_store::store::{ItemRow, OnlyOpen, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{App, Caller};
use crate::close::REASON_CHARS_MAX;
use crate::error::AppError;
use crate::open::{DESCRIPTION_CHARS_MAX, check_text};
use crate::refund::derived_refund_no;
use crate::view::ItemView;

const OPERATOR_CHARS_MAX: usize = 64;

/// Body of every action on an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorNote {
    /// Who decides; the name of the token if absent. The token's name is written to the log in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Why.
    pub reason: String,
}

/// Filter of the list.
#[derive(Debug, Clone, Default)]
pub struct ItemFilter {
    /// Only this kind.
    pub kind: Option<ItemKind>,
    /// Closed ones too.
    pub closed_too: bool,
    /// Continue behind this item.
    pub after: Option<String>,
    /// Rows at most.
    pub limit: u32,
}

impl App {
    /// Items, newest first.
    pub async fn list_items(&self, filter: &ItemFilter) -> Result<Vec<ItemView>, AppError> {
        let only_open = if filter.closed_too { OnlyOpen::No } else { OnlyOpen::Yes };
        let rows = self.store().list_items(filter.kind, only_open, filter.after.as_deref(), filter.limit).await?;
        Ok(rows.into_iter().map(ItemView::from).collect())
    }

    /// One item. Errors: [`AppError::NotFound`].
    pub async fn get_item(&self, item_no: &str) -> Result<ItemView, AppError> {
        self.get_item_row(item_no).await.map(ItemView::from)
    }

    /// Closes an item without moving money; a closed one stays as it is.
    pub async fn resolve_item(&self, item_no: &str, note: OperatorNote, caller: &Caller) -> Result<ItemView, AppError> {
        let item = self.get_item_row(item_no).await?;
        let by = operator(note, caller)?;
        if item.state != "open" {
            return Ok(item.into());
        }
        match item.kind {
            ItemKind::Quarantined => {
                self.store().resolve_quarantined(item_no, &format!("{}: {}", by.name, by.reason)).await?;
            }
            ItemKind::Stray => {
                let stray_id = item.stray_id.unwrap_or_else(|| item_no.to_owned());
                self.ask(Target::Stray { stray_id, command: StrayCommand::ResolveStray { by } }, caller).await?;
            }
            ItemKind::Parked | ItemKind::Surplus | ItemKind::Flagged | ItemKind::Stalled => {
                let order_no = order_of(&item)?;
                let command = OrderCommand::ResolveItem { item_no: item_no.to_owned(), by };
                self.ask(Target::Order { order_no, command }, caller).await?;
            }
        }
        self.get_item(item_no).await
    }

    /// Lets a surplus payment settle its order.
    pub async fn accept_item(&self, item_no: &str, note: OperatorNote, caller: &Caller) -> Result<ItemView, AppError> {
        let item = self.get_item_row(item_no).await?;
        let by = operator(note, caller)?;
        let (order_no, payment) = surplus_of(&item, "accepted")?;
        let command = OrderCommand::AcceptSurplus { payment, by };
        self.ask(Target::Order { order_no, command }, caller).await?;
        self.get_item(item_no).await
    }

    /// Asks for what is left of a surplus payment back. Asking again while that refund is open or done changes nothing.
    pub async fn refund_item(&self, item_no: &str, note: OperatorNote, caller: &Caller) -> Result<ItemView, AppError> {
        let item = self.get_item_row(item_no).await?;
        let by = operator(note, caller)?;
        let (order_no, payment) = surplus_of(&item, "refunded")?;
        if !matches!(item.state.as_str(), "open" | "refunded") {
            // Accepted: the payment settles its order now. Giving that back is a refund of the order, not of a surplus.
            let why = format!("it was {} before: request a refund of the order if that is meant", item.state);
            return Err(not_allowed(&item, &why));
        }
        let order = self.get_order_state(&order_no).await?;
        let request = surplus_refund(&order_no, &order, &item, payment, &by)?;
        self.ask_refund(&order_no, request, caller).await?;
        self.get_item(item_no).await
    }

    /// Opens an order that we have only heard of with the terms of its parked payment, which then settles it.
    pub async fn adopt_item(&self, item_no: &str, note: OperatorNote, caller: &Caller) -> Result<ItemView, AppError> {
        let item = self.get_item_row(item_no).await?;
        let by = operator(note, caller)?;
        if item.kind != ItemKind::Parked {
            return Err(not_allowed(&item, "only a parked payment can be adopted"));
        }
        let order_no = order_of(&item)?;
        let order = self.get_order_state(&order_no).await?;
        if order.status == Status::Unopened {
            let terms = terms_of_parked(&order, &item, &by)?;
            self.ask(Target::Order { order_no, command: OrderCommand::OpenOrder(terms) }, caller).await?;
        } else if item.state == "open" {
            return Err(not_allowed(&item, "its order is already opened: resolve the item instead"));
        }
        self.get_item(item_no).await
    }

    async fn get_item_row(&self, item_no: &str) -> Result<ItemRow, AppError> {
        let item = self.store().find_item(item_no).await?;
        item.ok_or_else(|| AppError::NotFound { what: format!("item {item_no:?}") })
    }
}

fn operator(note: OperatorNote, caller: &Caller) -> Result<Operator, AppError> {
    check_text("reason", &note.reason, REASON_CHARS_MAX)?;
    let name = note.operator.or_else(|| caller.actor.clone()).unwrap_or_default();
    check_text("operator", &name, OPERATOR_CHARS_MAX)?;
    Ok(Operator { name, reason: note.reason })
}

fn not_allowed(item: &ItemRow, why: &str) -> AppError {
    AppError::NotAllowed { problem: format!("item {:?} is {}: {why}", item.item_no, item.kind.as_str()) }
}

fn order_of(item: &ItemRow) -> Result<OrderNo, AppError> {
    let order_no = item.order_no.as_deref().ok_or_else(|| not_allowed(item, "it names no order"))?;
    OrderNo::parse(order_no).map_err(|_| not_allowed(item, "its order number can't be used"))
}

fn surplus_of(item: &ItemRow, action: &str) -> Result<(OrderNo, PaymentRef), AppError> {
    if item.kind != ItemKind::Surplus {
        return Err(not_allowed(item, &format!("only a surplus payment can be {action}")));
    }
    let payment = item.payment.as_deref().and_then(parse_payment);
    let payment = payment.ok_or_else(|| not_allowed(item, "it names no payment"))?;
    Ok((order_of(item)?, payment))
}

/// Reads `channel:account:channel_trade_no`.
fn parse_payment(text: &str) -> Option<PaymentRef> {
    let (channel, rest) = text.split_once(':')?;
    let (account, number) = rest.split_once(':')?;
    Some(PaymentRef {
        account: AccountRef::parse(&format!("{channel}:{account}")).ok()?,
        channel_trade_no: ChannelTradeNo::parse(number).ok()?,
    })
}

/// The refund's number is that of the automatic refund, so that a person and the policy ask for the same one; after it
/// failed for good, the next try has a number of its own. Asking twice is one refund.
fn surplus_refund(
    order_no: &OrderNo,
    order: &Order,
    item: &ItemRow,
    payment: PaymentRef,
    by: &Operator,
) -> Result<RefundRequest, AppError> {
    let Some(known) = order.find_payment(&payment) else {
        return Err(not_allowed(item, "its payment is not on the order"));
    };
    let failed = known.refunds.iter().filter(|refund| is_failed(refund.state)).count();
    let refund_no = match failed {
        0 => surplus_refund_no(order_no, &payment),
        failed => derived_refund_no(order_no, 'S', &format!("{}#{failed}", item.item_no))?,
    };
    let amount = match known.find_refund(&refund_no) {
        Some(asked_before) => asked_before.amount,
        None => Money::new(known.refundable_minor(), known.fact.amount.currency),
    };
    if amount.amount_minor == 0 {
        return Err(not_allowed(item, "nothing is left of the payment"));
    }
    let reason = Some(format!("{}: {}", by.name, by.reason));
    Ok(RefundRequest { payment: Some(payment), refund_no, amount, reason, origin: RefundOrigin::Surplus })
}

const fn is_failed(state: RefundState) -> bool {
    match state {
        RefundState::Failed | RefundState::NumberTaken => true,
        RefundState::Requested | RefundState::Stalled | RefundState::Confirmed => false,
    }
}

fn terms_of_parked(order: &Order, item: &ItemRow, by: &Operator) -> Result<Terms, AppError> {
    let wanted = item.payment.as_deref().and_then(parse_payment);
    let payments = order.parked.iter().filter_map(|parked| match &parked.fact {
        ParkedFact::Payment(fact) => Some(fact),
        ParkedFact::Refund(_) | ParkedFact::Share(_) => None,
    });
    let mut payments = payments.filter(|fact| wanted.as_ref().is_none_or(|wanted| fact.payment == *wanted));
    let fact = payments.next().ok_or_else(|| not_allowed(item, "its order has no parked payment to open it with"))?;
    let description = format!("adopted by {}: {}", by.name, by.reason);
    Ok(Terms {
        amount: fact.amount,
        accounts: vec![fact.payment.account.clone()],
        description: Some(description.chars().take(DESCRIPTION_CHARS_MAX).collect()),
        expires_at: None,
        supersedes: None,
        sub_mchid: None,
        combine: None,
    })
}
