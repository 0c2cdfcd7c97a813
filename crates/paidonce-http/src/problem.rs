//! The one error of our API: RFC 9457 problem documents with a stable code, a next step and the request's id.

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use paidonce_app::AppError;
use paidonce_app::ledger::{StoreError, SubmitError};
use paidonce_order::error::OrderError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::trace;

/// Seconds that a client should wait after 503.
pub(crate) const RETRY_AFTER_SECONDS: &str = "5";

/// A kind of problem: what stays the same over all its occurrences.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Stable word.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Short, for people.
    pub title: &'static str,
    /// What the caller should do.
    pub next: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $status:literal, $code:literal, $title:literal, $next:literal;)*) => {
        $(
            #[doc = concat!("`", $code, "` (", stringify!($status), ").")]
            pub const $name: Kind = Kind { code: $code, status: $status, title: $title, next: $next };
        )*
        /// Every kind, for the documentation.
        pub const ALL: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    INVALID_REQUEST = 400, "invalid_request", "The request is wrong", "Correct the named field and send again.";
    UNAUTHORIZED = 401, "unauthorized", "No valid token", "Send Authorization: Bearer <secret of a configured token>.";
    FORBIDDEN = 403, "forbidden", "The token may not do this", "Use a token with the needed scope.";
    NOT_FOUND = 404, "not_found", "Not in this ledger", "Check the name; list what is there.";
    ORDER_NOT_OPENED = 404, "order_not_opened", "The order is not open here", "POST /v1/orders first.";
    NO_SUCH_PAYMENT = 404, "no_such_payment", "The order has no such payment", "Name one of the payments that GET /v1/orders/{order_no} lists.";
    NO_SUCH_ITEM = 404, "no_such_item", "The order has no such open item", "List the open items with GET /v1/items.";
    METHOD_NOT_ALLOWED = 405, "method_not_allowed", "Not a method of this path", "Use one of the methods in the Allow header.";
    REQUEST_TIMEOUT = 408, "request_timeout", "The body came too slowly", "Send the whole body at once.";
    ORDER_TERMS_DIFFER = 409, "order_terms_differ", "Opened before with other terms", "Use a new order_no, with supersedes if it replaces this one.";
    ALREADY_PAID = 409, "already_paid", "The order is already paid", "Request a refund instead of closing it.";
    EXCEEDS_PAID = 409, "exceeds_paid", "More than is left of the payment", "Ask for at most what is left.";
    REFUND_TERMS_DIFFER = 409, "refund_terms_differ", "The refund number was used for another refund", "Repeat it unchanged, or use a new refund_no.";
    NOT_ALLOWED = 409, "not_allowed", "This action does not fit", "Look at the current state and choose another action.";
    AMOUNT_OUT_OF_RANGE = 409, "amount_out_of_range", "Amounts of the order can't be added", "Check amounts and currency.";
    CHANNEL_NOT_CONFIGURED = 409, "channel_not_configured", "No account of the order can ask its platform", "An operator must add the account's own credentials to the configuration.";
    BODY_TOO_LARGE = 413, "body_too_large", "The body is too large", "Send at most 65536 bytes.";
    UNSUPPORTED_MEDIA_TYPE = 415, "unsupported_media_type", "Not JSON", "Send Content-Type: application/json.";
    IDEMPOTENCY_KEY_REUSED = 422, "idempotency_key_reused", "The Idempotency-Key belongs to another request", "Use a new key for a new request.";
    INTERNAL = 500, "internal", "Something went wrong here", "Send the same again; if it stays, give the request_id to the operator.";
    LEDGER_CORRUPT = 500, "ledger_corrupt", "The ledger holds something unexpected", "An operator must look: give them the request_id.";
    CHANNEL_REFUSED = 502, "channel_refused", "The platform refuses", "Nothing was decided. An operator must look at the detail: rights, parameters or configuration.";
    CHANNEL_UNKNOWN = 503, "channel_unknown", "The platform gave no answer that can be relied on", "Nothing was decided. Send the same again after Retry-After.";
    QUEUE_FULL = 503, "queue_full", "Too busy", "Nothing was written. Send the same again after Retry-After.";
    DATABASE_AWAY = 503, "database_away", "The database is away", "Nothing was written. Send the same again after Retry-After.";
    OUTCOME_UNKNOWN = 503, "outcome_unknown", "It is not known whether this was written", "Send the same again, with the same Idempotency-Key: it is written once.";
    QUARANTINED = 503, "quarantined", "The order needs a person first", "An operator must resolve its quarantined item, then send the same again.";
    NODE_TOO_OLD = 503, "node_too_old", "This node is older than the log", "Upgrade this node; other nodes may answer.";
    STOPPING = 503, "stopping", "The service is stopping", "Nothing was written. Send the same again to another node.";
    NOT_READY = 503, "not_ready", "Not ready to write", "Wait, and look at the detail if it stays.";
}

/// One occurrence. The only [`ResponseError`] of this program.
#[derive(Debug)]
pub struct Problem {
    kind: &'static Kind,
    detail: String,
    field: Option<String>,
    allow: Option<String>,
    request_id: String,
}

