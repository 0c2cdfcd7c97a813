//! Both platforms as plain state: orders, refunds, shares, callbacks to come. No IO and no clock: `now` is passed in.
//!
//! | what happens to it | where |
//! |---|---|
//! | a person at the control API pays, refunds, shares, closes | [`control`](crate::control) |
//! | a ledger asks WeChat Pay | [`wxpay`](crate::wxpay) |
//! | a ledger asks Alipay | [`alipay`](crate::alipay) |
//! | time passes | [`Platforms::tick`] |
//! | callbacks go out | [`Platforms::take_due`], [`Platforms::pushed`] |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::accounts::{Account, Accounts, Channel};
use crate::bill::Download;
use crate::failures::{Api, FailKind, Failures, Trouble};
use crate::fate::Fate;
use crate::moment::Moment;
use crate::notice::{Notice, Outbox, Push, Verdict, Wish};
use crate::options::Behaviour;
use crate::order::{Order, OrderKey, RefundStatus, ShareResult, Status};
use crate::ring::Ring;

/// Something that the platform finishes later.
#[derive(Debug, Clone)]
enum Planned {
    Refund { key: OrderKey, refund_no: String, becomes: RefundStatus },
    Share { key: OrderKey, out_order_no: String },
}

/// Calls of one account in one second.
#[derive(Debug, Default)]
struct Rate {
    second: i64,
    calls: u32,
}

/// Both platforms.
#[derive(Debug)]
pub struct Platforms {
    /// Who has an account.
    pub accounts: Arc<Accounts>,
    /// The platforms' own keys.
    pub ring: Ring,
    /// How they behave.
    pub behaviour: Behaviour,
    /// Where callbacks go when nobody says otherwise.
    pub notify_base: String,
    /// Where the sandbox itself is reached: bills are fetched there.
    pub own_url: String,
    pub(crate) orders: BTreeMap<OrderKey, Order>,
    pub(crate) by_trade_no: BTreeMap<String, OrderKey>,
    /// WeChat Pay's refund numbers are one space per merchant.
    pub(crate) by_refund_no: BTreeMap<(Account, String), OrderKey>,
    pub(crate) outbox: Outbox,
    pub(crate) failures: Failures,
    pub(crate) downloads: BTreeMap<String, Download>,
    planned: BTreeMap<(Moment, u64), Planned>,
    rates: BTreeMap<Account, Rate>,
    numbers: u64,
    calls: u64,
}

impl Platforms {
    /// Both, empty.
    #[must_use]
    pub fn new(accounts: Arc<Accounts>, ring: Ring, behaviour: Behaviour, notify_base: String) -> Self {
        Self {
            accounts,
            ring,
            behaviour,
            notify_base,
            own_url: String::new(),
            orders: BTreeMap::new(),
            by_trade_no: BTreeMap::new(),
            by_refund_no: BTreeMap::new(),
            outbox: Outbox::default(),
            failures: Failures::default(),
            downloads: BTreeMap::new(),
            planned: BTreeMap::new(),
            rates: BTreeMap::new(),
            numbers: 0,
            calls: 0,
        }
    }

