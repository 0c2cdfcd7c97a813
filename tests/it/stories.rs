//! Stories over HTTP on a real server process, each on the embedded database and on PostgreSQL.
//!
//! Every story ends with `TestApp::finish`, which settles the deliveries and accuses: a hole in the log, a projection that
//! is not a function of the events, a delivery that is still waiting.

mod alipay_certificates;
mod audit;
mod audit_export;
mod audit_replay;
mod audit_seal;
mod audit_verify;
mod bad_input;
mod combine_calls;
mod crashes;
mod database_away;
mod deliveries;
mod doors;
mod fast_motion;
mod operations;
mod platform_keys;
mod poller;
mod query_races;
mod reconcile;
mod refund_calls;
mod replays;
mod share_calls;
mod surplus_calls;
mod town;

/// The same story on both databases.
macro_rules! on_both {
    ($($(#[$about:meta])* async fn $name:ident($engine:ident: Engine) $body:block)*) => { $(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports, reason = "what a story needs differs")]
            use super::*;

            async fn story($engine: Engine) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                story(Engine::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                story(Engine::Postgres).await;
            }
        }
    )* };
}
pub(crate) use on_both;

use futures_util::StreamExt as _;
use paidonce_tests::app::TestApp;
use paidonce_tests::wire::{self, Reply, Request};

/// WeChat account of most stories.
pub(crate) const WXPAY: &str = "wxpay:1900000001";
/// Alipay account of most stories.
pub(crate) const ALIPAY: &str = "alipay:2088000000000001";

/// Sends all requests, `at_once` at a time, over the servers in turn; the replies in the order of their arrival.
pub(crate) async fn send_all(app: &TestApp, requests: Vec<Request>, at_once: usize) -> Vec<Reply> {
    let sends = requests.into_iter().enumerate().map(|(number, request)| {
        let to = app.addr_of(number % app.server_count());
        async move { wire::send(to, &request).await }
    });
    futures_util::stream::iter(sends).buffer_unordered(at_once).collect().await
}

/// How often each status (0: no answer) was given.
pub(crate) fn statuses(replies: &[Reply]) -> std::collections::BTreeMap<u16, usize> {
    let mut by_status = std::collections::BTreeMap::new();
    for reply in replies {
        *by_status.entry(reply.as_ref().map_or(0, |answer| answer.status)).or_insert(0) += 1;
    }
    by_status
}

/// Rows of the log, all keys and all flows that name this order, in one line of numbers: events, keys, flows, deliveries.
pub(crate) fn counts(app: &TestApp, order_no: &str, event_type: &str) -> [i64; 4] {
    let count = |sql: String| app.database.count(&sql);
    [
        count(format!("SELECT count(*) FROM events WHERE aggregate_id = '{order_no}' AND event_type = '{event_type}'")),
        count(format!("SELECT count(*) FROM t_idempotent WHERE order_no = '{order_no}'")),
        count(format!("SELECT count(*) FROM t_order_flow WHERE order_no = '{order_no}'")),
        i64::try_from(
            app.warehouse
                .deliveries()
                .iter()
                .filter(|delivery| delivery.status == 200 && delivery.mentions(order_no))
                .filter(|delivery| delivery.event_type() == event_type)
                .count(),
        )
        .expect("a small number"),
    ]
}

/// Repeats `look` until it is true. Panics with `what` after 30 s.
pub(crate) async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !look().await {
        assert!(std::time::Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
}
