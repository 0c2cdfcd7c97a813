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

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use paidonce_sandbox::{
    Advance, Api, Behaviour, Channel, ConsoleRefund, Delivery, FailKind, FailNext, KeyMode, OrderName, OrderState, Pay,
    RefundStatus, Sandbox, SandboxOptions, SettleRefund, Wish,
};
use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::database::Engine;
use paidonce_tests::forward::Forward;
use paidonce_tests::wire::{self, Request};
use serde_json::{Value, json};
use time::Duration;
use time::format_description::well_known::Rfc3339;

use super::on_both;

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

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Paid,
    NeverPaid,
    ClosedByTheShop,
    ClosedThenPaid,
    PaidTwice,
    PaidWithAnotherAmount,
    RefundedInPart,
    RefundedWhole,
    RefundedTwice,
    RefundedAtTheConsole,
    RefundedWithTrouble,
    CallbackLost,
}

/// Twenty orders of a normal day, again and again.
const STORIES: [Story; 20] = [
    Story::Paid,
    Story::RefundedInPart,
    Story::Paid,
    Story::ClosedByTheShop,
    Story::CallbackLost,
    Story::Paid,
    Story::ClosedThenPaid,
    Story::RefundedWithTrouble,
    Story::Paid,
    Story::PaidTwice,
    Story::RefundedWhole,
    Story::Paid,
    Story::NeverPaid,
    Story::RefundedWithTrouble,
    Story::Paid,
    Story::RefundedTwice,
    Story::PaidWithAnotherAmount,
    Story::Paid,
    Story::RefundedAtTheConsole,
    Story::CallbackLost,
];

/// Trouble of a refund call, one after the other.
const TROUBLE: [FailKind; 7] = [
    FailKind::Disconnect,
    FailKind::SystemError,
    FailKind::BadSignature,
    FailKind::ServerError,
    FailKind::BalanceShort,
    FailKind::Abnormal,
    FailKind::Timeout,
];

#[derive(Debug, Clone)]
struct Planned {
    order_no: String,
    channel: Channel,
    story: Story,
    amount: i64,
    number: usize,
}

/// Something that is done in a later tick.
#[derive(Debug, Clone)]
enum Act {
    /// The shop asks the ledger, again and again until it is answered with one of these.
    Ask {
        request: Request,
        until: &'static [u16],
        about: String,
    },
    /// Something at the platform.
    Pay(Pay),
    PayLate(Pay),
    Console(ConsoleRefund),
    Fail(FailNext),
}

impl Act {
    fn in_words(&self) -> String {
        match self {
            Self::Ask { request, about, .. } => format!("{about}: {} {}", request.method, request.path),
            Self::Pay(_) | Self::PayLate(_) | Self::Console(_) | Self::Fail(_) => format!("{self:?}"),
        }
    }
}

struct Day {
    app: TestApp,
    sandbox: Sandbox,
    forward: Forward,
    orders: Vec<Planned>,
    acts: BTreeMap<usize, Vec<Act>>,
    now: usize,
    deaths: u32,
    _dir: tempfile::TempDir,
}

