//! P1 and P3: a query's answer and a callback are the same fact through one door.
//!
//! `PAIDONCE_RACE_ORDERS=1000 cargo test -p paidonce-tests --test it query_races` (`just race-full`) plays the full size.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::config::Config;
use paidonce_tests::database::Engine;
use paidonce_tests::platform_stub::Then;
use paidonce_tests::platform_stub::answer::Prepared;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::wire::{self, Request};
use serde_json::json;

use super::{ALIPAY, WXPAY, on_both, send_all, statuses};

/// Orders of the race in a normal run.
const ORDERS: usize = 24;
/// Callbacks for each order, each sealed and signed anew.
const CALLBACKS: usize = 6;
/// Queries of each order.
const QUERIES: usize = 6;
/// Orders whose storms are under way at the same time.
const ORDERS_AT_ONCE: usize = 6;
/// Impatient clicks on one order.
const CLICKS: usize = 100;

on_both! {
    /// P1 and P3: for each order a storm of callbacks and a storm of queries at once, over two servers where there can be two:
    /// one event, one key, one flow, one delivery.
    async fn a_query_storm_racing_a_callback_storm_books_each_order_once(engine: Engine) {
        let orders = std::env::var("PAIDONCE_RACE_ORDERS").ok().and_then(|n| n.parse().ok()).unwrap_or(ORDERS);
        let nodes = if engine == Engine::Postgres { 2 } else { 1 };
        let app = TestApp::builder(engine).instances(nodes).asking().config(no_reuse).start().await;
        let storms = (0..orders).map(|number| storm(&app, number));
        let replies: Vec<_> = futures_util::stream::iter(storms).buffer_unordered(ORDERS_AT_ONCE).collect().await;
        for (order_no, (callbacks, queries)) in replies {
            assert!(callbacks.keys().all(|status| matches!(status, 200 | 204)), "{order_no}: callbacks {callbacks:?}");
            assert_eq!(queries.keys().collect::<Vec<_>>(), [&200], "{order_no}: queries {queries:?}");
        }
        app.settle_within(Duration::from_secs(60)).await;
        let counts = |sql: &str| usize::try_from(app.database.count(sql)).expect("a count");
        let different = |table: &str, what: &str| {
            counts(&format!("SELECT count(*) FROM {table} WHERE {what}"))
        };
        assert_eq!(different("t_order", "status = 'PAID' AND paid_minor = amount_minor AND surplus_minor = 0"), orders);
        assert_eq!(different("events", "event_type = 'PaymentConfirmed'"), orders);
        assert_eq!(different("events", "event_type <> 'PaymentConfirmed' AND event_type <> 'OrderOpened'"), 0);
        assert_eq!(different("t_idempotent", "1 = 1"), orders);
        assert_eq!(different("t_order_flow", "1 = 1"), orders);
        assert_eq!(different("t_effect", "kind = 'deliver' AND state = 'delivered'"), orders);
        assert_eq!(app.warehouse.accepted_events(), BTreeMap::from([("PaymentConfirmed".to_owned(), orders)]));
        assert_eq!(app.platforms.problems(), Vec::<String>::new());
        app.finish().await;
    }

    /// The platform is asked once however many ask us: its rate limit is not theirs to spend.
    async fn a_hundred_impatient_clicks_make_one_call(engine: Engine) {
        let long = |config: &mut Config| config.channel_calls.fresh_seconds = 60;
        let app = TestApp::builder(engine).asking_by_hand().config(long).start().await;
        app.open("CLICKS", 100, &[WXPAY]).await;
        app.platforms.world(|world| world.pay("CLICKS", "42000101", 100));
        // Slow enough for all clicks to come meanwhile; those that still come later find the answer fresh.
        let slow = Prepared::world().after(Duration::from_millis(400));
        app.platforms.prepare_for(Api::WechatQuery, "CLICKS", [slow], Then::World);
        let clicks = (0..CLICKS).map(|_| query("CLICKS")).collect();
        let replies = send_all(&app, clicks, CLICKS).await;
        assert_eq!(statuses(&replies), BTreeMap::from([(200, CLICKS)]));
        assert_eq!(app.platforms.calls_about(Api::WechatQuery, "CLICKS").len(), 1);
        for reply in replies.into_iter().flatten() {
            let said = reply.json();
            assert_eq!(said["results"][0]["outcome"], "paid", "{said}");
            assert_eq!(said["status"], "PAID", "{said}");
        }
        app.finish().await;
    }

    /// P5: an answer that nobody signed, that another key signed or that is a probe is no fact, and says so.
    async fn an_answer_without_a_good_signature_is_unknown_and_changes_nothing(engine: Engine) {
        use paidonce_tests::keys::key;
        use paidonce_tests::platform_stub::answer::Sign;
        let app = TestApp::builder(engine).asking_by_hand().config(no_reuse).start().await;
        app.open("UNSIGNED-W", 100, &[WXPAY]).await;
        app.open("UNSIGNED-A", 100, &[ALIPAY]).await;
        app.platforms.world(|world| {
            world.pay("UNSIGNED-W", "42000102", 100);
            world.pay("UNSIGNED-A", "2026000102", 100);
        });
        let bad = [Sign::Absent, Sign::Bad, Sign::Probe, Sign::With(key("attacker_key"))];
        for (order_no, api) in [("UNSIGNED-W", Api::WechatQuery), ("UNSIGNED-A", Api::AlipayQuery)] {
            for sign in &bad {
                app.platforms.prepare_for(api, order_no, [Prepared::world().signed(sign.clone())], Then::World);
                let said = app.send(&query(order_no)).await.json();
                assert_eq!(said["results"][0]["outcome"], "unknown", "{order_no} {sign:?}: {said}");
                assert_eq!((said["status"].as_str(), said["changed"].as_bool()), (Some("PENDING"), Some(false)), "{said}");
            }
            let said = app.send(&query(order_no)).await.json();
            assert_eq!((said["status"].as_str(), said["changed"].as_bool()), (Some("PAID"), Some(true)), "{said}");
        }
        app.finish().await;
    }
}

fn no_reuse(config: &mut Config) {
    config.channel_calls.fresh_seconds = 0;
}

fn query(order_no: &str) -> Request {
    shop_request(&format!("/v1/orders/{order_no}/query-payment"), &json!({}))
}

type Statuses = BTreeMap<u16, usize>;

/// Callbacks and queries of one order, all at once; half of the orders are Alipay's.
async fn storm(app: &TestApp, number: usize) -> (String, (Statuses, Statuses)) {
    let (order_no, trade_no) = (format!("RACE-{number}"), format!("4200{number:024}"));
    let alipay = number % 2 == 1;
    app.open(&order_no, 8888, &[if alipay { ALIPAY } else { WXPAY }]).await;
    app.platforms.world(|world| world.pay(&order_no, &trade_no, 8888));
    let callback = || {
        if alipay {
            app.alipay_payment(&order_no, &trade_no, "88.88")
        } else {
            app.wx_payment(&order_no, &trade_no, 8888)
        }
    };
    let callbacks: Vec<Request> = (0..CALLBACKS).map(|_| callback()).collect();
    let queries: Vec<Request> = (0..QUERIES).map(|_| query(&order_no)).collect();
    let send = |requests: Vec<Request>| async {
        let to = |number: usize| app.addr_of(number % app.server_count());
        let sends = requests
            .into_iter()
            .enumerate()
            .map(|(number, request)| async move { wire::send(to(number), &request).await });
        statuses(&futures_util::future::join_all(sends).await)
    };
    let both = futures_util::future::join(send(callbacks), send(queries)).await;
    (order_no, both)
}
