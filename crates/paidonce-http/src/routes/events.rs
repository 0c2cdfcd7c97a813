//! `/v1/events`: the log as a feed.

use actix_web::HttpResponse;

use crate::call::{Call, ok};
use crate::problem::Problem;

pub(crate) async fn feed(call: Call) -> Result<HttpResponse, Problem> {
    let query = call.query()?;
    ok(&call.app().read_feed(query.text("cursor").unwrap_or_default(), query.limit()?).await?)
}