impl Day {
    async fn start(engine: Engine, orders: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("paidonce-sandbox-").tempdir().expect("a temporary directory");
        let mut options = SandboxOptions::new(dir.path().to_owned(), "http://127.0.0.1:1".to_owned());
        options.delivery = Delivery::ByHand;
        options.behaviour = Behaviour {
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
        let sandbox = Sandbox::start(options).await.expect("start the sandbox");
        let accounts = sandbox.accounts_toml().expect("the accounts");
        let app = TestApp::builder(engine)
            .asking()
            .config(|config| {
                config.sandbox_accounts = Some(accounts);
                config.channel_calls.request_timeout_seconds = 1;
                // A day in an hour has an hour's worth of surplus in minutes.
                config.more.push_str("\n[surplus]\nrefunds_per_hour_max = 1000\nminor_per_hour_max = 100000000\n");
            })
            .start()
            .await;
        let forward = Forward::start(app.addr()).await;
        sandbox.set_notify_base(&forward.url());
        let orders = (0..orders).map(planned).collect();
        Self { app, sandbox, forward, orders, acts: BTreeMap::new(), now: 0, deaths: 0, _dir: dir }
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
        let expires_at = (self.app.now() + Duration::seconds(EXPIRY_SECONDS)).format(&Rfc3339).expect("a time");
        let accounts = match (order.story, order.channel) {
            (Story::PaidTwice, _) => vec![super::WXPAY, super::ALIPAY],
            (_, Channel::Wxpay) => vec![super::WXPAY],
            (_, Channel::Alipay) => vec![super::ALIPAY],
        };
        let open = json!({
            "order_no": order.order_no, "amount_minor": order.amount, "currency": "CNY", "accounts": accounts,
            "expires_at": expires_at
        });
        let placed = order.amount - i64::from(order.story == Story::PaidWithAnotherAmount);
        let mut pay = Pay::new(order.channel, &order.order_no, placed);
        if order.story == Story::CallbackLost {
            pay.callback = Wish::Lost;
        }
        self.sandbox.play(|platforms, now| platforms.open(&pay, now)).expect("place the order");
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
            Story::Paid | Story::PaidWithAnotherAmount | Story::CallbackLost => self.act(soon, Act::Pay(pay)),
            Story::PaidTwice => {
                let other = if order.channel == Channel::Wxpay { Channel::Alipay } else { Channel::Wxpay };
                // Nobody asks about an order that is paid: a lost message of a second payment is found by the bill.
                pay.callback = Wish::Duplicated;
                let second = Pay { callback: Wish::Delayed, ..Pay::new(other, &order.order_no, order.amount) };
                self.act(soon, Act::Pay(pay));
                self.act(soon, Act::Pay(second));
            }
            Story::RefundedInPart => {
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
                let name = OrderName::new(order.channel, &order.order_no);
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
        self.sandbox.play(|platforms, now| {
            let orders = platforms.state(None, now).orders;
            let refunds = orders.iter().flat_map(|order| order.refunds.iter().map(move |refund| (order, refund)));
            for (order, refund) in refunds.filter(|(_, refund)| refund.status == RefundStatus::Abnormal) {
                let name = OrderName::new(order.channel, &order.order_no);
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
        self.app.fault(0, "after_commit", "kill", 1).await;
    }

    /// Time passes; then callbacks, the ledger's own calls and the shop's requests happen at once.
    async fn tick(&mut self, seconds: i64) {
        self.sandbox.advance(Advance { seconds: seconds.unsigned_abs(), ledger_moves_too: true });
        self.app.advance(seconds).await;
        let due = self.acts.split_off(&(self.now + 1));
        let acts: Vec<Act> = std::mem::replace(&mut self.acts, due).into_values().flatten().collect();
        let mut asks = Vec::new();
        for act in acts {
            match act {
                Act::Ask { .. } => asks.push(act),
                Act::Pay(_) | Act::PayLate(_) | Act::Console(_) | Act::Fail(_) => self.at_the_platform(act),
            }
        }
        let (sandbox, app, to) = (&self.sandbox, &self.app, self.app.addr());
        let sends = asks.into_iter().map(|act| async move {
            let Act::Ask { request, until, .. } = &act else { return None };
            let reply = wire::send(to, request).await;
            (!reply.is_ok_and(|answer| until.contains(&answer.status))).then_some(act)
        });
        let shop = futures_util::stream::iter(sends).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let (_, _, unanswered) = futures_util::future::join3(sandbox.deliver_now(), app.try_relay(0), shop).await;
        if self.app.try_send(&Request::get("/healthz")).await.is_err() {
            self.deaths += 1;
            let _ = self.app.server_mut(0).wait().await;
            self.app.restart(0).await;
            self.forward.point_at(self.app.addr());
        }
        if self.now.is_multiple_of(ABNORMAL_TICKS) {
            self.settle_abnormal();
        }
        self.now += 1;
        self.acts.entry(self.now).or_default().extend(unanswered.into_iter().flatten());
    }

    fn at_the_platform(&mut self, act: Act) {
        let again = act.clone();
        let done = self.sandbox.play(|platforms, now| match act {
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
        let state = self.sandbox.play(|platforms, now| platforms.state(None, now));
        let waiting = "SELECT count(*) FROM t_effect WHERE kind IN ('poll', 'surplus', 'refund', 'close')
            AND state IN ('pending', 'leased')";
        state.notices.waiting == 0
            && self.acts.values().all(Vec::is_empty)
            && self.app.database.count(waiting) == 0
            && self.disagreements(&state.orders).is_empty()
    }

    /// Each difference between what the platforms hold and what the ledger has written, in words.
    fn disagreements(&self, orders: &[OrderState]) -> Vec<String> {
        let mut sums: BTreeMap<(String, String, &str), i64> = BTreeMap::new();
        for order in orders {
            let of = |what| (order.order_no.clone(), order.account.clone(), what);
            sums.insert(of("in"), order.paid_minor);
            sums.insert(of("out"), order.refunded_minor);
        }
        let mut found = Vec::new();
        for row in self.app.database.texts(
            "SELECT order_no, channel, account, CASE WHEN trade_type = 'REFUND' THEN 'out' ELSE 'in' END,
               CAST(sum(amount_minor) AS text) FROM t_order_flow GROUP BY 1, 2, 3, 4",
        ) {
            let [order_no, channel, account, way, amount] = row.as_slice() else { panic!("five columns: {row:?}") };
            let way = if way == "in" { "in" } else { "out" };
            let account = account.rsplit(':').next().unwrap_or_default();
            let name = format!("{}:{account}", channel.to_ascii_lowercase());
            let amount: i64 = amount.parse().expect("a sum");
            let theirs = sums.remove(&(order_no.clone(), name.clone(), way)).unwrap_or(0);
            if theirs != amount {
                found.push(format!("{order_no} at {name}: money {way} is {amount} here and {theirs} there"));
            }
        }
        let missing = sums.into_iter().filter(|(_, theirs)| *theirs != 0);
        found.extend(missing.map(|((order_no, name, way), theirs)| {
            format!("{order_no} at {name}: money {way} is nothing here and {theirs} there")
        }));
        found
    }

    async fn judge(self) {
        let state = self.sandbox.play(|platforms, now| platforms.state(None, now));
        let left: Vec<String> = self.acts.values().flatten().map(Act::in_words).collect();
        assert!(left.is_empty(), "never answered: {left:?}");
        let found = self.disagreements(&state.orders);
        assert!(found.is_empty(), "{} disagreements:\n{}", found.len(), found.join("\n"));
        let count = |story| self.orders.iter().filter(|order| order.story == story).count();
        assert!(state.notices.lost > 0 && state.notices.tries > 0, "a day without trouble: {:?}", state.notices);
        assert_eq!(state.notices.probes_taken, 0, "a probe was acknowledged");
        assert_eq!(state.notices.given_up, 0, "a callback was never acknowledged");
        assert_eq!(self.deaths, 1, "the ledger was to die once");
        for order in &self.orders {
            let shown = self.app.order(&order.order_no).await;
            let problem = problem_of(order, &shown);
            assert_eq!(problem, None, "{order:?} ended as {shown}");
        }
        let sum = |sql: &str| self.app.database.count(&format!("SELECT CAST(coalesce({sql}, 0) AS bigint)"));
        let paid: i64 = state.orders.iter().map(|order| order.paid_minor).sum();
        let refunded: i64 = state.orders.iter().map(|order| order.refunded_minor).sum();
        assert_eq!(sum("(SELECT sum(amount_minor) FROM t_order_flow WHERE trade_type IN ('PAY', 'SURPLUS'))"), paid);
        assert_eq!(sum("(SELECT sum(amount_minor) FROM t_order_flow WHERE trade_type = 'REFUND')"), refunded);
        println!(
            "{}: {} orders, {paid} in, {refunded} out, notices {:?}, {} closed then paid, {} paid twice",
            self.app.database.engine().as_str(),
            self.orders.len(),
            state.notices,
            count(Story::ClosedThenPaid),
            count(Story::PaidTwice)
        );
        self.app.pass_leases().await;
        self.app.finish().await;
        self.sandbox.stop().await;
    }
}

fn planned(number: usize) -> Planned {
    Planned {
        order_no: format!("DAY-{number:05}"),
        // Every story at both platforms.
        channel: if (number / STORIES.len()).is_multiple_of(2) { Channel::Wxpay } else { Channel::Alipay },
        story: STORIES[number % STORIES.len()],
        amount: 1_000 + i64::try_from(number).expect("a number") % 97,
        number,
    }
}

/// Why an order has not ended as its story says; `None`: it has.
fn problem_of(order: &Planned, shown: &Value) -> Option<String> {
    let figure = |name: &str| shown[name].as_i64().unwrap_or(-1);
    let figures = (
        shown["status"].as_str().unwrap_or("?"),
        figure("paid_minor"),
        figure("refunded_minor"),
        figure("surplus_minor"),
    );
    let amount = order.amount;
    let expected = match order.story {
        Story::Paid | Story::CallbackLost => ("PAID", amount, 0, 0),
        Story::NeverPaid | Story::ClosedByTheShop => ("CLOSED", 0, 0, 0),
        Story::ClosedThenPaid => ("CLOSED", 0, amount, amount),
        Story::PaidTwice => ("PAID", amount, amount, amount),
        Story::PaidWithAnotherAmount => ("CLOSED", 0, 0, amount - 1),
        Story::RefundedInPart => ("PAID", amount, amount / 3, 0),
        Story::RefundedWhole => ("REFUNDED", amount, amount, 0),
        Story::RefundedTwice => ("PAID", amount, amount / 3 + amount / 4, 0),
        Story::RefundedAtTheConsole => ("PAID", amount, 77, 0),
        Story::RefundedWithTrouble => ("PAID", amount, amount / 2, 0),
    };
    (figures != expected).then(|| format!("is {figures:?}, should be {expected:?}"))
}
