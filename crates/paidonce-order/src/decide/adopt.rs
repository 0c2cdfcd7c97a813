//! Facts that waited for an order or a payment are decided in the very command that brings it.

use super::draft::Draft;
use super::{refund, share};
use crate::command::{RefundFact, ShareFact};
use crate::event::OrderEvent;
use crate::order::{Parked, ParkedFact};

/// Emits an event that may end the wait of parked facts (applying it takes them out), then decides those facts by the
/// channel's clock: refunds first, shares after them.
pub(super) fn emit_and_adopt(draft: &mut Draft<'_>, event: OrderEvent) {
    if draft.order().parked.is_empty() {
        return draft.emit(event);
    }
    let before = draft.order().parked.clone();
    draft.emit(event);
    let waiting = &draft.order().parked;
    let adopted: Vec<Parked> = before.into_iter().filter(|entry| !waiting.contains(entry)).collect();
    let mut refunds: Vec<RefundFact> = Vec::new();
    let mut shares: Vec<ShareFact> = Vec::new();
    for entry in adopted {
        match entry.fact {
            // Applying the event has booked it.
            ParkedFact::Payment(_) => {}
            ParkedFact::Refund(fact) => refunds.push(fact),
            ParkedFact::Share(fact) => shares.push(fact),
        }
    }
    refunds.sort_by_key(|fact| (fact.occurred_at, fact.amount.stated().amount_minor));
    shares.sort_by_key(|fact| fact.occurred_at);
    for fact in refunds {
        refund::record_refund(draft, fact);
    }
    for fact in shares {
        share::record_share(draft, fact);
    }
}
