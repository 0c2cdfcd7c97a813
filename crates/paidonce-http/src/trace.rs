//! What surrounds every request: its id, a span for its log lines, security headers, the request counter, and a panic
//! that becomes a 500.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, web};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::policy;
use crate::problem::{self, Problem};
use crate::state::State;

pub(crate) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that is taken over, in characters.
const REQUEST_ID_CHARS_MAX: usize = 64;

tokio::task_local! {
    static REQUEST_ID: String;
}

/// Id of the request under way; empty outside of one.
pub(crate) fn request_id() -> String {
    REQUEST_ID.try_with(Clone::clone).unwrap_or_default()
}

/// Middleware: the outermost.
pub(crate) async fn surround(
    state: web::Data<State>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let id = given_id(request.headers()).unwrap_or_else(|| Uuid::now_v7().to_string());
    let route = request.match_pattern().unwrap_or_else(|| "none".to_owned());
    let method = request.method().clone();
    let span = tracing::info_span!("request", request_id = id, %method, route);
    let started = Instant::now();
    let answering = async {
        let caught = AssertUnwindSafe(next.call(request)).catch_unwind().await;
        let result = caught.unwrap_or_else(|_| {
            tracing::error!("a panic while answering; the panic message stands before this line");
            Err(Problem::new(&problem::INTERNAL, "the request could not be answered").into())
        });
        let status = match &result {
            Ok(response) => response.status().as_u16(),
            Err(error) => error.as_response_error().status_code().as_u16(),
        };
        log(&route, status, started.elapsed());
        state.metrics.request(&route, method.as_str(), status);
        result
    };
    let result = REQUEST_ID.scope(id.clone(), answering.instrument(span)).await;
    result.map(|mut response| {
        put_headers(response.headers_mut(), &id);
        response
    })
}

/// Callbacks and probes are too many for a line each; what went wrong with a callback is logged where it happened.
fn log(route: &str, status: u16, took: Duration) {
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if policy::is_quiet(route) {
        tracing::debug!(status, took_ms, "answered");
    } else if status == 500 {
        tracing::error!(status, took_ms, "answered");
    } else if status > 500 {
        tracing::warn!(status, took_ms, "answered");
    } else {
        tracing::info!(status, took_ms, "answered");
    }
}

/// An id that a proxy or caller gave, when it can stand in a log line.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = !text.is_empty() && text.len() <= REQUEST_ID_CHARS_MAX && text.chars().all(sane);
    fits.then(|| text.to_owned())
}

fn put_headers(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID_HEADER, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}
