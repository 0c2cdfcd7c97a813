//! Sends copies of news at a wanted concurrency, as a platform does, and counts the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use paidonce_order::ids::Channel;
use tokio::task::JoinSet;

use super::platform::{Callback, News, Platforms};

/// WeChat Pay's limit: a slower answer counts as none.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A platform waits 15 seconds before it sends again; here nobody wants to wait that long.
const RESEND_PAUSE: Duration = Duration::from_millis(250);
/// Latencies in microseconds up to a minute, three digits.
const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// How to send.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Copies on the way at once.
    pub concurrency: usize,
    /// Resends of a copy that got no final answer (5xx, a broken connection).
    pub resends_max: u32,
}

/// Sends to one ledger, which may have several server processes.
#[derive(Debug, Clone)]
pub struct Sender {
    client: reqwest::Client,
    servers: Arc<[String]>,
    next_server: Arc<AtomicUsize>,
    platforms: Arc<Platforms>,
    progress: ProgressBar,
}

/// What was answered.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Copies.
    pub sent: u64,
    /// Copies that got the platform's success answer in the end.
    pub acknowledged: u64,
    /// Every answer, resends too: `204`, `200 success`, `503`, `no answer`, ...
    pub answers: BTreeMap<String, u64>,
    /// Time from sending to answer, in microseconds, of every try.
    pub latency: Histogram<u64>,
}

impl Tally {
    /// Nothing sent yet.
    pub fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3).context("latency bounds")?;
        Ok(Self { sent: 0, acknowledged: 0, answers: BTreeMap::new(), latency })
    }

    /// Tries beyond the first of each copy.
    #[must_use]
    pub fn resent(&self) -> u64 {
        self.answers.values().sum::<u64>().saturating_sub(self.sent)
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.sent = self.sent.saturating_add(other.sent);
        self.acknowledged = self.acknowledged.saturating_add(other.acknowledged);
        for (answer, count) in &other.answers {
            let total = self.answers.entry(answer.clone()).or_default();
            *total = total.saturating_add(*count);
        }
        self.latency.add(&other.latency).context("latencies can't be added")
    }
}

/// Copies still to send, shared by the workers.
type Plan = Arc<Mutex<std::vec::IntoIter<Arc<News>>>>;

impl Sender {
    /// To these servers in turn (`http://127.0.0.1:8080`).
    pub fn new(servers: Vec<String>, platforms: Arc<Platforms>) -> anyhow::Result<Self> {
        anyhow::ensure!(!servers.is_empty(), "no server to send to");
        let client = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build()?;
        let progress = ProgressBar::hidden();
        Ok(Self { client, servers: servers.into(), next_server: Arc::default(), platforms, progress })
    }

    /// Moves this bar by one for each copy.
    #[must_use]
    pub fn with_progress(self, progress: ProgressBar) -> Self {
        Self { progress, ..self }
    }

    /// Sends every entry of the plan once, in its order, and again where no final answer came.
    pub async fn send(&self, plan: Vec<Arc<News>>, pace: Pace) -> anyhow::Result<Tally> {
        let plan: Plan = Arc::new(Mutex::new(plan.into_iter()));
        let mut workers = JoinSet::new();
        for _ in 0..pace.concurrency {
            workers.spawn(self.clone().work(Arc::clone(&plan), pace));
        }
        let mut total = Tally::new()?;
        while let Some(tally) = workers.join_next().await {
            total.add(&tally.context("a sender stopped")??)?;
        }
        Ok(total)
    }

    async fn work(self, plan: Plan, pace: Pace) -> anyhow::Result<Tally> {
        let mut tally = Tally::new()?;
        loop {
            let next = plan.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(news) = next else { return Ok(tally) };
            tally.sent = tally.sent.saturating_add(1);
            self.progress.inc(1);
            if self.send_until_final(&news, pace, &mut tally).await? {
                tally.acknowledged = tally.acknowledged.saturating_add(1);
            }
        }
    }

    /// Whether the copy was acknowledged.
    async fn send_until_final(&self, news: &News, pace: Pace, tally: &mut Tally) -> anyhow::Result<bool> {
        for attempt in 0..=pace.resends_max {
            if attempt > 0 {
                tokio::time::sleep(RESEND_PAUSE).await;
            }
            // Sealed and signed anew for every try, outside of the measured time.
            let callback = self.platforms.write(news)?;
            let (answer, micros) = self.post(callback).await;
            tally.latency.saturating_record(micros);
            let count = tally.answers.entry(answer.to_string()).or_default();
            *count = count.saturating_add(1);
            if answer.is_success(news.channel) {
                return Ok(true);
            }
            if answer.is_refusal() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    #[expect(clippy::disallowed_methods, reason = "measures how long the answer took")]
    async fn post(&self, callback: Callback) -> (Answer, u64) {
        let turn = self.next_server.fetch_add(1, Ordering::Relaxed);
        let server = turn.checked_rem(self.servers.len()).and_then(|index| self.servers.get(index));
        let server = server.map_or("", String::as_str);
        let mut request = self.client.post(format!("{server}{}", callback.path)).body(callback.body);
        for (name, value) in callback.headers {
            request = request.header(name, value);
        }
        let begun = Instant::now();
        let answer = read(request.send().await).await;
        (answer, u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// What the ledger said to one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// A status and the beginning of the body.
    Status(u16, String),
    /// Connection refused or broken, or five seconds over.
    None,
}

async fn read(response: Result<reqwest::Response, reqwest::Error>) -> Answer {
    let Ok(response) = response else { return Answer::None };
    let status = response.status().as_u16();
    response.text().await.map_or(Answer::None, |body| Answer::Status(status, body))
}

impl Answer {
    /// Exactly what each platform takes for success.
    fn is_success(&self, channel: Channel) -> bool {
        match (self, channel) {
            (Self::Status(status, _), Channel::Wxpay) => *status == 200 || *status == 204,
            (Self::Status(status, body), Channel::Alipay) => *status == 200 && body == "success",
            (Self::None, _) => false,
        }
    }

    /// Sending the same again would not help.
    const fn is_refusal(&self) -> bool {
        match self {
            Self::Status(status, _) => *status >= 400 && *status < 500,
            Self::None => false,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(200, body) if body == "success" => f.write_str("200 success"),
            Self::Status(status, _) => write!(f, "{status}"),
            Self::None => f.write_str("no answer"),
        }
    }
}
