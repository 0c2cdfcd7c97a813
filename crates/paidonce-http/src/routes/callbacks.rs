//! `POST /callbacks/{channel}/{account}`: raw bytes in, the platform's own words out, and success only after the commit.
//!
//! | step | refusal |
//! |---|---|
//! | path to account and keys | 404; no key is tried |
//! | body, at most 64 KiB, within the body timeout, whatever its media type | 413, 408, 400 |
//! | verify, then read | 401, 403, 400 as the verifier says; nothing is written |
//! | after an unknown serial: refresh the platform's keys (once an interval, for all), verify once more | 401; the platform sends it again |
//! | record everything it says, on the server's own runtime | 503 when it takes too long (the job goes on), 500 on a panic |
//! | acknowledge | 500 for what is kept but must come again |

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::FutureExt;
use paidonce_app::AppError;
use paidonce_app::ports::KeyRefresh;
use paidonce_app::record::Recorded;
use paidonce_channel::channel::{acknowledge, refuse};
use paidonce_channel::{Acknowledgement, ChannelReceiver, Notice, RawNotification, Verified, VerifyError};
use paidonce_order::ids::{AccountId, AccountRef, Channel};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::body;
use crate::metrics::CallbackResult;
use crate::problem::{self, Problem, RETRY_AFTER_SECONDS};
use crate::refusal_log::Line;
use crate::state::State;
use crate::trace;

/// Of a path that names no account of ours, so many characters are logged.
const ACCOUNT_LOG_CHARS_MAX: usize = 40;

pub(crate) async fn receive(
    request: HttpRequest,
    state: web::Data<State>,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let (channel, account) = path.into_inner();
    let Ok(channel) = Channel::parse(&channel) else {
        return Err(Problem::new(&problem::NOT_FOUND, "no such channel: wxpay and alipay are known"));
    };
    let callback = Callback { state, channel };
    let answering = callback.answer(&request, &account, payload);
    // Whatever goes wrong, the platform must hear a failure in its own words, never a success.
    let answer = AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(%channel, "a panic while answering a callback");
        Answer::plain(refuse(channel, 500, "internal error"))
    });
    Ok(answer.into_response())
}

struct Callback {
    state: web::Data<State>,
    channel: Channel,
}

/// What is sent back.
struct Answer {
    acknowledgement: Acknowledgement,
    connection: Connection,
}

/// What becomes of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Keep,
    /// The rest of the body is not read.
    Close,
}

impl Callback {
    async fn answer(&self, request: &HttpRequest, account: &str, payload: web::Payload) -> Answer {
        let Some(receiver) = self.find_receiver(account) else {
            self.count_refusal("unknown_account", Duration::ZERO);
            if let Line::Write { suppressed } = self.line("unknown_account") {
                let account: String = account.chars().take(ACCOUNT_LOG_CHARS_MAX).collect();
                tracing::warn!(channel = %self.channel, account = ?account, suppressed, "callback for an unknown account");
            }
            return Answer::closing(refuse(
                self.channel,
                404,
                "no such account here: check the path of the notify_url",
            ));
        };
        let body = match body::read(request, payload, self.state.body_timeout).await {
            Ok(body) => body,
            Err(error) => {
                self.count_refusal(error.kind().code, Duration::ZERO);
                if let Line::Write { suppressed } = self.line(error.kind().code) {
                    tracing::warn!(account = %receiver.account(), suppressed, "callback refused: {error}");
                }
                return Answer::closing(refuse(self.channel, error.kind().status, &error.to_string()));
            }
        };
        let started = Instant::now();
        let verified = match self.verify(receiver.as_ref(), request, &body) {
            Err(VerifyError::UnknownSerial { serial }) => {
                self.verify_with_new_keys(receiver.account(), request, &body, serial).await
            }
            verified => verified,
        };
        match verified {
            Err(error) => self.refused(receiver.account(), &error, started.elapsed()),
            Ok(notice) => self.record_in_time(receiver.account(), notice, started).await,
        }
    }

