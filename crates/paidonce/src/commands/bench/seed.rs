//! `paidonce bench seed`: a ledger of made-up orders, to measure on. Every order is opened and paid, every twentieth is partly
//! refunded; the evidence is the statement of an operator who says that it is made up.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use futures_util::StreamExt as _;
use paidonce_app::Clock;
use paidonce_channel::{Evidence, operator_statement, payment_fact, refund_fact};
use paidonce_order::command::{OrderCommand, PaymentRef, RefundAmount, RefundOutcome, Terms};
use paidonce_order::ids::{AccountRef, ChannelTradeNo, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::Migrations;
use paidonce_store::options::Durability;
use paidonce_store::store::{CommandContext, EvidenceRow, Outcome, Store, Target, Work};

use crate::commands::audit::{Bar, Database};
use crate::commands::print::say;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Stop};
use crate::ledger::{self, OpenPlan};

const EXAMPLES: &str = "\
Example:
  paidonce bench seed --orders 1000000 --data-dir ./scratch

Only into an empty ledger: these orders are made up. Nothing waits for the disk.";

/// Arguments of `bench seed`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SeedArgs {
    /// How many.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub orders: u32,
    #[command(flatten)]
    database: Database,
}

/// Orders under way at once: as many as fill batches.
const AT_ONCE: usize = 1_024;
/// Every so many orders one is refunded.
const REFUNDED_EVERY: u32 = 20;
/// Payments are spread over so many days.
const DAYS: i64 = 30;
const DAY_MICROS: i64 = 86_400_000_000;
const ACCOUNTS: [&str; 2] = ["wxpay:1900000001", "alipay:2088000000000001"];

/// Runs it. Errors: the ledger is not empty; the database.
pub async fn run(args: SeedArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let database = args.database.of(Config::load(file, env)?.database);
    let plan = OpenPlan { durability: Durability::Scratch, ..OpenPlan::durable(Migrations::Apply) };
    let store = ledger::open(&database, &plan).await?;
    if store.gauges().await.map_err(ledger::stop)?.events_total > 0 {
        store.shutdown().await;
        return Err(Stop::refused("this ledger is not empty: made-up orders go into a new one only").into());
    }
    let seeds = Seeds::new(Arc::clone(&store), Clock::default().now())?;
    let bar = Arc::new(Bar::new("orders"));
    let on_progress = bar.on_progress();
    let total = u64::from(args.orders);
    let mut running =
        futures_util::stream::iter((0..args.orders).map(|number| seeds.order(number))).buffer_unordered(AT_ONCE);
    let mut done = 0_u64;
    while let Some(order) = running.next().await {
        order?;
        done = done.saturating_add(1);
        if done.is_multiple_of(1_000) {
            on_progress(paidonce_app::audit::report::Progress { events: done, total });
        }
    }
    drop(running);
    bar.finish();
    store.shutdown().await;
    say!("{done} made-up orders")?;
    Ok(Exit::Ok)
}

struct Seeds {
    store: Arc<dyn Store>,
    accounts: Vec<AccountRef>,
    evidence: Vec<Arc<EvidenceRow>>,
    now: Timestamp,
}

impl Seeds {
    fn new(store: Arc<dyn Store>, now: Timestamp) -> anyhow::Result<Self> {
        let accounts =
            ACCOUNTS.map(AccountRef::parse).into_iter().collect::<Result<Vec<_>, _>>().context("an account")?;
        let evidence = accounts.iter().map(|account| {
            let headers = [("operator", "bench seed"), ("reason", "made up, to measure")];
            let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let Evidence { account, source: _, headers, body, key_id, received_at, digest } =
                operator_statement(account, headers, b"made up".to_vec(), now);
            Arc::new(EvidenceRow { digest, account, source: "operator".to_owned(), headers, body, key_id, received_at })
        });
        let evidence = evidence.collect();
        Ok(Self { store, accounts, evidence, now })
    }

    async fn order(&self, number: u32) -> anyhow::Result<()> {
        let of = usize::from(number % 2 == 1);
        let (Some(account), Some(evidence)) = (self.accounts.get(of), self.evidence.get(of)) else { return Ok(()) };
        let order_no = OrderNo::parse(&format!("SEED-{number:08}"))?;
        let channel_trade_no = ChannelTradeNo::parse(&format!("4200{number:016}"))?;
        let amount = Money::fen(i64::from(number % 10_000).saturating_add(100));
        let terms = Terms {
            amount,
            accounts: vec![account.clone()],
            description: None,
            expires_at: None,
            supersedes: None,
            sub_mchid: None,
            combine: None,
        };
        self.submit(&order_no, OrderCommand::OpenOrder(terms), None).await?;
        let payment = PaymentRef { account: account.clone(), channel_trade_no };
        let ago = (i64::from(number) % DAYS).saturating_mul(DAY_MICROS);
        let paid_at = self.now.plus_micros(ago.saturating_neg());
        let fact = payment_fact(payment.clone(), amount, paid_at);
        self.submit(&order_no, OrderCommand::RecordPayment(fact), Some(evidence)).await?;
        if number.is_multiple_of(REFUNDED_EVERY) {
            let refund_no = RefundNo::parse(&format!("SEED-{number:08}-R"))?;
            let exact = RefundAmount::Exact(Money::fen(50));
            let fact = refund_fact(payment, refund_no, RefundOutcome::Succeeded, exact, paid_at);
            self.submit(&order_no, OrderCommand::RecordRefund(fact), Some(evidence)).await?;
        }
        Ok(())
    }

    async fn submit(
        &self,
        order_no: &OrderNo,
        command: OrderCommand,
        evidence: Option<&Arc<EvidenceRow>>,
    ) -> anyhow::Result<()> {
        let context = CommandContext {
            source: "operator".to_owned(),
            actor: Some("bench seed".to_owned()),
            evidence: evidence.map(Arc::clone),
            ..CommandContext::default()
        };
        let target = Target::Order { order_no: order_no.clone(), command };
        match self.store.submit(Work { target, context }).await? {
            Outcome::Committed(_) | Outcome::Duplicate(_) => Ok(()),
            Outcome::Rejected(error) => Err(error.into()),
            Outcome::ApiKeyReused => Err(anyhow::anyhow!("a key was used before")),
        }
    }
}
