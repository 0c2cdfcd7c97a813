//! Callbacks saved from production, played onto a scratch ledger.
//!
//! The ledger is a temporary SQLite file of this process, with the accounts of the configuration and no subscribers, so that
//! nothing of a replay ever reaches anybody. Its clock is turned back for every message to the time it was signed at: that
//! is why a real ledger is never a target.
//!
//! | step | what must hold |
//! |---|---|
//! | 1 verify every message at its own time | all verify |
//! | 2 open the orders that payments name, with the first amount seen | |
//! | 3 record every message, `--copies` times, `--concurrency` at a time | all are committed or were so before |
//! | 4 record all once more | no event is added |
//! | 5 count | one PAY flow for each paid order; a key for each keyed event |

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use paidonce_app::app::Caller;
use paidonce_app::open::OpenOrder;
use paidonce_app::{App, AppOptions, Clock};
use paidonce_channel::{Fact, Notice, RawNotification, Verified};
use paidonce_order::ids::OrderNo;
use paidonce_order::money::Money;
use paidonce_store::Migrations;
use paidonce_store::clock::ClockOffset;
use paidonce_store::options::Durability;
use paidonce_store::store::Store;
use tokio::task::JoinSet;

use super::StormArgs;
use super::evidence::{self, Saved};
use super::summary::{Latency, Summary, Verdict};
use crate::config::{Config, DatabaseConfig, DatabaseUrl, Environment};
use crate::ledger::{self, OpenPlan, stop};

/// A ledger that only this replay uses.
struct Scratch {
    store: Arc<dyn Store>,
    app: Arc<App>,
    _folder: tempfile::TempDir,
}

/// The messages that verify, by their row, and why the others don't.
type Judged = (Vec<(usize, Verified<Notice>)>, BTreeMap<usize, String>);

/// Results of recording many messages.
#[derive(Debug)]
struct Played {
    answers: BTreeMap<String, u64>,
    latency: Histogram<u64>,
}

/// Plays the file and checks.
pub async fn run(args: &StormArgs, file: &Path, config: Option<&Path>, env: &Environment) -> anyhow::Result<Summary> {
    let (saved, others) = evidence::read(file)?;
    let scratch = Scratch::open(&Config::load(config, env)?).await?;
    let (believed, refused) = scratch.verify(&saved);
    let mut verdicts = vec![verified(&saved, &refused)];
    let orders = scratch.open_orders(&believed).await?;
    let believed = Arc::new(believed.into_iter().map(|(index, _)| index).collect::<Vec<_>>());
    let saved = Arc::new(saved);
    let begun = started();
    let played = scratch.play(&saved, &believed, args).await?;
    let sending_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let copies = u64::try_from(believed.len()).unwrap_or(u64::MAX).saturating_mul(u64::from(args.copies));
    let durable: u64 = ["committed", "duplicate"].iter().filter_map(|word| played.answers.get(*word)).sum();
    verdicts.push(Verdict::equal("copies that are durable facts", durable, copies));
    let events = scratch.events().await?;
    scratch.play_once(&saved, &believed).await?;
    verdicts.push(Verdict::equal("events after playing all once more", scratch.events().await?, events));
    verdicts.extend(scratch.books(&orders).await?);
    scratch.store.shutdown().await;
    let mut notes = vec![format!("{events} events in the scratch ledger")];
    if others > 0 {
        notes.push(format!("{others} rows did not come in as callbacks and were left out"));
    }
    Ok(Summary {
        what: format!(
            "{} saved callbacks x {} copies, {} at a time, onto a scratch ledger, each verified at its own time",
            saved.len(),
            args.copies,
            args.concurrency
        ),
        sending_ms,
        per_second: copies.saturating_mul(1_000).checked_div(sending_ms).unwrap_or(0),
        latency: Latency::of(&played.latency),
        answers: played.answers,
        holds: verdicts.iter().all(|verdict| verdict.holds),
        verdicts,
        notes,
    })
}

fn verified(saved: &[Saved], refused: &BTreeMap<usize, String>) -> Verdict {
    let names: Vec<String> = (1..=saved.len()).map(|row| format!("row {row}")).collect();
    let all = names.iter().enumerate().map(|(index, name)| (name.as_str(), refused.get(&index).cloned()));
    Verdict::count("saved callbacks that verify", all)
}

#[expect(clippy::disallowed_methods, reason = "measures how long recording took")]
fn started() -> Instant {
    Instant::now()
}

