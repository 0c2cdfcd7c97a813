//! The storm itself.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use paidonce_order::ids::Channel;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::demo::ledger::Ledger;
use super::super::demo::platform::{Happening, News, Platforms, Signing, Trade, now, random_hex};
use super::super::demo::sender::{Pace, Sender, Tally};
use super::super::demo::warehouse::Warehouse;
use super::StormArgs;
use super::checks::{read_orders, verdicts};
use super::summary::{Latency, Summary, Verdict};
use crate::client::{Client, Remote};
use crate::config::{Config, Environment};
use crate::exit::Stop;

/// 0.01 yuan each: a staging ledger's totals stay small.
const AMOUNT_MINOR: i64 = 1;
/// Orders opened at once.
const OPENS_MAX: usize = 8;
/// Orders whose copies are mixed with each other: several copies of one order are on the way at once, and several orders.
const ORDERS_MIXED: usize = 8;
/// A platform sends again for a day; a storm gives a ledger that is away this many tries of a quarter second.
const RESENDS_MAX: u32 = 40;
/// Without a delivery for this long, the rest is missing.
const DELIVERY_SILENCE: Duration = Duration::from_secs(15);

/// Everything the storm needs of its target.
struct Target {
    ledger: Ledger,
    servers: Vec<String>,
    platforms: Arc<Platforms>,
    warehouse: Warehouse,
    subscriber: String,
}

