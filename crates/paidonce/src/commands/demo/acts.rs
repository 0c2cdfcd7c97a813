//! What the demo plays, as data: who tells what how often, and what the ledger must make of it.

use paidonce_order::ids::Channel;

use super::platform::{Happening, News, Platforms, Signing, Trade, now, random_hex};

/// The price of everything in the demo: 88.88 yuan.
const PRICE_MINOR: i64 = 8_888;
/// A third channel number is made by numbering the orders of a run.
const FIRST_TRADE: u64 = 4_200_000_001;

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Act {
    /// For somebody who sees it for the first time.
    pub title: &'static str,
    /// The channel of the callbacks.
    pub channel: Channel,
    /// Orders that it is about.
    pub orders: Vec<String>,
    /// What must have happened before.
    pub stage: Stage,
    /// What the platform tells.
    pub news: News,
    /// What must come of it, over all orders of the act.
    pub expect: Expect,
}

/// How the orders of an act come into being.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Opened before the first copy.
    OpenFirst,
    /// Opened after the last copy: the money was early.
    OpenAfterwards,
    /// Opened, and paid before by this.
    PaidBefore(News),
    /// Opened, then paid at the sandbox, which tells nobody: the ledger is made to ask.
    PaidInSilence,
    /// Paid in an earlier act; now our refund request is registered first.
    RequestRefund {
        /// Our number.
        refund_no: String,
    },
}

/// What must come of an act.
#[derive(Debug, Clone)]
pub struct Expect {
    /// Whether the copies are acknowledged; otherwise all are refused.
    pub answer: Expected,
    /// New events, by type, each order's in its order.
    pub events: Vec<&'static str>,
    /// New rows of `t_idempotent`.
    pub idempotent: i64,
    /// New rows of `t_order_flow`.
    pub flows: i64,
    /// Status before and after.
    pub status: (&'static str, &'static str),
    /// What the warehouse is told, once per order; nothing otherwise.
    pub told: Option<&'static str>,
}

/// What the platform must be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Success, every copy.
    Acknowledged,
    /// Refusal, every copy.
    Refused,
    /// No copy is sent.
    NothingSent,
}

/// Makes the acts of one run; order numbers begin with the run's own word.
pub struct Script {
    run: String,
    next: u64,
}

impl Script {
    /// For a run whose orders are called `<run>-1`, `<run>-2`, ...
    #[must_use]
    pub fn new(run: &str) -> Self {
        Self { run: run.to_owned(), next: 0 }
    }

    /// All acts in the order to play them.
    pub fn acts(mut self) -> anyhow::Result<Vec<Act>> {
        let mut acts = Vec::new();
        for channel in [Channel::Wxpay, Channel::Alipay] {
            acts.extend(self.payment_and_refund(channel)?);
        }
        for channel in [Channel::Wxpay, Channel::Alipay] {
            acts.push(self.second_payment(channel)?);
        }
        for channel in [Channel::Wxpay, Channel::Alipay] {
            acts.push(self.early_payment(channel)?);
        }
        acts.push(self.combined()?);
        for channel in [Channel::Wxpay, Channel::Alipay] {
            acts.push(self.forged(channel)?);
        }
        for channel in [Channel::Wxpay, Channel::Alipay] {
            acts.push(self.wrong_amount(channel)?);
        }
        acts.push(self.probe()?);
        acts.extend(super::lost::acts(&mut self)?);
        Ok(acts)
    }

    /// An order of this run and its payment.
    pub(super) fn trade(&mut self) -> Trade {
        self.next = self.next.saturating_add(1);
        let number = FIRST_TRADE.saturating_add(self.next);
        Trade {
            order_no: format!("{}-{}", self.run, self.next),
            trade_no: format!("{}{number}", self.run),
            amount_minor: PRICE_MINOR,
        }
    }

    fn news(channel: Channel, happening: Happening, signing: Signing) -> anyhow::Result<News> {
        Ok(News { channel, happening, push_id: random_hex(16)?, occurred_at: now(), signing })
    }

    fn payment_and_refund(&mut self, channel: Channel) -> anyhow::Result<[Act; 2]> {
        let trade = self.trade();
        let refund_no = format!("{}-R", trade.order_no);
        let pay = Self::news(channel, Happening::Payment(trade.clone()), Signing::Genuine)?;
        let refund = Happening::Refund { trade: trade.clone(), refund_no: refund_no.clone() };
        let refund = Self::news(channel, refund, Signing::Genuine)?;
        let orders = vec![trade.order_no];
        let paid = Act {
            title: "a payment",
            channel,
            orders: orders.clone(),
            stage: Stage::OpenFirst,
            news: pay,
            expect: Expect::booked("PaymentConfirmed", ("PENDING", "PAID")),
        };
        let refunded = Act {
            title: "its refund",
            channel,
            orders,
            stage: Stage::RequestRefund { refund_no },
            news: refund,
            expect: Expect::booked("RefundConfirmed", ("PAID", "REFUNDED")),
        };
        Ok([paid, refunded])
    }

