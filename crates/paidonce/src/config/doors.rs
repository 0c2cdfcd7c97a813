//! `[[tokens]]`, `[secrets]`, `[effects]`, `[[subscribers]]`: who may ask us, and whom we tell.

use std::collections::BTreeMap;

use paidonce_http::{Scope, Token, TokenError};
use paidonce_order::event::KNOWN_EVENTS;
use paidonce_store::store::Subscriber;
use paidonce_worker::sign::SigningSecret;

use super::secret::{Secret, variable_part};
use super::section::{Located, Section, report_repeats};

/// Secrets by the name that subscribers use; the current one first, then the previous one during a rotation.
pub type SigningSecrets = BTreeMap<String, Vec<SigningSecret>>;

/// Retry rules of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectsConfig {
    /// Pause before each further try; after the last one the effect is dead.
    pub retry_seconds: Vec<i64>,
    /// Pauses are lengthened by up to this much, at random.
    pub jitter_percent: u8,
    /// Longest wait for a receiver.
    pub request_timeout_seconds: u16,
    /// Delivered and discarded rows are deleted after so long.
    pub keep_days: u16,
}

impl Default for EffectsConfig {
    fn default() -> Self {
        Self { retry_seconds: vec![60, 300, 1800], jitter_percent: 10, request_timeout_seconds: 10, keep_days: 30 }
    }
}

/// Longest name of a subscriber.
const NAME_BYTES_MAX: usize = 64;
/// A week between two tries is a mistake, not a schedule.
const RETRY_SECONDS_MAX: i64 = 7 * 24 * 3600;
const RETRIES_MAX: usize = 20;

fn is_name(text: &str) -> bool {
    let permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(permitted)
}

fn read_name(section: &Section<'_>, example: &str) -> Option<Located<String>> {
    let name = section.required("name", example)?;
    if is_name(&name.value) {
        return Some(name);
    }
    let problem = format!("{} may only have up to {NAME_BYTES_MAX} letters, digits and _-", section.name("name"));
    section.problem(name.line, problem);
    None
}

/// A token with its secret, for as long as it takes to compare secrets.
struct FoundToken {
    name: String,
    secret: Secret,
    line: Option<usize>,
    token: Token,
}

