//! Plays acts against a ledger and compares what came of them with what must.

use std::sync::Arc;
use std::time::Duration;

use paidonce_order::ids::Channel;
use paidonce_sandbox::Sandbox;

use super::acts::{Act, Expected, Script, Stage};
use super::ledger::{Counts, Ledger};
use super::lost;
use super::platform::Platforms;
use super::report::Line;
use super::sender::{Pace, Sender, Tally};
use super::warehouse::Warehouse;

/// The relay is woken by each commit; this long only when something is wrong.
const DELIVERED_WITHIN: Duration = Duration::from_secs(30);

/// Everything an act needs.
#[derive(Debug)]
pub struct Theatre {
    /// The API.
    pub ledger: Ledger,
    /// The callbacks.
    pub sender: Sender,
    /// The other end.
    pub warehouse: Warehouse,
    /// The platforms that answer questions.
    pub sandbox: Arc<Sandbox>,
    /// Keys.
    pub platforms: Arc<Platforms>,
    /// Copies of each news.
    pub copies: usize,
    /// How they are sent.
    pub pace: Pace,
}

/// What the tables said of an act's orders at one time.
#[derive(Debug, Default)]
struct Snapshot {
    counts: Counts,
    statuses: Vec<String>,
    events: Vec<Vec<String>>,
}

/// An act that was played; deliveries are judged when all acts are over.
#[derive(Debug)]
pub struct Played {
    act: Act,
    tally: Tally,
    before: Snapshot,
    after: Snapshot,
}

impl Theatre {
    /// Plays one act.
    pub async fn play(&self, act: Act) -> anyhow::Result<Played> {
        self.prepare(&act).await?;
        let before = self.snapshot(&act.orders).await?;
        let tally = self.tell(&act).await?;
        if matches!(act.stage, Stage::OpenAfterwards) {
            self.open(&act).await?;
        }
        let after = self.snapshot(&act.orders).await?;
        Ok(Played { act, tally, before, after })
    }

    /// The platform sends its copies, or the ledger asks.
    async fn tell(&self, act: &Act) -> anyhow::Result<Tally> {
        match act.expect.answer {
            Expected::Acknowledged | Expected::Refused => {
                let news = Arc::new(act.news.clone());
                let copies = std::iter::repeat_n(news, self.copies).collect();
                self.sender.send(copies, self.pace).await
            }
            Expected::NothingSent => {
                for order_no in &act.orders {
                    lost::pay(&self.sandbox, act.channel, order_no)?;
                    self.ledger.query_payment(order_no).await?;
                }
                Tally::new()
            }
        }
    }

    async fn prepare(&self, act: &Act) -> anyhow::Result<()> {
        match &act.stage {
            Stage::OpenFirst | Stage::PaidInSilence => self.open(act).await,
            Stage::OpenAfterwards => Ok(()),
            Stage::PaidBefore(news) => {
                self.open(act).await?;
                let tally = self.sender.send(vec![Arc::new(news.clone())], self.pace).await?;
                anyhow::ensure!(tally.acknowledged == 1, "the first payment was not acknowledged: {:?}", tally.answers);
                Ok(())
            }
            Stage::RequestRefund { refund_no } => {
                for order_no in &act.orders {
                    self.ledger.request_refund(order_no, refund_no, Script::price_minor()).await?;
                }
                Ok(())
            }
        }
    }

    async fn open(&self, act: &Act) -> anyhow::Result<()> {
        let accounts = match act.stage {
            Stage::PaidInSilence => vec![lost::account(act.channel)],
            Stage::OpenFirst | Stage::OpenAfterwards | Stage::PaidBefore(_) | Stage::RequestRefund { .. } => {
                Script::accounts(&self.platforms)
            }
        };
        for order_no in &act.orders {
            self.ledger.open(order_no, Script::price_minor(), &accounts).await?;
        }
        Ok(())
    }

