//! The books of a ledger: every event that moved money as a double entry, shard by shard, in constant memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use paidonce_order::money::Currency;
use paidonce_store::audit::AuditSource;
use serde::Serialize;

use super::as_of::AsOf;
use super::postings::{BookAccount, Entry, decimal, entry};
use super::report::{AuditError, OnProgress, Progress};
use super::totals::Days;
use super::walk::{Walk, WalkLimits};

/// What to export.
#[derive(Debug, Clone, Default)]
pub struct ExportPlan {
    /// Up to where.
    pub as_of: AsOf,
    /// Only entries of these business dates.
    pub days: Days,
    /// What is held in memory.
    pub limits: WalkLimits,
}

/// What was exported. Guarantees: every event up to the bounds was read.
#[derive(Debug, Clone, Serialize)]
pub struct ExportReport {
    /// Events that were read.
    pub events: u64,
    /// Entries that were written.
    pub entries: u64,
    /// By account and currency: debits less credits.
    pub balances: Vec<Balance>,
}

/// What stands in an account of the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// `Income:Sales`.
    pub account: String,
    /// ISO 4217.
    pub currency: String,
    /// Debits less credits, minor units, as text.
    pub amount_minor: String,
    /// The same in major units.
    pub amount: String,
}

/// Exports: `write` gets every entry in the order of shards and positions; its error stops the export.
///
/// Errors: [`AuditError`]; what was written until then is not complete.
pub async fn export(
    source: Arc<dyn AuditSource>,
    plan: &ExportPlan,
    (mut write, on_progress): (impl FnMut(&Entry) -> Result<(), AuditError>, OnProgress),
) -> Result<ExportReport, AuditError> {
    let heads = source.heads().await?;
    let bounds = plan.as_of.bounds(source.as_ref(), &heads).await?;
    let total: u64 = bounds.iter().map(|bound| u64::try_from(bound.position).unwrap_or(0)).sum();
    let (mut events, mut entries) = (0_u64, 0_u64);
    let mut balances: BTreeMap<(BookAccount, Currency), i128> = BTreeMap::new();
    for bound in bounds {
        let mut walk = Walk::new(Arc::clone(&source), (bound.shard, bound.position), plan.limits);
        while let Some(page) = walk.next().await? {
            for event in &page {
                let found = entry(event, walk.fold(event)?.state());
                let Some(found) = found.filter(|found| plan.days.contain(found.date)) else { continue };
                write(&found)?;
                entries = entries.saturating_add(1);
                let (minor, currency) = (i128::from(found.amount.amount_minor), found.amount.currency);
                let debit = balances.entry((found.debit, currency)).or_default();
                *debit = debit.saturating_add(minor);
                let credit = balances.entry((found.credit, currency)).or_default();
                *credit = credit.saturating_sub(minor);
            }
            events = events.saturating_add(u64::try_from(page.len()).unwrap_or(0));
            on_progress(Progress { events, total });
            if walk.is_full() {
                walk.take_all();
            }
        }
    }
    let balance = |((account, currency), minor): ((BookAccount, Currency), i128)| Balance {
        account: account.to_string(),
        currency: currency.to_string(),
        amount_minor: minor.to_string(),
        amount: decimal(minor, currency),
    };
    Ok(ExportReport { events, entries, balances: balances.into_iter().map(balance).collect() })
}
