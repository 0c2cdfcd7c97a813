//! P6: a callback that never comes costs nothing: pending orders are asked about on a schedule, and closed at their end.

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::database::Engine;
use paidonce_tests::platform_stub::answer::Prepared;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::platform_stub::{Call, Then};
use serde_json::json;
use time::Duration;
use time::format_description::well_known::Rfc3339;

use super::{ALIPAY, WXPAY, counts, on_both};

on_both! {
    /// P6: the poller books a payment whose callback is lost; until then it asks less and less often.
    async fn the_poller_books_a_payment_whose_callback_never_comes(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        // Taken before: the pauses count from the commit, which may fall into the next second.
        let opened = app.now().unix_timestamp();
        app.open("LOST", 100, &[WXPAY]).await;
        app.walk(460).await;
        let asked: Vec<i64> = app.platforms.calls_about(Api::WechatQuery, "LOST").iter().map(|c| c.at - opened).collect();
        assert_eq!(asked.len(), 4, "asked after these seconds: {asked:?}");
        for (asked, expected) in asked.iter().zip([15, 45, 105, 405]) {
            // Pauses are lengthened by up to a tenth.
            assert!((expected..=expected * 11 / 10 + 5).contains(asked), "asked after {asked} s, not {expected}");
        }
        assert_eq!(app.order("LOST").await["status"], "PENDING");
        app.platforms.world(|world| world.pay("LOST", "42000110", 100));
        app.walk(2_000).await;
        assert_eq!(app.order("LOST").await["status"], "PAID");
        let calls = app.platforms.calls().len();
        app.walk(24 * 3600).await;
        assert_eq!(app.platforms.calls().len(), calls, "a paid order is asked about again");
        app.settle().await;
        assert_eq!(counts(&app, "LOST", "PaymentConfirmed"), [1, 1, 1, 1]);
        app.finish().await;
    }

    /// P6: at its end an order is closed at every platform, then asked about, and only then closed here.
    async fn an_order_at_its_end_is_closed_at_each_platform_before_it_is_closed_here(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        open_until(&app, "END", &[WXPAY, ALIPAY], 600).await;
        app.walk(599).await;
        assert_eq!(calls(&app, Api::WechatClose, "END").len(), 0, "closed too early");
        assert_eq!(app.order("END").await["status"], "PENDING");
        // The last pause may be a tenth longer.
        app.walk(60).await;
        assert_eq!(app.order("END").await["status"], "CLOSED");
        for (close, query) in [(Api::WechatClose, Api::WechatQuery), (Api::AlipayClose, Api::AlipayQuery)] {
            let closed = position(&app, close, "END").expect("the platform was told to close");
            let last = last_position(&app, query, "END").expect("the platform was asked");
            assert!(closed < last, "{query:?} was not asked after {close:?}");
        }
        app.finish().await;
    }

    /// P6, gotcha 22: the platform says it is paid when it is told to close: the payment wins.
    async fn a_payment_found_while_closing_wins(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        open_until(&app, "WINS-W", &[WXPAY], 60).await;
        open_until(&app, "WINS-A", &[ALIPAY], 60).await;
        app.walk(50).await;
        app.platforms.world(|world| {
            world.pay("WINS-W", "42000111", 100);
            world.pay("WINS-A", "2026000111", 100);
        });
        app.walk(20).await;
        for (order_no, close) in [("WINS-W", Api::WechatClose), ("WINS-A", Api::AlipayClose)] {
            assert_eq!(calls(&app, close, order_no).len(), 1, "{order_no}");
            assert_eq!(app.order(order_no).await["status"], "PAID", "{order_no}");
            assert_eq!(counts(&app, order_no, "OrderClosed")[0], 0, "{order_no}");
        }
        app.finish().await;
    }

    /// P6: a close that is asked for while the payment is there answers that it is paid, and books it.
    async fn a_close_by_request_finds_the_payment_too(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().start().await;
        app.open("ASKED-TO-CLOSE", 100, &[WXPAY]).await;
        app.platforms.world(|world| world.pay("ASKED-TO-CLOSE", "42000112", 100));
        let answer = close(&app, "ASKED-TO-CLOSE").await;
        assert_eq!(answer.status, 409, "{}", answer.text());
        assert_eq!(app.order("ASKED-TO-CLOSE").await["status"], "PAID");
        app.finish().await;
    }

    /// P2 and P6: with the platform away nothing is decided, nothing is lost, and whoever asks is told to come again.
    async fn with_the_platform_down_nothing_is_lost_and_nothing_is_closed(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().config(|config| config.channel_calls.fresh_seconds = 0).start().await;
        open_until(&app, "DOWN", &[WXPAY], 3600).await;
        for down in [Prepared::bare(502), Prepared::cut(), Prepared::hang(), Prepared::code(500, "SYSTEM_ERROR")] {
            app.platforms.always(down);
            let answer = close(&app, "DOWN").await;
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(answer.header("retry-after").is_some(), "no Retry-After");
            assert_eq!(answer.json()["code"].as_str().or(answer.json()["type"].as_str()).map(|t| t.contains("channel_unknown")),
                Some(true), "{}", answer.text());
        }
        app.platforms.always(Prepared::bare(502));
        app.walk(3700).await;
        assert_eq!(app.order("DOWN").await["status"], "PENDING", "closed without the platform's word");
        app.platforms.world(|world| world.pay("DOWN", "42000113", 100));
        app.platforms.forget_prepared();
        app.walk(2 * 3600).await;
        assert_eq!(app.order("DOWN").await["status"], "PAID");
        app.finish().await;
    }

    /// P5: a platform's answer about another order, another amount or another account books nothing as ours.
    async fn an_answer_that_is_not_about_our_order_books_nothing(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().config(|config| config.channel_calls.fresh_seconds = 0).start().await;
        app.open("OURS", 100, &[WXPAY]).await;
        app.open("THEIRS", 100, &[WXPAY]).await;
        let other = |change: fn(&mut serde_json::Value)| {
            let mut body = paidonce_tests::signer::wx_payment("OURS", "42000114", 100);
            change(&mut body);
            Prepared::json(200, body)
        };
        let answers = [
            other(|body| body["out_trade_no"] = json!("THEIRS")),
            other(|body| body["mchid"] = json!("1900000009")),
        ];
        app.platforms.prepare_for(Api::WechatQuery, "OURS", answers, Then::World);
        for _ in 0..2 {
            let said = app.send(&shop_request("/v1/orders/OURS/query-payment", &json!({}))).await.json();
            assert_eq!(said["results"][0]["outcome"], "unknown", "{said}");
        }
        for order_no in ["OURS", "THEIRS"] {
            assert_eq!(app.order(order_no).await["status"], "PENDING", "{order_no}");
        }
        app.finish().await;
    }
}

async fn open_until(app: &TestApp, order_no: &str, accounts: &[&str], seconds: i64) {
    let expires_at = (app.now() + Duration::seconds(seconds)).format(&Rfc3339).expect("a time");
    let body = json!({
        "order_no": order_no, "amount_minor": 100, "currency": "CNY", "accounts": accounts, "expires_at": expires_at
    });
    let answer = app.post_as_shop("/v1/orders", &body).await;
    assert_eq!(answer.status, 201, "open {order_no}: {}", answer.text());
}

async fn close(app: &TestApp, order_no: &str) -> paidonce_tests::wire::Answer {
    app.post_as_shop(&format!("/v1/orders/{order_no}/close"), &json!({ "reason": "the shop gave up" })).await
}

fn calls(app: &TestApp, api: Api, order_no: &str) -> Vec<Call> {
    app.platforms.calls_about(api, order_no)
}

fn position(app: &TestApp, api: Api, order_no: &str) -> Option<usize> {
    app.platforms.calls().iter().position(|call| call.asked.api == api && call.is_about(order_no))
}

fn last_position(app: &TestApp, api: Api, order_no: &str) -> Option<usize> {
    app.platforms.calls().iter().rposition(|call| call.asked.api == api && call.is_about(order_no))
}
