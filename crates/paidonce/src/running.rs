//! A running ledger: store, use cases, HTTP server and relay, wired together. `serve` runs one until a signal; `demo` and
//! `storm` run one on a temporary ledger.
//!
//! | started | stopped |
//! |---|---|
//! | 1 store (schema, lock, log that can be decoded) | 3 last: finishes what was accepted, closes |
//! | 2 relays and key refresh | 2 finish the deliveries and calls under way |
//! | 3 HTTP server | 1 first: no new connection, what is under way is answered |

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use paidonce_app::channel_settings::{Breaker, ChannelSettings, SurplusSettings};
use paidonce_app::ports::ChannelEffects;
use paidonce_app::{App, AppOptions, Clock};
use paidonce_http::{CallMetrics, Money, Server, ServerOptions};
use paidonce_order::ids::AccountRef;
use paidonce_store::options::FirstDue;
use paidonce_store::store::{Backfill, Store};
use paidonce_worker::{
    ChannelClientSettings, ChannelRelay, ChannelRelaySettings, Deliverer, HttpChannelClient, Relay, RelaySettings,
    Relays, Schedule, Secrets, key_refresh,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, EffectsConfig};
use crate::ledger::{self, OpenPlan};
use crate::open_files;
use crate::sealing;

/// How long a call to a platform waits for its turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(3);
/// A close and a query for each of three accounts, which is more than an order has as a rule.
const CALLS_OF_A_TRY: u32 = 6;

/// A running ledger. Dropping it without [`Running::stop`] leaves leases to expire and queued jobs unfinished.
pub struct Running {
    store: Arc<dyn Store>,
    app: Arc<App>,
    server: Server,
    secrets: Arc<Secrets>,
    relays: JoinHandle<()>,
    keys: JoinHandle<()>,
    seals: JoinHandle<()>,
    refreshed: watch::Sender<Vec<AccountRef>>,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Opens the ledger and starts everything. Errors: [`crate::exit::Stop`] with the exit code that fits, inside the chain.
    pub async fn start(config: &Config, plan: OpenPlan) -> anyhow::Result<Self> {
        say_whose_money(config);
        let plan = OpenPlan { first_due: first_due(config), ..plan };
        let store = ledger::open(&config.database, &plan).await?;
        let clock = Clock::new(plan.clock.clone());
        let app = App::new(Arc::clone(&store), config.accounts.ours.clone(), clock.clone(), app_options(config));
        let calls = CallMetrics::default();
        let client = channel_client(config, &app, calls.clone())?;
        let app = Arc::new(app.with_channel_client(Arc::new(client.clone())));
        app.set_secret_names(config.secrets.keys().cloned());
        say_old_certificates(config, &app);
        put_subscribers(store.as_ref(), config).await?;
        let secrets = Arc::new(Secrets::new(config.secrets.clone()));
        let timeout = Duration::from_secs(u64::from(config.effects.request_timeout_seconds));
        let deliverer = Deliverer::try_new(Arc::clone(&secrets), clock, timeout).context("HTTP client of the relay")?;
        let deliveries = Relay::new(Arc::clone(&store), deliverer, relay_settings(&config.effects), app.commits());
        let effects: Arc<dyn ChannelEffects> = Arc::<App>::clone(&app);
        let calls_settings = channel_relay_settings(config);
        let asking = ChannelRelay::new(Arc::clone(&store), effects, calls_settings, app.commits());
        let relays = Relays { deliveries, calls: asking };
        let options = ServerOptions { calls, ..server_options(config, &plan, &relays) };
        let server = match paidonce_http::serve(options, Arc::clone(&app)).await {
            Ok(server) => server,
            Err(error) => {
                store.shutdown().await;
                return Err(error.into());
            }
        };
        let (stop, stopped) = watch::channel(false);
        let (refreshed, accounts) = watch::channel(config.accounts.refreshed.clone());
        let keys = tokio::spawn(key_refresh::refresh_for_ever(client, accounts, stopped.clone()));
        let sealing = (config.database.clone(), config.audit.clone(), app.clock().clone());
        let seals = tokio::spawn(sealing::seal_for_ever(sealing.0, sealing.1, sealing.2, stopped.clone()));
        let relays = match calls_run() {
            CallsRun::InBackground => tokio::spawn(relays.run(stopped)),
            CallsRun::ByHand => tokio::spawn(relays.deliveries.run(stopped)),
        };
        Ok(Self { store, app, server, secrets, relays, keys, seals, refreshed, stop })
    }

