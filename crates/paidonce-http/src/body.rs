//! Reading a body: never more than the limit, never longer than the timeout, whatever the headers say.

use std::time::Duration;

use actix_web::web::{self, BytesMut};
use actix_web::{HttpRequest, http::header};
use futures_util::StreamExt;
use paidonce_channel::channel::BODY_BYTES_MAX;
use serde::de::DeserializeOwned;

use crate::problem::{self, Problem};

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// More than [`BODY_BYTES_MAX`], announced or sent.
    #[error("the body is larger than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// Not whole within the timeout.
    #[error("the body was not sent in time")]
    TooSlow,
    /// Broken framing, or the client went away.
    #[error("the body could not be read to its end")]
    Broken,
}

impl BodyError {
    pub(crate) const fn kind(self) -> &'static problem::Kind {
        match self {
            Self::TooLarge => &problem::BODY_TOO_LARGE,
            Self::TooSlow => &problem::REQUEST_TIMEOUT,
            Self::Broken => &problem::INVALID_REQUEST,
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// Reads the whole body. The limit holds while reading, so a chunked body can't grow past it.
pub(crate) async fn read(
    request: &HttpRequest,
    payload: web::Payload,
    timeout: Duration,
) -> Result<Vec<u8>, BodyError> {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|bytes| usize::try_from(bytes).is_ok_and(|bytes| bytes > BODY_BYTES_MAX)) {
        return Err(BodyError::TooLarge);
    }
    tokio::time::timeout(timeout, read_capped(payload)).await.unwrap_or(Err(BodyError::TooSlow))
}

async fn read_capped(mut payload: web::Payload) -> Result<Vec<u8>, BodyError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| BodyError::Broken)?;
        if body.len().saturating_add(chunk.len()) > BODY_BYTES_MAX {
            return Err(BodyError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.to_vec())
}

/// Reads JSON strictly: unknown and repeated fields are refused, and the field is named.
pub(crate) fn parse_json<T: DeserializeOwned>(request: &HttpRequest, body: &[u8]) -> Result<T, Problem> {
    if let Some(given) = request.headers().get(header::CONTENT_TYPE) {
        let media = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(&problem::UNSUPPORTED_MEDIA_TYPE, format!("the body is {media:?}, not JSON")));
        }
    }
    if body.is_empty() {
        return Err(Problem::new(&problem::INVALID_REQUEST, "the body is empty: send a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        match field_of(&path, &cause.to_string()) {
            Some(field) => Problem::field(field, cause.to_string()),
            None => Problem::new(&problem::INVALID_REQUEST, format!("the body is not the expected JSON: {cause}")),
        }
    })?;
    reader.end().map_err(|error| Problem::new(&problem::INVALID_REQUEST, format!("after the JSON object: {error}")))?;
    Ok(value)
}

/// The path of the failing value; for a missing, unknown or repeated field the name stands in serde's message.
fn field_of(path: &str, message: &str) -> Option<String> {
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split('`').next());
    let path = if path == "." { "" } else { path };
    match (path, named) {
        ("", None) => None,
        ("", Some(name)) => Some(name.to_owned()),
        (path, Some(name)) if !path.ends_with(name) => Some(format!("{path}.{name}")),
        (path, _) => Some(path.to_owned()),
    }
}