    async fn snapshot(&self, orders: &[String]) -> anyhow::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        for order_no in orders {
            let counts = self.ledger.counts(order_no).await?;
            snapshot.counts.events = snapshot.counts.events.saturating_add(counts.events);
            snapshot.counts.idempotent = snapshot.counts.idempotent.saturating_add(counts.idempotent);
            snapshot.counts.order = snapshot.counts.order.saturating_add(counts.order);
            snapshot.counts.flows = snapshot.counts.flows.saturating_add(counts.flows);
            snapshot.statuses.push(self.ledger.status(order_no).await?);
            snapshot.events.push(self.ledger.event_types(order_no).await?);
        }
        Ok(snapshot)
    }

    /// Waits until the warehouse knows what it must, then until nothing more is on its way, and judges every act.
    pub async fn judge(&self, played: Vec<Played>) -> anyhow::Result<Vec<Line>> {
        let all_told = async {
            while !played.iter().all(|one| self.is_told(&one.act)) {
                self.warehouse.changed().await;
            }
        };
        // Whether it came in time shows in the verdicts.
        let _ = tokio::time::timeout(DELIVERED_WITHIN, all_told).await;
        let mut lines = Vec::new();
        for one in &played {
            self.wait_until_delivered(&one.act).await?;
            lines.push(one.line(&self.warehouse));
        }
        Ok(lines)
    }

    fn is_told(&self, act: &Act) -> bool {
        act.expect.told.is_none_or(|event| act.orders.iter().all(|order_no| self.warehouse.told(order_no, event) > 0))
    }

    /// A delivery that must not be would come after those that must: the queue's own rows say when there is none left.
    async fn wait_until_delivered(&self, act: &Act) -> anyhow::Result<()> {
        for order_no in &act.orders {
            let delivered = async {
                loop {
                    let counts = self.ledger.counts(order_no).await?;
                    if counts.delivered == counts.deliveries {
                        return anyhow::Ok(());
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(DELIVERED_WITHIN, delivered).await.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

impl Played {
    fn line(&self, warehouse: &Warehouse) -> Line {
        let (act, before, after) = (&self.act, &self.before.counts, &self.after.counts);
        let told = |order_no: &String| act.told_since_before(warehouse, order_no);
        let mut line = Line {
            what: format!("{}: {}", channel_name(act.channel), act.title),
            sent: self.tally.sent,
            acknowledged: self.tally.acknowledged,
            resent: self.tally.resent(),
            events: after.events.saturating_sub(before.events),
            t_idempotent: after.idempotent.saturating_sub(before.idempotent),
            t_order: format!("{} → {}", one_word(&self.before.statuses), one_word(&self.after.statuses)),
            t_order_flow: after.flows.saturating_sub(before.flows),
            warehouse: act.orders.iter().map(told).sum(),
            holds: true,
            problems: Vec::new(),
        };
        line.problems = self.problems(&line);
        line.holds = line.problems.is_empty();
        line
    }

    fn problems(&self, line: &Line) -> Vec<String> {
        let expect = &self.act.expect;
        let orders = u64::try_from(self.act.orders.len()).unwrap_or(u64::MAX);
        let acknowledged = match expect.answer {
            Expected::Acknowledged => line.sent,
            Expected::Refused | Expected::NothingSent => 0,
        };
        let told = if expect.told.is_some() { orders } else { 0 };
        let mut problems = Vec::new();
        let mut compare = |what: &str, found: String, expected: String| {
            if found != expected {
                problems.push(format!("{what}: {found} instead of {expected}"));
            }
        };
        compare("acknowledged", line.acknowledged.to_string(), acknowledged.to_string());
        compare("new events", self.new_events().join(", "), expect.events.join(", "));
        compare("events", line.events.to_string(), expect.events.len().to_string());
        compare("t_idempotent", line.t_idempotent.to_string(), expect.idempotent.to_string());
        compare("t_order", line.t_order.clone(), format!("{} → {}", expect.status.0, expect.status.1));
        compare("rows of t_order", self.after.counts.order.to_string(), orders.to_string());
        compare("t_order_flow", line.t_order_flow.to_string(), expect.flows.to_string());
        compare("warehouse", line.warehouse.to_string(), told.to_string());
        if !problems.is_empty() {
            problems.push(format!("answers: {:?}", self.tally.answers));
        }
        problems
    }

    fn new_events(&self) -> Vec<String> {
        let pairs = self.after.events.iter().zip(&self.before.events);
        pairs.flat_map(|(after, before)| after.iter().skip(before.len()).cloned()).collect()
    }
}

impl Act {
    /// A refund's order was told of before: its act counts its own event only. An act that expects no telling counts all
    /// but the payment that set its stage.
    fn told_since_before(&self, warehouse: &Warehouse, order_no: &str) -> u64 {
        match (self.expect.told, &self.stage) {
            (Some(event), _) => warehouse.told(order_no, event),
            (None, Stage::PaidBefore(_)) => warehouse.told_of(order_no).saturating_sub(1),
            (None, Stage::OpenFirst | Stage::OpenAfterwards | Stage::PaidInSilence | Stage::RequestRefund { .. }) => {
                warehouse.told_of(order_no)
            }
        }
    }
}

const fn channel_name(channel: Channel) -> &'static str {
    match channel {
        Channel::Wxpay => "WeChat Pay",
        Channel::Alipay => "Alipay",
    }
}

/// The one status of all orders, or all of them.
fn one_word(statuses: &[String]) -> String {
    let mut words = statuses.to_vec();
    words.dedup();
    words.join("/")
}
