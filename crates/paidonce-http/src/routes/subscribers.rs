//! `/v1/subscribers`: who gets business effects.

use actix_web::HttpResponse;
use paidonce_app::view::SubscriberView;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, ok};
use crate::problem::Problem;

/// All subscribers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Subscribers {
    subscribers: Vec<SubscriberView>,
}

/// What a backfill made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Backfilled {
    name: String,
    /// Effects made.
    effects: u64,
}

pub(crate) async fn list(call: Call) -> Result<HttpResponse, Problem> {
    ok(&Subscribers { subscribers: call.app().list_subscribers().await? })
}

pub(crate) async fn put(call: Call) -> Result<HttpResponse, Problem> {
    ok(&call.app().put_subscriber(&call.param("name")?, call.json()?).await?)
}

pub(crate) async fn delete(call: Call) -> Result<HttpResponse, Problem> {
    call.app().delete_subscriber(&call.param("name")?).await?;
    Ok(HttpResponse::NoContent().finish())
}

pub(crate) async fn backfill(call: Call) -> Result<HttpResponse, Problem> {
    let name = call.param("name")?;
    let effects = call.app().backfill_subscriber(&name).await?;
    ok(&Backfilled { name, effects })
}
