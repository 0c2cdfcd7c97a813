//! `/v1/items`: what needs a person, and what a person can do about it.

use actix_web::HttpResponse;
use paidonce_app::app::Door;
use paidonce_app::items::ItemFilter;
use paidonce_app::view::ItemView;
use paidonce_order::order::ItemKind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, ok};
use crate::problem::Problem;

/// A page of items.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ItemPage {
    /// Newest first.
    items: Vec<ItemView>,
    /// Give it back as `after` for the next page; `null` on the last one.
    next_after: Option<String>,
}

pub(crate) async fn list(call: Call) -> Result<HttpResponse, Problem> {
    let query = call.query()?;
    let filter = ItemFilter {
        kind: query.value("kind", parse_kind)?,
        closed_too: query.value("state", parse_state)?.unwrap_or(false),
        after: query.text("after").map(ToOwned::to_owned),
        limit: query.limit()?,
    };
    let items = call.app().list_items(&filter).await?;
    let full = u32::try_from(items.len()).is_ok_and(|rows| rows == filter.limit);
    let next_after = items.last().filter(|_| full).map(|item| item.item_no.clone());
    ok(&ItemPage { items, next_after })
}

pub(crate) async fn get(call: Call) -> Result<HttpResponse, Problem> {
    ok(&call.app().get_item(&call.param("item_no")?).await?)
}

pub(crate) async fn resolve(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Operator)?;
    ok(&call.app().resolve_item(&call.param("item_no")?, call.json()?, &caller).await?)
}

pub(crate) async fn adopt(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Operator)?;
    ok(&call.app().adopt_item(&call.param("item_no")?, call.json()?, &caller).await?)
}

pub(crate) async fn accept(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Operator)?;
    ok(&call.app().accept_item(&call.param("item_no")?, call.json()?, &caller).await?)
}

pub(crate) async fn refund(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Operator)?;
    ok(&call.app().refund_item(&call.param("item_no")?, call.json()?, &caller).await?)
}

fn parse_kind(text: &str) -> Result<ItemKind, String> {
    let all = [
        ItemKind::Parked,
        ItemKind::Surplus,
        ItemKind::Flagged,
        ItemKind::Stray,
        ItemKind::Quarantined,
        ItemKind::Stalled,
    ];
    let known = all.into_iter().find(|kind| kind.as_str() == text);
    known.ok_or_else(|| format!("must be parked, surplus, flagged, stray, quarantined or stalled, not {text:?}"))
}

/// Whether closed items are asked for too.
fn parse_state(text: &str) -> Result<bool, String> {
    match text {
        "open" => Ok(false),
        "all" => Ok(true),
        other => Err(format!("must be open or all, not {other:?}")),
    }
}
