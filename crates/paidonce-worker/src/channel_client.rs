//! Calls the platforms over HTTPS: one call, one answer, never a second try by itself.
//!
//! | step | what | when it fails |
//! |---|---|---|
//! | 1 | the account's keys of now | refused: the account can't ask |
//! | 2 | its turn ([`pace`]): calls a second, pause after a rate limit | refused: wait |
//! | 3 | sign | refused: a person must change the configuration |
//! | 4 | send and read ([`wire`]) | unknown |
//! | 5 | judge by the channel crate; after an unknown serial once more, with refreshed keys ([`refresh`]) | unknown |
//!
//! Must never: send again what may have had an effect, follow a redirect (the signature is for one address), log a body, a
//! header or a key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::ports::{CallObserver, CallSeen, ChannelClient, KeyRefresh};
use paidonce_app::{Accounts, Clock};
use paidonce_channel::api::{
    ApiAnswer, ApiCall, ApiMoment, Ask, CallProblem, ChannelApi, Doubt, LearnedKey, Refusal, Remedy, ReplyState,
};
use paidonce_order::ids::{AccountRef, Channel};
use paidonce_order::timestamp::Timestamp;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;

mod pace;
mod refresh;
#[cfg(test)]
mod tests;
mod wire;

use pace::{Pace, Turn};
use refresh::Refreshes;
use wire::{Received, Wire};

/// Letters and digits of a nonce. 62 does not divide 256: the bias is far below anything a nonce needs.
const NONCE_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// WeChat Pay allows no more.
const NONCE_CHARS: usize = 32;

/// The accounts as the client sees them. Implemented by the app's directory; tests have their own.
pub trait AccountDirectory: Send + Sync {
    /// The calls of an account with the keys of now; `None` when it is not ours or has no private key.
    fn find_api(&self, account: &AccountRef) -> Option<Box<dyn ChannelApi>>;

    /// Puts learned keys beside the configured ones; how many of them are new.
    fn learn(&self, account: &AccountRef, keys: Vec<LearnedKey>, now: Timestamp) -> usize;
}

impl AccountDirectory for Accounts {
    fn find_api(&self, account: &AccountRef) -> Option<Box<dyn ChannelApi>> {
        Self::find_api(self, account)
    }

    fn learn(&self, account: &AccountRef, keys: Vec<LearnedKey>, now: Timestamp) -> usize {
        Self::learn(self, account, keys, now)
    }
}

/// Limits of the client.
#[derive(Debug, Clone)]
pub struct ChannelClientSettings {
    /// Per account and node.
    pub calls_per_second: u32,
    /// From the first byte of the request to the last one of the answer, connecting included.
    pub call_timeout: Duration,
    /// Of it, for the connection.
    pub connect_timeout: Duration,
    /// How long a call waits for its turn; then it is refused, and its caller comes again.
    pub turn_wait_max: Duration,
    /// The platform's certificates are fetched at most this often, whoever asks.
    pub key_refresh_min: Duration,
    /// A longer answer is no answer of a platform.
    pub answer_bytes_max: usize,
}

impl Default for ChannelClientSettings {
    fn default() -> Self {
        Self {
            calls_per_second: 20,
            call_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            turn_wait_max: Duration::from_secs(3),
            key_refresh_min: Duration::from_secs(60),
            answer_bytes_max: 1024 * 1024,
        }
    }
}

/// Implements [`ChannelClient`] with `reqwest`. Clones are the same client.
#[derive(Clone)]
pub struct HttpChannelClient(Arc<Parts>);

struct Parts {
    accounts: Arc<dyn AccountDirectory>,
    observer: Arc<dyn CallObserver>,
    clock: Clock,
    wire: Wire,
    pace: Pace,
    refreshes: Refreshes,
    /// Where calls are made, whatever thread asks: a connection must not end with the thread that opened it.
    runtime: Handle,
}

/// A call that has its answer, and the bytes it was read from when there were any.
struct Called {
    answer: ApiAnswer,
    received: Option<Received>,
}

impl HttpChannelClient {
    /// Builds the HTTP client. Must be called on the runtime that outlives it. Errors: no TLS provider is installed for this process, or it is unusable.
    pub fn try_new(
        accounts: Arc<dyn AccountDirectory>,
        observer: Arc<dyn CallObserver>,
        clock: Clock,
        settings: &ChannelClientSettings,
    ) -> Result<Self, reqwest::Error> {
        let parts = Parts {
            accounts,
            observer,
            clock,
            wire: Wire::try_new(settings)?,
            pace: Pace::new(settings.calls_per_second, settings.turn_wait_max),
            refreshes: Refreshes::new(settings.key_refresh_min),
            runtime: Handle::current(),
        };
        Ok(Self(Arc::new(parts)))
    }

