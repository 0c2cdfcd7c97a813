//! Double-entry bookkeeping of an event: what it puts where, balancing to zero.
//!
//! | event | debit | credit |
//! |---|---|---|
//! | PaymentConfirmed | receivable at the account | sales |
//! | SurplusPaymentRecorded | receivable | surplus (a liability: it is not ours yet) |
//! | SurplusAccepted | surplus, what is left of it | sales |
//! | RefundConfirmed of the settling payment | refunds | receivable |
//! | RefundConfirmed of a surplus | surplus | receivable |
//! | ProfitShareConfirmed / Returned | profit share / receivable | receivable / profit share |
//!
//! Fees are the platforms' business and stand in their bills, not in the log.

use std::fmt;

use paidonce_order::command::{PaymentRef, RefundFact, ShareFact};
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::AccountRef;
use paidonce_order::money::{Currency, Money};
use paidonce_order::order::{Order, PaymentRole};
use paidonce_order::project::Aggregate;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::codec::decode;
use paidonce_store::store::EventRow;
use time::Date;

use super::totals::business_date;

/// Where money stands in the books.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BookAccount {
    /// What a platform holds for us: `Assets:Receivable:WXPAY:1900000001`.
    Receivable(AccountRef),
    /// `Income:Sales`.
    Sales,
    /// `Income:Refunds`: reduces sales.
    Refunds,
    /// `Liabilities:Surplus`: came in, settles nothing.
    Surplus,
    /// `Expenses:ProfitShare`.
    ProfitShare,
}

impl fmt::Display for BookAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Upper case: beancount wants it so.
            Self::Receivable(AccountRef { channel, account }) => {
                write!(f, "Assets:Receivable:{}:{account}", channel.as_str().to_ascii_uppercase())
            }
            Self::Sales => f.write_str("Income:Sales"),
            Self::Refunds => f.write_str("Income:Refunds"),
            Self::Surplus => f.write_str("Liabilities:Surplus"),
            Self::ProfitShare => f.write_str("Expenses:ProfitShare"),
        }
    }
}

/// One movement of money in the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Business date: Beijing, by the channel's clock; by ours for what only we decide.
    pub date: Date,
    /// The event.
    pub event: EventRow,
    /// Where the money moved.
    pub payment: PaymentRef,
    /// refund_no or share number.
    pub number: Option<String>,
    /// Always above zero.
    pub amount: Money,
    /// Gets it.
    pub debit: BookAccount,
    /// Gives it.
    pub credit: BookAccount,
}

/// The entry of an event that has just been folded into `after`. `None`: it moves nothing.
#[must_use]
pub fn entry(event: &EventRow, after: &Aggregate) -> Option<Entry> {
    let Ok(LedgerEvent::Order(decoded)) = decode(event) else { return None };
    let Aggregate::Order(order) = after else { return None };
    let booked = book(&decoded, order, event.recorded_at)?;
    let Booked { payment, number, amount, at, debit, credit } = booked;
    (amount.amount_minor > 0).then(|| Entry {
        date: business_date(at),
        event: event.clone(),
        payment,
        number,
        amount,
        debit,
        credit,
    })
}

struct Booked {
    payment: PaymentRef,
    number: Option<String>,
    amount: Money,
    at: Timestamp,
    debit: BookAccount,
    credit: BookAccount,
}

fn book(event: &OrderEvent, order: &Order, recorded_at: Timestamp) -> Option<Booked> {
    let receivable = |payment: &PaymentRef| BookAccount::Receivable(payment.account.clone());
    match event {
        OrderEvent::PaymentConfirmed(fact) | OrderEvent::SurplusPaymentRecorded { fact, .. } => {
            let is_settling = matches!(event, OrderEvent::PaymentConfirmed(_));
            let credit = if is_settling { BookAccount::Sales } else { BookAccount::Surplus };
            let (payment, amount, at) = (fact.payment.clone(), fact.amount, fact.occurred_at);
            Some(Booked { debit: receivable(&payment), payment, number: None, amount, at, credit })
        }
        OrderEvent::SurplusAccepted { payment, amount, .. } => {
            let left = order
                .find_payment(payment)
                .map_or(amount.amount_minor, |known| amount.amount_minor.saturating_sub(known.refunded_minor()));
            let amount = Money::new(left, amount.currency);
            let (debit, credit) = (BookAccount::Surplus, BookAccount::Sales);
            Some(Booked { payment: payment.clone(), number: None, amount, at: recorded_at, debit, credit })
        }
        OrderEvent::RefundConfirmed { fact, amount, .. } => Some(refund(fact, *amount, order)),
        OrderEvent::ProfitShareConfirmed(fact) => {
            Some(share(fact, BookAccount::ProfitShare, receivable(&fact.payment)))
        }
        OrderEvent::ProfitShareReturned(fact) => Some(share(fact, receivable(&fact.payment), BookAccount::ProfitShare)),
        // A figure of its own for what was booked: nothing moves.
        OrderEvent::RefundSplit { .. }
        | OrderEvent::OrderOpened(_)
        | OrderEvent::PaymentParked(_)
        | OrderEvent::RefundRequested { .. }
        | OrderEvent::RefundFailed { .. }
        | OrderEvent::RefundStalled { .. }
        | OrderEvent::RefundParked(_)
        | OrderEvent::RefundNumberTaken { .. }
        | OrderEvent::ProfitShareParked(_)
        | OrderEvent::ProfitShareFollowed { .. }
        | OrderEvent::AttemptClosed(_)
        | OrderEvent::OrderClosed { .. }
        | OrderEvent::FactConflicted(_)
        | OrderEvent::FactFlagged(_)
        | OrderEvent::ItemResolved { .. } => None,
    }
}

fn refund(fact: &RefundFact, amount: Money, order: &Order) -> Booked {
    let role = order.find_payment(&fact.payment).map(|payment| payment.role);
    let debit = match role {
        Some(PaymentRole::Surplus(_)) => BookAccount::Surplus,
        Some(PaymentRole::Settling) | None => BookAccount::Refunds,
    };
    Booked {
        payment: fact.payment.clone(),
        number: Some(fact.refund_no.to_string()),
        amount,
        at: fact.occurred_at,
        debit,
        credit: BookAccount::Receivable(fact.payment.account.clone()),
    }
}

fn share(fact: &ShareFact, debit: BookAccount, credit: BookAccount) -> Booked {
    let (payment, number) = (fact.payment.clone(), Some(fact.share_no.clone()));
    Booked { payment, number, amount: fact.amount, at: fact.occurred_at, debit, credit }
}

/// An amount in major units by integers alone: `88.88`, `-0.05`, `88` for a currency without decimals.
#[must_use]
pub fn decimal(amount_minor: i128, currency: Currency) -> String {
    let decimals = usize::from(currency.exponent());
    let sign = if amount_minor < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", amount_minor.unsigned_abs(), width = decimals.saturating_add(1));
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(decimals));
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn minor_units_become_major_ones_by_integers_alone() {
        let yen = Currency::parse("JPY").unwrap();
        for (minor, currency, expected) in [
            (8888, Currency::CNY, "88.88"),
            (-5, Currency::CNY, "-0.05"),
            (100, Currency::CNY, "1.00"),
            (88, yen, "88"),
            (i128::from(i64::MAX) * 10, Currency::CNY, "922337203685477580.70"),
        ] {
            assert_eq!(decimal(minor, currency), expected);
        }
    }
}
