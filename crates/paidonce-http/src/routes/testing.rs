//! `/testing`: moves the clock, arms fault points, drives the relay. Test builds only; no token is asked for.

use actix_web::HttpResponse;
use actix_web::web::{ServiceConfig, delete, post};
use paidonce_app::fault::Arm;
use paidonce_order::timestamp::Timestamp;
use serde::Deserialize;

use super::resource;
use crate::call::{Call, ok};
use crate::problem::{self, Problem};

const MICROS_PER_SECOND: i64 = 1_000_000;

pub(crate) fn configure(config: &mut ServiceConfig) {
    config
        .service(resource("/testing/clock").route(post().to(clock)))
        .service(resource("/testing/fault").route(post().to(arm)).route(delete().to(disarm)))
        .service(resource("/testing/relay").route(post().to(relay)));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveClock {
    now: Option<Timestamp>,
    advance_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmFault {
    point: String,
    action: String,
    seconds: Option<u64>,
    times: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunRelay {
    rounds: u32,
}

async fn clock(call: Call) -> Result<HttpResponse, Problem> {
    let offset = &call.state().testing.clock;
    let clock = call.app().clock();
    let micros = match call.json()? {
        MoveClock { now: Some(now), advance_seconds: None } => {
            now.as_micros().saturating_sub(clock.now().as_micros()).saturating_add(offset.micros())
        }
        MoveClock { now: None, advance_seconds: Some(seconds) } => {
            offset.micros().saturating_add(seconds.saturating_mul(MICROS_PER_SECOND))
        }
        MoveClock { now: Some(_), advance_seconds: Some(_) } | MoveClock { now: None, advance_seconds: None } => {
            return Err(Problem::new(&problem::INVALID_REQUEST, "give either now or advance_seconds"));
        }
    };
    offset.set_micros(micros);
    ok(&serde_json::json!({ "now": clock.now() }))
}

async fn arm(call: Call) -> Result<HttpResponse, Problem> {
    let ArmFault { point, action, seconds, times } = call.json()?;
    let action = match action.as_str() {
        "delay" => Arm::Delay { seconds: seconds.unwrap_or(1) },
        "panic" => Arm::Panic,
        "kill" => Arm::Kill,
        "error" => Arm::Error,
        "disconnect" => Arm::Disconnect,
        other => return Err(Problem::field("action", format!("unknown action {other:?}"))),
    };
    call.state().faults.arm(&point, action, times.unwrap_or(1));
    ok(&serde_json::json!({ "armed": point }))
}

async fn disarm(call: Call) -> Result<HttpResponse, Problem> {
    call.state().faults.clear();
    ok(&serde_json::json!({ "armed": null }))
}

async fn relay(call: Call) -> Result<HttpResponse, Problem> {
    let RunRelay { rounds } = call.json()?;
    let Some(relay) = call.state().testing.relay.clone() else {
        return Err(Problem::new(&problem::NOT_ALLOWED, "this server has no relay"));
    };
    let report = relay.run_until_idle(rounds).await.map_err(|error| Problem::new(&problem::INTERNAL, error))?;
    ok(&report)
}
