//! `Idempotency-Key`: the same request once, another request never under the same key (P1).

use serde_json::{Value, json};

use crate::client::Answer;
use crate::harness::*;

async fn refund(doors: &Doors, secret: &str, key: &str, amount_minor: i64) -> Answer {
    let body = json!({ "amount_minor": amount_minor });
    doors.call_with(secret, "POST", "/v1/orders/O-1/refunds", &body, &[("Idempotency-Key", key)]).await
}

async fn paid_order() -> Doors {
    let doors = doors().await;
    doors.open("O-1", 1_000).await;
    doors.push(&wx_payment("O-1", "4200001", 1_000)).await;
    doors
}

#[tokio::test]
async fn the_same_key_and_body_is_one_refund_and_another_body_is_422() {
    let doors = paid_order().await;
    let first = refund(&doors, SERVICE, "key-1", 300).await;
    let again = refund(&doors, SERVICE, "key-1", 300).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json(), again.json());
    refund(&doors, SERVICE, "key-1", 500).await.problem(422, "idempotency_key_reused");
    assert_eq!(doors.get("/v1/orders/O-1/refunds").await.json()["refunds"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_key_belongs_to_the_token_and_to_the_path() {
    let doors = paid_order().await;
    assert_eq!(refund(&doors, SERVICE, "key-1", 300).await.status, 201);
    assert_eq!(refund(&doors, OPERATOR, "key-1", 300).await.status, 201, "another token's key is another key");
    let close = json!({ "reason": "no" });
    let answer =
        doors.call_with(SERVICE, "POST", "/v1/orders/O-1/close", &close, &[("Idempotency-Key", "key-1")]).await;
    answer.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn fifty_first_uses_at_once_are_one_refund() {
    let doors = paid_order().await;
    let answers = futures_util::future::join_all((0..50).map(|_| refund(&doors, SERVICE, "key-2", 10))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert!(answers.iter().all(|answer| answer.json() == answers[0].json()));
    assert_eq!(doors.get("/v1/orders/O-1/refunds").await.json()["refunds"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn odd_keys_are_refused() {
    let doors = paid_order().await;
    for key in ["", "has space", &"x".repeat(121), &"%".repeat(90)] {
        let problem = refund(&doors, SERVICE, key, 300).await.problem(400, "invalid_request");
        assert_eq!(problem["field"], "Idempotency-Key", "{key:?}");
    }
    assert_eq!(refund(&doors, SERVICE, &"x".repeat(120), 300).await.status, 201);
    assert_eq!(doors.get("/v1/orders/O-1/refunds").await.json()["refunds"][1], Value::Null);
}
