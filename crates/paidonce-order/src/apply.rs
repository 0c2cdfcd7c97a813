//! Event to state. Infallible: whatever [`crate::decide`] made, and whatever the log holds, can be applied.

use std::collections::BTreeSet;

use crate::command::{FlagFact, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOrigin};
use crate::event::{OrderEvent, SplitPart, StrayEvent, SurplusReason};
use crate::fact_key::FactKey;
use crate::ids::RefundNo;
use crate::money::Money;
use crate::order::{
    Item, ItemKind, ItemState, Order, Parked, ParkedFact, Payment, PaymentRole, Refund, RefundState, Status,
};
use crate::stray::Stray;

impl Stray {
    /// The state after `event`.
    pub fn apply(&mut self, event: &StrayEvent) {
        self.version = self.version.saturating_add(1);
        match event {
            StrayEvent::StrayRecorded(fact) => {
                self.fact = Some(fact.clone());
                self.open = true;
            }
            StrayEvent::StrayResolved { .. } => self.open = false,
        }
    }
}

impl Order {
    /// The state after `event`.
    pub fn apply(&mut self, event: &OrderEvent) {
        // The common event opens no item, so its key is not made.
        let key = if matches!(event, OrderEvent::PaymentConfirmed(_)) { None } else { self.key_of(event) };
        self.version = self.version.saturating_add(1);
        match event {
            OrderEvent::OrderOpened(terms) => {
                self.status = Status::Pending;
                self.terms = Some(terms.clone());
            }
            OrderEvent::PaymentConfirmed(fact) => {
                self.status = Status::Paid;
                self.book(fact, PaymentRole::Settling);
            }
            OrderEvent::SurplusPaymentRecorded { fact, reason } => {
                self.open_item(key, ItemKind::Surplus, surplus_detail(fact, *reason), Some(fact.payment.clone()));
                self.book(fact, PaymentRole::Surplus(*reason));
            }
            OrderEvent::SurplusAccepted { payment, .. } => self.accept(payment),
            OrderEvent::PaymentParked(fact) => self.park(key, ParkedFact::Payment(fact.clone())),
            OrderEvent::RefundParked(fact) => {
                self.count_key(event);
                self.park(key, ParkedFact::Refund(fact.clone()));
            }
            OrderEvent::ProfitShareParked(fact) => {
                self.count_key(event);
                self.park(key, ParkedFact::Share(fact.clone()));
            }
            OrderEvent::RefundRequested { .. }
            | OrderEvent::RefundConfirmed { .. }
            | OrderEvent::RefundFailed { .. }
            | OrderEvent::RefundStalled { .. }
            | OrderEvent::RefundSplit { .. }
            | OrderEvent::RefundNumberTaken { .. } => self.apply_refund(event, key),
            OrderEvent::ProfitShareConfirmed(fact) | OrderEvent::ProfitShareReturned(fact) => {
                self.shares.insert(FactKey::of_share(fact), fact.clone());
            }
            OrderEvent::ProfitShareFollowed { payment, out_order_no } => {
                self.shares_followed.insert((payment.clone(), out_order_no.clone()));
            }
            OrderEvent::AttemptClosed(fact) => {
                self.attempts_closed.insert(fact.account.clone());
            }
            OrderEvent::OrderClosed { reason } => {
                self.status = Status::Closed;
                self.close_reason = Some(reason.clone());
            }
            OrderEvent::FactConflicted(fact) | OrderEvent::FactFlagged(fact) => self.flag(key, fact),
            OrderEvent::ItemResolved { item_no, .. } => {
                if let Some(item) = FactKey::from_whole(item_no).and_then(|key| self.items.get_mut(&key)) {
                    item.state = ItemState::Resolved;
                }
            }
        }
    }

    /// The key, inside the order, of an event that comes next; `None` for internal events.
    #[must_use]
    pub fn key_of(&self, event: &OrderEvent) -> Option<FactKey> {
        let key = FactKey::of_event(event)?;
        let used = self.key_counts.get(&key).copied().unwrap_or(0);
        Some(key.again(used.saturating_add(1)))
    }

