//! P5 and P6 at the edge: what is not signed is refused and leaves no trace; the same values inside a good signature are
//! kept as a stray and acknowledged.

use paidonce_tests::app::{TestApp, alipay_request, json_request, shop_request};
use paidonce_tests::config::SERVICE_TOKEN;
use paidonce_tests::database::Engine;
use paidonce_tests::keys::key;
use paidonce_tests::signer::{self, Charset, KeepSignType, SignField};
use paidonce_tests::wire::{Request, Transfer};
use serde_json::{Value, json};

use super::{ALIPAY, WXPAY, on_both};

/// One byte over what is read.
const TOO_MANY_BYTES: usize = 64 * 1024 + 1;

on_both! {
    /// P5: every door refuses what carries no good signature, in the platform's words, and writes nothing.
    async fn what_is_not_signed_is_refused_and_leaves_no_trace(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("EDGE", 100, &[WXPAY, ALIPAY]).await;
        let before = rows(&app);
        for (what, request, expected) in unsigned_wechat(&app).into_iter().chain(unsigned_alipay(&app)) {
            let answer = app.send(&request).await;
            assert_eq!(answer.status, expected, "{what}: {}", answer.text());
            assert_ne!(answer.text(), "success", "{what}");
        }
        assert_eq!(rows(&app), before, "something was written");
        let good = app.send(&app.wx_payment("EDGE", "42000030", 100)).await;
        assert_eq!(good.status, 204, "the server goes on");
        app.finish().await;
    }

    /// Our own API names the wrong field and writes nothing.
    async fn a_wrong_request_to_our_api_names_the_field_and_writes_nothing(engine: Engine) {
        let app = TestApp::start(engine).await;
        let before = rows(&app);
        for (what, body, field) in wrong_orders() {
            let answer = app.send(&json_request("POST", "/v1/orders", &body).header("Authorization", &bearer())).await;
            assert_eq!(answer.status, 400, "{what}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
            assert!(answer.text().contains(field), "{what} does not name {field}: {}", answer.text());
        }
        for (what, request, expected) in wrong_envelopes() {
            let answer = app.send(&request).await;
            assert_eq!(answer.status, expected, "{what}: {}", answer.text());
        }
        assert_eq!(rows(&app), before, "something was written");
        app.finish().await;
    }

    /// P6, WeChat Pay: signed by the platform, so it happened; what we can't book is kept once and acknowledged.
    async fn the_same_values_in_a_signed_wechat_message_are_kept(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("EDGE", 100, &[WXPAY]).await;
        let messages = unusable_wechat();
        for (what, resource) in &messages {
            for _ in 0..2 {
                let answer = app.send(&app.wx_push("TRANSACTION.SUCCESS", "transaction", resource)).await;
                assert_eq!(answer.status, 204, "{what}: {}", answer.text());
            }
        }
        kept_once_each(&app, messages.len()).await;
        app.finish().await;
    }

    /// P6, Alipay.
    async fn the_same_values_in_a_signed_alipay_message_are_kept(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("EDGE", 100, &[ALIPAY]).await;
        let messages = unusable_alipay();
        for (what, params) in &messages {
            for _ in 0..2 {
                let answer = app.send(&app.alipay_signed(params)).await;
                assert_eq!(answer.text(), "success", "{what}: {}", answer.status);
            }
        }
        kept_once_each(&app, messages.len()).await;
        app.finish().await;
    }

    /// A full coupon: the payer pays nothing, the order is paid.
    async fn a_full_coupon_pays_the_order(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("COUPON", 100, &[WXPAY]).await;
        let mut resource = signer::wx_payment("COUPON", "42000031", 100);
        resource["amount"]["payer_total"] = json!(0);
        assert_eq!(app.send(&app.wx_push("TRANSACTION.SUCCESS", "transaction", &resource)).await.status, 204);
        let order = app.order("COUPON").await;
        assert_eq!((order["status"].as_str(), order["paid_minor"].as_i64()), (Some("PAID"), Some(100)));
        app.finish().await;
    }
}

/// Rows of every table that a message could reach.
fn rows(app: &TestApp) -> Vec<i64> {
    ["events", "t_idempotent", "t_order", "t_order_flow", "t_item", "t_evidence", "t_effect"]
        .iter()
        .map(|table| app.database.count(&format!("SELECT count(*) FROM {table}")))
        .collect()
}

async fn kept_once_each(app: &TestApp, messages: usize) {
    let messages = i64::try_from(messages).unwrap();
    assert_eq!(app.database.count("SELECT count(*) FROM events WHERE event_type = 'StrayRecorded'"), messages);
    assert_eq!(app.database.count("SELECT count(*) FROM t_item WHERE kind = 'stray' AND state = 'open'"), messages);
    assert_eq!(app.database.count("SELECT count(*) FROM t_order_flow"), 0);
    assert_eq!(app.order("EDGE").await["status"], "PENDING");
    let page = app.get("/v1/items?kind=stray&limit=500").await.json();
    assert_eq!(page["items"].as_array().map(Vec::len), usize::try_from(messages).ok());
}

type Row = (&'static str, Request, u16);

fn unsigned_wechat(app: &TestApp) -> Vec<Row> {
    let good = || app.wx_payment("EDGE", "42000030", 100);
    let without = |name: &str| {
        let mut request = good();
        request.headers.retain(|(found, _)| found != name);
        request
    };
    let with = |name: &str, value: &str| without(name).header(name, value);
    let changed = |change: fn(&mut Request)| {
        let mut request = good();
        change(&mut request);
        request
    };
    vec![
        ("no timestamp", without("Wechatpay-Timestamp"), 401),
        ("no nonce", without("Wechatpay-Nonce"), 401),
        ("no signature", without("Wechatpay-Signature"), 401),
        ("no serial", without("Wechatpay-Serial"), 401),
        ("a timestamp that is no number", with("Wechatpay-Timestamp", "soon"), 401),
        ("an old timestamp", with("Wechatpay-Timestamp", "1500000000"), 401),
        ("broken base64", with("Wechatpay-Signature", "%%%not base64%%%"), 401),
        ("a short signature", with("Wechatpay-Signature", "AAAA"), 401),
        ("an unknown serial", with("Wechatpay-Serial", "00"), 401),
        ("another algorithm", good().header("Wechatpay-Signature-Type", "WECHATPAY2-SM2-WITH-SM3"), 401),
        ("one byte changed", changed(|request| request.body[20] ^= 1), 401),
        ("bytes that are not UTF-8", changed(|request| request.body = vec![0xff, 0xfe, 0x00]), 401),
        ("an empty body", changed(|request| request.body = Vec::new()), 401),
        ("too large", changed(|request| request.body = vec![b' '; TOO_MANY_BYTES]), 413),
        (
            "too large, in chunks",
            changed(|request| {
                request.body = vec![b' '; TOO_MANY_BYTES];
                request.transfer =
                    Transfer::Chunked { size: 8192, extension: None, trailer: None, also_content_length: false };
            }),
            413,
        ),
        ("an unknown account", changed(|request| request.path = "/callbacks/wxpay/1900009999".to_owned()), 404),
        ("an unknown channel", changed(|request| request.path = "/callbacks/paypal/1900000001".to_owned()), 404),
        ("a path that goes on", changed(|request| request.path.push_str("/EDGE")), 404),
        ("another method", changed(|request| request.method = "PUT".to_owned()), 405),
    ]
}

fn unsigned_alipay(app: &TestApp) -> Vec<Row> {
    let params = signer::alipay_payment("EDGE", "2026000030", "1.00");
    let content = signer::alipay_content(&params, Charset::Utf8, KeepSignType::No);
    let sign = key("alipay_platform").sign(&content);
    let form = |params: &[(String, String)], sign: Option<&str>| {
        alipay_request(signer::alipay_form(params, sign, Charset::Utf8, SignField::Escaped))
    };
    let replaced = |name: &str, value: &str| {
        let mut params = params.clone();
        params.iter_mut().filter(|(found, _)| found == name).for_each(|(_, old)| *old = value.to_owned());
        form(&params, Some(&sign))
    };
    let twice = [params.clone(), vec![("total_amount".to_owned(), "0.01".to_owned())]].concat();
    let strangers = key("attacker_key").sign(&content);
    let mut latin = form(&params, Some(&sign));
    latin.body.extend_from_slice(b"&more=%ff%fe");
    let mut get = form(&params, Some(&sign));
    get.method = "GET".to_owned();
    vec![
        ("no sign", form(&params, None), 401),
        ("an empty sign", form(&params, Some("")), 401),
        ("broken base64", form(&params, Some("%%%")), 401),
        ("a stranger's signature", form(&params, Some(&strangers)), 401),
        ("another amount", replaced("total_amount", "0.01"), 401),
        ("SHA-1 offered", replaced("sign_type", "RSA"), 401),
        ("a field that was not signed", latin, 401),
        ("no form at all", app.alipay_payment("EDGE", "2026000030", "1.00").with_body(b"{}"), 401),
        ("an empty body", form(&[], None), 401),
        ("a key twice, for which there is no signed content", app.alipay_signed(&twice), 401),
        (
            "an unknown account",
            {
                let mut request = form(&params, Some(&sign));
                request.path = "/callbacks/alipay/2088999999999999".to_owned();
                request
            },
            404,
        ),
        ("another method", get, 405),
    ]
}

fn bearer() -> String {
    format!("Bearer {SERVICE_TOKEN}")
}

/// Bodies of `POST /v1/orders`, what is wrong, and the field that the answer must name.
fn wrong_orders() -> Vec<(&'static str, String, &'static str)> {
    let good = json!({ "order_no": "O-1", "amount_minor": 100, "currency": "CNY", "accounts": [WXPAY] });
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body.to_string()
    };
    let long = "x".repeat(65);
    let raw = |amount: &str| {
        format!(r#"{{"order_no":"O-1","amount_minor":{amount},"currency":"CNY","accounts":["{WXPAY}"]}}"#)
    };
    vec![
        ("three decimals", raw("1.001"), "amount_minor"),
        ("a fraction that is whole", raw("100.0"), "amount_minor"),
        ("an exponent", raw("1e2"), "amount_minor"),
        ("text", with("amount_minor", json!("100")), "amount_minor"),
        ("zero", with("amount_minor", json!(0)), "amount_minor"),
        ("negative", with("amount_minor", json!(-1)), "amount_minor"),
        ("above i64", raw("9223372036854775808"), "amount_minor"),
        (
            "no amount",
            r#"{"order_no":"O-1","currency":"CNY","accounts":["wxpay:1900000001"]}"#.to_owned(),
            "amount_minor",
        ),
        ("an empty number", with("order_no", json!("")), "order_no"),
        ("65 characters", with("order_no", json!(long)), "order_no"),
        ("a space", with("order_no", json!("O 1")), "order_no"),
        ("a slash", with("order_no", json!("O/1")), "order_no"),
        ("a colon", with("order_no", json!("O:1")), "order_no"),
        ("Chinese", with("order_no", json!("订单")), "order_no"),
        ("NUL", with("order_no", json!("O\u{0}1")), "order_no"),
        ("no such currency", with("currency", json!("XXQ")), "currency"),
        ("a currency in lower case", with("currency", json!("cny")), "currency"),
        ("no account", with("accounts", json!([])), "accounts"),
        ("an account that is not ours", with("accounts", json!(["wxpay:1900009999"])), "accounts"),
        ("an unknown channel", with("accounts", json!(["paypal:1"])), "account"),
        ("an unknown field", with("amout", json!(1)), "amout"),
        ("an expiry in the past", with("expires_at", json!("2001-01-01T00:00:00Z")), "expires_at"),
        ("an expiry that is no time", with("expires_at", json!("tomorrow")), "expires_at"),
        ("superseding nothing", with("supersedes", json!("a b")), "order_no"),
    ]
}

/// Requests that are wrong before their fields are.
fn wrong_envelopes() -> Vec<Row> {
    let good = json!({ "order_no": "O-1", "amount_minor": 100, "currency": "CNY", "accounts": [WXPAY] });
    let post = |body: &str| json_request("POST", "/v1/orders", body).header("Authorization", &bearer());
    let token = |value: &str| json_request("POST", "/v1/orders", &good.to_string()).header("Authorization", value);
    let twice =
        r#"{"order_no":"O-1","order_no":"O-2","amount_minor":1,"currency":"CNY","accounts":["wxpay:1900000001"]}"#;
    vec![
        ("no JSON", post("order_no=O-1"), 400),
        ("half a JSON", post("{"), 400),
        ("a list", post("[]"), 400),
        ("an empty body", post(""), 400),
        ("a field twice", post(twice), 400),
        ("deeply nested", post(&"[".repeat(10_000)), 400),
        ("too large", post(&format!("{good}{}", " ".repeat(TOO_MANY_BYTES))), 413),
        ("no token", json_request("POST", "/v1/orders", &good.to_string()), 401),
        ("a wrong token", token("Bearer nobody-knows-this-token-0123456789"), 401),
        ("another scheme", token("Basic c2hvcDpzaG9w"), 401),
        ("a wrong order number in the path", Request::get("/v1/orders/O%201").header("Authorization", &bearer()), 400),
        ("an order that is not here", Request::get("/v1/orders/NOBODY").header("Authorization", &bearer()), 404),
        (
            "a refund of an order that is not here",
            shop_request("/v1/orders/NOBODY/refunds", &json!({ "amount_minor": 1 })),
            404,
        ),
        ("an unknown path", Request::get("/v2/orders").header("Authorization", &bearer()), 404),
        ("another method", Request::new("DELETE", "/v1/orders", "").header("Authorization", &bearer()), 405),
    ]
}

/// Signed payments of WeChat Pay that can't be booked.
fn unusable_wechat() -> Vec<(&'static str, Value)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut resource = signer::wx_payment("EDGE", &format!("4200EDGE{}", signer::fresh_text(6)), 100);
        change(&mut resource);
        resource
    };
    let total = |value: Value| with(&move |resource| resource["amount"]["total"] = value.clone());
    let number = |value: &'static str| with(&move |resource| resource["out_trade_no"] = json!(value));
    let missing = |name: &'static str| {
        with(&move |resource| {
            resource.as_object_mut().unwrap().remove(name);
        })
    };
    vec![
        ("zero", total(json!(0))),
        ("negative", total(json!(-100))),
        ("above i64", total(serde_json::from_str("9223372036854775808").unwrap())),
        ("a fraction", total(serde_json::from_str("100.001").unwrap())),
        ("an amount that is a list", total(json!([100]))),
        ("an empty order number", number("")),
        ("an order number with a space", number("ED GE")),
        ("an order number of 65 characters", with(&|resource| resource["out_trade_no"] = json!("x".repeat(65)))),
        ("a Chinese order number", number("订单")),
        ("no order number", missing("out_trade_no")),
        ("no transaction_id", missing("transaction_id")),
        ("no amount", missing("amount")),
        ("no trade_state", missing("trade_state")),
        ("no success_time", missing("success_time")),
        ("a success_time that is no time", with(&|resource| resource["success_time"] = json!("now"))),
        ("no such currency", with(&|resource| resource["amount"]["currency"] = json!("XXQ"))),
    ]
}