impl Scratch {
    async fn open(config: &Config) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("paidonce-replay-").tempdir()?;
        let database =
            DatabaseConfig { url: DatabaseUrl::Sqlite, data_dir: folder.path().to_owned(), ..config.database.clone() };
        let clock = ClockOffset::default();
        let plan =
            OpenPlan { durability: Durability::Scratch, clock: clock.clone(), ..OpenPlan::durable(Migrations::Apply) };
        let store = ledger::open(&database, &plan).await?;
        let app = App::new(
            Arc::clone(&store),
            config.accounts.ours.clone(),
            Clock::new(clock),
            AppOptions { strays_per_hour_max: u32::MAX, ..AppOptions::default() },
        );
        Ok(Self { store, app: Arc::new(app), _folder: folder })
    }

    fn verify(&self, saved: &[Saved]) -> Judged {
        let (mut believed, mut refused) = (Vec::new(), BTreeMap::new());
        for (index, one) in saved.iter().enumerate() {
            match receive(&self.app, one) {
                Ok(notice) => believed.push((index, notice)),
                Err(error) => drop(refused.insert(index, format!("{error:#}"))),
            }
        }
        (believed, refused)
    }

    /// Opens every order that a payment names, through all accounts, with the first amount seen.
    async fn open_orders(&self, believed: &[(usize, Verified<Notice>)]) -> anyhow::Result<Vec<OrderNo>> {
        let mut orders: BTreeMap<OrderNo, Money> = BTreeMap::new();
        for observation in believed.iter().flat_map(|(_, notice)| &notice.get().observations) {
            if let (Some(order_no), Fact::Payment(payment)) = (&observation.order_no, &observation.fact) {
                orders.entry(order_no.clone()).or_insert(payment.amount);
            }
        }
        for (order_no, amount) in &orders {
            let open = OpenOrder {
                order_no: order_no.clone(),
                amount_minor: amount.amount_minor,
                currency: amount.currency,
                accounts: self.app.accounts().list(),
                description: None,
                expires_at: None,
                supersedes: None,
                sub_mchid: None,
                combine: None,
            };
            self.app.open(open, &Caller::default()).await?;
        }
        Ok(orders.into_keys().collect())
    }

    /// All copies, mixed: every message once, then every message again.
    async fn play(&self, saved: &Arc<Vec<Saved>>, rows: &Arc<Vec<usize>>, args: &StormArgs) -> anyhow::Result<Played> {
        let plan: Vec<usize> = (0..args.copies).flat_map(|_| rows.iter().copied()).collect();
        let plan = Arc::new(Mutex::new(plan.into_iter()));
        let mut workers = JoinSet::new();
        for _ in 0..args.concurrency {
            workers.spawn(work(Arc::clone(&self.app), Arc::clone(saved), Arc::clone(&plan)));
        }
        let mut total = Played { answers: BTreeMap::new(), latency: Histogram::new(3)? };
        while let Some(played) = workers.join_next().await {
            let played = played.context("a worker stopped")??;
            for (answer, count) in played.answers {
                let sum = total.answers.entry(answer).or_default();
                *sum = sum.saturating_add(count);
            }
            total.latency.add(&played.latency)?;
        }
        Ok(total)
    }

    async fn play_once(&self, saved: &[Saved], rows: &[usize]) -> anyhow::Result<()> {
        for one in rows.iter().filter_map(|row| saved.get(*row)) {
            self.app.record(receive(&self.app, one)?, None).await?;
        }
        Ok(())
    }

    async fn events(&self) -> anyhow::Result<u64> {
        let gauges = self.store.gauges().await.map_err(stop)?;
        Ok(u64::try_from(gauges.events_total)?)
    }

    async fn books(&self, orders: &[OrderNo]) -> anyhow::Result<Vec<Verdict>> {
        let (mut once, mut keyed) = (Vec::new(), Vec::new());
        for order_no in orders {
            let flows = self.store.list_order_flows(order_no).await.map_err(stop)?;
            let pays = flows.iter().filter(|flow| flow.trade_type.as_str() == "PAY").count();
            once.push((order_no.as_str(), (pays != 1).then(|| format!("{pays} PAY flows"))));
            let counts = self.store.count_rows(order_no).await.map_err(stop)?;
            let events = self.store.list_order_events(order_no).await.map_err(stop)?;
            let keys = events.iter().filter(|event| event.metadata.contains("\"idem_key\"")).count();
            let equal = i64::try_from(keys)? == counts.idempotent;
            let problem = format!("{} t_idempotent rows for {keys} keyed events", counts.idempotent);
            keyed.push((order_no.as_str(), (!equal).then_some(problem)));
        }
        Ok(vec![
            Verdict::count("paid orders with exactly 1 PAY flow", once.into_iter()),
            Verdict::count("orders with one t_idempotent row for each keyed event", keyed.into_iter()),
        ])
    }
}

/// Verified at the time it was signed, not now.
fn receive(app: &App, saved: &Saved) -> anyhow::Result<Verified<Notice>> {
    let receiver = app.accounts().find(&saved.account);
    let receiver = receiver.with_context(|| format!("account {} is not in the configuration", saved.account))?;
    Ok(receiver.receive(RawNotification { headers: &saved.headers, body: &saved.body, now: saved.at })?)
}

type Plan = Arc<Mutex<std::vec::IntoIter<usize>>>;

async fn work(app: Arc<App>, saved: Arc<Vec<Saved>>, plan: Plan) -> anyhow::Result<Played> {
    let mut played = Played { answers: BTreeMap::new(), latency: Histogram::new(3)? };
    loop {
        let next = plan.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(one) = next.and_then(|row| saved.get(row)) else { return Ok(played) };
        let begun = started();
        let answer = match app.record(receive(&app, one)?, None).await {
            Ok(recorded) if recorded.committed > 0 => "committed".to_owned(),
            Ok(_) => "duplicate".to_owned(),
            Err(error) => error.to_string(),
        };
        played.latency.saturating_record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        let count = played.answers.entry(answer).or_default();
        *count = count.saturating_add(1);
    }
}
