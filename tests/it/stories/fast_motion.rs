//! A day in fast motion: the whole ledger against the sandbox, with everything that goes wrong in a day, and at the end both
//! agree on every order and every cent (P1, P3, P6).
//!
//! `PAIDONCE_DAY_ORDERS=2000 cargo test -p paidonce-tests --test it fast_motion -- --nocapture` (`just day-full`) plays the full
//! size; a normal run plays [`ORDERS`]. The clocks of sandbox and ledger move together, tick by tick; within a tick callbacks,
//! the ledger's own calls and the shop's requests run at the same time.
//!
//! | goes wrong | how often |
//! |---|---|
//! | callbacks lost, duplicated, overtaken, late | 20 %, 30 %, 20 %, 20 % |
//! | callbacks with a deliberately wrong signature first | 5 % |
//! | API calls answered 502 without anything done | 3 % |
//! | refund calls without an answer, with a bad signature, a system error, a short balance, ABNORMAL | by order |
//! | paid twice, after the close, with another amount; refunded at the console | by order |
//! | the ledger dies at a commit, and comes back | once, in the middle |
//!
//! Beside them: orders of a service provider's sub-merchant, profit shares of which one receiver is refused, notices in GBK.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use paidonce_sandbox::{
    Api, Behaviour, Channel, ConsoleRefund, FailKind, FailNext, KeyMode, OrderName, Pay, RefundStatus, SettleRefund,
    Wish,
};
use paidonce_tests::app::shop_request;
use paidonce_tests::database::Engine;
use paidonce_tests::wire::{self, Request};
use serde_json::json;
use time::Duration;
use time::format_description::well_known::Rfc3339;

use self::agreement::disagreements;
use self::plan::{Act, Planned, STORIES, Story, TROUBLE, planned, problem_of};
use super::on_both;
use super::town::Town;

mod agreement;
mod plan;

/// Orders of a normal run.
const ORDERS: usize = 150;
/// Seconds of one tick while the shop is open.
const TICK_SECONDS: i64 = 60;
/// Ticks in which orders are opened.
const OPENING_TICKS: usize = 60;
/// Ticks until the shop's last wish has its time.
const SHOP_TICKS: usize = OPENING_TICKS + 40;
/// The tick in which the ledger dies.
const DEATH_TICK: usize = 30;
/// Ticks between two looks at refunds that the platform could not make.
const ABNORMAL_TICKS: usize = 20;
/// Seconds of one tick after the shop has closed: the platforms' last resends come a day later.
const NIGHT_TICK_SECONDS: i64 = 900;
/// Ticks of the night at most: 36 hours.
const NIGHT_TICKS_MAX: usize = 144;
/// An unpaid order ends after this long.
const EXPIRY_SECONDS: i64 = 2 * 3600;
/// The shop's requests under way at the same time.
const AT_ONCE: usize = 8;
/// The seed of everything.
const SEED: u64 = 20_260_115;

on_both! {
    /// P1, P3, P6: at the end of the day ledger and platforms agree on every order and every cent.
    async fn a_day_with_everything_that_goes_wrong_ends_in_agreement(engine: Engine) {
        let orders = std::env::var("PAIDONCE_DAY_ORDERS").ok().and_then(|n| n.parse().ok()).unwrap_or(ORDERS);
        let mut day = Day::start(engine, orders).await;
        for tick in 0..SHOP_TICKS {
            day.open_what_is_planned(tick);
            if tick == DEATH_TICK {
                day.die_at_the_next_commit().await;
            }
            day.tick(TICK_SECONDS).await;
        }
        for _ in 0..NIGHT_TICKS_MAX {
            day.tick(NIGHT_TICK_SECONDS).await;
            if day.is_quiet() {
                break;
            }
        }
        day.judge().await;
    }
}

struct Day {
    town: Town,
    orders: Vec<Planned>,
    acts: BTreeMap<usize, Vec<Act>>,
    now: usize,
    deaths: u32,
}

