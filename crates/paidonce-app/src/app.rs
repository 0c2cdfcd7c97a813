//! The use cases' one dependency bundle: ledger, accounts, clock, platforms.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use paidonce_channel::OurAccounts;
use paidonce_order::ids::{AccountRef, OrderNo};
use paidonce_order::order::Order;
use paidonce_order::project::ApiKey;
use paidonce_store::store::{CommandContext, Outcome, Receipt, Store, Target, Work};
use tokio::sync::watch;

use crate::accounts::Accounts;
use crate::channel_settings::ChannelSettings;
use crate::clock::Clock;
use crate::error::AppError;
use crate::ports::ChannelClient;
use crate::query_payment::Questions;
use crate::stray_budget::StrayBudget;

/// Limits of the use cases.
#[derive(Debug, Clone)]
pub struct AppOptions {
    /// New strays per account and hour; above it a message is refused, so that the platform sends it again later.
    /// 1,000 is far above what unknown message types make, and far below what a wrong key makes on a busy day.
    pub strays_per_hour_max: u32,
    /// How the platforms are asked.
    pub channel: ChannelSettings,
}

impl Default for AppOptions {
    fn default() -> Self {
        Self { strays_per_hour_max: 1_000, channel: ChannelSettings::default() }
    }
}

/// All use cases. Cheap to share; holds no state that a restart would miss.
pub struct App {
    store: Arc<dyn Store>,
    accounts: Accounts,
    channel: ChannelSettings,
    pub(crate) questions: Questions,
    clock: Clock,
    pub(crate) strays: StrayBudget,
    secret_names: RwLock<Option<BTreeSet<String>>>,
    committed: watch::Sender<()>,
    channel_client: Option<Arc<dyn ChannelClient>>,
    /// Automatic refunds are counted and requested one after the other, or a burst would pass the breaker together.
    pub(crate) automatic_refunds: tokio::sync::Mutex<()>,
}

impl App {
    /// Wires the use cases.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, accounts: OurAccounts, clock: Clock, options: AppOptions) -> Self {
        Self {
            store,
            accounts: Accounts::new(accounts),
            channel: options.channel,
            questions: Questions::default(),
            clock,
            strays: StrayBudget::new(options.strays_per_hour_max),
            secret_names: RwLock::new(None),
            committed: watch::Sender::new(()),
            channel_client: None,
            automatic_refunds: tokio::sync::Mutex::default(),
        }
    }

    /// The same use cases, able to ask the platforms.
    #[must_use]
    pub fn with_channel_client(self, client: Arc<dyn ChannelClient>) -> Self {
        Self { channel_client: Some(client), ..self }
    }

    /// Asks the platforms; `None` in a program that only listens.
    #[must_use]
    pub fn channel_client(&self) -> Option<&dyn ChannelClient> {
        self.channel_client.as_deref()
    }

    /// The ledger, for reads.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The client, when it can ask for this account.
    pub(crate) fn client_for(&self, account: &AccountRef) -> Option<&dyn ChannelClient> {
        self.channel_client().filter(|client| client.can_ask(account))
    }

    /// How the platforms are asked.
    #[must_use]
    pub const fn channel_settings(&self) -> &ChannelSettings {
        &self.channel
    }

    /// The accounts; their keys are replaced with [`Accounts::replace`].
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Our clock.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Changes with every commit, so that a relay need not wait for its next poll. Each relay has its own.
    #[must_use]
    pub fn commits(&self) -> watch::Receiver<()> {
        self.committed.subscribe()
    }

    /// Wakes the relays.
    pub(crate) fn tell_relays(&self) {
        self.committed.send_replace(());
    }

    /// Says which subscriber secrets are configured; a subscriber naming another is then refused. Called again on reload.
    pub fn set_secret_names(&self, names: impl IntoIterator<Item = String>) {
        *self.secret_names.write().unwrap_or_else(PoisonError::into_inner) = Some(names.into_iter().collect());
    }

    pub(crate) fn is_secret_configured(&self, name: &str) -> bool {
        let names = self.secret_names.read().unwrap_or_else(PoisonError::into_inner);
        names.as_ref().is_none_or(|names| names.contains(name))
    }

    /// The one door of every change (P3).
    pub(crate) async fn submit(&self, target: Target, context: CommandContext) -> Result<Outcome, AppError> {
        let outcome = self.store.submit(Work { target, context }).await?;
        if matches!(outcome, Outcome::Committed(_)) {
            self.tell_relays();
        }
        Ok(outcome)
    }

    /// Submits what a caller asked for: rejections and reused keys are errors, a repeat is a normal outcome.
    pub(crate) async fn ask(&self, target: Target, caller: &Caller) -> Result<Asked, AppError> {
        match self.submit(target, caller.context()).await? {
            Outcome::Committed(receipt) => Ok(Asked { novelty: Novelty::New, receipt }),
            Outcome::Duplicate(receipt) => Ok(Asked { novelty: Novelty::Repeat, receipt }),
            Outcome::Rejected(error) => Err(AppError::Rejected(error)),
            Outcome::ApiKeyReused => Err(AppError::ApiKeyReused),
        }
    }

    /// The order's state, or [`AppError::NotFound`].
    pub(crate) async fn get_order_state(&self, order_no: &OrderNo) -> Result<Arc<Order>, AppError> {
        let order = self.store.find_order(order_no).await?;
        order.map(Arc::new).ok_or_else(|| AppError::NotFound { what: format!("order {order_no}") })
    }

    /// The state in the receipt, else as read now.
    pub(crate) async fn state_after(&self, order_no: &OrderNo, receipt: &Receipt) -> Result<Arc<Order>, AppError> {
        match &receipt.order {
            Some(order) => Ok(Arc::clone(order)),
            None => self.get_order_state(order_no).await,
        }
    }
}

/// A job that did not fail.
pub(crate) struct Asked {
    pub(crate) novelty: Novelty,
    pub(crate) receipt: Receipt,
}

/// Whether a request changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Novelty {
    /// It did.
    New,
    /// Asked for before: the same answer, nothing written.
    Repeat,
}

/// A result with its novelty.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// New or repeated.
    pub novelty: Novelty,
    /// What the caller sees.
    pub value: T,
}

/// Who asks, for the log of the event that results.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Token name, or the name of the person at the command line.
    pub actor: Option<String>,
    /// Id of the HTTP request.
    pub request_id: Option<String>,
    /// Caller's `Idempotency-Key`, see [`crate::api_key::api_key`].
    pub api_key: Option<ApiKey>,
    /// The door.
    pub door: Door,
}

/// The door a request of ours came through: the `source` of its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Door {
    /// A service.
    #[default]
    Api,
    /// A person.
    Operator,
    /// A rule of the ledger: an order expired, a surplus payment fell due.
    Policy,
}

impl Caller {
    fn context(&self) -> CommandContext {
        let source = match self.door {
            Door::Api => "api",
            Door::Operator => "operator",
            Door::Policy => "policy",
        };
        CommandContext {
            source: source.to_owned(),
            actor: self.actor.clone(),
            request_id: self.request_id.clone(),
            api_key: self.api_key.clone(),
            evidence: None,
        }
    }

    /// The same caller for a further command of one request: its `Idempotency-Key` belongs to the main command.
    pub(crate) fn without_api_key(&self) -> Self {
        Self { api_key: None, ..self.clone() }
    }
}