    /// Finishes what was to be finished by now.
    pub fn tick(&mut self, now: Moment) {
        while let Some(entry) = self.planned.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let due = entry.key().0;
            match entry.remove() {
                Planned::Refund { key, refund_no, becomes } => self.settle_refund(&key, &refund_no, becomes, due),
                Planned::Share { key, out_order_no } => self.finish_share(&key, &out_order_no, due),
            }
        }
    }

    /// Makes everything that waits fall due sooner by this much.
    pub fn advance(&mut self, by: Duration) {
        self.outbox.advance(by);
        let planned = std::mem::take(&mut self.planned);
        self.planned = planned.into_iter().map(|((due, number), what)| ((due.minus(by), number), what)).collect();
        for refund in self.orders.values_mut().flat_map(|order| order.refunds.iter_mut()) {
            refund.requested_at = refund.requested_at.minus(by);
        }
    }

    /// Tries of callbacks that are due.
    pub fn take_due(&mut self, now: Moment) -> Vec<Push> {
        self.tick(now);
        let (ring, mode, fate) = (&self.ring, self.behaviour.wxpay_keys, Fate::new(self.behaviour.seed));
        let alipay = ring.for_alipay(self.behaviour.alipay_keys);
        self.outbox.take_due(now, |notice, tries| match notice.account.channel {
            Channel::Wxpay => ring.for_callback(mode, &fate, &format!("{} {tries}", notice.what)),
            Channel::Alipay => alipay.clone(),
        })
    }

    /// What became of a try.
    pub fn pushed(&mut self, push: &Push, verdict: Verdict, now: Moment) {
        self.outbox.pushed(push, verdict, now, &self.behaviour);
    }

    /// When something happens by itself the next time.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        let planned = self.planned.keys().next().map(|(due, _)| *due);
        self.outbox.next_due().into_iter().chain(planned).min()
    }

    /// The order of this identity.
    pub(crate) fn find(&self, key: &OrderKey) -> Option<&Order> {
        self.orders.get(key)
    }

    /// The order of this channel number.
    pub(crate) fn find_by_trade_no(&self, trade_no: &str) -> Option<&Order> {
        self.by_trade_no.get(trade_no).and_then(|key| self.orders.get(key))
    }

    /// `20260101` and a counter: the platforms' own numbers.
    pub(crate) fn next_number(&mut self, prefix: &str, now: Moment) -> String {
        self.numbers = self.numbers.saturating_add(1);
        format!("{prefix}{}{:010}", now.compact_day(), self.numbers)
    }

    /// What this call meets: trouble on demand first, then too many calls, then chance.
    pub(crate) fn trouble(&mut self, account: &Account, api: Api, now: Moment) -> Option<Trouble> {
        self.calls = self.calls.saturating_add(1);
        let on_demand = self.failures.take(account.channel, api);
        if on_demand.is_some() {
            return on_demand;
        }
        let rate = self.rates.entry(account.clone()).or_default();
        if rate.second != now.seconds() {
            *rate = Rate { second: now.seconds(), calls: 0 };
        }
        rate.calls = rate.calls.saturating_add(1);
        if rate.calls > self.behaviour.calls_per_second_max {
            return Some(Trouble::of(FailKind::RateLimit));
        }
        let fate = Fate::new(self.behaviour.seed);
        let unlucky = fate.happens(self.behaviour.server_error_percent, "server error", &self.calls.to_string());
        unlucky.then_some(Trouble::of(FailKind::ServerError))
    }

    /// Marks an order paid; its channel number.
    pub(crate) fn book_payment(&mut self, key: &OrderKey, payer_minor: Option<i64>, paid_at: Moment, now: Moment) {
        let prefix = match key.account.channel {
            Channel::Wxpay => "4200001234",
            Channel::Alipay => "",
        };
        let mut trade_no = self.next_number(prefix, now);
        if key.account.channel == Channel::Alipay {
            // Alipay's begin with the day.
            trade_no = format!("{trade_no}2200100000");
        }
        let Some(order) = self.orders.get_mut(key) else { return };
        let payer_minor = payer_minor.unwrap_or(order.amount_minor);
        order.status = Status::Paid;
        order.payment = Some(crate::order::Payment { trade_no: trade_no.clone(), paid_at, payer_minor });
        self.by_trade_no.insert(trade_no, key.clone());
    }

    /// A refund becomes final (or abnormal) later.
    pub(crate) fn plan_refund(&mut self, key: &OrderKey, refund_no: &str, becomes: RefundStatus, now: Moment) {
        let due = now.plus(self.behaviour.scaled_seconds(self.behaviour.refund_seconds));
        self.numbers = self.numbers.saturating_add(1);
        let planned = Planned::Refund { key: key.clone(), refund_no: refund_no.to_owned(), becomes };
        self.planned.insert((due, self.numbers), planned);
    }

    /// A share is executed later.
    pub(crate) fn plan_share(&mut self, key: &OrderKey, out_order_no: &str, now: Moment) {
        let due = now.plus(self.behaviour.scaled_seconds(self.behaviour.share_seconds));
        self.numbers = self.numbers.saturating_add(1);
        let planned = Planned::Share { key: key.clone(), out_order_no: out_order_no.to_owned() };
        self.planned.insert((due, self.numbers), planned);
    }

    /// A refund takes a state; it is told of.
    pub(crate) fn settle_refund(&mut self, key: &OrderKey, refund_no: &str, becomes: RefundStatus, now: Moment) {
        let Some(order) = self.orders.get_mut(key) else { return };
        let Some(refund) = order.find_refund_mut(refund_no) else { return };
        if matches!(refund.status, RefundStatus::Success | RefundStatus::Closed) {
            return;
        }
        refund.status = becomes;
        refund.done_at = Some(now);
        let order = order.clone();
        let notices = match key.account.channel {
            Channel::Wxpay => crate::wxpay::callback::of_refund(self, &order, refund_no, now),
            Channel::Alipay => crate::alipay::callback::of_refund(self, &order, refund_no, now),
        };
        self.tell(notices, Wish::AsUsual);
    }

    fn finish_share(&mut self, key: &OrderKey, out_order_no: &str, now: Moment) {
        let Some(order) = self.orders.get_mut(key) else { return };
        let Some(share) = order.shares.iter_mut().find(|share| share.out_order_no == out_order_no) else { return };
        share.done_at = Some(now);
        for receiver in share.receivers.iter_mut().filter(|one| one.result == ShareResult::Pending) {
            receiver.result = receiver.fate;
        }
        let order = order.clone();
        let notices = match key.account.channel {
            Channel::Wxpay => crate::wxpay::callback::of_share(self, &order, out_order_no, now),
            Channel::Alipay => crate::alipay::callback::of_share(self, &order, out_order_no, now),
        };
        self.tell(notices, Wish::AsUsual);
    }

    /// Queues callbacks.
    pub(crate) fn tell(&mut self, notices: Vec<Notice>, wish: Wish) {
        for notice in notices {
            self.outbox.put(notice, wish, &self.behaviour);
        }
    }

    /// `<notify_base>/callbacks/wxpay/1900000001`.
    #[must_use]
    pub fn notify_url(&self, account: &Account) -> String {
        format!("{}/callbacks/{}/{}", self.notify_base.trim_end_matches('/'), account.channel.word(), account.id)
    }
}

impl Platforms {
    /// True every other time: for what production spells in two ways.
    pub(crate) fn toggle(&mut self) -> bool {
        self.numbers = self.numbers.saturating_add(1);
        self.numbers.is_multiple_of(2)
    }
}
