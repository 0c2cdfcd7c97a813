//! One call of our own API: who calls, with what, and the answers' shapes.

use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, web};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use paidonce_app::api_key::{RequestContent, api_key};
use paidonce_app::app::{Answer, Door, Novelty};
use paidonce_app::{App, Caller};
use paidonce_order::ids::{OrderNo, RefundNo};
use paidonce_order::project::ApiKey;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::Identity;
use crate::body;
use crate::policy::{self, Found};
use crate::problem::{self, Problem};
use crate::query::Query;
use crate::state::State;
use crate::trace;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// Extractor of every route of our API: the body is read, within its limits, before the route begins.
pub(crate) struct Call {
    request: HttpRequest,
    state: web::Data<State>,
    body: Vec<u8>,
}

impl FromRequest for Call {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = web::Payload::from_request(&request, payload).into_inner();
        async move {
            let not_wired = || Problem::new(&problem::INTERNAL, "the server is not wired");
            let state = request.app_data::<web::Data<State>>().ok_or_else(not_wired)?.clone();
            let payload = payload.map_err(|_| not_wired())?;
            let body = body::read(&request, payload, state.body_timeout).await?;
            Ok(Self { request, state, body })
        }
        .boxed_local()
    }
}

impl Call {
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.state.app
    }

    pub(crate) const fn state(&self) -> &web::Data<State> {
        &self.state
    }

    pub(crate) fn is_read(&self) -> bool {
        self.request.method().is_safe()
    }

    /// A path parameter. The router has decoded everything but `%25`, `%2B` and `%2F`, which could be mistaken in a path.
    pub(crate) fn param(&self, name: &'static str) -> Result<String, Problem> {
        let unreadable = |_| Problem::field(name, format!("{name} in the path is not percent-encoded UTF-8"));
        let raw = self.request.match_info().get(name).unwrap_or_default();
        Ok(percent_decode_str(raw).decode_utf8().map_err(unreadable)?.into_owned())
    }

    /// The order number of the path.
    pub(crate) fn order_no(&self) -> Result<OrderNo, Problem> {
        OrderNo::parse(&self.param("order_no")?).map_err(|error| Problem::field("order_no", error.to_string()))
    }

    /// The query string; only the names of the route's row.
    pub(crate) fn query(&self) -> Result<Query, Problem> {
        let pattern = self.request.match_pattern().unwrap_or_default();
        let known = match policy::find(self.request.method(), &pattern) {
            Found::Route(route) => route.query,
            Found::OtherMethod | Found::Nothing => &[],
        };
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Query::parse(self.request.query_string(), &names)
    }

    /// The refund number of the path.
    pub(crate) fn refund_no(&self) -> Result<RefundNo, Problem> {
        RefundNo::parse(&self.param("refund_no")?).map_err(|error| Problem::field("refund_no", error.to_string()))
    }

    /// The JSON body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        body::parse_json(&self.request, &self.body)
    }

    /// Name of the token that was let in.
    pub(crate) fn token_name(&self) -> String {
        let extensions = self.request.extensions();
        extensions.get::<Identity>().map(|identity| identity.token_name.clone()).unwrap_or_default()
    }

    /// Who asks, with the `Idempotency-Key` if one was sent.
    pub(crate) fn caller(&self, door: Door) -> Result<Caller, Problem> {
        let request_id = Some(trace::request_id());
        Ok(Caller { actor: Some(self.token_name()), request_id, api_key: self.api_key()?, door })
    }

    fn api_key(&self) -> Result<Option<ApiKey>, Problem> {
        let mut values = self.request.headers().get_all(IDEMPOTENCY_KEY);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::field(IDEMPOTENCY_KEY, "Idempotency-Key was sent more than once"));
        }
        let not_ascii = |_| Problem::field(IDEMPOTENCY_KEY, "Idempotency-Key may only have visible ASCII characters");
        let key = value.to_str().map_err(not_ascii)?;
        let content =
            RequestContent { method: self.request.method().as_str(), path: self.request.path(), body: &self.body };
        Ok(Some(api_key(&self.token_name(), key, content)?))
    }
}

/// 200 with JSON.
pub(crate) fn ok(value: &impl Serialize) -> Result<HttpResponse, Problem> {
    json(StatusCode::OK, value)
}

/// 202 when something new was taken on, 200 when it was before.
pub(crate) fn accepted(answer: &Answer<impl Serialize>) -> Result<HttpResponse, Problem> {
    let status = match answer.novelty {
        Novelty::New => StatusCode::ACCEPTED,
        Novelty::Repeat => StatusCode::OK,
    };
    json(status, &answer.value)
}

/// 201 when something new was made, 200 when it was there before.
pub(crate) fn created(answer: &Answer<impl Serialize>) -> Result<HttpResponse, Problem> {
    let status = match answer.novelty {
        Novelty::New => StatusCode::CREATED,
        Novelty::Repeat => StatusCode::OK,
    };
    json(status, &answer.value)
}

fn json(status: StatusCode, value: &impl Serialize) -> Result<HttpResponse, Problem> {
    let body = serde_json::to_vec(value)
        .map_err(|error| Problem::new(&problem::INTERNAL, format!("the answer can't be written: {error}")))?;
    Ok(HttpResponse::build(status).content_type("application/json").body(body))
}