/// Floods the ledger and checks.
pub async fn run(args: &StormArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Summary> {
    let target = aim(args, file, env).await?;
    let run = format!("S{}", now().as_micros());
    let news = news(&run, args.orders)?;
    let orders: Vec<String> = news.iter().filter_map(|one| order_no(one)).collect();
    open_all(&target, &news).await?;
    let (tally, sending) = send(&target, &news, args).await?;
    wait_for_deliveries(&target.warehouse, news.len()).await;
    let found = read_orders(&target.ledger, &orders).await?;
    let mut verdicts = verdicts(&found, &target.warehouse);
    verdicts.insert(0, Verdict::equal("copies acknowledged", tally.acknowledged, tally.sent));
    if let Some(url) = &args.database_url {
        verdicts.extend(super::sql::verdicts(url, &orders).await?);
    }
    target.ledger.delete_subscriber(&target.subscriber).await?;
    let what = format!(
        "{} orders x {} copies, {} at a time, to {}",
        args.orders,
        args.copies,
        args.concurrency,
        target.servers.join(" and ")
    );
    Ok(summarize(what, &tally, sending, verdicts, &target.warehouse))
}

fn summarize(what: String, tally: &Tally, sending: Duration, verdicts: Vec<Verdict>, warehouse: &Warehouse) -> Summary {
    let mut notes = Vec::new();
    if warehouse.repeats() > 0 {
        notes.push(format!("{} deliveries were repeats with the same webhook-id, as retries are", warehouse.repeats()));
    }
    let sending_ms = u64::try_from(sending.as_millis()).unwrap_or(u64::MAX);
    let answered: u64 = tally.answers.iter().filter(|(answer, _)| *answer != "no answer").map(|(_, count)| count).sum();
    Summary {
        what,
        sending_ms,
        per_second: answered.saturating_mul(1_000).checked_div(sending_ms).unwrap_or(0),
        latency: Latency::of(&tally.latency),
        answers: tally.answers.clone(),
        holds: verdicts.iter().all(|verdict| verdict.holds),
        verdicts,
        notes,
    }
}

/// Reads accounts and secrets from the configuration, the platforms' keys from their folder, and puts a subscriber.
async fn aim(args: &StormArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Target> {
    let config = Config::load(file, env)?;
    let keys = args.platform_keys.as_deref().ok_or_else(|| Stop::usage("--platform-keys is missing"))?;
    let platforms = Arc::new(Platforms::load(keys)?);
    let servers = if args.server.is_empty() { vec![format!("http://{}", config.listen)] } else { args.server.clone() };
    let secret = config.secrets.iter().next();
    let (secret_ref, secrets) =
        secret.ok_or_else(|| Stop::usage("a storm needs an entry in [secrets], for its own subscriber"))?;
    let server = servers.first().context("no server")?;
    let remote = Remote { server: server.clone(), token_file: args.token_file.clone(), json: args.json };
    let ledger = Ledger::of(Client::try_new(&remote)?);
    let warehouse = Warehouse::start(args.warehouse_listen, secrets.clone()).await?;
    let subscriber = format!("storm-{}", now().as_micros());
    let body = json!({ "events": ["PaymentConfirmed"], "url": warehouse.url(), "secret_ref": secret_ref });
    ledger.put_subscriber(&subscriber, body).await?;
    Ok(Target { ledger, servers, platforms, warehouse, subscriber })
}

/// One payment an order, every second one through each channel.
fn news(run: &str, orders: u32) -> anyhow::Result<Vec<Arc<News>>> {
    (1..=orders)
        .map(|number| {
            let channel = if number % 2 == 0 { Channel::Alipay } else { Channel::Wxpay };
            let trade = Trade {
                order_no: format!("{run}-{number}"),
                trade_no: format!("{run}T{number}"),
                amount_minor: AMOUNT_MINOR,
            };
            let happening = Happening::Payment(trade);
            let push_id = random_hex(16)?;
            Ok(Arc::new(News { channel, happening, push_id, occurred_at: now(), signing: Signing::Genuine }))
        })
        .collect()
}

fn order_no(news: &News) -> Option<String> {
    match &news.happening {
        Happening::Payment(trade) | Happening::Refund { trade, .. } => Some(trade.order_no.clone()),
        Happening::Combine(_) => None,
    }
}

async fn open_all(target: &Target, news: &[Arc<News>]) -> anyhow::Result<()> {
    let limit = Arc::new(Semaphore::new(OPENS_MAX));
    let mut opens = JoinSet::new();
    for one in news {
        let Some(order_no) = order_no(one) else { continue };
        let accounts = vec![target.platforms.account(one.channel)];
        let (ledger, limit) = (target.ledger.clone(), Arc::clone(&limit));
        opens.spawn(async move {
            let _permit = limit.acquire_owned().await?;
            ledger.open(&order_no, AMOUNT_MINOR, &accounts).await
        });
    }
    while let Some(open) = opens.join_next().await {
        open.context("an opening stopped")??;
    }
    Ok(())
}

/// All copies: mixed inside groups of orders, so that each order's copies crowd and different orders share batches.
fn plan(news: &[Arc<News>], copies: u32) -> Vec<Arc<News>> {
    let mut plan = Vec::new();
    for group in news.chunks(ORDERS_MIXED) {
        for _ in 0..copies {
            plan.extend(group.iter().map(Arc::clone));
        }
    }
    plan
}

#[expect(clippy::disallowed_methods, reason = "measures how long sending took")]
async fn send(target: &Target, news: &[Arc<News>], args: &StormArgs) -> anyhow::Result<(Tally, Duration)> {
    let plan = plan(news, args.copies);
    let target_of_bar = if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = progress(plan.len(), target_of_bar);
    let sender = Sender::new(target.servers.clone(), Arc::clone(&target.platforms))?.with_progress(bar.clone());
    let begun = Instant::now();
    let pace = Pace { concurrency: usize::from(args.concurrency), resends_max: RESENDS_MAX };
    let tally = sender.send(plan, pace).await?;
    bar.finish_and_clear();
    Ok((tally, begun.elapsed()))
}

/// On standard error, and only where somebody watches.
fn progress(copies: usize, target: ProgressDrawTarget) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(u64::try_from(copies).ok(), target);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} callbacks  {per_sec}  {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Until every order was told of, or nothing came for a while; the verdicts say which.
async fn wait_for_deliveries(warehouse: &Warehouse, orders: usize) {
    let orders = u64::try_from(orders).unwrap_or(u64::MAX);
    while warehouse.total() < orders {
        if tokio::time::timeout(DELIVERY_SILENCE, warehouse.changed()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_sent_as_often_as_asked() {
        let news: Vec<Arc<News>> = (0..19)
            .map(|number| {
                let trade = Trade { order_no: number.to_string(), trade_no: number.to_string(), amount_minor: 1 };
                Arc::new(News {
                    channel: Channel::Wxpay,
                    happening: Happening::Payment(trade),
                    push_id: String::new(),
                    occurred_at: now(),
                    signing: Signing::Genuine,
                })
            })
            .collect();
        let plan = plan(&news, 7);
        for one in &news {
            assert_eq!(plan.iter().filter(|copy| Arc::ptr_eq(copy, one)).count(), 7);
        }
        assert_eq!(plan.len(), 19 * 7);
    }
}
