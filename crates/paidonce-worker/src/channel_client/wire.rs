//! One HTTP exchange: exact bytes out, exact bytes in.

use std::error::Error;
use std::time::Duration;

use paidonce_channel::api::{ApiAnswer, ApiRequest, ApiResponse, Doubt, Remedy};
use paidonce_order::timestamp::Timestamp;
use reqwest::redirect::Policy;
use reqwest::{Method, Url};

use super::{ChannelClientSettings, refusal};

/// `detail` is for a person's eye.
const DETAIL_CHARS_MAX: usize = 300;
/// WeChat Pay's is some 40 characters; anything may stand there when it is not WeChat Pay that answers.
const REQUEST_ID_CHARS_MAX: usize = 80;

/// An answer as it came.
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

impl Received {
    /// For the channel crate.
    pub(super) fn response(&self, now: Timestamp) -> ApiResponse<'_> {
        ApiResponse { status: self.status, headers: &self.headers, body: &self.body, now }
    }

    /// What the platform's support asks for; empty when there is none.
    pub(super) fn request_id(&self) -> String {
        let found = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("request-id"));
        let text = found.map(|(_, value)| String::from_utf8_lossy(value)).unwrap_or_default();
        text.chars().filter(char::is_ascii_graphic).take(REQUEST_ID_CHARS_MAX).collect()
    }
}

pub(super) struct Wire {
    client: reqwest::Client,
    timeout: Duration,
    answer_bytes_max: usize,
}

impl Wire {
    pub(super) fn try_new(settings: &ChannelClientSettings) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.call_timeout)
            .no_proxy()
            .user_agent(concat!("paidonce/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, timeout: settings.call_timeout, answer_bytes_max: settings.answer_bytes_max })
    }

    /// Sends it once. Errors: the answer that follows from not having one.
    pub(super) async fn send(&self, request: &ApiRequest) -> Result<Received, ApiAnswer> {
        let built = self.build(request).map_err(ApiAnswer::Refused)?;
        let answer = self.client.execute(built).await.map_err(|error| self.unknown(error))?;
        self.receive(answer).await
    }

    /// Errors: a request that would not go out as it was signed.
    fn build(&self, request: &ApiRequest) -> Result<reqwest::Request, paidonce_channel::api::Refusal> {
        let not_possible = |detail: String| refusal("call_not_possible", detail, Remedy::Person);
        let url = Url::parse(&request.url).map_err(|error| not_possible(format!("api_url: {error}")))?;
        // The host may be written another way; it is not signed.
        if path_of(url.as_str()) != path_of(&request.url) {
            return Err(not_possible("api_url: the address would not be sent as it was signed".to_owned()));
        }
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|error| not_possible(format!("method: {error}")))?;
        let mut builder = self.client.request(method, url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if !request.body.is_empty() {
            builder = builder.body(request.body.clone());
        }
        builder.build().map_err(|error| not_possible(innermost(error)))
    }

    async fn receive(&self, mut answer: reqwest::Response) -> Result<Received, ApiAnswer> {
        let status = answer.status().as_u16();
        let headers =
            answer.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unknown(error))? {
            if body.len() + chunk.len() > self.answer_bytes_max {
                let detail = format!("HTTP {status}: the answer is longer than {} bytes", self.answer_bytes_max);
                return Err(ApiAnswer::Unknown(Doubt { code: "unreadable", detail }));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Received { status, headers, body })
    }

    /// Whatever went wrong, the request may have arrived.
    fn unknown(&self, error: reqwest::Error) -> ApiAnswer {
        let (code, detail) = if error.is_timeout() {
            ("timeout", format!("no whole answer within {} s", self.timeout.as_secs()))
        } else if error.is_connect() || error.is_request() {
            ("no_connection", innermost(error))
        } else {
            ("unreadable", innermost(error))
        };
        ApiAnswer::Unknown(Doubt { code, detail })
    }
}

/// Path and query.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').and_then(|start| rest.get(start..)).unwrap_or("/")
}

/// "connection refused" says more than "error sending request"; the address has query parameters and is left out.
fn innermost(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut innermost: &dyn Error = &error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string().chars().take(DETAIL_CHARS_MAX).collect()
}