impl Day {
    async fn start(engine: Engine, orders: usize) -> Self {
        let behaviour = Behaviour {
            seed: SEED,
            lose_percent: 20,
            duplicate_percent: 30,
            reorder_percent: 20,
            delay_percent: 20,
            probe_percent: 5,
            server_error_percent: 3,
            wxpay_keys: KeyMode::Switching,
            calls_per_second_max: 2_000,
            ..Behaviour::default()
        };
        let town = Town::start(
            engine,
            |options| options.behaviour = behaviour,
            |config| {
                config.channel_calls.request_timeout_seconds = 1;
                // A day in an hour has an hour's worth of surplus in minutes.
                config.more.push_str("\n[surplus]\nrefunds_per_hour_max = 1000\nminor_per_hour_max = 100000000\n");
            },
        )
        .await;
        let orders = (0..orders).map(planned).collect();
        Self { town, orders, acts: BTreeMap::new(), now: 0, deaths: 0 }
    }

    /// The orders that are opened in this tick, with everything that will happen to them.
    fn open_what_is_planned(&mut self, tick: usize) {
        let count = self.orders.len();
        let of_tick = |order: &Planned| order.number * OPENING_TICKS / count == tick;
        let opened: Vec<Planned> = self.orders.iter().filter(|order| of_tick(order)).cloned().collect();
        for order in opened {
            self.plan(&order);
        }
    }

    fn plan(&mut self, order: &Planned) {
        let expires_at = (self.town.app.now() + Duration::seconds(EXPIRY_SECONDS)).format(&Rfc3339).expect("a time");
        let open = json!({
            "order_no": order.order_no, "amount_minor": order.amount, "currency": "CNY", "accounts": order.accounts(),
            "sub_mchid": order.sub_mchid(), "expires_at": expires_at
        });
        let mut pay = order.payment();
        self.town.sandbox.play(|platforms, now| platforms.open(&pay, now)).expect("place the order");
        self.ask(0, shop_request("/v1/orders", &open), &[200, 201], &order.order_no);
        let (soon, later) = (1 + order.number % 5, 8 + order.number % 7);
        match order.story {
            Story::NeverPaid => {}
            Story::ClosedByTheShop => self.close(soon, order),
            Story::ClosedThenPaid => {
                // Nobody asks about an order that is closed at the platform: its message is late, but it comes.
                pay.callback = Wish::Delayed;
                self.close(soon, order);
                self.act(later, Act::PayLate(pay));
            }
            Story::Paid
            | Story::PaidWithAnotherAmount
            | Story::CallbackLost
            | Story::PaidAtAProvider
            | Story::ToldInGbk => self.act(soon, Act::Pay(pay)),
            Story::Shared => {
                self.act(soon, Act::Pay(pay));
                self.act(later, Act::Share(order.share()));
                let path = format!("/v1/orders/{}/profit-shares", order.order_no);
                let follow = json!({ "out_order_no": order.share_no() });
                self.ask(later + 1, shop_request(&path, &follow), &[200, 202], &order.order_no);
            }
            Story::PaidTwice => {
                let other = if order.channel == Channel::Wxpay { Channel::Alipay } else { Channel::Wxpay };
                // Nobody asks about an order that is paid: a lost message of a second payment is found by the bill.
                pay.callback = Wish::Duplicated;
                let second = Pay { callback: Wish::Delayed, ..Pay::new(other, &order.order_no, order.amount) };
                self.act(soon, Act::Pay(pay));
                self.act(soon, Act::Pay(second));
            }
            Story::RefundedInPart | Story::RefundedAtAProvider => {
                self.act(soon, Act::Pay(pay));
                self.refund(later, order, "R1", order.amount / 3);
            }
            Story::RefundedWhole => {
                self.act(soon, Act::Pay(pay));
                self.refund(later, order, "R1", order.amount);
            }
            Story::RefundedTwice => {
                self.act(soon, Act::Pay(pay));
                self.refund(later, order, "R1", order.amount / 3);
                self.refund(later, order, "R2", order.amount / 4);
            }
            Story::RefundedAtTheConsole => {
                self.act(soon, Act::Pay(pay));
                let name = order.name();
                self.act(later + 20, Act::Console(ConsoleRefund { name, amount_minor: Some(77), refund_no: None }));
            }
            Story::RefundedWithTrouble => self.trouble(order, pay, later),
        }
        if order.number.is_multiple_of(3) {
            let path = format!("/v1/orders/{}/query-payment", order.order_no);
            self.ask(soon + 1, shop_request(&path, &json!({})), &[200], &order.order_no);
        }
    }

