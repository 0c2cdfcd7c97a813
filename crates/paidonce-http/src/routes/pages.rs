//! `/openapi.json` and `/docs`: this API, for programs and for people.

use actix_web::HttpResponse;
use actix_web::http::header;

use crate::call::ok;
use crate::problem::Problem;
use crate::{docs_page, openapi};

pub(crate) async fn openapi() -> Result<HttpResponse, Problem> {
    ok(&openapi::document())
}

pub(crate) async fn docs() -> HttpResponse {
    // One inline style sheet, no script, nothing from elsewhere.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .body(docs_page::page())
}