    /// Steps 1 to 5 without the refresh, counted and logged.
    async fn call(&self, account: &AccountRef, call: &ApiCall) -> Called {
        let Some(api) = self.0.accounts.find_api(account) else { return Called::not_made(cannot_ask(account)) };
        match self.0.pace.take_turn(account, Instant::now(), self.0.clock.now()) {
            Turn::At(instant) => tokio::time::sleep_until(instant).await,
            Turn::NotNow(refusal) => {
                tracing::debug!(%account, api = api_word(&call.ask), code = refusal.code, "a platform call has to wait");
                return Called::not_made(refusal);
            }
        }
        let started = Instant::now();
        let called = self.exchange(api.as_ref(), call).await;
        self.0.pace.judge(account, &called, self.0.clock.now());
        self.tell(account, call, &called, started.elapsed());
        called
    }

    async fn exchange(&self, api: &dyn ChannelApi, call: &ApiCall) -> Called {
        let Some(nonce) = nonce() else {
            return Called::not_made(refusal("no_randomness", "the system gives no random bytes", Remedy::Wait));
        };
        let request = match api.request(call, &ApiMoment { now: self.0.clock.now(), nonce }) {
            Ok(request) => request,
            Err(problem) => return Called::not_made(not_possible(&problem)),
        };
        let client = self.clone();
        let sending = self.0.runtime.spawn(async move { client.0.wire.send(&request).await });
        match sending.await.unwrap_or_else(|error| Err(ended_inside(&error))) {
            Ok(received) => Called { answer: self.read(api, call, &received), received: Some(received) },
            Err(answer) => Called { answer, received: None },
        }
    }

    fn read(&self, api: &dyn ChannelApi, call: &ApiCall, received: &Received) -> ApiAnswer {
        api.read(call, received.response(self.0.clock.now()))
    }

    /// One line and one count for each call.
    fn tell(&self, account: &AccountRef, call: &ApiCall, called: &Called, took: Duration) {
        let api = api_word(&call.ask);
        let seen = CallSeen { channel: account.channel, api, outcome: outcome_word(&called.answer), took };
        self.0.observer.observe(&seen);
        let (outcome, took_ms) = (seen.outcome, u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let request_id = called.received.as_ref().map(Received::request_id).unwrap_or_default();
        match &called.answer {
            ApiAnswer::Final(reply) => {
                let code = reply.platform_state.as_str();
                tracing::info!(%account, api, outcome, code, took_ms, request_id, "platform call");
            }
            ApiAnswer::Refused(Refusal { code, detail, remedy: Remedy::Wait }) => {
                tracing::info!(%account, api, outcome, code, took_ms, request_id, detail, "platform call refused for now");
            }
            ApiAnswer::Refused(Refusal { code, detail, remedy: Remedy::Person }) => {
                tracing::warn!(%account, api, outcome, code, took_ms, request_id, detail, "platform call refused");
            }
            ApiAnswer::Unknown(doubt) => {
                let detail = doubt.detail.as_str();
                tracing::warn!(%account, api, outcome, took_ms, request_id, detail, "platform call without a known outcome");
            }
        }
    }

    /// Joins the refresh of this account that runs, or starts one, at most once an interval.
    async fn refresh(&self, account: &AccountRef, question: Ask) -> KeyRefresh {
        let fetch = || self.0.runtime.spawn(self.clone().fetch_keys(account.clone(), question));
        self.0.refreshes.run(account, self.0.clock.now(), fetch).await
    }

    /// The fetch behind a refresh.
    async fn fetch_keys(self, account: AccountRef, question: Ask) -> KeyRefresh {
        let call = ApiCall { sub_mchid: None, ask: question };
        match self.call(&account, &call).await.answer {
            ApiAnswer::Final(reply) => match reply.state {
                ReplyState::Certificates(keys) => self.learn(&account, keys),
                ReplyState::Payment(_)
                | ReplyState::Combine(_)
                | ReplyState::Refund(_)
                | ReplyState::Close(_)
                | ReplyState::Share(_) => {
                    KeyRefresh::Failed("the answer is of another kind: report this as a bug".to_owned())
                }
            },
            ApiAnswer::Refused(refused) => KeyRefresh::Failed(format!("{}: {}", refused.code, refused.detail)),
            ApiAnswer::Unknown(doubt) => KeyRefresh::Failed(format!("{}: {}", doubt.code, doubt.detail)),
        }
    }

    fn learn(&self, account: &AccountRef, keys: Vec<LearnedKey>) -> KeyRefresh {
        let serials: Vec<&str> = keys.iter().map(|key| key.serial.as_str()).collect();
        let serials = serials.join(", ");
        match self.0.accounts.learn(account, keys, self.0.clock.now()) {
            0 => KeyRefresh::Nothing,
            new => {
                tracing::info!(%account, new, serials, "platform certificates learned");
                KeyRefresh::Learned
            }
        }
    }
}

#[async_trait]
impl ChannelClient for HttpChannelClient {
    fn can_ask(&self, account: &AccountRef) -> bool {
        self.0.accounts.find_api(account).is_some()
    }

