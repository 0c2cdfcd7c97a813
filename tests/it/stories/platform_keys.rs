//! P5 while the platform changes its keys: a new certificate is learned by one call, a flood of unknown serials is not many.

use std::collections::BTreeMap;

use paidonce_tests::app::TestApp;
use paidonce_tests::config::Config;
use paidonce_tests::database::Engine;
use paidonce_tests::keys::{TestKey, key};
use paidonce_tests::platform_stub::Then;
use paidonce_tests::platform_stub::answer::Prepared;
use paidonce_tests::platform_stub::asked::Api;
use paidonce_tests::signer;
use paidonce_tests::wire::Request;

use super::{WXPAY, on_both, send_all, statuses};

/// `[channel_calls] key_refresh_min_seconds` by default.
const INTERVAL_SECONDS: i64 = 60;

on_both! {
    /// P5 and P6: many callbacks signed by a certificate that nobody knows yet: one fetch, and they verify.
    async fn an_unknown_certificate_is_fetched_once_and_the_callbacks_verify(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().config(only_certificates).start().await;
        app.open("ROTATED", 100, &[WXPAY]).await;
        let new = key("platform_cert_2");
        app.platforms.merchant("1900000001", |known| {
            known.certificates = vec![key("platform_cert_1"), new];
            known.platform_key = new;
        });
        app.advance(2 * INTERVAL_SECONDS).await;
        let before = fetches(&app);
        let copies = (0..20).map(|_| signed_by(&app, new, "ROTATED")).collect();
        let replies = send_all(&app, copies, 20).await;
        assert_eq!(statuses(&replies), BTreeMap::from([(204, 20)]));
        assert_eq!(fetches(&app) - before, 1);
        assert_eq!(app.order("ROTATED").await["status"], "PAID");
        app.finish().await;
    }

    /// Gotcha 5: whoever sends unknown serials makes us ask at most once an interval.
    async fn a_flood_of_unknown_serials_fetches_at_most_once_an_interval(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().config(only_certificates).start().await;
        app.open("FLOOD", 100, &[WXPAY]).await;
        for _ in 0..3 {
            app.advance(INTERVAL_SECONDS + 1).await;
            let before = fetches(&app);
            let strangers = [key("unknown_key"), key("attacker_key"), key("platform_cert_3")];
            let flood = (0..60).map(|number| signed_by(&app, strangers[number % 3], "FLOOD")).collect();
            let replies = send_all(&app, flood, 20).await;
            assert!(statuses(&replies).keys().all(|status| *status >= 400), "{:?}", statuses(&replies));
            assert!(fetches(&app) - before <= 1, "{} fetches for one flood", fetches(&app) - before);
        }
        assert_eq!(app.order("FLOOD").await["status"], "PENDING");
        app.finish().await;
    }

    /// P6: with the certificate list away the callback is refused for now, and the resend is booked.
    async fn with_the_certificate_list_away_the_resend_is_booked(engine: Engine) {
        let app = TestApp::builder(engine).asking_by_hand().config(only_certificates).start().await;
        app.open("RESENT", 100, &[WXPAY]).await;
        let new = key("platform_cert_2");
        app.platforms.merchant("1900000001", |known| {
            known.certificates = vec![key("platform_cert_1"), new];
            known.platform_key = new;
        });
        app.platforms.prepare(Api::WechatCertificates, [Prepared::bare(502)], Then::World);
        app.advance(2 * INTERVAL_SECONDS).await;
        let refused = app.send(&signed_by(&app, new, "RESENT")).await;
        assert!(refused.status >= 400, "{}", refused.status);
        app.advance(2 * INTERVAL_SECONDS).await;
        assert_eq!(app.send(&signed_by(&app, new, "RESENT")).await.status, 204);
        assert_eq!(app.order("RESENT").await["status"], "PAID");
        app.finish().await;
    }
}

/// One merchant in certificate mode: two would each fetch their own list.
fn only_certificates(config: &mut Config) {
    config.wxpay.truncate(1);
    config.wxpay[0].keys = vec![key("platform_cert_1")];
}

fn signed_by(app: &TestApp, signing: &TestKey, order_no: &str) -> Request {
    let resource = signer::wx_payment(order_no, "42000140", 100);
    let body = signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "transaction", &resource);
    let headers = signer::wx_headers(signing, app.now().unix_timestamp(), &body);
    Request::post("/callbacks/wxpay/1900000001", body).header("Content-Type", "application/json").headers(headers)
}

fn fetches(app: &TestApp) -> usize {
    app.platforms.calls_of(Api::WechatCertificates).len()
}