    /// The order was paid through the other channel before.
    fn second_payment(&mut self, first: Channel) -> anyhow::Result<Act> {
        let channel = other(first);
        let trade = self.trade();
        let again = Trade { trade_no: format!("{}2", trade.trade_no), ..trade.clone() };
        let orders = vec![trade.order_no.clone()];
        let before = Self::news(first, Happening::Payment(trade), Signing::Genuine)?;
        Ok(Act {
            title: "a second payment of an order paid elsewhere",
            channel,
            orders,
            stage: Stage::PaidBefore(before),
            news: Self::news(channel, Happening::Payment(again), Signing::Genuine)?,
            expect: Expect { told: None, ..Expect::booked("SurplusPaymentRecorded", ("PAID", "PAID")) },
        })
    }

    fn early_payment(&mut self, channel: Channel) -> anyhow::Result<Act> {
        let trade = self.trade();
        Ok(Act {
            title: "a payment before its order is opened",
            channel,
            orders: vec![trade.order_no.clone()],
            stage: Stage::OpenAfterwards,
            news: Self::news(channel, Happening::Payment(trade), Signing::Genuine)?,
            expect: Expect {
                events: vec!["PaymentParked", "OrderOpened", "PaymentConfirmed"],
                // One key for the parked fact, one for the payment that it became.
                idempotent: 2,
                ..Expect::booked("PaymentConfirmed", ("-", "PAID"))
            },
        })
    }

    fn combined(&mut self) -> anyhow::Result<Act> {
        let trades = vec![self.trade(), self.trade(), self.trade()];
        let orders: Vec<String> = trades.iter().map(|trade| trade.order_no.clone()).collect();
        Ok(Act {
            title: "one combined payment of three orders",
            channel: Channel::Wxpay,
            orders,
            stage: Stage::OpenFirst,
            news: Self::news(Channel::Wxpay, Happening::Combine(trades), Signing::Genuine)?,
            expect: Expect {
                events: vec!["PaymentConfirmed"; 3],
                idempotent: 3,
                flows: 3,
                ..Expect::booked("PaymentConfirmed", ("PENDING", "PAID"))
            },
        })
    }

    fn forged(&mut self, channel: Channel) -> anyhow::Result<Act> {
        self.refused("a forged payment: signed with another key", channel, Signing::Forged)
    }

    fn probe(&mut self) -> anyhow::Result<Act> {
        self.refused("a probe: does anybody check signatures?", Channel::Wxpay, Signing::Probe)
    }

    fn refused(&mut self, title: &'static str, channel: Channel, signing: Signing) -> anyhow::Result<Act> {
        let trade = self.trade();
        Ok(Act {
            title,
            channel,
            orders: vec![trade.order_no.clone()],
            stage: Stage::OpenFirst,
            news: Self::news(channel, Happening::Payment(trade), signing)?,
            expect: Expect {
                answer: Expected::Refused,
                events: Vec::new(),
                idempotent: 0,
                flows: 0,
                status: ("PENDING", "PENDING"),
                told: None,
            },
        })
    }

    fn wrong_amount(&mut self, channel: Channel) -> anyhow::Result<Act> {
        let trade = self.trade();
        let cheap = Trade { amount_minor: 1, ..trade.clone() };
        Ok(Act {
            title: "a payment of 0.01 for an order of 88.88",
            channel,
            orders: vec![trade.order_no],
            stage: Stage::OpenFirst,
            news: Self::news(channel, Happening::Payment(cheap), Signing::Genuine)?,
            expect: Expect { told: None, ..Expect::booked("SurplusPaymentRecorded", ("PENDING", "PENDING")) },
        })
    }

    /// Accounts through which the demo's orders may be paid.
    pub fn accounts(platforms: &Platforms) -> Vec<String> {
        vec![platforms.account(Channel::Alipay), platforms.account(Channel::Wxpay)]
    }

    /// What an order of the demo costs.
    pub const fn price_minor() -> i64 {
        PRICE_MINOR
    }
}

impl Expect {
    /// One event with its key and flow row, told to the warehouse.
    pub(super) fn booked(event: &'static str, status: (&'static str, &'static str)) -> Self {
        Self { answer: Expected::Acknowledged, events: vec![event], idempotent: 1, flows: 1, status, told: Some(event) }
    }
}

const fn other(channel: Channel) -> Channel {
    match channel {
        Channel::Wxpay => Channel::Alipay,
        Channel::Alipay => Channel::Wxpay,
    }
}