    /// Where it listens, with the real port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// `http://127.0.0.1:8080`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The use cases.
    #[must_use]
    pub const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The ledger, for reads.
    #[must_use]
    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Puts keys, tokens and secrets of a new configuration in place of the old ones. Requests under way finish with the
    /// old ones. Address, database and retry rules need a restart.
    pub fn reload(&self, config: &Config) {
        self.app.accounts().replace(config.accounts.ours.clone());
        say_old_certificates(config, &self.app);
        self.app.set_secret_names(config.secrets.keys().cloned());
        self.secrets.replace(config.secrets.clone());
        self.refreshed.send_replace(config.accounts.refreshed.clone());
        self.server.replace_tokens(config.tokens.clone());
    }

    /// Returns when the server has ended by itself, which only a failure makes it do.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.server.ended().await {
            Ok(()) => anyhow::anyhow!("the HTTP server ended by itself"),
            Err(error) => anyhow::Error::new(error).context("the HTTP server failed"),
        }
    }

    /// Stops: what was accepted is finished and durable when this returns.
    pub async fn stop(self) {
        // Nobody receives when both have ended before; then there is nothing to stop.
        self.stop.send_replace(true);
        self.server.shutdown().await;
        for ended in [self.relays.await, self.keys.await, self.seals.await] {
            if let Err(error) = ended {
                tracing::error!(%error, "a worker ended in a panic; what it had claimed is tried again after its lease");
            }
        }
        self.store.shutdown().await;
    }
}

/// Whoever reads the log of a ledger must see at once that its money is played.
fn say_whose_money(config: &Config) {
    if config.money == Money::Played {
        tracing::warn!(
            "SANDBOX: the platforms are played by `paidonce sandbox`. No money here is real, and its keys protect nothing."
        );
    }
}

/// An old certificate still verifies, so that no genuine callback is lost; but somebody must change the file.
fn say_old_certificates(config: &Config, app: &App) {
    for (account, warning) in config.accounts.ours.key_warnings(app.clock().now()) {
        tracing::warn!(%account, %warning, "a platform certificate needs attention");
    }
}

fn seconds(seconds: impl Into<u64>) -> Duration {
    Duration::from_secs(seconds.into())
}

fn first_due(config: &Config) -> FirstDue {
    let first = config.channel_calls.poll_seconds.first().copied();
    let default = FirstDue::default();
    let poll_ms = first.and_then(|seconds| i64::try_from(seconds).ok()).map(|seconds| seconds.saturating_mul(1000));
    FirstDue {
        poll_ms: poll_ms.unwrap_or(default.poll_ms),
        surplus_ms: i64::from(config.surplus.delay_seconds).saturating_mul(1000),
    }
}

fn app_options(config: &Config) -> AppOptions {
    let (calls, surplus) = (&config.channel_calls, &config.surplus);
    let breaker =
        Breaker { refunds_per_hour_max: surplus.refunds_per_hour_max, minor_per_hour_max: surplus.minor_per_hour_max };
    let channel = ChannelSettings {
        fresh: seconds(calls.fresh_seconds),
        poll_seconds: calls.poll_seconds.clone(),
        refund_follow_seconds: calls.refund_follow_seconds.clone(),
        surplus: SurplusSettings { policy: surplus.policy, delay: seconds(surplus.delay_seconds), breaker },
    };
    AppOptions { channel, ..AppOptions::default() }
}

