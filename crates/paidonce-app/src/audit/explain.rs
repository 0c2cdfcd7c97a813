//! The timeline of one order, for a person who asks "why is this order paid?".
//!
//! Sources: the log (what was decided, with evidence, position and hash), the effects that followed, and the attempts that
//! changed nothing (repeated or refused messages), which are kept for some weeks only.

use std::collections::HashMap;

use paidonce_order::event::LedgerEvent;
use paidonce_order::ids::OrderNo;
use paidonce_order::order::Status;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::codec::decode;
use paidonce_store::store::{Attempt, EffectRow, EventRow, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::error::AppError;
use crate::view::{EffectView, EventView};

/// Attempts that are read at most, newest first: a storm's worth.
const ATTEMPTS_MAX: u32 = 10_000;

/// Effects in one page.
const EFFECTS_PAGE: u32 = 500;

/// Pages of effects that are read at most.
const EFFECT_PAGES_MAX: u32 = 100;

/// What happened to an order, oldest first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Timeline {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// Where it stands now.
    pub status: Status,
    /// By our time; effects stand behind the event that caused them.
    pub entries: Vec<TimelineEntry>,
    /// Whether everything that is kept is shown; `false` when there were more attempts or effects than one answer takes.
    pub complete: bool,
}

/// One line of a timeline.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TimelineEntry {
    /// Our time: the commit of an event, also of the one that caused an effect; the arrival of an attempt.
    pub at: Timestamp,
    /// When it happened outside, by the channel's clock, if the channel said so.
    pub channel_time: Option<Timestamp>,
    /// What it is.
    #[serde(flatten)]
    pub what: TimelineFact,
}

/// What a line is about.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TimelineFact {
    /// A decision: an event of the log.
    Event {
        /// As it is stored, with position, hash and evidence.
        event: Box<EventView>,
        /// Money that it is about, minor units.
        amount_minor: Option<i64>,
        /// ISO 4217.
        currency: Option<String>,
    },
    /// What followed: a delivery to a subscriber or a call to a platform, as it stands now.
    Effect {
        /// The row with its tries and the last error.
        effect: Box<EffectView>,
    },
    /// A message that changed nothing.
    Attempt {
        /// Where it came in.
        account: String,
        /// `duplicate`, `rejected`.
        result: String,
        /// Number of the push, or why it was refused.
        detail: String,
        /// How many of these came one after the other.
        count: u32,
        /// When the last of them came.
        until: Timestamp,
    },
}

impl App {
    /// The timeline of an order. Errors: [`AppError::NotFound`] when nothing is known of it, [`AppError::Store`] when an event
    /// can't be decoded.
    pub async fn explain_order(&self, order_no: &OrderNo) -> Result<Timeline, AppError> {
        let order = self.get_order_state(order_no).await?;
        let events = self.store().list_order_events(order_no).await?;
        let (effects, all_effects) = self.all_effects(order_no).await?;
        let attempts = self.store().list_attempts(order_no, ATTEMPTS_MAX).await?;
        let all_attempts = u32::try_from(attempts.len()).is_ok_and(|rows| rows < ATTEMPTS_MAX);
        Ok(Timeline {
            order_no: order_no.to_string(),
            status: order.status,
            entries: timeline(events, effects, attempts)?,
            complete: all_effects && all_attempts,
        })
    }

    /// Effects of an order, and whether these are all.
    async fn all_effects(&self, order_no: &OrderNo) -> Result<(Vec<EffectRow>, bool), AppError> {
        let (mut effects, mut after) = (Vec::new(), None);
        for _ in 0..EFFECT_PAGES_MAX {
            let page = self.store().list_effects(None, Some(order_no.as_str()), after, EFFECTS_PAGE).await?;
            let is_last = u32::try_from(page.len()).is_ok_and(|rows| rows < EFFECTS_PAGE);
            after = page.last().map(|effect| effect.effect_id);
            effects.extend(page);
            if is_last {
                return Ok((effects, true));
            }
        }
        Ok((effects, false))
    }
}

/// Merges the sources. `attempts` newest first.
fn timeline(
    events: Vec<EventRow>,
    effects: Vec<EffectRow>,
    attempts: Vec<Attempt>,
) -> Result<Vec<TimelineEntry>, AppError> {
    let mut of_event: HashMap<uuid::Uuid, Vec<EffectRow>> = HashMap::new();
    for effect in effects {
        of_event.entry(effect.event_id).or_default().push(effect);
    }
    let mut entries = Vec::new();
    for row in events {
        let (at, event_id) = (row.recorded_at, row.event_id);
        entries.push(event_entry(row)?);
        for effect in of_event.remove(&event_id).unwrap_or_default() {
            let effect = Box::new(EffectView::from(effect));
            entries.push(TimelineEntry { at, channel_time: None, what: TimelineFact::Effect { effect } });
        }
    }
    entries.extend(folded(attempts.into_iter().rev()));
    // Stable: an event and its effects stay together, and before an attempt of the same microsecond.
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}

fn event_entry(row: EventRow) -> Result<TimelineEntry, AppError> {
    let decoded = decode(&row)
        .map_err(|error| StoreError::Corrupt(format!("event {} of shard {}: {error}", row.position, row.shard)))?;
    let (channel_time, amount) = match &decoded {
        LedgerEvent::Order(event) => (event.occurred_at(), event.amount()),
        LedgerEvent::Stray(_) => (None, None),
    };
    let what = TimelineFact::Event {
        amount_minor: amount.map(|amount| amount.amount_minor),
        currency: amount.map(|amount| amount.currency.to_string()),
        event: Box::new(EventView::try_new(row.clone())?),
    };
    Ok(TimelineEntry { at: row.recorded_at, channel_time, what })
}

/// Attempts that say the same one after the other are one line: a hundred copies are no hundred lines.
fn folded(attempts: impl Iterator<Item = Attempt>) -> Vec<TimelineEntry> {
    let mut entries: Vec<TimelineEntry> = Vec::new();
    for attempt in attempts {
        let of = attempt.account.to_string();
        if let Some(TimelineEntry { what: TimelineFact::Attempt { account, result, detail, count, until }, .. }) =
            entries.last_mut()
            && (&*account, &*result, &*detail) == (&of, &attempt.result, &attempt.detail)
        {
            *count = count.saturating_add(1);
            *until = attempt.at;
            continue;
        }
        let Attempt { at, result, detail, .. } = attempt;
        let what = TimelineFact::Attempt { account: of, result, detail, count: 1, until: at };
        entries.push(TimelineEntry { at, channel_time: None, what });
    }
    entries
}