    fn apply_refund(&mut self, event: &OrderEvent, key: Option<FactKey>) {
        self.count_key(event);
        match event {
            OrderEvent::RefundRequested { payment, refund_no, amount, origin, .. } => {
                if let Some(known) = self.payment_mut(payment) {
                    known.refunds.push(Refund {
                        refund_no: refund_no.clone(),
                        channel_refund_no: None,
                        amount: *amount,
                        state: RefundState::Requested,
                        origin: *origin,
                        derived: false,
                        occurred_at: None,
                    });
                }
            }
            OrderEvent::RefundConfirmed { fact, amount, origin, derived } => {
                if *origin == RefundOrigin::Platform {
                    let detail = format!("{amount} went back as {} without our asking", fact.refund_no);
                    self.open_item(key, ItemKind::Flagged, detail, Some(fact.payment.clone()));
                }
                if let Some(payment) = self.payment_mut(&fact.payment) {
                    payment.confirm(fact, Booked { amount: *amount, origin: *origin, derived: *derived });
                }
                self.after_money_went_back(fact);
            }
            OrderEvent::RefundSplit { fact, parts, origin } => {
                if let Some(payment) = self.payment_mut(&fact.payment) {
                    payment.split(fact, parts, *origin);
                }
                self.close_stalled(fact, ItemState::Refunded);
            }
            OrderEvent::RefundFailed { fact } => {
                self.set_refund_state(fact, RefundState::Failed);
                self.close_stalled(fact, ItemState::Failed);
            }
            OrderEvent::RefundStalled { fact } => {
                let detail = format!("refund {} is stuck at the channel: see to it at the platform", fact.refund_no);
                self.open_item(key, ItemKind::Stalled, detail, Some(fact.payment.clone()));
                self.set_refund_state(fact, RefundState::Stalled);
            }
            OrderEvent::RefundNumberTaken { payment, refund_no, fact } => {
                self.give_up_number((payment, refund_no), fact, key);
            }
            OrderEvent::OrderOpened(_)
            | OrderEvent::PaymentConfirmed(_)
            | OrderEvent::SurplusPaymentRecorded { .. }
            | OrderEvent::PaymentParked(_)
            | OrderEvent::SurplusAccepted { .. }
            | OrderEvent::RefundParked(_)
            | OrderEvent::ProfitShareConfirmed(_)
            | OrderEvent::ProfitShareReturned(_)
            | OrderEvent::ProfitShareParked(_)
            | OrderEvent::ProfitShareFollowed { .. }
            | OrderEvent::AttemptClosed(_)
            | OrderEvent::OrderClosed { .. }
            | OrderEvent::FactConflicted(_)
            | OrderEvent::FactFlagged(_)
            | OrderEvent::ItemResolved { .. } => {}
        }
    }

    /// Our request under this number will never be done: the channel knows it for another payment.
    fn give_up_number(
        &mut self,
        (payment, refund_no): (&PaymentRef, &RefundNo),
        fact: &RefundFact,
        key: Option<FactKey>,
    ) {
        let detail = format!(
            "refund number {refund_no} belongs to payment {} at the channel: refund with a new number",
            fact.payment.channel_trade_no
        );
        self.open_item(key, ItemKind::Flagged, detail, Some(payment.clone()));
        if let Some(refund) = self.payment_mut(payment).and_then(|known| known.refund_mut(refund_no.as_str())) {
            refund.state = RefundState::NumberTaken;
        }
        let ours = RefundFact { payment: payment.clone(), ..fact.clone() };
        self.close_stalled(&ours, ItemState::Failed);
        // The other payment may be one of this order that is still to come: then its refund counts. No item of its
        // own: as a rule it is another order's.
        let waiting = ParkedFact::Refund(fact.clone());
        if self.must_wait(&waiting) {
            self.parked.push(Parked { key: FactKey::of_parked_refund(fact), fact: waiting });
        }
    }

