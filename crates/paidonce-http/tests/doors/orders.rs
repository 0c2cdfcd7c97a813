//! The JSON shapes of DESIGN section 7, and what each route of our API does.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test]
async fn opening_answers_201_then_200_with_the_same_shape_as_get() {
    let doors = doors().await;
    let body = open_body("O-1", 8_888);
    let opened = doors.post("/v1/orders", &body).await;
    assert_eq!(opened.status, 201);
    let again = doors.post("/v1/orders", &body).await;
    assert_eq!(again.status, 200, "the default expiry moved, what was asked for did not");
    let order = doors.get("/v1/orders/O-1").await.json();
    assert_eq!(order, opened.json());
    assert_eq!(order, again.json());
    for (member, value) in [
        ("order_no", json!("O-1")),
        ("status", json!("PENDING")),
        ("amount_minor", json!(8_888)),
        ("currency", json!("CNY")),
        ("paid_minor", json!(0)),
        ("refunded_minor", json!(0)),
        ("surplus_minor", json!(0)),
        ("version", json!(1)),
        ("payments", json!([])),
        ("refunds", json!([])),
        ("accounts", json!([WXPAY, ALIPAY])),
    ] {
        assert_eq!(order[member], value, "{member} in {order}");
    }
    assert!(order["expires_at"].is_string());
    doors.post("/v1/orders", &open_body("O-1", 1)).await.problem(409, "order_terms_differ");
}

#[tokio::test]
async fn a_paid_order_shows_its_payment_events_and_flows() {
    let doors = doors().await;
    doors.open("O-1", 100).await;
    doors.push(&wx_payment("O-1", "4200001", 100)).await;
    let order = doors.get("/v1/orders/O-1").await.json();
    assert_eq!((&order["status"], &order["paid_minor"]), (&json!("PAID"), &json!(100)));
    let payment = &order["payments"][0];
    assert_eq!((&payment["role"], &payment["channel_trade_no"]), (&json!("settling"), &json!("4200001")));
    let flows = doors.get("/v1/orders/O-1/flows").await.json();
    let flow = &flows["flows"][0];
    assert_eq!(flow["idem_key"], "WXPAY:O-1:PAY");
    assert_eq!(
        (&flow["trade_type"], &flow["direction"], &flow["amount_minor"]),
        (&json!("PAY"), &json!("IN"), &json!(100))
    );
    let events = doors.get("/v1/orders/O-1/events").await.json();
    let event = &events["events"][1];
    assert_eq!((&event["order_no"], &event["sequence"]), (&json!("O-1"), &json!(2)));
    assert_eq!((&event["event_type"], &event["event_version"]), (&json!("PaymentConfirmed"), &json!("1")));
    assert_eq!((&event["idem_key"], &event["source"]), (&json!("WXPAY:O-1:PAY"), &json!("callback")));
    assert!(event["payload"].is_object() && event["event_id"].is_string() && event["recorded_at"].is_string());
    assert_eq!(doors.get("/v1/orders?status=PAID").await.json()["orders"][0]["order_no"], "O-1");
}

