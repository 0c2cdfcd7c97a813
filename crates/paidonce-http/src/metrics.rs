//! Metrics are an API: every name stands here with its unit, and nowhere else.
//!
//! | name | kind, unit | labels |
//! |---|---|---|
//! | `paidonce_callbacks_total` | counter | channel, result: `committed`, `duplicate`, `kept`, `refused`, `unavailable`, `failed` |
//! | `paidonce_callback_refusals_total` | counter | channel, code (`bad_signature`, `stale`, `not_ours`, ...) |
//! | `paidonce_callback_probes_total` | counter | channel |
//! | `paidonce_callback_seconds` | histogram, seconds from the last body byte to the answer | channel |
//! | `paidonce_commit_seconds` | histogram, seconds from the verified notice to its durable outcome | |
//! | `paidonce_http_requests_total` | counter | route, method, status |
//! | `paidonce_channel_calls_total` | counter | channel, api (`payment`, `refund`, `close`, ...), outcome: `final`, `refused_wait`, `refused_person`, or why it is unknown (`timeout`, `bad_signature`, ...) |
//! | `paidonce_channel_call_seconds` | histogram, seconds from the first byte sent to the answer | channel, api |
//! | `paidonce_effects` | gauge, rows | state |
//! | `paidonce_items_open` | gauge, rows | kind |
//! | `paidonce_writer_queue_jobs` | gauge, jobs | |
//! | `paidonce_log_events` | gauge, events in the log | |
//! | `paidonce_attempts_dropped` | gauge, attempts that `explain` will miss, since the start | |
//! | `paidonce_owner_rights` | gauge, 1 when the PostgreSQL sessions could change the log: append-only rests on triggers alone | |
//! | `paidonce_sandbox` | gauge, 1 when the platforms are played by `paidonce sandbox`: its money is not real | |
//! | `paidonce_ledger_up` | gauge, 1 when the ledger answered this scrape | |

use std::time::Duration;

use paidonce_app::ledger::{Gauges, SessionRights};
use paidonce_app::ports::{CallObserver, CallSeen};
use paidonce_order::ids::Channel;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::server::Money;

type Labels = Vec<(&'static str, String)>;

/// Upper bounds in seconds: a commit takes one to ten milliseconds, the platform waits five seconds.
const SECONDS_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Of a call to a platform: it answers within a second as a rule, and is given up after ten.
const CALL_SECONDS_BUCKETS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counts of calls to the platforms. Made before the server, because the client that counts is; clones count together.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    calls: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        Self { calls: Family::default(), seconds: Family::new_with_constructor(call_seconds_histogram) }
    }
}

impl CallObserver for CallMetrics {
    fn observe(&self, call: &CallSeen) {
        let labels = vec![channel_label(call.channel), ("api", call.api.to_owned())];
        self.seconds.get_or_create(&labels).observe(call.took.as_secs_f64());
        let mut labels = labels;
        labels.push(("outcome", call.outcome.to_owned()));
        self.calls.get_or_create(&labels).inc();
    }
}

pub(crate) struct Metrics {
    registry: Registry,
    callbacks: Family<Labels, Counter>,
    refusals: Family<Labels, Counter>,
    probes: Family<Labels, Counter>,
    callback_seconds: Family<Labels, Histogram>,
    commit_seconds: Histogram,
    requests: Family<Labels, Counter>,
    effects: Family<Labels, Gauge>,
    items_open: Family<Labels, Gauge>,
    queue_jobs: Gauge,
    log_events: Gauge,
    attempts_dropped: Gauge,
    owner_rights: Gauge,
    calls: CallMetrics,
    sandbox: Gauge,
    ledger_up: Gauge,
}

/// What became of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallbackResult {
    /// Something new is in the log; acknowledged.
    Committed,
    /// Nothing new; acknowledged.
    Duplicate,
    /// Kept as a stray, yet to be sent again (undecryptable).
    Kept,
    /// Refused; nothing written.
    Refused,
    /// 503: no outcome yet.
    Unavailable,
    /// 500: something is wrong here.
    Failed,
}

impl CallbackResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Duplicate => "duplicate",
            Self::Kept => "kept",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
        }
    }
}

fn channel_label(channel: Channel) -> (&'static str, String) {
    ("channel", channel.as_str().to_owned())
}

fn seconds_histogram() -> Histogram {
    Histogram::new(SECONDS_BUCKETS)
}

fn call_seconds_histogram() -> Histogram {
    Histogram::new(CALL_SECONDS_BUCKETS)
}

