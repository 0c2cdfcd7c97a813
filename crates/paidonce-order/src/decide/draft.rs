//! Events made so far, and the order as it stands after them, so that later rules of one command see earlier ones.

use std::borrow::Cow;

use crate::command::{FlagFact, PaymentRef};
use crate::event::OrderEvent;
use crate::ids::{AccountRef, Digest, OrderNo};
use crate::order::{Order, Status};
use crate::timestamp::Timestamp;

/// A decision in progress. The state is copied only when something is read after the first event, so that the common
/// command (one fact, one event) copies nothing.
pub(super) struct Draft<'a> {
    pub(super) order_no: &'a OrderNo,
    order: Cow<'a, Order>,
    events: Vec<OrderEvent>,
    applied: usize,
}

impl<'a> Draft<'a> {
    pub(super) const fn new(order_no: &'a OrderNo, order: &'a Order) -> Self {
        Self { order_no, order: Cow::Borrowed(order), events: Vec::new(), applied: 0 }
    }

    /// The order after all events so far.
    pub(super) fn order(&mut self) -> &Order {
        for event in self.events.iter().skip(self.applied) {
            self.order.to_mut().apply(event);
        }
        self.applied = self.events.len();
        &self.order
    }

    pub(super) fn status(&mut self) -> Status {
        self.order().status
    }

    pub(super) fn emit(&mut self, event: OrderEvent) {
        self.events.push(event);
    }

    pub(super) fn into_events(self) -> Vec<OrderEvent> {
        self.events
    }

    /// The same fact with other content than before: kept once per content, for a person.
    pub(super) fn conflict(&mut self, note: Note<'_>, code: &str, detail: String) {
        if !self.order().flagged_contents.contains(&note.content) {
            self.emit(OrderEvent::FactConflicted(note.flag(code, detail)));
        }
    }

    /// A verified statement that can't be booked as it stands: kept once per content, for a person.
    pub(super) fn flag(&mut self, note: Note<'_>, code: &str, detail: String) {
        if !self.order().flagged_contents.contains(&note.content) {
            self.emit(OrderEvent::FactFlagged(note.flag(code, detail)));
        }
    }
}

/// Where and when a fact was stated, for a flag about it.
#[derive(Clone, Copy)]
pub(super) struct Note<'a> {
    account: &'a AccountRef,
    occurred_at: Timestamp,
    content: Digest,
}

impl<'a> Note<'a> {
    pub(super) const fn new(payment: &'a PaymentRef, occurred_at: Timestamp, content: Digest) -> Self {
        Self { account: &payment.account, occurred_at, content }
    }

    pub(super) const fn at_account(account: &'a AccountRef, occurred_at: Timestamp, content: Digest) -> Self {
        Self { account, occurred_at, content }
    }

    fn flag(self, code: &str, detail: String) -> FlagFact {
        FlagFact {
            account: self.account.clone(),
            code: code.to_owned(),
            detail,
            occurred_at: self.occurred_at,
            content: self.content,
        }
    }
}
