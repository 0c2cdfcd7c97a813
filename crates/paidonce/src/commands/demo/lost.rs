//! The act whose callback never comes: a payment at the sandbox, unheard of until the ledger asks.

use anyhow::Context as _;
use paidonce_order::ids::Channel;
use paidonce_sandbox::{Delivery, Merchant, Pay, Sandbox, SandboxOptions, Seller, Wish};

use super::acts::{Act, Expect, Expected, Script, Stage};
use super::platform::{Happening, News, Signing, Trade, now, random_hex};

/// Accounts of their own: the other acts' accounts have no key to ask with.
const MCHID: &str = "1900000200";
const APPID: &str = "wx0000000000000200";
const SELLER_ID: &str = "2088000000000200";
const APP_ID: &str = "2021000000000200";

/// Starts both platforms for a ledger that will listen at `server`.
pub async fn start(folder: &std::path::Path, server: &str) -> anyhow::Result<Sandbox> {
    let mut options = SandboxOptions::new(folder.join("sandbox"), server.to_owned());
    options.merchants = vec![Merchant::direct(MCHID, APPID)];
    options.sellers = vec![Seller::new(SELLER_ID, APP_ID)];
    options.delivery = Delivery::ByHand;
    Sandbox::start(options).await.context("the sandbox")
}

/// `wxpay:1900000200`.
#[must_use]
pub fn account(channel: Channel) -> String {
    match channel {
        Channel::Wxpay => format!("{channel}:{MCHID}"),
        Channel::Alipay => format!("{channel}:{SELLER_ID}"),
    }
}

/// One line for each channel: paid there, told nobody, found by asking.
pub fn acts(script: &mut Script) -> anyhow::Result<Vec<Act>> {
    let act = |channel: Channel| {
        let trade = script.trade();
        anyhow::Ok(Act {
            title: "a payment whose callback was lost: query-payment finds it",
            channel,
            orders: vec![trade.order_no.clone()],
            stage: Stage::PaidInSilence,
            news: told_by_nobody(channel, trade)?,
            expect: Expect { answer: Expected::NothingSent, ..Expect::booked("PaymentConfirmed", ("PENDING", "PAID")) },
        })
    };
    [Channel::Wxpay, Channel::Alipay].into_iter().map(act).collect()
}

/// What the platform would have told.
fn told_by_nobody(channel: Channel, trade: Trade) -> anyhow::Result<News> {
    let happening = Happening::Payment(trade);
    Ok(News { channel, happening, push_id: random_hex(16)?, occurred_at: now(), signing: Signing::Genuine })
}

/// The payer pays; the platform's message about it is lost.
pub fn pay(sandbox: &Sandbox, channel: Channel, order_no: &str) -> anyhow::Result<()> {
    let channel = match channel {
        Channel::Wxpay => paidonce_sandbox::Channel::Wxpay,
        Channel::Alipay => paidonce_sandbox::Channel::Alipay,
    };
    let pay = Pay { callback: Wish::Lost, ..Pay::new(channel, order_no, Script::price_minor()) };
    sandbox.play(|platforms, now| platforms.pay(&pay, now)).map(drop).context("the sandbox takes no payment")
}
