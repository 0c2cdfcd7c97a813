//! DESIGN section 5, row by row: what arrived, what each platform is answered, what is written (P2, P5, P6).

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Answer, read_answer, request};
use crate::harness::*;
use crate::keys::key;
use crate::ledger::Mood;
use crate::signer;

fn assert_wx_acknowledged(answer: &Answer) {
    assert_eq!((answer.status, answer.body.as_slice()), (204, b"".as_slice()), "{}", answer.text());
    assert_no_redirect_or_cookie(answer);
}

fn assert_alipay_acknowledged(answer: &Answer) {
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"success".as_slice()));
    assert_no_redirect_or_cookie(answer);
}

fn assert_no_redirect_or_cookie(answer: &Answer) {
    assert!(answer.header("location").is_none() && answer.header("set-cookie").is_none());
}

fn assert_wx_refused(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body: Value = answer.json();
    assert_eq!(body["code"], "FAIL");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
}

fn assert_alipay_refused(answer: &Answer, status: u16) {
    assert_eq!((answer.status, answer.text().as_str()), (status, "fail"));
}

#[tokio::test]
async fn a_verified_payment_is_acknowledged_in_each_platforms_own_words_and_so_is_its_copy() {
    let doors = doors().await;
    doors.open("WX-1", 100).await;
    doors.open("ALI-1", 100).await;
    for _ in 0..2 {
        assert_wx_acknowledged(&doors.push(&wx_payment("WX-1", "4200001", 100)).await);
        assert_alipay_acknowledged(&doors.push(&alipay_payment("ALI-1", "2026001", "1.00")).await);
    }
    let confirmed = doors.ledger.event_types().iter().filter(|name| *name == "PaymentConfirmed").count();
    assert_eq!(confirmed, 2);
    let duplicates: Vec<String> = doors.ledger.attempts().into_iter().map(|attempt| attempt.result).collect();
    assert_eq!(duplicates, ["duplicate", "duplicate"], "kept for explain");
}

/// Gotcha 45 of the protocol facts, the server's half: a framework that mixed the URL into the form would break the signature.
#[tokio::test]
async fn parameters_of_the_url_are_not_read() {
    let doors = doors().await;
    doors.open("ALI-1", 100).await;
    let mut push = alipay_payment("ALI-1", "2026001", "1.00");
    push.path.push_str("?merchant=1&out_trade_no=ANOTHER&total_amount=0.01");
    assert_alipay_acknowledged(&doors.push(&push).await);
    assert_eq!(doors.ledger.event_types(), ["OrderOpened", "PaymentConfirmed"]);
}

#[tokio::test]
async fn parked_and_surplus_payments_are_acknowledged_too() {
    let doors = doors().await;
    assert_wx_acknowledged(&doors.push(&wx_payment("NOT-OPENED", "4200001", 100)).await);
    doors.open("WRONG-AMOUNT", 100).await;
    assert_alipay_acknowledged(&doors.push(&alipay_payment("WRONG-AMOUNT", "2026001", "0.01")).await);
    let events = doors.ledger.event_types();
    assert_eq!(events, ["PaymentParked", "OrderOpened", "SurplusPaymentRecorded"]);
}

#[tokio::test]
async fn what_is_verified_but_cant_be_booked_is_kept_as_a_stray_and_acknowledged() {
    let doors = doors().await;
    let unknown = signer::wx_envelope(signer::APIV3_KEY_A, "SOMETHING.NEW", "novelty", &serde_json::json!({ "a": 1 }));
    assert_wx_acknowledged(&doors.push(&wx_push(unknown)).await);
    let mut no_amount = signer::alipay_payment("ALI-1", "2026001", "1.00");
    no_amount.retain(|(name, _)| name != "total_amount");
    assert_alipay_acknowledged(&doors.push(&alipay_push(key("alipay_platform"), &no_amount)).await);
    assert_eq!(doors.ledger.event_types(), ["StrayRecorded", "StrayRecorded"]);
}

