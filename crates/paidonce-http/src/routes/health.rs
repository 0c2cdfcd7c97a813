//! `/healthz`, `/readyz`, `/metrics`.

use std::time::Duration;

use actix_web::HttpResponse;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, ok};
use crate::problem::{self, Problem};

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
}

pub(crate) async fn healthz() -> Result<HttpResponse, Problem> {
    ok(&Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

pub(crate) async fn readyz(call: Call) -> Result<HttpResponse, Problem> {
    if call.state().is_stopping() {
        return Err(Problem::new(&problem::STOPPING, "the service is stopping"));
    }
    let not_ready = |error: paidonce_app::ledger::StoreError| Problem::new(&problem::NOT_READY, error.to_string());
    call.app().store().check_ready().await.map_err(not_ready)?;
    ok(&Health { status: "ready", version: env!("CARGO_PKG_VERSION") })
}

pub(crate) async fn metrics(call: Call) -> Result<HttpResponse, Problem> {
    let gauges = tokio::time::timeout(GAUGES_TIMEOUT, call.app().store().gauges()).await;
    let gauges = gauges.ok().and_then(Result::ok);
    let metrics = &call.state().metrics;
    metrics.set_gauges(gauges.as_ref());
    let text = metrics.encode().map_err(|_| Problem::new(&problem::INTERNAL, "metrics can't be written"))?;
    Ok(HttpResponse::Ok().content_type(OPENMETRICS).body(text))
}