pub(super) fn read_tokens(sections: &[Section<'_>]) -> Vec<Token> {
    let tokens: Vec<_> = sections.iter().filter_map(read_token).collect();
    report_repeats(sections, "name", tokens.iter().map(|found| (found.name.as_str(), found.line)));
    for (index, found) in tokens.iter().enumerate() {
        let earlier = tokens.iter().take(index).find(|other| other.secret == found.secret);
        if let (Some(other), Some(section)) = (earlier, sections.first()) {
            let problem =
                format!("tokens {:?} and {:?} have the same secret: give each its own", other.name, found.name);
            section.problem(found.line, problem);
        }
    }
    tokens.into_iter().map(|found| found.token).collect()
}

fn read_token(section: &Section<'_>) -> Option<FoundToken> {
    let name = section.required("name", "\"shop\"");
    let scopes = read_scopes(section);
    let variable = name.as_ref().map_or_else(String::new, |name| variable_part(&name.value));
    let variable = format!("PAIDONCE_TOKENS_{variable}_SECRET");
    let secret = section.secret(["secret", "secret_file"], &variable);
    if secret.is_none() && !section.has("secret") && !section.has("secret_file") {
        let name = section.name("secret_file");
        section.problem(None, format!("{name} is missing: name a file with the token, or set {variable}"));
    }
    section.finish();
    let (name, scopes, secret) = (name?, scopes?, secret?);
    match Token::try_new(&name.value, &scopes, secret.value.reveal()) {
        Ok(token) => Some(FoundToken { name: name.value, secret: secret.value, line: section.line, token }),
        Err(error) => {
            let line = match &error {
                TokenError::Name { .. } => name.line,
                TokenError::NoScope { .. } => section.line,
                TokenError::Secret { .. } => secret.line,
            };
            section.problem(line, format!("{error} (openssl rand -hex 32 makes a good one)"));
            None
        }
    }
}

/// `None` when it was complained about.
fn read_scopes(section: &Section<'_>) -> Option<Vec<Scope>> {
    let name = section.name("scopes");
    let Some(words) = section.strings("scopes").filter(|words| !words.is_empty()) else {
        section.problem(None, format!("{name} is missing: write scopes = [\"service\"] (service, finance, operator)"));
        return None;
    };
    let read = |word: Located<String>| match word.value.as_str() {
        "service" => Some(Scope::Service),
        "finance" => Some(Scope::Finance),
        "operator" => Some(Scope::Operator),
        other => {
            section.problem(word.line, format!("{name} may have service, finance and operator, not {other:?}"));
            None
        }
    };
    let scopes: Vec<Scope> = words.into_iter().filter_map(read).collect();
    Some(scopes).filter(|scopes| !scopes.is_empty())
}

pub(super) fn read_secrets(secrets: &Section<'_>) -> SigningSecrets {
    let mut found = SigningSecrets::new();
    for (name, section) in secrets.named_sections("written as { file = \"..\" } or { value = \"whsec_..\" }") {
        let variable = format!("PAIDONCE_SECRETS_{}", variable_part(&name));
        let current = section.secret(["value", "file"], &variable);
        if current.is_none() && !section.has("value") && !section.has("file") {
            section.problem(None, format!("{} needs file, value or variable {variable}", section.path));
        }
        let previous = section.secret(["previous_value", "previous_file"], &format!("{variable}_PREVIOUS"));
        section.finish();
        let parse = |secret: Located<Secret>| {
            SigningSecret::parse(secret.value.reveal())
                .map_err(|error| section.problem(secret.line, format!("{}: {error}", section.path)))
                .ok()
        };
        found.insert(name, current.into_iter().chain(previous).filter_map(parse).collect());
    }
    found
}

pub(super) fn read_effects(section: &Section<'_>) -> EffectsConfig {
    let default = EffectsConfig::default();
    let retry_seconds = section.integers("retry_seconds", &(1..=RETRY_SECONDS_MAX)).unwrap_or(default.retry_seconds);
    if retry_seconds.is_empty() || retry_seconds.len() > RETRIES_MAX {
        section.problem(None, format!("{} needs 1 to {RETRIES_MAX} pauses", section.name("retry_seconds")));
    }
    let jitter = section.integer("jitter_percent", 0..=50).and_then(|percent| u8::try_from(percent).ok());
    let timeout = section.integer("request_timeout_seconds", 1..=120).and_then(|seconds| u16::try_from(seconds).ok());
    let keep_days = section.integer("keep_days", 1..=3650).and_then(|days| u16::try_from(days).ok());
    section.finish();
    EffectsConfig {
        retry_seconds,
        jitter_percent: jitter.unwrap_or(default.jitter_percent),
        request_timeout_seconds: timeout.unwrap_or(default.request_timeout_seconds),
        keep_days: keep_days.unwrap_or(default.keep_days),
    }
}

pub(super) fn read_subscribers(sections: &[Section<'_>], secrets: &SigningSecrets) -> Vec<Located<Subscriber>> {
    let subscribers: Vec<_> = sections.iter().filter_map(|section| read_subscriber(section, secrets)).collect();
    report_repeats(sections, "name", subscribers.iter().map(|found| (found.value.name.as_str(), found.line)));
    subscribers
}

fn read_subscriber(section: &Section<'_>, secrets: &SigningSecrets) -> Option<Located<Subscriber>> {
    let name = read_name(section, "\"warehouse\"");
    let events = section.strings("events").filter(|events| !events.is_empty());
    if events.is_none() {
        let name = section.name("events");
        section.problem(None, format!("{name} is missing: write events = [\"PaymentConfirmed\"], or [\"*\"] for all"));
    }
    for event in events.iter().flatten().filter(|event| !is_event_type(&event.value)) {
        let problem = format!("{} has {:?}, which no event is called", section.name("events"), event.value);
        section.problem(event.line, format!("{problem}: see schemas/events, or write [\"*\"] for all"));
    }
    let url = section.required("url", "\"https://warehouse.example/hook\"");
    if let Some(found) = url.as_ref().filter(|found| !is_http_url(&found.value)) {
        let problem =
            format!("{} must be a http:// or https:// address without user and password", section.name("url"));
        section.problem(found.line, problem);
    }
    let secret_ref = section.required("secret_ref", "\"warehouse\"");
    if let Some(found) = secret_ref.as_ref().filter(|found| !secrets.contains_key(&found.value)) {
        let value = &found.value;
        let problem =
            format!("{} {value:?} is not in [secrets]: add {value} = {{ file = \"..\" }}", section.name("secret_ref"));
        section.problem(found.line, problem);
    }
    let paused = section.boolean("paused").unwrap_or(false);
    section.finish();
    let events = events?.into_iter().map(|event| event.value).collect();
    let subscriber = Subscriber { name: name?.value, events, url: url?.value, secret_ref: secret_ref?.value, paused };
    Some(Located { value: subscriber, line: section.line })
}

fn is_event_type(text: &str) -> bool {
    text == "*" || KNOWN_EVENTS.iter().any(|(event_type, _)| *event_type == text)
}

/// Whether an address can be POSTed to. Credentials in it would end up in logs and tables.
fn is_http_url(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
    })
}