#[tokio::test]
async fn a_share_notice_finds_its_order_by_the_channels_number_and_is_a_stray_when_there_is_none() {
    let doors = doors().await;
    doors.open("WX-1", 1_000).await;
    assert_wx_acknowledged(&doors.push(&wx_payment("WX-1", "4200001", 1_000)).await);
    let share = |channel_trade_no: &str| {
        let resource = serde_json::json!({
            "mchid": "1900000001", "transaction_id": channel_trade_no, "order_id": "3008450740201411110007820472",
            "out_order_no": "P1", "success_time": "2026-01-15T10:00:00+08:00",
            "receiver": { "type": "MERCHANT_ID", "account": "1900000100", "amount": 10, "description": "share" },
        });
        wx_push(signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "profitsharing", &resource))
    };
    assert_wx_acknowledged(&doors.push(&share("4200001")).await);
    assert_wx_acknowledged(&doors.push(&share("4209999")).await);
    let events = doors.ledger.event_types();
    assert_eq!(events, ["OrderOpened", "PaymentConfirmed", "ProfitShareConfirmed", "StrayRecorded"]);
}

#[tokio::test]
async fn unsigned_forged_stale_and_unknown_callbacks_are_refused_with_401_and_change_nothing() {
    let doors = doors().await;
    let body = signer::wx_envelope(
        signer::APIV3_KEY_A,
        "TRANSACTION.SUCCESS",
        "transaction",
        &signer::wx_payment("WX-1", "4200001", 100),
    );
    let forged = wx_push_by(key("attacker_key"), unix_now(), body.clone());
    assert_wx_refused(&doors.push(&forged).await, 401);
    assert_wx_refused(&doors.push(&wx_push_by(key("platform_cert_1"), unix_now() - 400, body.clone())).await, 401);
    assert_wx_refused(&doors.push(&wx_push_by(key("unknown_key"), unix_now(), body.clone())).await, 401);
    let unsigned = Push { path: WXPAY_PATH.to_owned(), headers: Vec::new(), body: body.clone() };
    assert_wx_refused(&doors.push(&unsigned).await, 401);
    let headers = signer::wx_header_list(key("platform_cert_1").id, unix_now(), "n", "WECHATPAY/SIGNTEST/abc");
    assert_wx_refused(&doors.push(&Push { path: WXPAY_PATH.to_owned(), headers, body }).await, 401);
    let params = signer::alipay_payment("ALI-1", "2026001", "1.00");
    assert_alipay_refused(&doors.push(&alipay_push(key("attacker_key"), &params)).await, 401);
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn the_refusals_of_a_probe_and_of_a_forgery_are_counted_apart() {
    let doors = doors().await;
    let headers = signer::wx_header_list(key("platform_cert_1").id, unix_now(), "n", "WECHATPAY/SIGNTEST/abc");
    doors.push(&Push { path: WXPAY_PATH.to_owned(), headers, body: b"{}".to_vec() }).await;
    doors.push(&wx_push_by(key("attacker_key"), unix_now(), b"{}".to_vec())).await;
    let metrics = doors.get("/metrics").await.text();
    assert!(metrics.contains("paidonce_callback_probes_total{channel=\"wxpay\"} 1"), "{metrics}");
    assert!(metrics.contains("paidonce_callback_refusals_total{channel=\"wxpay\","), "{metrics}");
    assert!(!metrics.contains("code=\"probe\""), "{metrics}");
}

#[tokio::test]
async fn a_good_signature_over_somebody_elses_account_is_refused_with_403() {
    let doors = doors().await;
    let mut resource = signer::wx_payment("WX-1", "4200001", 100);
    resource["mchid"] = "1900000666".into();
    let body = signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "transaction", &resource);
    assert_wx_refused(&doors.push(&wx_push(body)).await, 403);
    let mut params = signer::alipay_payment("ALI-1", "2026001", "1.00");
    for (name, value) in &mut params {
        if name == "seller_id" {
            *value = "2088000000000666".to_owned();
        }
    }
    assert_alipay_refused(&doors.push(&alipay_push(key("alipay_platform"), &params)).await, 403);
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn what_cant_be_decrypted_is_kept_once_and_refused_with_500_until_the_key_is_reloaded() {
    let doors = doors().await;
    doors.open("WX-1", 100).await;
    let resource = signer::wx_payment("WX-1", "4200001", 100);
    let body = signer::wx_envelope(signer::APIV3_KEY_B, "TRANSACTION.SUCCESS", "transaction", &resource);
    for _ in 0..2 {
        assert_wx_refused(&doors.push(&wx_push(body.clone())).await, 500);
    }
    assert_eq!(doors.ledger.event_types(), ["OrderOpened", "StrayRecorded"]);
    doors.app.accounts().replace(accounts(signer::APIV3_KEY_B));
    assert_wx_acknowledged(&doors.push(&wx_push(body)).await);
    assert_eq!(doors.ledger.event_types().last().unwrap(), "PaymentConfirmed");
}

#[tokio::test]
async fn signed_bytes_that_are_not_readable_are_refused_with_400() {
    let doors = doors().await;
    assert_wx_refused(&doors.push(&wx_push(b"not json".to_vec())).await, 400);
    assert_wx_refused(&doors.push(&wx_push(b"{\"id\":\"1\",\"id\":\"2\"}".to_vec())).await, 400);
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn unknown_paths_are_404_and_no_key_is_tried() {
    let doors = doors().await;
    let mut push = wx_payment("WX-1", "4200001", 100);
    push.path = "/callbacks/wxpay/1900000009".to_owned();
    assert_wx_refused(&doors.push(&push).await, 404);
    push.path = "/callbacks/alipay/1900000001".to_owned();
    assert_alipay_refused(&doors.push(&push).await, 404);
    push.path = "/callbacks/stripe/1900000001".to_owned();
    doors.push(&push).await.problem(404, "not_found");
    push.path = "/callbacks/wxpay/1900000001/ORDER-B".to_owned();
    doors.push(&push).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_busy_or_absent_ledger_answers_503_and_nothing_is_acknowledged() {
    let doors = doors().await;
    doors.open("WX-1", 100).await;
    for mood in [Mood::QueueFull, Mood::Away, Mood::OutcomeUnknown] {
        doors.ledger.feel(mood);
        let answer = doors.push(&wx_payment("WX-1", "4200001", 100)).await;
        assert_wx_refused(&answer, 503);
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert_alipay_refused(&doors.push(&alipay_payment("WX-1", "2026001", "1.00")).await, 503);
    }
    doors.ledger.feel(Mood::Works);
    assert_wx_acknowledged(&doors.push(&wx_payment("WX-1", "4200001", 100)).await);
}

#[tokio::test]
async fn a_slow_commit_is_answered_503_in_time_and_its_resend_is_a_duplicate() {
    let doors = doors_with(|options| options.answer_deadline = Duration::from_millis(50)).await;
    doors.open("WX-1", 100).await;
    doors.ledger.feel(Mood::Slow(Duration::from_millis(300)));
    assert_wx_refused(&doors.push(&wx_payment("WX-1", "4200001", 100)).await, 503);
    doors.ledger.feel(Mood::Works);
    eventually("the job went on", || doors.ledger.event_types().len() == 2).await;
    assert_wx_acknowledged(&doors.push(&wx_payment("WX-1", "4200001", 100)).await);
    assert_eq!(doors.ledger.event_types(), ["OrderOpened", "PaymentConfirmed"]);
}

#[tokio::test]
async fn a_panic_is_never_a_success() {
    let doors = doors().await;
    doors.ledger.feel(Mood::Panics);
    assert_wx_refused(&doors.push(&wx_payment("WX-1", "4200001", 100)).await, 500);
    assert_alipay_refused(&doors.push(&alipay_payment("WX-1", "2026001", "1.00")).await, 500);
    doors.post("/v1/orders", &open_body("WX-1", 100)).await.problem(500, "internal");
    doors.ledger.feel(Mood::Works);
    assert_wx_acknowledged(&doors.push(&wx_payment("WX-1", "4200001", 100)).await);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_take_the_commit_along() {
    let doors = doors().await;
    doors.ledger.feel(Mood::Slow(Duration::from_millis(50)));
    let mut stream = TcpStream::connect(doors.address()).await.unwrap();
    stream.write_all(&wx_payment("WX-1", "4200001", 100).bytes()).await.unwrap();
    stream.flush().await.unwrap();
    // The reset must meet a handler at work.
    eventually("the job has begun", || doors.ledger.jobs_begun() == 1).await;
    drop(stream);
    eventually("the commit came through", || doors.ledger.event_types() == ["PaymentParked"]).await;
}

#[tokio::test]
async fn a_shutdown_finishes_what_was_accepted() {
    let doors = doors().await;
    doors.ledger.feel(Mood::Slow(Duration::from_millis(200)));
    let mut stream = TcpStream::connect(doors.address()).await.unwrap();
    stream.write_all(&wx_payment("WX-1", "4200001", 100).bytes()).await.unwrap();
    eventually("the job has begun", || doors.ledger.jobs_begun() == 1).await;
    let Doors { ledger, server, .. } = doors;
    let (answer, ()) = tokio::join!(read_answer(&mut stream), server.shutdown());
    assert_wx_acknowledged(&answer);
    assert_eq!(ledger.event_types(), ["PaymentParked"]);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_announced_or_not_and_slow_senders_are_cut() {
    let doors = doors_with(|options| options.body_timeout = Duration::from_millis(200)).await;
    let announced = format!("POST {WXPAY_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n");
    assert_wx_refused(&doors.raw(announced.as_bytes()).await, 413);
    let mut chunked =
        format!("POST {ALIPAY_PATH} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..70 {
        chunked.extend_from_slice(format!("400\r\n{}\r\n", "0".repeat(1024)).as_bytes());
    }
    assert_alipay_refused(&doors.raw(&chunked).await, 413);
    let slow = format!("POST {WXPAY_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    assert_wx_refused(&doors.raw(slow.as_bytes()).await, 408);
    let slow = "POST /v1/orders HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n";
    let slow = format!("{slow}Authorization: Bearer {OPERATOR}\r\n\r\nabc");
    doors.raw(slow.as_bytes()).await.problem(408, "request_timeout");
    assert!(doors.ledger.event_types().is_empty());
}

#[tokio::test]
async fn every_legal_framing_verifies_and_the_ambiguous_one_is_refused() {
    let doors = doors().await;
    let push = wx_payment("WX-1", "4200001", 100);
    let mut head = format!("POST {WXPAY_PATH} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n");
    for (name, value) in &push.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut one_byte_chunks = format!("{head}\r\n").into_bytes();
    for byte in &push.body {
        one_byte_chunks.extend_from_slice(b"1\r\n");
        one_byte_chunks.push(*byte);
        one_byte_chunks.extend_from_slice(b"\r\n");
    }
    one_byte_chunks.extend_from_slice(b"0\r\n\r\n");
    assert_wx_acknowledged(&doors.raw(&one_byte_chunks).await);
    let mut extended = format!("{head}Trailer: X-Check\r\n\r\n{:x};name=value\r\n", push.body.len()).into_bytes();
    extended.extend_from_slice(&push.body);
    extended.extend_from_slice(b"\r\n0\r\nX-Check: 1\r\n\r\n");
    assert_wx_acknowledged(&doors.raw(&extended).await);
    let expecting = [&push.headers[..], &[("Expect".to_owned(), "100-continue".to_owned())]].concat();
    assert_wx_acknowledged(&doors.raw(&request("POST", WXPAY_PATH, &expecting, &push.body)).await);
    let smuggled = format!("{head}Content-Length: 5\r\n\r\n0\r\n\r\n");
    assert_eq!(doors.raw(smuggled.as_bytes()).await.status, 400);
    assert_eq!(doors.ledger.event_types(), ["PaymentParked"]);
}

#[tokio::test]
async fn header_names_in_any_case_and_any_media_type_are_taken() {
    let doors = doors().await;
    for media in ["text/html; charset=;;", "application/json;;;", ""] {
        let mut push = wx_payment("WX-1", "4200001", 100);
        push.headers.retain(|(name, _)| name != "Content-Type");
        push.headers.iter_mut().for_each(|(name, _)| *name = name.to_uppercase());
        push.headers.push(("content-type".to_owned(), media.to_owned()));
        assert_wx_acknowledged(&doors.push(&push).await);
    }
}