    /// Trouble meets the next refund at that platform, whosever it is.
    fn trouble(&mut self, order: &Planned, pay: Pay, later: usize) {
        let kind = TROUBLE[order.number / 5 % TROUBLE.len()];
        // Only WeChat Pay has an abnormal refund.
        let kind =
            if kind == FailKind::Abnormal && order.channel == Channel::Alipay { FailKind::SystemError } else { kind };
        self.act(1, Act::Pay(pay));
        let fail = FailNext { api: Api::Refund, channel: Some(order.channel), kind, times: 1, executed: None };
        self.act(later, Act::Fail(fail));
        self.refund(later, order, "R1", order.amount / 2);
    }

    /// Somebody at the platform sees to the refunds that could not reach their payer.
    fn settle_abnormal(&self) {
        self.town.sandbox.play(|platforms, now| {
            let orders = platforms.state(None, now).orders;
            let refunds = orders.iter().flat_map(|order| order.refunds.iter().map(move |refund| (order, refund)));
            for (order, refund) in refunds.filter(|(_, refund)| refund.status == RefundStatus::Abnormal) {
                let name = OrderName {
                    account: order.account.split_once(':').map(|(_, id)| id.to_owned()),
                    sub_mchid: order.sub_mchid.clone(),
                    ..OrderName::new(order.channel, &order.order_no)
                };
                let refund_no = refund.refund_no.clone();
                let settle = SettleRefund { name, refund_no, status: RefundStatus::Success };
                platforms.decide_refund(&settle, now).expect("settle an abnormal refund");
            }
        });
    }

    fn close(&mut self, after: usize, order: &Planned) {
        let path = format!("/v1/orders/{}/close", order.order_no);
        self.ask(after, shop_request(&path, &json!({ "reason": "the shop gave up" })), &[200, 409], &order.order_no);
    }

    /// A refund is possible when the payment is known: until then the shop asks again.
    fn refund(&mut self, after: usize, order: &Planned, mark: &str, amount: i64) {
        let path = format!("/v1/orders/{}/refunds", order.order_no);
        let body = json!({ "refund_no": format!("{}-{mark}", order.order_no), "amount_minor": amount });
        self.ask(after, shop_request(&path, &body), &[200, 201], &order.order_no);
    }

    fn ask(&mut self, after: usize, request: Request, until: &'static [u16], about: &str) {
        self.act(after, Act::Ask { request, until, about: about.to_owned() });
    }

    fn act(&mut self, after: usize, act: Act) {
        self.acts.entry(self.now + after).or_default().push(act);
    }

    /// The ledger ends its process right after a commit, before anybody is answered.
    async fn die_at_the_next_commit(&self) {
        self.town.app.fault(0, "after_commit", "kill", 1).await;
    }

    /// Time passes; then callbacks, the ledger's own calls and the shop's requests happen at once.
    async fn tick(&mut self, seconds: i64) {
        self.town.move_clocks(seconds).await;
        let due = self.acts.split_off(&(self.now + 1));
        let acts: Vec<Act> = std::mem::replace(&mut self.acts, due).into_values().flatten().collect();
        let mut asks = Vec::new();
        for act in acts {
            match act {
                Act::Ask { .. } => asks.push(act),
                Act::Pay(_) | Act::PayLate(_) | Act::Console(_) | Act::Share(_) | Act::Fail(_) => {
                    self.at_the_platform(act);
                }
            }
        }
        let (sandbox, app, to) = (&self.town.sandbox, &self.town.app, self.town.app.addr());
        let sends = asks.into_iter().map(|act| async move {
            let Act::Ask { request, until, .. } = &act else { return None };
            let reply = wire::send(to, request).await;
            (!reply.is_ok_and(|answer| until.contains(&answer.status))).then_some(act)
        });
        let shop = futures_util::stream::iter(sends).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let (_, _, unanswered) = futures_util::future::join3(sandbox.deliver_now(), app.try_relay(0), shop).await;
        if self.town.app.try_send(&Request::get("/healthz")).await.is_err() {
            self.deaths += 1;
            let _ = self.town.app.server_mut(0).wait().await;
            self.town.app.restart(0).await;
            self.town.forward.point_at(self.town.app.addr());
        }
        if self.now.is_multiple_of(ABNORMAL_TICKS) {
            self.settle_abnormal();
        }
        self.now += 1;
        self.acts.entry(self.now).or_default().extend(unanswered.into_iter().flatten());
    }

