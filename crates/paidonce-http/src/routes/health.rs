//! `/healthz`, `/readyz`, `/metrics`.

use std::time::Duration;

use actix_web::HttpResponse;
use paidonce_app::ledger::SessionRights;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, ok};
use crate::problem::{self, Problem};
use crate::server::Money;

/// How long a scrape waits for the ledger's counts.
const GAUGES_TIMEOUT: Duration = Duration::from_secs(2);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The process answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`, `ready`.
    status: &'static str,
    /// Version of the program.
    version: &'static str,
    /// Nothing is broken, but a person should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
    /// Present and true when the platforms are played by `paidonce sandbox`: no money here is real.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<bool>,
}

impl Health {
    fn of(call: &Call, status: &'static str, warning: Option<&'static str>) -> Self {
        let sandbox = (call.state().money == Money::Played).then_some(true);
        Self { status, version: env!("CARGO_PKG_VERSION"), warning, sandbox }
    }
}

/// Anybody may ask, so that it names no login; the start of the log does.
const OWNER_RIGHTS: &str =
    "the database sessions have the right to change the log: append-only rests on the triggers alone";

pub(crate) async fn healthz(call: Call) -> Result<HttpResponse, Problem> {
    ok(&Health::of(&call, "ok", None))
}

pub(crate) async fn readyz(call: Call) -> Result<HttpResponse, Problem> {
    if call.state().is_stopping() {
        return Err(Problem::new(&problem::STOPPING, "the service is stopping"));
    }
    let not_ready = |error: paidonce_app::ledger::StoreError| Problem::new(&problem::NOT_READY, error.to_string());
    call.app().store().check_ready().await.map_err(not_ready)?;
    let is_too_much = call.app().store().session_rights().is_some_and(SessionRights::is_too_much);
    ok(&Health::of(&call, "ready", is_too_much.then_some(OWNER_RIGHTS)))
}

pub(crate) async fn metrics(call: Call) -> Result<HttpResponse, Problem> {
    let gauges = tokio::time::timeout(GAUGES_TIMEOUT, call.app().store().gauges()).await;
    let gauges = gauges.ok().and_then(Result::ok);
    let metrics = &call.state().metrics;
    metrics.set_gauges(gauges.as_ref());
    metrics.set_owner_rights(call.app().store().session_rights());
    let text = metrics.encode().map_err(|_| Problem::new(&problem::INTERNAL, "metrics can't be written"))?;
    Ok(HttpResponse::Ok().content_type(OPENMETRICS).body(text))
}
