//! Refusals of our own API: one document, a stable code, the field, a next step, the request's id.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::request;
use crate::harness::*;
use crate::ledger::Mood;

#[tokio::test]
async fn every_wrong_field_is_named_and_nothing_is_written() {
    let doors = doors().await;
    let cases: [(&str, Value); 18] = [
        ("order_no", json!("")),
        ("order_no", json!("no spaces")),
        ("order_no", json!("中文")),
        ("order_no", json!("x".repeat(65))),
        ("order_no", json!(7)),
        ("amount_minor", json!(0)),
        ("amount_minor", json!(-1)),
        ("amount_minor", json!(1.5)),
        ("amount_minor", json!("100")),
        ("amount_minor", json!(9_223_372_036_854_775_808_u64)),
        ("currency", json!("cny")),
        ("currency", json!("XXX")),
        ("accounts", json!([])),
        ("accounts", json!(["wxpay:1900000999"])),
        ("accounts[0]", json!(["stripe:1"])),
        ("expires_at", json!("2001-01-01T00:00:00Z")),
        ("expires_at", json!("tomorrow")),
        ("supersedes", json!("O-1")),
    ];
    for (field, value) in cases {
        let mut body = open_body("O-1", 100);
        body[field.split('[').next().unwrap()] = value.clone();
        let problem = doors.post("/v1/orders", &body).await.problem(400, "invalid_request");
        assert_eq!(problem["field"], field, "{value}: {problem}");
    }
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn unknown_repeated_and_missing_fields_are_refused_by_name() {
    let doors = doors().await;
    let mut unknown = open_body("O-1", 100);
    unknown["amount"] = json!(100);
    assert_eq!(doors.post("/v1/orders", &unknown).await.problem(400, "invalid_request")["field"], "amount");
    let mut missing = open_body("O-1", 100);
    missing.as_object_mut().unwrap().remove("currency");
    assert_eq!(doors.post("/v1/orders", &missing).await.problem(400, "invalid_request")["field"], "currency");
    let token = ("Authorization".to_owned(), format!("Bearer {OPERATOR}"));
    for (body, field) in [
        (r#"{"order_no":"O-1","order_no":"O-2"}"#, Some("order_no")),
        (r#"{"order_no":"#, Some("order_no")),
        ("[]", None),
        ("", None),
        ("\u{feff}{}", None),
    ] {
        let answer = doors.raw(&request("POST", "/v1/orders", std::slice::from_ref(&token), body.as_bytes())).await;
        assert_eq!(answer.problem(400, "invalid_request")["field"].as_str(), field, "{body}");
    }
    let answer =
        doors.raw(&request("POST", "/v1/orders", std::slice::from_ref(&token), b"{\"order_no\":\"\xff\"}")).await;
    answer.problem(400, "invalid_request");
    let form = [token, ("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
    doors.raw(&request("POST", "/v1/orders", &form, b"a=b")).await.problem(415, "unsupported_media_type");
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn query_parameters_are_checked_by_name() {
    let doors = doors().await;
    for (path, field) in [
        ("/v1/orders?status=paid", "status"),
        ("/v1/orders?limit=0", "limit"),
        ("/v1/orders?limit=501", "limit"),
        ("/v1/orders?limit=x", "limit"),
        ("/v1/orders?from=yesterday", "from"),
        ("/v1/orders?order=asc", "order"),
        ("/v1/orders?limit=1&limit=2", "limit"),
        ("/v1/items?kind=lost", "kind"),
        ("/v1/effects?state=sent", "state"),
        ("/v1/effects?after=7", "after"),
    ] {
        assert_eq!(doors.get(path).await.problem(400, "invalid_request")["field"], field, "{path}");
    }
}

#[tokio::test]
async fn a_body_over_64_kib_is_413() {
    let doors = doors().await;
    let mut body = open_body("O-1", 100);
    body["description"] = json!("x".repeat(70_000));
    doors.post("/v1/orders", &body).await.problem(413, "body_too_large");
}

#[tokio::test]
async fn unknown_paths_are_404_and_other_methods_405_with_allow() {
    let doors = doors().await;
    doors.get("/v1/nothing").await.problem(404, "not_found");
    doors.get("/v1/orders/").await.problem(404, "not_found");
    let answer = doors.call(OPERATOR, "DELETE", "/v1/orders", &Value::Null).await;
    answer.problem(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("POST, GET"));
    doors.raw(&request("GET", WXPAY_PATH, &[], b"")).await.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn a_missing_outcome_is_503_with_retry_after_and_said_as_what_it_is() {
    let doors = doors_with(|options| options.answer_deadline = Duration::from_millis(50)).await;
    for (mood, code) in [
        (Mood::QueueFull, "queue_full"),
        (Mood::Away, "database_away"),
        (Mood::OutcomeUnknown, "outcome_unknown"),
        (Mood::Slow(Duration::from_millis(300)), "outcome_unknown"),
    ] {
        doors.ledger.feel(mood);
        let answer = doors.post("/v1/orders", &open_body("O-1", 100)).await;
        answer.problem(503, code);
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
}

#[tokio::test]
async fn readiness_follows_the_ledger_and_liveness_does_not() {
    let doors = doors().await;
    assert_eq!(doors.get("/readyz").await.json()["status"], "ready");
    doors.ledger.feel(Mood::Away);
    doors.get("/readyz").await.problem(503, "not_ready");
    assert_eq!(doors.get("/healthz").await.json()["status"], "ok");
    let metrics = doors.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.text().contains("paidonce_ledger_up 0"));
}

#[tokio::test]
async fn a_sane_request_id_is_taken_over_and_an_odd_one_is_replaced() {
    let doors = doors().await;
    let sane = doors.call_with(OPERATOR, "GET", "/v1/orders", &Value::Null, &[("X-Request-Id", "gate.1-a_b")]).await;
    assert_eq!(sane.header("x-request-id"), Some("gate.1-a_b"));
    for odd in ["has space", "{}", &"x".repeat(65)] {
        let answer = doors.call_with(OPERATOR, "GET", "/v1/nothing", &Value::Null, &[("X-Request-Id", odd)]).await;
        answer.problem(404, "not_found");
        assert_ne!(answer.header("x-request-id"), Some(odd));
    }
}

#[tokio::test]
async fn answers_carry_security_headers() {
    let doors = doors().await;
    for path in ["/v1/orders", "/v1/nothing", "/docs"] {
        let answer = doors.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert!(answer.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'")));
        assert!(answer.header("server").is_none());
    }
}
