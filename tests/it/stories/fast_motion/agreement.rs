//! Whether ledger and platforms agree: every order, every account, money in, money back and money shared.

use std::collections::BTreeMap;

use paidonce_sandbox::{OrderState, ShareResult};
use paidonce_tests::database::Database;

/// Order, account, and which way the money went.
type Place = (String, String, &'static str);

/// Each difference between what the platforms hold and what the ledger has written, in words.
pub(super) fn disagreements(database: &Database, orders: &[OrderState]) -> Vec<String> {
    let (mut theirs, ours) = (at_the_platforms(orders), in_the_ledger(database));
    let mut found = Vec::new();
    for ((order_no, account, way), amount) in ours {
        let there = theirs.remove(&(order_no.clone(), account.clone(), way)).unwrap_or(0);
        if there != amount {
            found.push(format!("{order_no} at {account}: money {way} is {amount} here and {there} there"));
        }
    }
    let missing = theirs.into_iter().filter(|(_, there)| *there != 0);
    found.extend(missing.map(|((order_no, account, way), there)| {
        format!("{order_no} at {account}: money {way} is nothing here and {there} there")
    }));
    found
}

fn at_the_platforms(orders: &[OrderState]) -> BTreeMap<Place, i64> {
    let mut sums = BTreeMap::new();
    for order in orders {
        let of = |what| (order.order_no.clone(), order.account.clone(), what);
        sums.insert(of("in"), order.paid_minor);
        sums.insert(of("back"), order.refunded_minor);
        let receivers = order.shares.iter().flat_map(|share| &share.receivers);
        let received = receivers.filter(|one| one.result == ShareResult::Success);
        sums.insert(of("shared"), received.map(|one| one.amount_minor).sum());
    }
    sums
}

fn in_the_ledger(database: &Database) -> BTreeMap<Place, i64> {
    let rows = database.texts(
        "SELECT order_no, channel, account, CASE trade_type WHEN 'REFUND' THEN 'back' WHEN 'SHARE' THEN 'shared' ELSE 'in' END,
           CAST(sum(amount_minor) AS text) FROM t_order_flow GROUP BY 1, 2, 3, 4",
    );
    let place = |row: Vec<String>| {
        let [order_no, channel, account, way, amount] = <[String; 5]>::try_from(row).expect("five columns");
        let way = ["in", "back", "shared"].into_iter().find(|known| *known == way).expect("a way of money");
        let account = account.rsplit(':').next().unwrap_or_default().to_owned();
        let name = format!("{}:{account}", channel.to_ascii_lowercase());
        ((order_no, name, way), amount.parse().expect("a sum"))
    };
    rows.into_iter().map(place).collect()
}