/// A try may ask every account twice, one after the other.
fn channel_relay_settings(config: &Config) -> ChannelRelaySettings {
    let call = seconds(config.channel_calls.request_timeout_seconds).saturating_add(TURN_WAIT_MAX);
    let default = ChannelRelaySettings::default();
    ChannelRelaySettings { try_timeout: default.try_timeout.max(call.saturating_mul(CALLS_OF_A_TRY)), ..default }
}

fn channel_client(config: &Config, app: &App, calls: CallMetrics) -> anyhow::Result<HttpChannelClient> {
    let settings = ChannelClientSettings {
        calls_per_second: config.channel_calls.calls_per_second,
        call_timeout: seconds(config.channel_calls.request_timeout_seconds),
        key_refresh_min: seconds(config.channel_calls.key_refresh_min_seconds),
        turn_wait_max: TURN_WAIT_MAX,
        ..ChannelClientSettings::default()
    };
    let accounts = Arc::new(app.accounts().clone());
    let client = HttpChannelClient::try_new(accounts, Arc::new(calls), app.clock().clone(), &settings);
    client.context("HTTP client of the platforms")
}

/// Only what differs is written: each write makes every writer read the subscribers again.
async fn put_subscribers(store: &dyn Store, config: &Config) -> anyhow::Result<()> {
    let known = store.list_subscribers().await.map_err(ledger::stop)?;
    for wanted in config.subscribers.iter().map(|found| &found.value) {
        if !known.contains(wanted) {
            store.put_subscriber(wanted, Backfill::No).await.map_err(ledger::stop)?;
            tracing::info!(subscriber = wanted.name, "subscriber of the configuration put into the ledger");
        }
    }
    Ok(())
}

fn relay_settings(effects: &EffectsConfig) -> RelaySettings {
    let pauses_ms = effects.retry_seconds.iter().map(|seconds| seconds.saturating_mul(1000)).collect();
    RelaySettings {
        schedule: Schedule { pauses_ms, jitter_percent: effects.jitter_percent },
        keep_done: Duration::from_secs(u64::from(effects.keep_days).saturating_mul(24 * 3600)),
        ..RelaySettings::default()
    }
}

/// Who carries out the calls to the platforms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallsRun {
    /// The relay, when they fall due.
    InBackground,
    /// Only `POST /testing/relay`, so that a test decides the order of things.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only a test build may be told so"))]
    ByHand,
}

fn calls_run() -> CallsRun {
    #[cfg(feature = "testing")]
    if std::env::var("PAIDONCE_TESTING_CHANNEL_RELAY").is_ok_and(|how| how == "by_hand") {
        return CallsRun::ByHand;
    }
    CallsRun::InBackground
}

#[cfg_attr(not(feature = "testing"), expect(unused_variables, reason = "test builds reach in"))]
fn server_options(config: &Config, plan: &OpenPlan, relays: &Relays) -> ServerOptions {
    let mut options = ServerOptions::new(config.listen);
    options.tokens = config.tokens.clone();
    options.connections_max = connections_max(config.connections_max);
    options.money = config.money;
    #[cfg(feature = "testing")]
    {
        options.testing.clock = plan.clock.clone();
        options.testing.relay = Some(Arc::new(relays.clone()));
    }
    options
}

/// As many connections as were configured, or as the open files allow.
fn connections_max(wanted: usize) -> usize {
    let files = open_files::raise_limit();
    let connections = open_files::connections_that_fit(wanted, files);
    if connections < wanted {
        tracing::warn!(
            files,
            connections,
            wanted,
            "fewer connections than configured: raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)"
        );
    } else {
        tracing::info!(files, connections, "open files and connections at most");
    }
    connections
}

#[cfg(test)]
mod sandbox_tests;
#[cfg(test)]
mod tests;