#[tokio::test]
async fn an_order_only_heard_of_is_shown_as_unopened_and_unknown_ones_are_404() {
    let doors = doors().await;
    doors.push(&wx_payment("O-1", "4200001", 100)).await;
    let order = doors.get("/v1/orders/O-1").await.json();
    assert_eq!((&order["status"], &order["amount_minor"]), (&json!("UNOPENED"), &Value::Null));
    assert_eq!(order["parked"][0]["kind"], "payment");
    for path in ["/v1/orders/O-2", "/v1/orders/O-2/events", "/v1/orders/O-2/flows", "/v1/orders/O-2/refunds"] {
        doors.get(path).await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn order_numbers_with_odd_characters_are_percent_decoded_right() {
    let doors = doors().await;
    let order_no = "a_b-c|d*e@F1";
    doors.open(order_no, 100).await;
    for written in ["a_b-c|d*e@F1", "a_b-c%7Cd%2Ae%40F1", "%61_b-c%7cd*e@F1"] {
        let order = doors.get(&format!("/v1/orders/{written}")).await;
        assert_eq!((order.status, &order.json()["order_no"]), (200, &json!(order_no)), "{written}");
    }
    let problem = doors.get("/v1/orders/%E4%B8%AD").await.problem(400, "invalid_request");
    assert_eq!(problem["field"], "order_no");
    doors.get("/v1/orders/a%2Fb").await.problem(400, "invalid_request");
    doors.get("/v1/orders/A_B-C%7CD*E@F1").await.problem(404, "not_found");
}

#[tokio::test]
async fn a_replacement_closes_the_old_order_first_and_opens_nothing_when_that_one_is_paid() {
    let doors = doors().await;
    doors.open("OLD", 1_000).await;
    let mut body = open_body("NEW", 500);
    body["supersedes"] = "OLD".into();
    assert_eq!(doors.post("/v1/orders", &body).await.status, 201);
    assert_eq!(doors.post("/v1/orders", &body).await.status, 200, "the same POST heals a crash between");
    assert_eq!(doors.get("/v1/orders/OLD").await.json()["status"], "CLOSED");
    doors.open("PAID-OLD", 1_000).await;
    doors.push(&wx_payment("PAID-OLD", "4200001", 1_000)).await;
    let mut body = open_body("NEW-2", 500);
    body["supersedes"] = "PAID-OLD".into();
    doors.post("/v1/orders", &body).await.problem(409, "already_paid");
    doors.get("/v1/orders/NEW-2").await.problem(404, "not_found");
    let mut other_terms = open_body("NEW", 501);
    doors.open("OLD-2", 1_000).await;
    other_terms["supersedes"] = "OLD-2".into();
    doors.post("/v1/orders", &other_terms).await.problem(409, "order_terms_differ");
    assert_eq!(doors.get("/v1/orders/OLD-2").await.json()["status"], "PENDING", "nothing was closed for nothing");
}

#[tokio::test]
async fn closing_is_for_unpaid_orders() {
    let doors = doors().await;
    doors.open("O-1", 100).await;
    let reason = json!({ "reason": "customer left" });
    for _ in 0..2 {
        assert_eq!(doors.post("/v1/orders/O-1/close", &reason).await.json()["status"], "CLOSED");
    }
    doors.open("O-2", 100).await;
    doors.push(&wx_payment("O-2", "4200001", 100)).await;
    doors.post("/v1/orders/O-2/close", &reason).await.problem(409, "already_paid");
    doors.post("/v1/orders/O-3/close", &reason).await.problem(404, "order_not_opened");
}

#[tokio::test]
async fn refunds_are_requested_once_and_never_beyond_the_payment() {
    let doors = doors().await;
    doors.open("O-1", 1_000).await;
    let refund = json!({ "amount_minor": 300, "refund_no": "R-1" });
    doors.post("/v1/orders/O-1/refunds", &refund).await.problem(404, "no_such_payment");
    doors.push(&wx_payment("O-1", "4200001", 1_000)).await;
    let first = doors.post("/v1/orders/O-1/refunds", &refund).await;
    assert_eq!((first.status, &first.json()["state"]), (201, &json!("REQUESTED")));
    assert_eq!(doors.post("/v1/orders/O-1/refunds", &refund).await.status, 200);
    let other = json!({ "amount_minor": 301, "refund_no": "R-1" });
    doors.post("/v1/orders/O-1/refunds", &other).await.problem(409, "refund_terms_differ");
    let more = json!({ "amount_minor": 701, "refund_no": "R-2" });
    doors.post("/v1/orders/O-1/refunds", &more).await.problem(409, "exceeds_paid");
    let numberless = doors.post("/v1/orders/O-1/refunds", &json!({ "amount_minor": 10 })).await.json();
    assert!(numberless["refund_no"].as_str().unwrap().starts_with("O-1-R"), "{numberless}");
    assert_eq!(doors.get("/v1/orders/O-1/refunds").await.json()["refunds"].as_array().unwrap().len(), 2);
    doors.post("/v1/orders/O-9/refunds", &refund).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_parked_payment_can_be_adopted_and_a_surplus_accepted_or_refunded() {
    let doors = doors().await;
    let note = json!({ "reason": "checked with the bank" });
    doors.push(&wx_payment("HEARD-OF", "4200001", 100)).await;
    let parked = doors.get("/v1/items?kind=parked").await.json()["items"][0]["item_no"].as_str().unwrap().to_owned();
    let adopted = doors.post(&format!("/v1/items/{parked}/adopt"), &note).await;
    assert_eq!((adopted.status, &adopted.json()["state"]), (200, &json!("adopted")), "{}", adopted.text());
    assert_eq!(doors.get("/v1/orders/HEARD-OF").await.json()["status"], "PAID");

    doors.open("CHEAP", 1_000).await;
    doors.push(&wx_payment("CHEAP", "4200002", 1)).await;
    let surplus = doors.get("/v1/items?kind=surplus").await.json()["items"][0]["item_no"].as_str().unwrap().to_owned();
    let accepted = doors.post(&format!("/v1/items/{surplus}/accept"), &note).await;
    assert_eq!((accepted.status, &accepted.json()["state"]), (200, &json!("accepted")), "{}", accepted.text());
    assert_eq!(doors.get("/v1/orders/CHEAP").await.json()["status"], "PAID");

    doors.push(&alipay_payment("CHEAP", "2026003", "10.00")).await;
    let second = doors.get("/v1/items?kind=surplus").await.json()["items"][0]["item_no"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(doors.post(&format!("/v1/items/{second}/refund"), &note).await.status, 200);
    }
    let refunds = doors.get("/v1/orders/CHEAP/refunds").await.json();
    assert_eq!(refunds["refunds"].as_array().unwrap().len(), 1, "asked twice, refunded once: {refunds}");
    assert_eq!(
        (&refunds["refunds"][0]["amount_minor"], &refunds["refunds"][0]["origin"]),
        (&json!(1_000), &json!("surplus"))
    );
    doors.post(&format!("/v1/items/{parked}/accept"), &note).await.problem(409, "not_allowed");
}

#[tokio::test]
async fn items_are_resolved_by_a_named_person_with_a_reason() {
    let doors = doors().await;
    let mut no_amount = crate::signer::alipay_payment("ALI-1", "2026001", "1.00");
    no_amount.retain(|(name, _)| name != "total_amount");
    doors.push(&alipay_push(crate::keys::key("alipay_platform"), &no_amount)).await;
    doors.ledger.quarantine("QUARANTINED:O-1");
    for kind in ["stray", "quarantined"] {
        let path = format!("/v1/items?kind={kind}");
        let item_no = doors.get(&path).await.json()["items"][0]["item_no"].as_str().unwrap().to_owned();
        doors.post(&format!("/v1/items/{item_no}/resolve"), &json!({})).await.problem(400, "invalid_request");
        doors
            .post(&format!("/v1/items/{item_no}/resolve"), &json!({ "reason": " " }))
            .await
            .problem(400, "invalid_request");
        let body = json!({ "operator": "bob", "reason": "seen" });
        for _ in 0..2 {
            let resolved = doors.post(&format!("/v1/items/{item_no}/resolve"), &body).await;
            assert_eq!((resolved.status, &resolved.json()["state"]), (200, &json!("resolved")), "{}", resolved.text());
        }
        assert_eq!(doors.get(&path).await.json()["items"], json!([]));
        assert_eq!(doors.get(&format!("{path}&state=all")).await.json()["items"].as_array().unwrap().len(), 1);
    }
    let actors: Vec<_> = doors.ledger.contexts().into_iter().filter_map(|context| context.actor).collect();
    assert_eq!(actors, ["alice"], "the token's name is in the log whatever the body says");
}

#[tokio::test]
async fn the_feed_pages_with_an_opaque_cursor() {
    let doors = doors().await;
    doors.open("O-1", 100).await;
    doors.open("O-2", 100).await;
    let first = doors.get("/v1/events?limit=1").await.json();
    assert_eq!(first["events"].as_array().unwrap().len(), 1);
    assert!(first["heads"][0]["position"].is_i64());
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = doors.get(&format!("/v1/events?limit=1&cursor={cursor}")).await.json();
    assert_eq!(second["events"][0]["order_no"], "O-2");
    doors.get("/v1/events?cursor=nonsense").await.problem(400, "invalid_request");
}

#[tokio::test]
async fn subscribers_are_put_listed_backfilled_and_removed() {
    let doors = doors().await;
    doors.app.set_secret_names(["warehouse".to_owned()]);
    let body =
        json!({ "events": ["PaymentConfirmed"], "url": "http://127.0.0.1:9000/hook", "secret_ref": "warehouse" });
    let put = doors.call(OPERATOR, "PUT", "/v1/subscribers/warehouse", &body).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(doors.get("/v1/subscribers").await.json()["subscribers"][0]["name"], "warehouse");
    let backfilled = doors.post("/v1/subscribers/warehouse/backfill", &Value::Null).await;
    assert_eq!(backfilled.json()["effects"], 0);
    for (field, value) in [("secret_ref", json!("nope")), ("url", json!("ftp://x")), ("events", json!([]))] {
        let mut wrong = body.clone();
        wrong[field] = value;
        let problem = doors.call(OPERATOR, "PUT", "/v1/subscribers/warehouse", &wrong).await;
        assert_eq!(problem.problem(400, "invalid_request")["field"], field);
    }
    assert_eq!(doors.call(OPERATOR, "DELETE", "/v1/subscribers/warehouse", &Value::Null).await.status, 204);
    doors.call(OPERATOR, "DELETE", "/v1/subscribers/warehouse", &Value::Null).await.problem(404, "not_found");
}
