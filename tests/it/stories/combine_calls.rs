//! Combine payments against the sandbox (P1, P3, P6): one payment of several orders, which the platform knows only as a whole.

use paidonce_sandbox::options::MCHID;
use paidonce_sandbox::{Part, PayCombined, Status, Wish};
use paidonce_tests::app::shop_request;
use paidonce_tests::database::Engine;
use serde_json::{Value, json};

use super::town::Town;
use super::{WXPAY, counts, on_both};

/// The orders of one cart, and what each costs.
const PARTS: [(&str, i64); 3] = [("CART-1", 10), ("CART-2", 990), ("CART-3", 500)];

on_both! {
    /// P6: the one callback of a cart is lost: the poller books every order of it, once.
    async fn a_lost_callback_of_a_combine_payment_is_found_for_every_part(engine: Engine) {
        let town = cart(engine).await;
        town.sandbox.play(|platforms, now| platforms.pay_combined(&payment(Wish::Lost), now)).expect("pay the cart");
        town.tick(20).await;
        for (order_no, amount) in PARTS {
            let order = town.app.order(order_no).await;
            assert_eq!((&order["status"], &order["paid_minor"]), (&json!("PAID"), &json!(amount)), "{order_no}");
        }
        town.app.settle().await;
        for (order_no, _) in PARTS {
            assert_eq!(counts(&town.app, order_no, "PaymentConfirmed"), [1, 1, 1, 1], "{order_no}");
        }
        town.finish().await;
    }

    /// P1: the callback comes as well, late and twice, beside the poller's question: each order is paid once.
    async fn the_callback_and_the_poller_book_each_part_once(engine: Engine) {
        let town = cart(engine).await;
        town.sandbox.play(|platforms, now| platforms.pay_combined(&payment(Wish::Duplicated), now)).expect("pay");
        for _ in 0..10 {
            town.tick(20).await;
        }
        town.app.settle().await;
        for (order_no, _) in PARTS {
            assert_eq!(counts(&town.app, order_no, "PaymentConfirmed"), [1, 1, 1, 1], "{order_no}");
        }
        town.finish().await;
    }

    /// P6: a part can't be closed alone: the close of one order closes the cart, and a customer can pay none of it any more.
    async fn closing_one_part_closes_the_whole_at_the_platform(engine: Engine) {
        let town = cart(engine).await;
        let answer = town.app.send(&shop_request("/v1/orders/CART-2/close", &json!({ "reason": "sold out" }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(town.app.order("CART-2").await["status"], "CLOSED");
        for (order_no, _) in PARTS {
            assert_eq!(town.at_the_platform(order_no).status, Status::Closed, "{order_no}");
        }
        let paid = town.sandbox.play(|platforms, now| platforms.pay_combined(&payment(Wish::AsUsual), now));
        assert!(paid.is_err(), "a closed cart was paid");
        // The other orders learn of it when they are asked about: their only way to be paid is closed.
        town.tick(20).await;
        for order_no in ["CART-1", "CART-3"] {
            assert_eq!(town.app.order(order_no).await["status"], "CLOSED", "{order_no}");
            assert_eq!(counts(&town.app, order_no, "AttemptClosed")[0], 1, "{order_no}");
        }
        town.finish().await;
    }

    /// P6: the customer has paid while the shop closes one order of the cart: the payment wins, for every part.
    async fn a_payment_found_while_closing_a_part_wins_for_all(engine: Engine) {
        let town = cart(engine).await;
        town.sandbox.play(|platforms, now| platforms.pay_combined(&payment(Wish::Lost), now)).expect("pay the cart");
        let answer = town.app.send(&shop_request("/v1/orders/CART-1/close", &json!({ "reason": "too late" }))).await;
        assert_eq!(answer.status, 409, "{}", answer.text());
        for (order_no, _) in PARTS {
            assert_eq!(town.app.order(order_no).await["status"], "PAID", "{order_no}");
        }
        town.finish().await;
    }
}

/// Opened at the platform and here; nobody has paid.
async fn cart(engine: Engine) -> Town {
    let town = Town::start(engine, |_| {}, |_| {}).await;
    let parts = payment(Wish::AsUsual);
    town.sandbox.play(|platforms, now| platforms.open_combined(&parts, now)).expect("open the cart");
    for (order_no, amount) in PARTS {
        town.open(&terms(order_no, amount)).await;
    }
    town
}

fn payment(callback: Wish) -> PayCombined {
    let part = |(order_no, amount_minor): (&str, i64)| Part { order_no: order_no.to_owned(), amount_minor };
    let account = Some(MCHID.to_owned());
    PayCombined { combine_no: "CART".to_owned(), account, orders: PARTS.map(part).into(), callback }
}

fn terms(order_no: &str, amount: i64) -> Value {
    json!({
        "order_no": order_no, "amount_minor": amount, "currency": "CNY", "accounts": [WXPAY],
        "combine": { "account": WXPAY, "combine_out_trade_no": "CART" }
    })
}
