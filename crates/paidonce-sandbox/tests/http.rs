//! The sandbox over HTTP: callbacks reach a receiver, the control API answers, trouble looks like trouble to a client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "a test may fail loudly"
)]

use std::sync::Mutex;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use paidonce_sandbox::{Behaviour, Channel, Delivery, Pay, Sandbox, SandboxOptions, Wish};
use serde_json::{Value, json};

/// What a ledger would see.
#[derive(Default)]
struct Seen {
    callbacks: Mutex<Vec<(String, Vec<u8>)>>,
    arrived: tokio::sync::Notify,
}

async fn take(request: HttpRequest, body: web::Bytes, seen: web::Data<Seen>) -> HttpResponse {
    seen.callbacks.lock().unwrap().push((request.path().to_owned(), body.to_vec()));
    seen.arrived.notify_one();
    if request.path().contains("/alipay/") {
        return HttpResponse::Ok().content_type("text/plain").body("success");
    }
    HttpResponse::NoContent().finish()
}

fn receiver() -> (String, web::Data<Seen>, ServerHandle) {
    let seen = web::Data::new(Seen::default());
    let shared = seen.clone();
    let server = HttpServer::new(move || App::new().app_data(shared.clone()).default_service(web::to(take)))
        .workers(1)
        .disable_signals()
        .bind("127.0.0.1:0")
        .unwrap();
    let url = format!("http://{}", server.addrs()[0]);
    let running = server.run();
    let handle = running.handle();
    tokio::spawn(running);
    (url, seen, handle)
}

async fn sandbox(notify_base: &str, delivery: Delivery, dir: &tempfile::TempDir) -> Sandbox {
    let mut options = SandboxOptions::new(dir.path().to_owned(), notify_base.to_owned());
    options.delivery = delivery;
    options.behaviour = Behaviour { timeout_seconds: 1, ..Behaviour::default() };
    Sandbox::start(options).await.unwrap()
}

