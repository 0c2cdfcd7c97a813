//! A small client of our own HTTP API, for the commands that work on a running ledger.
//!
//! The commands ask the server instead of the database: the embedded database belongs to one process, and one door keeps
//! every rule, scope and log line (P3).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use crate::config::Secret;
use crate::exit::{Exit, Stop};

/// The server answers within 5 s or says 503; the rest is for the way there.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Where the ledger is and who asks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct Remote {
    /// Address of the running server.
    #[arg(long, env = "PAIDONCE_SERVER", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    pub server: String,
    /// File with the bearer token; otherwise variable PAIDONCE_TOKEN has the token, or PAIDONCE_TOKEN_FILE names the file.
    #[arg(long, env = "PAIDONCE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print the server's JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// One request to the API.
#[derive(Debug)]
pub struct Call<'a> {
    /// GET, POST, ...
    pub method: Method,
    /// Path segments, not encoded: `["v1", "orders", order_no]`.
    pub path: &'a [&'a str],
    /// Query parameters.
    pub query: Vec<(&'static str, String)>,
    /// JSON body.
    pub body: Option<Value>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Longest wait.
    pub timeout: Duration,
}

impl<'a> Call<'a> {
    /// A read.
    #[must_use]
    pub const fn get(path: &'a [&'a str]) -> Self {
        Self {
            method: Method::GET,
            path,
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            timeout: REQUEST_TIMEOUT,
        }
    }

    /// A change.
    #[must_use]
    pub const fn post(path: &'a [&'a str], body: Value) -> Self {
        Self {
            method: Method::POST,
            path,
            query: Vec::new(),
            body: Some(body),
            idempotency_key: None,
            timeout: REQUEST_TIMEOUT,
        }
    }

    /// With a query parameter, if it has a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }
}

/// Talks to one server.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
}

impl Client {
    /// Reads the token. Errors: a bad address, an unreadable token file.
    pub fn try_new(remote: &Remote) -> anyhow::Result<Self> {
        let token = match &remote.token_file {
            Some(file) => Some(
                std::fs::read_to_string(file)
                    .map_err(|error| Stop::usage(format!("can't read the token file {}: {error}", file.display())))?,
            ),
            None => std::env::var("PAIDONCE_TOKEN").ok(),
        };
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).map(Secret::new);
        Self::to(&remote.server, token)
    }

    /// With a token that is already known. Errors: a bad address.
    pub fn to(server: &str, token: Option<Secret>) -> anyhow::Result<Self> {
        let base = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| {
            Stop::usage(format!("--server must be an address such as http://127.0.0.1:8080, not {server:?}"))
        })?;
        let http = reqwest::Client::builder().no_proxy().build().context("HTTP client")?;
        Ok(Self { http, base, token })
    }

    /// Sends it. Errors: [`Stop`] with the exit code that fits the answer.
    pub async fn send(&self, call: Call<'_>) -> anyhow::Result<Value> {
        let (status, bytes) = self.exchange(call).await?;
        if status.is_success() { read(&bytes) } else { Err(refusal(status, &bytes).into()) }
    }

    /// Sends it; `None` when the server does not know what was asked for. Errors: as [`Client::send`].
    pub async fn find(&self, call: Call<'_>) -> anyhow::Result<Option<Value>> {
        let (status, bytes) = self.exchange(call).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => read(&bytes).map(Some),
            _ => Err(refusal(status, &bytes).into()),
        }
    }

    async fn exchange(&self, call: Call<'_>) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(call.path);
        }
        let mut request = self.http.request(call.method, url).query(&call.query).timeout(call.timeout);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.reveal());
        }
        if let Some(key) = call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = call.body {
            request = request.header("content-type", "application/json").body(serde_json::to_vec(&body)?);
        }
        let answer = request.send().await.map_err(|error| self.away(&error))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| self.away(&error))?;
        Ok((status, bytes.to_vec()))
    }

    fn away(&self, error: &reqwest::Error) -> Stop {
        let why = if error.is_timeout() { "no answer in time" } else { "no connection" };
        Stop::unreachable(format!("{} gives {why}: is `paidonce serve` running there? (--server)", self.base))
    }
}

fn read(body: &[u8]) -> anyhow::Result<Value> {
    if body.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(body)?) }
}

/// The problem+json of the server as one sentence, with the exit code that fits.
fn refusal(status: StatusCode, body: &[u8]) -> Stop {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| problem.get(name).and_then(Value::as_str);
    let said = text("detail").or_else(|| text("title")).unwrap_or("no reason given");
    let text = format!("the server says {status}: {said}");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Stop::usage(format!("{text} (--token-file, PAIDONCE_TOKEN or PAIDONCE_TOKEN_FILE)"))
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Stop::unreachable(text)
        }
        status if status.is_client_error() => Stop::refused(text),
        _ => Stop { exit: Exit::Failed, text },
    }
}
