//! One try of one delivery: the signed POST and what its answer means.
//!
//! | the receiver | means |
//! |---|---|
//! | answers 2xx within the timeout | delivered |
//! | answers 410 Gone | dead at once: it says itself that another try is useless; a person decides |
//! | anything else: another status (redirects are not followed), no answer, an answer too late | tried again |
//!
//! Must never: follow a redirect (the signature is for one receiver), log a body or a secret, wait without a limit.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use paidonce_app::Clock;
use paidonce_store::store::{ClaimedEffect, Subscriber};
use reqwest::StatusCode;
use reqwest::redirect::Policy;

use crate::message;
use crate::sign::{SigningSecret, signature};

/// Of the answer's body: read so that the connection can be used again, and then forgotten.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// `last_error` is for a person's eye.
const ERROR_CHARS_MAX: usize = 300;

/// Signing secrets by the name that subscribers use; replaced as a whole on reload.
#[derive(Debug, Default)]
pub struct Secrets(RwLock<Arc<BTreeMap<String, Vec<SigningSecret>>>>);

impl Secrets {
    /// From the configuration; the current secret of each name first.
    #[must_use]
    pub fn new(secrets: BTreeMap<String, Vec<SigningSecret>>) -> Self {
        Self(RwLock::new(Arc::new(secrets)))
    }

    /// Puts new secrets in place of all old ones.
    pub fn replace(&self, secrets: BTreeMap<String, Vec<SigningSecret>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secrets);
    }

    fn find(&self, name: &str) -> Option<Vec<SigningSecret>> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        secrets.get(name).filter(|secrets| !secrets.is_empty()).cloned()
    }
}

/// What one try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// The receiver took it.
    Delivered,
    /// It may take it later.
    Failed(String),
    /// It will never take it.
    Hopeless(String),
}

/// Sends deliveries.
#[derive(Debug)]
pub struct Deliverer {
    client: reqwest::Client,
    secrets: Arc<Secrets>,
    clock: Clock,
    timeout: Duration,
}

impl Deliverer {
    /// Builds the HTTP client. Errors: no TLS provider is installed for this process, or it is unusable.
    pub fn try_new(secrets: Arc<Secrets>, clock: Clock, timeout: Duration) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            .timeout(timeout)
            .no_proxy()
            .user_agent(concat!("paidonce/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, secrets, clock, timeout })
    }

    /// Longest time that [`Deliverer::deliver`] takes.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Tries once. Guarantees: `webhook-id` and body are the same on every try of an effect.
    pub async fn deliver(&self, claimed: &ClaimedEffect, subscriber: &Subscriber) -> Tried {
        let body = match message::body(&claimed.event) {
            Ok(body) => body,
            Err(error) => return Tried::Failed(error.to_string()),
        };
        let Some(secrets) = self.secrets.find(&subscriber.secret_ref) else {
            let name = &subscriber.secret_ref;
            return Tried::Failed(format!("secret {name:?} is not configured on this node: add it to [secrets]"));
        };
        let (id, seconds) = (claimed.event.event_id.to_string(), self.clock.now().as_seconds());
        let request = self
            .client
            .post(&subscriber.url)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", signature(&secrets, &id, seconds, &body))
            .body(body);
        match request.send().await {
            Ok(answer) => read(answer).await,
            Err(error) => Tried::Failed(self.describe(error)),
        }
    }

    fn describe(&self, error: reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("no answer within {} s", self.timeout.as_secs());
        }
        // The address stands in t_subscriber; the innermost cause ("connection refused") says most.
        let error = error.without_url();
        let mut innermost: &dyn Error = &error;
        while let Some(cause) = innermost.source() {
            innermost = cause;
        }
        innermost.to_string().chars().take(ERROR_CHARS_MAX).collect()
    }
}

async fn read(mut answer: reqwest::Response) -> Tried {
    let status = answer.status();
    let mut bytes = 0;
    while let Ok(Some(chunk)) = answer.chunk().await {
        bytes += chunk.len();
        if bytes > ANSWER_BYTES_MAX {
            break;
        }
    }
    if status.is_success() {
        Tried::Delivered
    } else if status == StatusCode::GONE {
        Tried::Hopeless("the receiver answered 410 Gone: it wants no more of these".to_owned())
    } else if status.is_redirection() {
        Tried::Failed(format!(
            "the receiver answered {status}: redirects are not followed, configure the final address"
        ))
    } else {
        Tried::Failed(format!("the receiver answered {status}"))
    }
}