impl Metrics {
    pub(crate) fn new(calls: CallMetrics, money: Money) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("paidonce"),
            callbacks: Family::default(),
            refusals: Family::default(),
            probes: Family::default(),
            callback_seconds: Family::new_with_constructor(seconds_histogram),
            commit_seconds: seconds_histogram(),
            requests: Family::default(),
            effects: Family::default(),
            items_open: Family::default(),
            queue_jobs: Gauge::default(),
            log_events: Gauge::default(),
            attempts_dropped: Gauge::default(),
            owner_rights: Gauge::default(),
            calls,
            sandbox: Gauge::default(),
            ledger_up: Gauge::default(),
        };
        metrics.register();
        metrics.sandbox.set(i64::from(money == Money::Played));
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("callbacks", "Callbacks by what became of them", self.callbacks.clone());
        registry.register("callback_refusals", "Refused callbacks by reason", self.refusals.clone());
        registry.register("callback_probes", "Signature probes, refused as the platform expects", self.probes.clone());
        let help = "Seconds from the last body byte to the answer";
        registry.register("callback_seconds", help, self.callback_seconds.clone());
        let help = "Seconds from the verified notice to its durable outcome";
        registry.register("commit_seconds", help, self.commit_seconds.clone());
        registry.register("http_requests", "Requests by route, method and status", self.requests.clone());
        registry.register("effects", "Rows of the effect queue by state", self.effects.clone());
        registry.register("items_open", "Open items by kind", self.items_open.clone());
        registry.register("writer_queue_jobs", "Jobs waiting in the writers' queues", self.queue_jobs.clone());
        registry.register("log_events", "Events in the log", self.log_events.clone());
        let help = "Duplicates and refusals not kept for explain, since the start";
        registry.register("attempts_dropped", help, self.attempts_dropped.clone());
        let help = "1 when the database sessions could change the log, so that append-only rests on triggers alone";
        registry.register("owner_rights", help, self.owner_rights.clone());
        registry.register("channel_calls", "Calls to the platforms by what came of them", self.calls.calls.clone());
        let help = "Seconds of a call to a platform, from the first byte sent to the answer";
        registry.register("channel_call_seconds", help, self.calls.seconds.clone());
        let help = "1 when the platforms are played by paidonce sandbox: its money is not real";
        registry.register("sandbox", help, self.sandbox.clone());
        registry.register("ledger_up", "1 when the ledger answered this scrape", self.ledger_up.clone());
    }

    pub(crate) fn callback(&self, channel: Channel, result: CallbackResult, took: Duration) {
        let labels = vec![channel_label(channel), ("result", result.as_str().to_owned())];
        self.callbacks.get_or_create(&labels).inc();
        self.callback_seconds.get_or_create(&vec![channel_label(channel)]).observe(took.as_secs_f64());
    }

    pub(crate) fn refusal(&self, channel: Channel, code: &'static str) {
        self.refusals.get_or_create(&vec![channel_label(channel), ("code", code.to_owned())]).inc();
    }

    pub(crate) fn probe(&self, channel: Channel) {
        self.probes.get_or_create(&vec![channel_label(channel)]).inc();
    }

    pub(crate) fn commit(&self, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// `route` is a pattern of ours, so the number of label sets is bounded.
    pub(crate) fn request(&self, route: &str, method: &str, status: u16) {
        let method = if matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE") { method } else { "other" };
        let labels = vec![("route", route.to_owned()), ("method", method.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Known since the ledger was opened.
    pub(crate) fn set_owner_rights(&self, rights: Option<&SessionRights>) {
        self.owner_rights.set(i64::from(rights.is_some_and(SessionRights::is_too_much)));
    }

    /// Takes over the ledger's counts; `None` when it did not answer.
    pub(crate) fn set_gauges(&self, gauges: Option<&Gauges>) {
        self.ledger_up.set(i64::from(gauges.is_some()));
        let Some(gauges) = gauges else { return };
        // A state or kind that has no row any more must not keep its last figure.
        self.effects.clear();
        self.items_open.clear();
        for (state, rows) in &gauges.effects {
            self.effects.get_or_create(&vec![("state", state.clone())]).set(*rows);
        }
        for (kind, rows) in &gauges.items_open {
            self.items_open.get_or_create(&vec![("kind", kind.clone())]).set(*rows);
        }
        self.queue_jobs.set(gauges.queue_depth);
        self.log_events.set(gauges.events_total);
        self.attempts_dropped.set(gauges.attempts_dropped);
    }

    /// The text format of OpenMetrics 1.0.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