    fn count_key(&mut self, event: &OrderEvent) {
        if let Some(key) = FactKey::of_event(event) {
            let count = self.key_counts.entry(key).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// Adds a payment and lets go of everything that waited for it; `decide` decides those facts right after.
    fn book(&mut self, fact: &PaymentFact, role: PaymentRole) {
        self.payments.push(Payment {
            fact: fact.clone(),
            role,
            refunds: Vec::new(),
            cumulative: None,
            numbers_of_totals: BTreeSet::new(),
        });
        self.adopt(Some(&fact.payment));
    }

    fn accept(&mut self, payment: &PaymentRef) {
        let surplus = FactKey::of_surplus(payment);
        self.close_item(&surplus, ItemState::Accepted);
        self.status = Status::Paid;
        if let Some(known) = self.payment_mut(payment) {
            known.role = PaymentRole::Settling;
        }
        self.adopt(None);
    }

    /// Takes out of `parked` what needn't wait any more: the booked payment itself, and refunds and shares whose payment
    /// is known now.
    fn adopt(&mut self, booked: Option<&PaymentRef>) {
        if self.parked.is_empty() {
            return;
        }
        let parked = std::mem::take(&mut self.parked);
        let (adopted, waiting): (Vec<Parked>, Vec<Parked>) = parked.into_iter().partition(|entry| match &entry.fact {
            ParkedFact::Payment(fact) => booked.is_some_and(|payment| *payment == fact.payment),
            ParkedFact::Refund(_) | ParkedFact::Share(_) => !self.must_wait(&entry.fact),
        });
        self.parked = waiting;
        for entry in adopted {
            self.close_item(&entry.key, ItemState::Adopted);
        }
    }

    fn park(&mut self, key: Option<FactKey>, fact: ParkedFact) {
        let Some(key) = key else { return };
        let (detail, payment) = match &fact {
            ParkedFact::Payment(fact) => {
                (format!("{} came in for an order that is not opened here", fact.amount), &fact.payment)
            }
            ParkedFact::Refund(fact) => {
                (format!("refund {} of a payment that is not known yet", fact.refund_no), &fact.payment)
            }
            ParkedFact::Share(fact) => {
                (format!("share {} of {} waits for its payment", fact.share_no, fact.amount), &fact.payment)
            }
        };
        self.open_item(Some(key.clone()), ItemKind::Parked, detail, Some(payment.clone()));
        self.parked.push(Parked { key, fact });
    }

    fn flag(&mut self, key: Option<FactKey>, fact: &FlagFact) {
        self.flagged_contents.insert(fact.content);
        self.open_item(key, ItemKind::Flagged, format!("{}: {}", fact.code, fact.detail), None);
    }

    fn after_money_went_back(&mut self, fact: &RefundFact) {
        self.close_stalled(fact, ItemState::Refunded);
        let Some(payment) = self.find_payment(&fact.payment) else { return };
        if !payment.is_fully_refunded() {
            return;
        }
        let (role, surplus) = (payment.role, FactKey::of_surplus(&payment.fact.payment));
        match role {
            PaymentRole::Settling => self.status = Status::Refunded,
            PaymentRole::Surplus(_) => self.close_item(&surplus, ItemState::Refunded),
        }
    }

    fn set_refund_state(&mut self, fact: &RefundFact, state: RefundState) {
        let Some(payment) = self.payment_mut(&fact.payment) else { return };
        match payment.refund_mut(fact.refund_no.as_str()) {
            Some(refund) => {
                refund.state = state;
                refund.learn(fact);
            }
            None => payment.refunds.push(Refund {
                refund_no: fact.refund_no.clone(),
                channel_refund_no: fact.channel_refund_no.clone(),
                amount: fact.amount.stated(),
                state,
                origin: RefundOrigin::Platform,
                derived: false,
                occurred_at: Some(fact.occurred_at),
            }),
        }
    }

    fn close_stalled(&mut self, fact: &RefundFact, state: ItemState) {
        let key = FactKey::of_stalled(fact);
        let of_this_refund = |candidate: &FactKey, item: &Item| {
            item.kind == ItemKind::Stalled
                && item.payment.as_ref() == Some(&fact.payment)
                && candidate.as_str().starts_with(key.as_str())
        };
        for (_, item) in self.items.iter_mut().filter(|(candidate, item)| of_this_refund(candidate, item)) {
            item.close(state);
        }
    }

    fn open_item(&mut self, key: Option<FactKey>, kind: ItemKind, detail: String, payment: Option<PaymentRef>) {
        if let Some(key) = key {
            self.items.insert(key, Item { kind, detail, payment, state: ItemState::Open });
        }
    }

    fn close_item(&mut self, key: &FactKey, state: ItemState) {
        if let Some(item) = self.items.get_mut(key) {
            item.close(state);
        }
    }

    fn payment_mut(&mut self, payment: &PaymentRef) -> Option<&mut Payment> {
        self.payments.iter_mut().find(|known| known.is_named_by(payment))
    }
}

impl Item {
    /// What a person has closed stays closed as the person left it.
    fn close(&mut self, state: ItemState) {
        if self.state == ItemState::Open {
            self.state = state;
        }
    }
}

impl Payment {
    fn refund_mut(&mut self, refund_no: &str) -> Option<&mut Refund> {
        self.refunds.iter_mut().find(|refund| !refund.derived && refund.refund_no.as_str() == refund_no)
    }

    /// Books money that went back: into the refund of that number, or beside it when the figure is a difference.
    fn confirm(&mut self, fact: &RefundFact, booked: Booked) {
        self.learn_cumulative(fact);
        if booked.derived {
            self.numbers_of_totals.insert(fact.refund_no.clone());
        }
        self.add_confirmed(fact, booked);
    }

    fn learn_cumulative(&mut self, fact: &RefundFact) {
        if let RefundAmount::Cumulative(total) = fact.amount
            && total.amount_minor > self.cumulative_minor()
        {
            self.cumulative = Some(fact.clone());
        }
    }

    /// Moves what was booked as a difference to the refund that an exact figure names.
    fn split(&mut self, fact: &RefundFact, parts: &[SplitPart], origin: RefundOrigin) {
        self.learn_cumulative(fact);
        for part in parts {
            for refund in self.refunds.iter_mut().filter(|refund| refund.derived && refund.refund_no == part.from) {
                refund.amount.amount_minor = refund.amount.amount_minor.saturating_sub(part.amount.amount_minor);
            }
            self.add_confirmed(fact, Booked { amount: part.amount, origin, derived: false });
        }
        self.refunds.retain(|refund| !refund.derived || refund.amount.amount_minor > 0);
    }

    fn add_confirmed(&mut self, fact: &RefundFact, booked: Booked) {
        let Booked { amount, origin, derived } = booked;
        let same = |refund: &&mut Refund| refund.derived == derived && refund.refund_no == fact.refund_no;
        match self.refunds.iter_mut().find(same) {
            Some(refund) => {
                let before = if refund.state == RefundState::Confirmed { refund.amount.amount_minor } else { 0 };
                refund.amount.amount_minor = before.saturating_add(amount.amount_minor);
                refund.state = RefundState::Confirmed;
                refund.learn(fact);
            }
            None => self.refunds.push(Refund {
                refund_no: fact.refund_no.clone(),
                channel_refund_no: fact.channel_refund_no.clone(),
                amount,
                state: RefundState::Confirmed,
                origin,
                derived,
                occurred_at: Some(fact.occurred_at),
            }),
        }
    }
}

/// Money that went back, and how it stands in the books.
struct Booked {
    amount: Money,
    origin: RefundOrigin,
    derived: bool,
}

impl Refund {
    fn learn(&mut self, fact: &RefundFact) {
        self.occurred_at = Some(fact.occurred_at);
        if fact.channel_refund_no.is_some() {
            self.channel_refund_no.clone_from(&fact.channel_refund_no);
        }
    }
}

impl RefundAmount {
    /// The figure, whatever its kind.
    #[must_use]
    pub const fn stated(self) -> Money {
        match self {
            Self::Exact(amount) | Self::Cumulative(amount) => amount,
        }
    }
}

fn surplus_detail(fact: &PaymentFact, reason: SurplusReason) -> String {
    let why = match reason {
        SurplusReason::SecondPayment => "the order is already paid",
        SurplusReason::AfterClose => "the order was closed before",
        SurplusReason::AmountMismatch => "the amount is not the order's",
        SurplusReason::OtherAccount => "the order may not be paid through this account",
    };
    format!("{} came in through {}, but {why}", fact.amount, fact.payment.account)
}