/// The document, as callers see it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document {
    /// Where the kind is explained.
    #[serde(rename = "type")]
    kind: String,
    /// Short, the same for every occurrence.
    title: String,
    /// HTTP status.
    status: u16,
    /// What happened here.
    detail: String,
    /// Stable word of the kind.
    code: String,
    /// What to do next.
    next: String,
    /// Which field was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Id of this request, as in the log.
    request_id: String,
}

impl Problem {
    /// An occurrence in the request under way.
    #[must_use]
    pub fn new(kind: &'static Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), field: None, allow: None, request_id: trace::request_id() }
    }

    /// A wrong field.
    #[must_use]
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(&INVALID_REQUEST, detail) }
    }

    /// With an Allow header.
    #[must_use]
    pub(crate) fn allowing(self, methods: String) -> Self {
        Self { allow: Some(methods), ..self }
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> &'static Kind {
        self.kind
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.code, self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let document = Document {
            kind: format!("/docs#{}", self.kind.code),
            title: self.kind.title.to_owned(),
            status: self.kind.status,
            detail: self.detail.clone(),
            code: self.kind.code.to_owned(),
            next: self.kind.next.to_owned(),
            field: self.field.clone(),
            request_id: self.request_id.clone(),
        };
        let mut response = HttpResponse::build(self.status_code());
        response.insert_header((header::CONTENT_TYPE, "application/problem+json"));
        if let Ok(request_id) = HeaderValue::from_str(&self.request_id) {
            response.insert_header((trace::REQUEST_ID_HEADER, request_id));
        }
        if let Some(methods) = &self.allow {
            response.insert_header((header::ALLOW, methods.as_str()));
        }
        match self.kind.status {
            401 => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            408 | 413 => {
                // The rest of the body is not read.
                response.force_close();
            }
            503 => {
                response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        response.body(serde_json::to_vec(&document).unwrap_or_default())
    }
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let detail = error.to_string();
        match error {
            AppError::Invalid { field, problem } => Self::field(field, format!("{field} {problem}")),
            AppError::NotFound { .. } => Self::new(&NOT_FOUND, detail),
            AppError::Rejected(rejection) => Self::rejection(&rejection),
            AppError::NotAllowed { .. } => Self::new(&NOT_ALLOWED, detail),
            AppError::ApiKeyReused => Self::new(&IDEMPOTENCY_KEY_REUSED, detail),
            AppError::TooManyStrays { .. } => Self::new(&QUEUE_FULL, detail),
            AppError::ChannelNotConfigured { .. } => Self::new(&CHANNEL_NOT_CONFIGURED, detail),
            AppError::ChannelUnknown { .. } => Self::new(&CHANNEL_UNKNOWN, detail),
            AppError::ChannelRefused { .. } => Self::new(&CHANNEL_REFUSED, detail),
            AppError::Submit(error) => Self::new(submit_kind(&error), detail),
            AppError::Store(StoreError::Unavailable(_)) => Self::new(&DATABASE_AWAY, detail),
            AppError::Store(StoreError::Corrupt(_)) => Self::new(&LEDGER_CORRUPT, detail),
            AppError::Store(StoreError::Invalid(_)) => Self::new(&INVALID_REQUEST, detail),
        }
    }
}

impl Problem {
    fn rejection(error: &OrderError) -> Self {
        let detail = error.to_string();
        match error {
            OrderError::NotOpened { .. } => Self::new(&ORDER_NOT_OPENED, detail),
            OrderError::OrderTermsDiffer { .. } => Self::new(&ORDER_TERMS_DIFFER, detail),
            OrderError::InvalidTerms { field, .. } => Self::field(*field, detail),
            OrderError::AlreadyPaid { .. } => Self::new(&ALREADY_PAID, detail),
            OrderError::NoSuchPayment { .. } => Self::new(&NO_SUCH_PAYMENT, detail),
            OrderError::ExceedsPaid { .. } => Self::new(&EXCEEDS_PAID, detail),
            OrderError::RefundTermsDiffer { .. } => Self::new(&REFUND_TERMS_DIFFER, detail),
            OrderError::NoSuchItem { .. } => Self::new(&NO_SUCH_ITEM, detail),
            OrderError::NotAllowed { .. } => Self::new(&NOT_ALLOWED, detail),
            OrderError::Money(_) => Self::new(&AMOUNT_OUT_OF_RANGE, detail),
        }
    }
}

/// Which kind a missing outcome is.
pub(crate) const fn submit_kind(error: &SubmitError) -> &'static Kind {
    match error {
        SubmitError::QueueFull => &QUEUE_FULL,
        SubmitError::Unavailable(_) => &DATABASE_AWAY,
        SubmitError::Unknown => &OUTCOME_UNKNOWN,
        SubmitError::Quarantined(_) => &QUARANTINED,
        SubmitError::TooOld(_) => &NODE_TOO_OLD,
        SubmitError::Stopping => &STOPPING,
    }
}
