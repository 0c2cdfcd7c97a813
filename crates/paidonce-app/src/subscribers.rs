//! Who gets business effects.

use paidonce_store::store::{Backfill, Subscriber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::error::AppError;
use crate::view::SubscriberView;

/// Longest name, in characters.
pub const NAME_CHARS_MAX: usize = 64;

const URL_CHARS_MAX: usize = 2_000;
const EVENTS_MAX: usize = 64;

/// `PUT /v1/subscribers/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSubscriber {
    /// Event types, or `["*"]` for all.
    pub events: Vec<String>,
    /// Where to POST: an http or https address.
    pub url: String,
    /// Name of the secret in the configuration (never the secret itself).
    pub secret_ref: String,
    /// Nothing is sent while `true`.
    #[serde(default)]
    pub paused: bool,
}

impl App {
    /// All subscribers.
    pub async fn list_subscribers(&self) -> Result<Vec<SubscriberView>, AppError> {
        let rows = self.store().list_subscribers().await?;
        Ok(rows.into_iter().map(SubscriberView::from).collect())
    }

    /// Adds or changes one; it hears of events from now on.
    pub async fn put_subscriber(&self, name: &str, request: PutSubscriber) -> Result<SubscriberView, AppError> {
        self.check_subscriber(name, &request)?;
        let PutSubscriber { events, url, secret_ref, paused } = request;
        let subscriber = Subscriber { name: name.to_owned(), events, url, secret_ref, paused };
        self.store().put_subscriber(&subscriber, Backfill::No).await?;
        self.tell_relays();
        Ok(subscriber.into())
    }

    /// Makes effects for every matching event of the past that it was not told of; how many.
    /// Errors: [`AppError::NotFound`].
    pub async fn backfill_subscriber(&self, name: &str) -> Result<u64, AppError> {
        let subscribers = self.store().list_subscribers().await?;
        let Some(subscriber) = subscribers.into_iter().find(|subscriber| subscriber.name == name) else {
            return Err(not_found(name));
        };
        let made = self.store().put_subscriber(&subscriber, Backfill::All).await?;
        self.tell_relays();
        Ok(made)
    }

    /// Removes one and discards its unsent effects. Errors: [`AppError::NotFound`].
    pub async fn delete_subscriber(&self, name: &str) -> Result<(), AppError> {
        let known = self.store().list_subscribers().await?.iter().any(|subscriber| subscriber.name == name);
        if !known {
            return Err(not_found(name));
        }
        Ok(self.store().delete_subscriber(name).await?)
    }

    fn check_subscriber(&self, name: &str, request: &PutSubscriber) -> Result<(), AppError> {
        let name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(name_char) {
            return Err(AppError::invalid("name", format!("must have 1 to {NAME_CHARS_MAX} letters, digits and _-")));
        }
        let event_name = |event: &String| event == "*" || event.chars().all(|c| c.is_ascii_alphanumeric());
        if request.events.is_empty() || request.events.len() > EVENTS_MAX || !request.events.iter().all(event_name) {
            return Err(AppError::invalid("events", "must list event types such as PaymentConfirmed, or be [\"*\"]"));
        }
        check_url(&request.url)?;
        if !self.is_secret_configured(&request.secret_ref) {
            return Err(AppError::invalid(
                "secret_ref",
                format!("no secret {:?} in the configuration: add it under [secrets] first", request.secret_ref),
            ));
        }
        Ok(())
    }
}

fn check_url(url: &str) -> Result<(), AppError> {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let has_host = host.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']));
    let has_user = host.and_then(|rest| rest.split('/').next()).is_some_and(|authority| authority.contains('@'));
    if !has_host || has_user || url.len() > URL_CHARS_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(AppError::invalid(
            "url",
            format!("must be an http:// or https:// address without user name, at most {URL_CHARS_MAX} characters"),
        ));
    }
    Ok(())
}

fn not_found(name: &str) -> AppError {
    AppError::NotFound { what: format!("subscriber {name:?}") }
}
