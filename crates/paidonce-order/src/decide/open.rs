//! OpenOrder: register the terms, then decide everything that came before them.

use super::draft::Draft;
use super::{close, payment};
use crate::command::Terms;
use crate::error::OrderError;
use crate::event::OrderEvent;
use crate::ids::{AccountRef, Channel};
use crate::order::{ParkedFact, Status};

/// Longest description, in characters. Source: Alipay `subject` (256); WeChat `description` is shorter.
const DESCRIPTION_CHARS_MAX: usize = 256;

/// Longest sub_mchid. Source: WeChat Pay API v3, `sub_mchid` string(32).
const SUB_MCHID_CHARS_MAX: usize = 32;

/// Most accounts of one order: a limit so that no row and no event grows without bound.
const ACCOUNTS_MAX: usize = 20;

pub(super) fn open_order(draft: &mut Draft<'_>, terms: Terms) -> Result<(), OrderError> {
    let terms = checked(draft, terms)?;
    if let Some(known) = &draft.order().terms {
        return match differing_field(known, &terms) {
            Some(field) => Err(OrderError::OrderTermsDiffer { order_no: draft.order_no.clone(), field }),
            None => Ok(()),
        };
    }
    draft.emit(OrderEvent::OrderOpened(terms));
    decide_parked_payments(draft);
    if draft.status() == Status::Pending {
        close::close_when_all_closed(draft);
    }
    Ok(())
}

/// Earliest payment first, by the channel's clock and then by number: whoever paid first settles the order, however the
/// notices were shuffled.
fn decide_parked_payments(draft: &mut Draft<'_>) {
    let parked = draft.order().parked.iter().filter_map(|entry| match &entry.fact {
        ParkedFact::Payment(fact) => Some(fact.clone()),
        ParkedFact::Refund(_) | ParkedFact::Share(_) => None,
    });
    let mut payments: Vec<_> = parked.collect();
    payments.sort_by(|a, b| (a.occurred_at, &a.payment).cmp(&(b.occurred_at, &b.payment)));
    for fact in payments {
        payment::record_payment(draft, fact);
    }
}

fn checked(draft: &Draft<'_>, mut terms: Terms) -> Result<Terms, OrderError> {
    let invalid = |field, problem: String| Err(OrderError::InvalidTerms { field, problem });
    if terms.amount.amount_minor <= 0 {
        return invalid("amount_minor", "must be above zero, in minor units (fen for CNY)".to_owned());
    }
    terms.accounts.sort();
    terms.accounts.dedup();
    if terms.accounts.is_empty() || terms.accounts.len() > ACCOUNTS_MAX {
        return invalid("accounts", format!("must name 1 to {ACCOUNTS_MAX} accounts such as wxpay:1900000001"));
    }
    if terms.description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION_CHARS_MAX) {
        return invalid("description", format!("may have at most {DESCRIPTION_CHARS_MAX} characters"));
    }
    if terms.sub_mchid.as_deref().is_some_and(|text| !is_sub_mchid(text)) {
        return invalid("sub_mchid", format!("must have 1 to {SUB_MCHID_CHARS_MAX} digits, such as 1900000109"));
    }
    if let Some(combine) = &terms.combine {
        let at_wxpay = |account: &&AccountRef| account.channel == Channel::Wxpay;
        if combine.account.channel != Channel::Wxpay || terms.accounts.iter().filter(at_wxpay).count() != 1 {
            // The platform's answer about the whole names the account of each part: it must be one, so that no part is mistaken.
            let problem = "needs a wxpay account of its own and exactly one wxpay account in accounts";
            return invalid("combine", problem.to_owned());
        }
    }
    if terms.supersedes.as_ref() == Some(draft.order_no) {
        return invalid("supersedes", "an order can't replace itself".to_owned());
    }
    Ok(terms)
}

fn is_sub_mchid(text: &str) -> bool {
    (1..=SUB_MCHID_CHARS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `expires_at` is not compared: a caller that leaves it out gets a default made from the clock, which differs at every
/// repetition; the first one stays.
fn differing_field(known: &Terms, asked: &Terms) -> Option<&'static str> {
    let Terms { amount, accounts, description, expires_at: _, supersedes, sub_mchid, combine } = known;
    if amount.amount_minor != asked.amount.amount_minor {
        Some("amount_minor")
    } else if amount.currency != asked.amount.currency {
        Some("currency")
    } else if *accounts != asked.accounts {
        Some("accounts")
    } else if *supersedes != asked.supersedes {
        Some("supersedes")
    } else if *sub_mchid != asked.sub_mchid {
        Some("sub_mchid")
    } else if *combine != asked.combine {
        Some("combine")
    } else if *description != asked.description {
        Some("description")
    } else {
        None
    }
}