    async fn ask(&self, account: &AccountRef, call: &ApiCall) -> ApiAnswer {
        let Called { answer, received } = self.call(account, call).await;
        let (ApiAnswer::Unknown(doubt), Some(received)) = (&answer, &received) else { return answer };
        if doubt.code != "unknown_serial" || asks_for_keys(&call.ask) {
            return answer;
        }
        let api = self.0.accounts.find_api(account);
        let question = api.and_then(|api| api.key_question(received.response(self.0.clock.now())));
        let Some(question) = question else { return answer };
        // The same bytes once more, not the same call: the platform has answered. Whatever this refresh says, another may
        // have learned the key meanwhile.
        let refreshed = self.refresh(account, question).await;
        tracing::debug!(%account, ?refreshed, "an answer was signed with an unknown key");
        match self.0.accounts.find_api(account) {
            Some(api) => self.read(api.as_ref(), call, received),
            None => answer,
        }
    }

    async fn refresh_keys(&self, account: &AccountRef) -> KeyRefresh {
        if account.channel != Channel::Wxpay {
            return KeyRefresh::Failed(
                "only WeChat Pay has a list of certificates: Alipay's are asked for by number".to_owned(),
            );
        }
        if !self.can_ask(account) {
            return KeyRefresh::Failed(cannot_ask(account).detail);
        }
        self.refresh(account, Ask::Certificates).await
    }
}

impl Called {
    const fn not_made(refusal: Refusal) -> Self {
        Self { answer: ApiAnswer::Refused(refusal), received: None }
    }
}

/// A bug of ours; the request may have gone out.
fn ended_inside(error: &JoinError) -> ApiAnswer {
    ApiAnswer::Unknown(Doubt { code: "unreadable", detail: format!("the call ended inside: {error}") })
}

fn refusal(code: &str, detail: impl Into<String>, remedy: Remedy) -> Refusal {
    Refusal { code: code.to_owned(), detail: detail.into(), remedy }
}

fn cannot_ask(account: &AccountRef) -> Refusal {
    let what = match account.channel {
        Channel::Wxpay => "add merchant_serial and merchant_private_key_file to its [[wxpay]]",
        Channel::Alipay => "add app_private_key_file to one of its [[alipay.apps]]",
    };
    refusal("channel_not_configured", format!("{account} can't ask its platform: {what}"), Remedy::Person)
}

fn not_possible(problem: &CallProblem) -> Refusal {
    refusal("call_not_possible", problem.to_string(), Remedy::Person)
}

fn nonce() -> Option<String> {
    let mut bytes = [0_u8; NONCE_CHARS];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    let letter = |byte: u8| NONCE_ALPHABET.get(usize::from(byte) % NONCE_ALPHABET.len()).copied();
    bytes.into_iter().map(|byte| letter(byte).map(char::from)).collect()
}

/// Whether the answer is itself about keys: what to do about its own key is the channel crate's business.
const fn asks_for_keys(ask: &Ask) -> bool {
    match ask {
        Ask::Certificates | Ask::AlipayCertificate { .. } => true,
        Ask::Payment { .. }
        | Ask::PaymentByTradeNo { .. }
        | Ask::CombinePayment { .. }
        | Ask::RefundState(_)
        | Ask::Refund(_)
        | Ask::Close { .. }
        | Ask::CloseCombine { .. }
        | Ask::Share { .. } => false,
    }
}

/// What was asked, for logs and metrics.
const fn api_word(ask: &Ask) -> &'static str {
    match ask {
        Ask::Payment { .. } => "payment",
        Ask::PaymentByTradeNo { .. } => "payment_by_trade_no",
        Ask::CombinePayment { .. } => "combine_payment",
        Ask::RefundState(_) => "refund_state",
        Ask::Refund(_) => "refund",
        Ask::Close { .. } | Ask::CloseCombine { .. } => "close",
        Ask::Share { .. } => "share",
        Ask::Certificates | Ask::AlipayCertificate { .. } => "certificates",
    }
}

/// The outcome's class, for logs and metrics.
const fn outcome_word(answer: &ApiAnswer) -> &'static str {
    match answer {
        ApiAnswer::Final(_) => "final",
        ApiAnswer::Refused(Refusal { remedy: Remedy::Wait, .. }) => "refused_wait",
        ApiAnswer::Refused(Refusal { remedy: Remedy::Person, .. }) => "refused_person",
        ApiAnswer::Unknown(doubt) => doubt.code,
    }
}
