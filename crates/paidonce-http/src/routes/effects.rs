//! `/v1/effects`: what is sent to subscribers and channels, and what a person can do about it.

use actix_web::HttpResponse;
use paidonce_app::view::EffectView;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::call::{Call, ok};
use crate::problem::Problem;

/// A page of effects.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EffectPage {
    /// Oldest first.
    effects: Vec<EffectView>,
    /// Give it back as `after` for the next page; `null` on the last one.
    next_after: Option<String>,
}

/// What was done.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EffectDone {
    effect_id: String,
    /// Its state now: `pending` or `discarded`.
    state: &'static str,
}

pub(crate) async fn list(call: Call) -> Result<HttpResponse, Problem> {
    let query = call.query()?;
    let state = query.value("state", parse_state)?;
    let after = query.value("after", Uuid::parse_str)?;
    let limit = query.limit()?;
    let effects = call.app().list_effects(state.as_deref(), query.text("order_no"), after, limit).await?;
    let full = u32::try_from(effects.len()).is_ok_and(|rows| rows == limit);
    let next_after = effects.last().filter(|_| full).map(|effect| effect.effect_id.clone());
    ok(&EffectPage { effects, next_after })
}

pub(crate) async fn requeue(call: Call) -> Result<HttpResponse, Problem> {
    let effect_id = effect_id(&call)?;
    call.app().requeue_effect(effect_id, &call.token_name()).await?;
    ok(&EffectDone { effect_id: effect_id.to_string(), state: "pending" })
}

pub(crate) async fn discard(call: Call) -> Result<HttpResponse, Problem> {
    let effect_id = effect_id(&call)?;
    call.app().discard_effect(effect_id, &call.token_name()).await?;
    ok(&EffectDone { effect_id: effect_id.to_string(), state: "discarded" })
}

fn effect_id(call: &Call) -> Result<Uuid, Problem> {
    let text = call.param("effect_id")?;
    Uuid::parse_str(&text).map_err(|_| Problem::field("effect_id", format!("{text:?} is not a UUID")))
}

fn parse_state(text: &str) -> Result<String, String> {
    match text {
        "pending" | "leased" | "delivered" | "dead" | "discarded" => Ok(text.to_owned()),
        other => Err(format!("must be pending, leased, delivered, dead or discarded, not {other:?}")),
    }
}
