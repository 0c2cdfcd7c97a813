//! The API's own documents: complete, and made from the same tables as the API.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use paidonce_http::policy::{Access, ROUTES};
use paidonce_http::{openapi, problem};

use crate::harness::*;

#[tokio::test]
async fn the_document_lists_every_route_and_every_problem_and_every_reference_resolves() {
    let doors = doors().await;
    let document = doors.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operation_ids = BTreeSet::new();
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        assert!(operation["summary"].is_string(), "{} {}", route.method, route.path);
        assert!(operation_ids.insert(operation["operationId"].to_string()), "{}", operation["operationId"]);
        // A question to a platform has nothing to say but its path.
        let is_question = route.path.ends_with("/query-payment") || route.path.ends_with("/query");
        if matches!(route.access, Access::WriteOrders) && !is_question {
            assert!(operation["requestBody"].is_object(), "{}", route.path);
        }
    }
    for kind in problem::ALL {
        assert_eq!(document["x-problems"][kind.code]["status"], kind.status, "{}", kind.code);
    }
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name} is referred to and not there");
    }
}

#[test]
fn problem_codes_are_told_apart() {
    let codes: BTreeSet<&str> = problem::ALL.iter().map(|kind| kind.code).collect();
    assert_eq!(codes.len(), problem::ALL.len());
}

#[tokio::test]
async fn the_page_shows_every_route_and_problem_and_loads_nothing() {
    let doors = doors().await;
    let page = doors.get("/docs").await.text();
    for route in ROUTES {
        assert!(page.contains(&format!("<code>{} {}</code>", route.method, route.path)), "{}", route.path);
    }
    for kind in problem::ALL {
        assert!(page.contains(&format!("id=\"{}\"", kind.code)), "{}", kind.code);
    }
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("http://") && !page.contains("https://")
    );
}

/// `schemas/openapi.json` is what others read; `PAIDONCE_UPDATE_SCHEMAS=1` writes it anew.
#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/openapi.json");
    let served = serde_json::to_string_pretty(&openapi::document()).unwrap() + "\n";
    if std::env::var_os("PAIDONCE_UPDATE_SCHEMAS").is_some() {
        fs::write(&path, &served).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, served, "run with PAIDONCE_UPDATE_SCHEMAS=1 and commit schemas/openapi.json");
}
