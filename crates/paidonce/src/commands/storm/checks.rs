//! The counts after a storm: through the API, and in the tables when a database is given.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::demo::ledger::{Counts, Ledger};
use super::super::demo::warehouse::Warehouse;
use super::summary::Verdict;

/// Reads under way at once.
const READS_MAX: usize = 8;

/// What the ledger says of one order.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its number.
    pub order_no: String,
    /// `t_order.status`.
    pub status: String,
    /// Types of its events.
    pub events: Vec<String>,
    /// Rows by table.
    pub counts: Counts,
}

/// Asks the API about every order.
pub async fn read_orders(ledger: &Ledger, orders: &[String]) -> anyhow::Result<Vec<Found>> {
    let limit = Arc::new(Semaphore::new(READS_MAX));
    let mut reads = JoinSet::new();
    for order_no in orders {
        let (ledger, order_no, limit) = (ledger.clone(), order_no.clone(), Arc::clone(&limit));
        reads.spawn(async move {
            let _permit = limit.acquire_owned().await?;
            let status = ledger.status(&order_no).await?;
            let events = ledger.event_types(&order_no).await?;
            let counts = ledger.counts(&order_no).await?;
            anyhow::Ok(Found { order_no, status, events, counts })
        });
    }
    let mut found = Vec::new();
    while let Some(read) = reads.join_next().await {
        found.push(read.context("a read stopped")??);
    }
    found.sort_by(|a, b| a.order_no.cmp(&b.order_no));
    Ok(found)
}

fn unless<T: std::fmt::Debug + PartialEq>(found: &T, expected: &T) -> Option<String> {
    (found != expected).then(|| format!("{found:?} instead of {expected:?}"))
}

/// The acceptance test, through the API and at the warehouse.
#[must_use]
pub fn verdicts(found: &[Found], warehouse: &Warehouse) -> Vec<Verdict> {
    let once: [&str; 2] = ["OrderOpened", "PaymentConfirmed"];
    let count = |what: &str, problem: &dyn Fn(&Found) -> Option<String>| {
        Verdict::count(what, found.iter().map(|one| (one.order_no.as_str(), problem(one))))
    };
    vec![
        count("orders PAID", &|one| unless(&one.status.as_str(), &"PAID")),
        count("orders with exactly 1 PaymentConfirmed", &|one| unless(&one.events, &once.map(str::to_owned).to_vec())),
        count("orders with exactly 1 t_idempotent row", &|one| unless(&one.counts.idempotent, &1)),
        count("orders with exactly 1 t_order row", &|one| unless(&one.counts.order, &1)),
        count("orders with exactly 1 t_order_flow row", &|one| unless(&one.counts.flows, &1)),
        count("orders told exactly once to the warehouse", &|one| unless(&warehouse.told_of(&one.order_no), &1)),
    ]
}