    fn find_receiver(&self, account: &str) -> Option<Box<dyn ChannelReceiver>> {
        let account = AccountId::parse(account).ok()?;
        self.state.app.accounts().find(&AccountRef { channel: self.channel, account })
    }

    fn verify(
        &self,
        receiver: &dyn ChannelReceiver,
        request: &HttpRequest,
        body: &[u8],
    ) -> Result<Verified<Notice>, VerifyError> {
        let headers: Vec<(String, Vec<u8>)> =
            request.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        receiver.receive(RawNotification { headers: &headers, body, now: self.state.app.clock().now() })
    }

    /// WeChat Pay changes its certificates by itself: an unknown serial may be a genuine new one. Whoever sent this has proven
    /// nothing yet, so it must cost next to nothing: one fetch an interval whoever asks, and few who wait for it.
    async fn verify_with_new_keys(
        &self,
        account: &AccountRef,
        request: &HttpRequest,
        body: &[u8],
        serial: String,
    ) -> Result<Verified<Notice>, VerifyError> {
        let unknown = Err(VerifyError::UnknownSerial { serial: serial.clone() });
        // Only certificates are listed; a public key is known by an id that is no hexadecimal number.
        if !serial.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return unknown;
        }
        let app = Arc::clone(&self.state.app);
        if !app.channel_client().is_some_and(|client| client.can_ask(account)) {
            return unknown;
        }
        let Ok(_waiting) = self.state.key_waits.try_acquire() else { return unknown };
        let wanted = account.clone();
        let refreshing = self.state.runtime.spawn(async move {
            match app.channel_client() {
                Some(client) => client.refresh_keys(&wanted).await,
                None => KeyRefresh::Failed("this program does not ask".to_owned()),
            }
        });
        // Half of the time that the platform waits; the other half is for the commit.
        match tokio::time::timeout(self.state.answer_deadline / 2, refreshing).await {
            // Nothing new for this caller may be what another one has just learned.
            Ok(Ok(KeyRefresh::Learned | KeyRefresh::Nothing)) => match self.find_receiver(account.account.as_str()) {
                Some(receiver) => self.verify(receiver.as_ref(), request, body),
                None => unknown,
            },
            Ok(Ok(KeyRefresh::Failed(_)) | Err(_)) | Err(_) => unknown,
        }
    }

    fn refused(&self, account: &AccountRef, error: &VerifyError, took: Duration) -> Answer {
        let code = error.code();
        match error {
            VerifyError::Probe => {
                self.state.metrics.probe(self.channel);
                tracing::debug!(%account, "signature probe refused, as expected");
            }
            VerifyError::Malformed { .. }
            | VerifyError::BadSignature { .. }
            | VerifyError::UnknownSerial { .. }
            | VerifyError::Stale { .. }
            | VerifyError::AlgorithmNotAllowed { .. }
            | VerifyError::NotOurs { .. }
            | VerifyError::Unreadable { .. } => {
                self.count_refusal(code, took);
                if let Line::Write { suppressed } = self.line(code) {
                    tracing::warn!(%account, code, suppressed, "callback refused: {error}");
                }
            }
        }
        Answer::plain(refuse(self.channel, error.http_status(), &error.to_string()))
    }

    fn count_refusal(&self, code: &'static str, took: Duration) {
        self.state.metrics.refusal(self.channel, code);
        self.state.metrics.callback(self.channel, CallbackResult::Refused, took);
    }

    async fn record_in_time(&self, account: &AccountRef, notice: Verified<Notice>, started: Instant) -> Answer {
        let (result, answer) = match self.state.begin_job() {
            None => (CallbackResult::Unavailable, self.later("too busy")),
            Some(job) => {
                let outcome = self.wait_for_outcome(notice, job, started).await;
                self.say(account, outcome)
            }
        };
        self.state.metrics.callback(self.channel, result, started.elapsed());
        answer
    }

    /// The job runs on the server's runtime and keeps its permit: neither a client that goes away nor the deadline stops
    /// it, and a shutdown waits for it.
    async fn wait_for_outcome(
        &self,
        notice: Verified<Notice>,
        job: OwnedSemaphorePermit,
        received: Instant,
    ) -> Outcome {
        let state = self.state.clone().into_inner();
        let request_id = trace::request_id();
        let span = tracing::Span::current();
        let recording = async move {
            let _job = job;
            state.faults.point("handler").await.map_err(|_| Failed::Injected)?;
            let started = Instant::now();
            let recorded = state.app.record(notice, Some(request_id)).await.map_err(Failed::App);
            state.metrics.commit(started.elapsed());
            recorded
        };
        let task = self.state.runtime.spawn(tracing::Instrument::instrument(recording, span));
        let left = self.state.answer_deadline.saturating_sub(received.elapsed());
        match tokio::time::timeout(left, task).await {
            Err(_) => Outcome::Late,
            Ok(Err(_)) => Outcome::Panicked,
            Ok(Ok(Err(Failed::Injected))) => Outcome::Panicked,
            Ok(Ok(Err(Failed::App(error)))) => Outcome::Failed(error),
            Ok(Ok(Ok(recorded))) => Outcome::Recorded(recorded),
        }
    }

    fn say(&self, account: &AccountRef, outcome: Outcome) -> (CallbackResult, Answer) {
        match outcome {
            Outcome::Recorded(Recorded { refuse: Some(kept), .. }) => {
                let code = kept.code();
                self.state.metrics.refusal(self.channel, code);
                if let Line::Write { suppressed } = self.line(code) {
                    tracing::error!(%account, code, suppressed, "a signed message can't be read: check the account's keys");
                }
                (CallbackResult::Kept, Answer::plain(refuse(self.channel, kept.http_status(), kept.message())))
            }
            Outcome::Recorded(Recorded { committed: 0, .. }) => {
                (CallbackResult::Duplicate, Answer::plain(acknowledge(self.channel)))
            }
            Outcome::Recorded(_) => (CallbackResult::Committed, Answer::plain(acknowledge(self.channel))),
            Outcome::Late => {
                if let Line::Write { suppressed } = self.line("late") {
                    tracing::error!(%account, suppressed, "a commit takes too long: answered 503, the job goes on");
                }
                (CallbackResult::Unavailable, self.later("the ledger is slow"))
            }
            Outcome::Panicked => {
                tracing::error!(%account, "recording a callback failed inside");
                (CallbackResult::Failed, Answer::plain(refuse(self.channel, 500, "internal error")))
            }
            Outcome::Failed(error) => {
                let problem = Problem::from(error);
                if let Line::Write { suppressed } = self.line(problem.kind().code) {
                    tracing::error!(%account, suppressed, "a callback has no outcome: {problem}");
                }
                if problem.kind().status == 503 {
                    (CallbackResult::Unavailable, self.later(problem.kind().title))
                } else {
                    (CallbackResult::Failed, Answer::plain(refuse(self.channel, 500, "internal error")))
                }
            }
        }
    }

    /// A database that is away fails every callback: such lines are rationed like refusals.
    fn line(&self, code: &'static str) -> Line {
        self.state.refusals.line(code, self.state.app.clock().now())
    }

    fn later(&self, message: &str) -> Answer {
        Answer::plain(refuse(self.channel, 503, message))
    }
}

/// What became of the job within the deadline.
enum Outcome {
    Recorded(Recorded),
    Failed(AppError),
    Late,
    Panicked,
}

enum Failed {
    App(AppError),
    Injected,
}

impl Answer {
    const fn plain(acknowledgement: Acknowledgement) -> Self {
        Self { acknowledgement, connection: Connection::Keep }
    }

    const fn closing(acknowledgement: Acknowledgement) -> Self {
        Self { acknowledgement, connection: Connection::Close }
    }

    fn into_response(self) -> HttpResponse {
        let Acknowledgement { status, content_type, body } = self.acknowledgement;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        if let Some(content_type) = content_type {
            response.insert_header((header::CONTENT_TYPE, content_type));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        if self.connection == Connection::Close {
            response.force_close();
        }
        response.body(body)
    }
}
