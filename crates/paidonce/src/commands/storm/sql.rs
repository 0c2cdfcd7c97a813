//! The same counts from the tables themselves, through the store (the only crate with SQL).

use paidonce_order::ids::OrderNo;
use paidonce_store::options::StoreOptions;
use paidonce_store::store::RowCounts;
use paidonce_store::{PostgresStore, Store};

use super::summary::Verdict;
use crate::ledger::stop;

/// Counts the rows of every order in this PostgreSQL. Opening it as a further node checks that its log can be decoded.
pub async fn verdicts(url: &str, orders: &[String]) -> anyhow::Result<Vec<Verdict>> {
    let store = PostgresStore::connect(url, StoreOptions::default()).await.map_err(stop)?;
    let mut found = Vec::new();
    for order_no in orders {
        let counts = store.count_rows(&OrderNo::parse(order_no)?).await.map_err(stop)?;
        found.push((order_no.as_str(), counts));
    }
    store.shutdown().await;
    let count = |what: &str, read: fn(&RowCounts) -> i64| {
        Verdict::count(
            what,
            found.iter().map(|(order_no, counts)| {
                let rows = read(counts);
                (*order_no, (rows != 1).then(|| format!("{rows} rows")))
            }),
        )
    };
    Ok(vec![
        count("SQL: orders with exactly 1 row in t_idempotent", |counts| counts.idempotent),
        count("SQL: orders with exactly 1 row in t_order", |counts| counts.order),
        count("SQL: orders with exactly 1 row in t_order_flow", |counts| counts.flows),
    ])
}