async fn post(sandbox: &Sandbox, path: &str, body: Value) -> (u16, Value) {
    let request = reqwest::Client::new().post(format!("{}{path}", sandbox.url())).body(body.to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_over_the_control_api_reaches_the_ledger_and_the_state() {
    let (url, seen, receiver) = receiver();
    let dir = tempfile::tempdir().unwrap();
    let sandbox = sandbox(&url, Delivery::ByHand, &dir).await;
    for channel in ["wxpay", "alipay"] {
        let wanted = json!({ "channel": channel, "order_no": "ORDER0001", "amount_minor": 8_888 });
        let (status, paid) = post(&sandbox, "/sandbox/pay", wanted.clone()).await;
        assert_eq!((status, &paid["status"]), (200, &json!("PAID")), "{paid}");
        assert_eq!(post(&sandbox, "/sandbox/pay", wanted).await.0, 409);
    }
    assert!(seen.callbacks.lock().unwrap().is_empty(), "nobody pushes before deliver-now");
    let (_, delivered) = post(&sandbox, "/sandbox/deliver-now", json!({})).await;
    assert_eq!(delivered, json!({ "taken": 2, "not_taken": 0 }));
    let paths: Vec<String> = seen.callbacks.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
    assert!(paths.contains(&"/callbacks/wxpay/1900000001".to_owned()), "{paths:?}");
    assert!(paths.contains(&"/callbacks/alipay/2088000000000001".to_owned()), "{paths:?}");
    let state = reqwest::get(format!("{}/sandbox/state?order_no=ORDER0001", sandbox.url())).await.unwrap();
    let state: Value = serde_json::from_slice(&state.bytes().await.unwrap()).unwrap();
    assert_eq!(state["orders"].as_array().unwrap().len(), 2);
    assert_eq!(state["notices"]["taken"], json!(2));
    sandbox.stop().await;
    receiver.stop(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_go_out_by_themselves_in_the_background() {
    let (url, seen, receiver) = receiver();
    let dir = tempfile::tempdir().unwrap();
    let sandbox = sandbox(&url, Delivery::InBackground, &dir).await;
    sandbox.play(|platforms, now| platforms.pay(&Pay::new(Channel::Wxpay, "ORDER0001", 1), now)).unwrap();
    tokio::time::timeout(Duration::from_secs(20), seen.arrived.notified()).await.expect("a callback arrives");
    let lost = Pay { callback: Wish::Lost, ..Pay::new(Channel::Wxpay, "ORDER0002", 1) };
    sandbox.play(|platforms, now| platforms.pay(&lost, now)).unwrap();
    let late = Pay { callback: Wish::Delayed, ..Pay::new(Channel::Alipay, "ORDER0003", 1) };
    sandbox.play(|platforms, now| platforms.pay(&late, now)).unwrap();
    let advance = paidonce_sandbox::Advance { seconds: 3_600, ledger_moves_too: false };
    sandbox.advance(advance);
    tokio::time::timeout(Duration::from_secs(20), seen.arrived.notified()).await.expect("the late one arrives");
    assert_eq!(seen.callbacks.lock().unwrap().len(), 2, "what is lost never arrives");
    sandbox.stop().await;
    receiver.stop(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsigned_caller_is_refused_and_trouble_looks_like_trouble() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = sandbox("http://127.0.0.1:9", Delivery::ByHand, &dir).await;
    let http = reqwest::Client::builder().user_agent("test").build().unwrap();
    let target = format!("{}/v3/certificates", sandbox.url());
    let answer = http.get(&target).header("accept", "application/json").send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 401);
    assert!(answer.headers().contains_key("wechatpay-signature"));
    let gateway = format!("{}/gateway.do", sandbox.url());
    let answer = http.post(&gateway).body("method=alipay.trade.query&app_id=1").send().await.unwrap();
    let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    assert!(text.contains("isv.invalid-app-id") && text.contains("error_response"), "{text}");
    let (status, problem) = post(&sandbox, "/sandbox/fail-next", json!({ "api": "query", "kind": "nothing" })).await;
    assert_eq!(status, 400);
    assert!(problem["error"].as_str().unwrap().contains("timeout"), "the allowed kinds are named: {problem}");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_folder_are_used_again_and_the_configuration_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let first = sandbox("http://127.0.0.1:8080", Delivery::ByHand, &dir).await;
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (keys, token) = (read("sandbox-keys.json"), read("operator.token"));
    let config = read("paidonce.toml");
    assert!(config.contains("listen = \"127.0.0.1:8080\"") && config.contains(first.url()), "{config}");
    for line in config.lines().filter_map(|line| line.split_once("_file = ")) {
        let path = line.1.trim_matches('"');
        assert!(std::path::Path::new(path).is_file(), "{path} of {} is missing", line.0);
    }
    first.stop().await;
    let second = sandbox("http://127.0.0.1:8080", Delivery::ByHand, &dir).await;
    assert_eq!((read("sandbox-keys.json"), read("operator.token")), (keys, token));
    let serial = second.rotate_certificate().unwrap();
    assert!(read("sandbox-keys.json").contains(&serial), "a new certificate is kept");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_away_is_told_again_when_it_is_back() {
    let (url, seen, receiver) = receiver();
    let dir = tempfile::tempdir().unwrap();
    let sandbox = sandbox("http://127.0.0.1:9", Delivery::ByHand, &dir).await;
    sandbox.play(|platforms, now| platforms.pay(&Pay::new(Channel::Wxpay, "ORDER0001", 1), now)).unwrap();
    let delivered = sandbox.deliver_now().await;
    assert_eq!((delivered.taken, delivered.not_taken), (0, 1));
    let there = Pay { notify_url: Some(format!("{url}/hook")), ..Pay::new(Channel::Wxpay, "ORDER0002", 1) };
    sandbox.play(|platforms, now| platforms.pay(&there, now)).unwrap();
    let delivered = sandbox.deliver_now().await;
    assert_eq!((delivered.taken, delivered.not_taken), (1, 0));
    assert_eq!(seen.callbacks.lock().unwrap().len(), 1);
    sandbox.stop().await;
    receiver.stop(false).await;
}
