//! `/v1/orders/{order_no}/refunds`, and `../{refund_no}/query` at the platform.

use actix_web::HttpResponse;
use paidonce_app::app::Door;
use paidonce_app::view::RefundView;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, created, ok};
use crate::problem::Problem;

/// Refunds of an order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Refunds {
    /// Of all its payments.
    refunds: Vec<RefundView>,
}

pub(crate) async fn request(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    created(&call.app().request_refund(&call.order_no()?, call.json()?, &caller).await?)
}

pub(crate) async fn list(call: Call) -> Result<HttpResponse, Problem> {
    ok(&Refunds { refunds: call.app().list_refunds(&call.order_no()?).await? })
}

pub(crate) async fn query(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    ok(&call.app().query_refund(&call.order_no()?, &call.refund_no()?, &caller).await?)
}