    fn at_the_platform(&mut self, act: Act) {
        let again = act.clone();
        let done = self.town.sandbox.play(|platforms, now| match act {
            Act::Pay(pay) => platforms.pay(&pay, now).map(drop),
            Act::PayLate(pay) => platforms.pay_late(&pay, now).map(drop),
            Act::Console(refund) => {
                // Whoever refunds by hand and loses the message learns of it from the bill, not from this ledger.
                let usual = platforms.behaviour.clone();
                platforms.behaviour.lose_percent = 0;
                platforms.behaviour.refund_seconds = 0;
                let done = platforms.console_refund(&refund, now).map(drop);
                platforms.tick(now);
                platforms.behaviour = usual;
                done
            }
            Act::Share(share) => platforms.start_share_of(&share, now).map(drop),
            Act::Fail(fail) => {
                platforms.fail_next(fail);
                Ok(())
            }
            Act::Ask { .. } => Ok(()),
        });
        if let Err(error) = done {
            panic!("{again:?}: {error}");
        }
    }

    /// Nothing more is told, asked or tried.
    fn is_quiet(&self) -> bool {
        let state = self.town.sandbox.play(|platforms, now| platforms.state(None, now));
        let waiting =
            "SELECT count(*) FROM t_effect WHERE kind IN ('poll', 'surplus', 'refund', 'close', 'query_share')
            AND state IN ('pending', 'leased')";
        state.notices.waiting == 0
            && self.acts.values().all(Vec::is_empty)
            && self.town.app.database.count(waiting) == 0
            && disagreements(&self.town.app.database, &state.orders).is_empty()
    }

    async fn judge(self) {
        let state = self.town.sandbox.play(|platforms, now| platforms.state(None, now));
        let left: Vec<String> = self.acts.values().flatten().map(Act::in_words).collect();
        assert!(left.is_empty(), "never answered: {left:?}");
        let found = disagreements(&self.town.app.database, &state.orders);
        assert!(found.is_empty(), "{} disagreements:\n{}", found.len(), found.join("\n"));
        let count = |story| self.orders.iter().filter(|order| order.story == story).count();
        assert!(state.notices.lost > 0 && state.notices.tries > 0, "a day without trouble: {:?}", state.notices);
        assert_eq!(state.notices.probes_taken, 0, "a probe was acknowledged");
        assert_eq!(state.notices.given_up, 0, "a callback was never acknowledged");
        assert_eq!(self.deaths, 1, "the ledger was to die once");
        for order in &self.orders {
            let shown = self.town.app.order(&order.order_no).await;
            let problem = problem_of(order, &shown);
            assert_eq!(problem, None, "{order:?} ended as {shown}");
        }
        let sum = |sql: &str| self.town.app.database.count(&format!("SELECT CAST(coalesce({sql}, 0) AS bigint)"));
        let paid: i64 = state.orders.iter().map(|order| order.paid_minor).sum();
        let refunded: i64 = state.orders.iter().map(|order| order.refunded_minor).sum();
        assert_eq!(sum("(SELECT sum(amount_minor) FROM t_order_flow WHERE trade_type IN ('PAY', 'SURPLUS'))"), paid);
        assert_eq!(sum("(SELECT sum(amount_minor) FROM t_order_flow WHERE trade_type = 'REFUND')"), refunded);
        let shared = self.town.app.database.count(
            "SELECT CAST(coalesce(sum(amount_minor), 0) AS bigint) FROM t_order_flow WHERE trade_type = 'SHARE'",
        );
        for story in STORIES {
            assert!(count(story) > 0, "no order of the day was {story:?}");
        }
        assert!(shared > 0 && paid > 0 && refunded > 0, "{shared} shared, {paid} in, {refunded} out");
        println!(
            "{}: {} orders, {paid} in, {refunded} out, {shared} shared, notices {:?}, {} closed then paid, {} paid twice",
            self.town.app.database.engine().as_str(),
            self.orders.len(),
            state.notices,
            count(Story::ClosedThenPaid),
            count(Story::PaidTwice)
        );
        self.town.finish().await;
    }
}
