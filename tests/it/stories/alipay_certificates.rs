//! Alipay's certificate mode (fact B3, P5, P6): a certificate that Alipay changes is fetched once and believed by its chain.

use paidonce_sandbox::options::{APP_ID, SELLER_ID};
use paidonce_sandbox::{AlipayKeyMode, Channel, Pay, SandboxOptions, Seller, Wish};
use paidonce_tests::database::Engine;
use serde_json::json;

use super::town::Town;
use super::{ALIPAY, counts, on_both};

on_both! {
    /// P6: Alipay signs with a certificate that nobody here knows: the next answer names it, it is fetched, and both the
    /// answer and later callbacks are believed.
    async fn a_new_certificate_of_alipay_is_fetched_and_believed(engine: Engine) {
        let town = Town::start(engine, by_certificates, |_| {}).await;
        town.sandbox.rotate_alipay_certificate().expect("a new certificate");
        open(&town, "ASKED").await;
        town.sandbox.play(|platforms, now| platforms.pay(&pay("ASKED", Wish::Lost), now)).expect("pay");
        town.tick(20).await;
        assert_eq!(town.app.order("ASKED").await["status"], "PAID");
        open(&town, "TOLD").await;
        town.sandbox.play(|platforms, now| platforms.pay(&pay("TOLD", Wish::AsUsual), now)).expect("pay");
        let delivered = town.sandbox.deliver_now().await;
        assert_eq!((delivered.taken, delivered.not_taken), (1, 0));
        assert_eq!(town.app.order("TOLD").await["status"], "PAID");
        town.finish().await;
    }

    /// P5, P6: a callback signed by an unknown certificate is refused, and costs nothing: the poller learns it, and the resend
    /// is a duplicate.
    async fn a_callback_that_is_quicker_than_the_new_certificate_comes_again(engine: Engine) {
        let town = Town::start(engine, by_certificates, |_| {}).await;
        open(&town, "QUICK").await;
        town.sandbox.rotate_alipay_certificate().expect("a new certificate");
        town.sandbox.play(|platforms, now| platforms.pay(&pay("QUICK", Wish::AsUsual), now)).expect("pay");
        let delivered = town.sandbox.deliver_now().await;
        assert_eq!((delivered.taken, delivered.not_taken), (0, 1));
        assert_eq!(town.app.order("QUICK").await["status"], "PENDING");
        town.tick(20).await;
        assert_eq!(town.app.order("QUICK").await["status"], "PAID");
        town.move_clocks(300).await;
        let delivered = town.sandbox.deliver_now().await;
        assert_eq!((delivered.taken, delivered.not_taken), (1, 0));
        assert_eq!(counts(&town.app, "QUICK", "PaymentConfirmed")[..3], [1, 1, 1]);
        town.finish().await;
    }

    /// An app that acts for a merchant shows its token on every call.
    async fn an_app_that_acts_for_a_merchant_asks_with_its_token(engine: Engine) {
        let with_token = |options: &mut SandboxOptions| {
            let app_auth_token = Some("202601BBsandbox".to_owned());
            options.sellers = vec![Seller { app_auth_token, ..Seller::new(SELLER_ID, APP_ID) }];
        };
        let town = Town::start(engine, with_token, |_| {}).await;
        open(&town, "ACTING").await;
        town.sandbox.play(|platforms, now| platforms.pay(&pay("ACTING", Wish::Lost), now)).expect("pay");
        town.tick(20).await;
        assert_eq!(town.app.order("ACTING").await["status"], "PAID");
        town.finish().await;
    }
}

fn by_certificates(options: &mut SandboxOptions) {
    options.behaviour.alipay_keys = AlipayKeyMode::Certificate;
}

fn pay(order_no: &str, callback: Wish) -> Pay {
    Pay { callback, ..Pay::new(Channel::Alipay, order_no, 8_888) }
}

async fn open(town: &Town, order_no: &str) {
    let opened = pay(order_no, Wish::AsUsual);
    town.sandbox.play(|platforms, now| platforms.open(&opened, now)).expect("open at Alipay");
    town.open(&json!({ "order_no": order_no, "amount_minor": 8_888, "currency": "CNY", "accounts": [ALIPAY] })).await;
}
