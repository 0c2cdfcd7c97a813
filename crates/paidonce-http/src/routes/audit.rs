//! `/v1/audit`: what proves the ledger to a person.

use actix_web::HttpResponse;

use crate::call::{Call, ok};
use crate::problem::Problem;

pub(crate) async fn timeline(call: Call) -> Result<HttpResponse, Problem> {
    ok(&call.app().explain_order(&call.order_no()?).await?)
}