/// Signed payments of Alipay that can't be booked.
fn unusable_alipay() -> Vec<(&'static str, Vec<(String, String)>)> {
    let base = || signer::alipay_payment("EDGE", &format!("2026EDGE{}", signer::fresh_text(6)), "1.00");
    let with = |name: &str, value: &str| {
        let mut params = base();
        params.iter_mut().filter(|(found, _)| found == name).for_each(|(_, old)| *old = value.to_owned());
        params
    };
    let without = |name: &str| {
        let mut params = base();
        params.retain(|(found, _)| found != name);
        params
    };
    vec![
        ("three decimals", with("total_amount", "1.001")),
        ("zero", with("total_amount", "0.00")),
        ("negative", with("total_amount", "-1.00")),
        ("above i64", with("total_amount", "92233720368547758.08")),
        ("an exponent", with("total_amount", "1e2")),
        ("no number", with("total_amount", "one")),
        ("an order number with a space", with("out_trade_no", "ED GE")),
        ("an order number of 65 characters", with("out_trade_no", &"x".repeat(65))),
        ("no order number", without("out_trade_no")),
        ("no trade_no", without("trade_no")),
        ("no amount", without("total_amount")),
        ("no trade_status", without("trade_status")),
        ("no seller_id", without("seller_id")),
        ("a gmt_payment that is no time", with("gmt_payment", "yesterday")),
    ]
}
