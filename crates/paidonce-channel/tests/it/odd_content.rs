//! Validly signed, but odd: kept or refused, never guessed, never a panic (promises P5, P6).

use paidonce_channel::{Fact, Notice, VerifyErrorAfterRecording};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::signer::*;

fn with(object: &Value, path: &[&str], value: Value) -> Value {
    let mut changed = object.clone();
    let place = path.iter().fold(&mut changed, |inner, key| &mut inner[*key]);
    *place = value;
    changed
}

fn without(object: &Value, path: &[&str]) -> Value {
    let mut changed = object.clone();
    let (last, parents) = path.split_last().unwrap();
    let parent = parents.iter().fold(&mut changed, |inner, key| &mut inner[*key]);
    parent.as_object_mut().unwrap().remove(*last);
    changed
}

fn stray_of(message: &Wxpay) -> String {
    only_stray(&message.receive().unwrap()).to_owned()
}

#[test]
fn a_missing_field_is_kept_and_never_counts_as_equal() {
    let payment = wxpay_payment();
    for path in [
        &["mchid"][..],
        &["appid"],
        &["out_trade_no"],
        &["transaction_id"],
        &["trade_state"],
        &["amount"],
        &["amount", "total"],
        &["success_time"],
    ] {
        assert_eq!(stray_of(&Wxpay::payment(&without(&payment, path))), "missing_field", "{path:?}");
        assert_eq!(stray_of(&Wxpay::payment(&with(&payment, path, Value::Null))), "missing_field", "{path:?} null");
    }
    for path in
        [&["mchid"][..], &["appid"], &["out_trade_no"], &["transaction_id"], &["trade_state"], &["success_time"]]
    {
        assert_eq!(stray_of(&Wxpay::payment(&with(&payment, path, json!("")))), "missing_field", "{path:?} blank");
    }
    let refund = wxpay_refund("SUCCESS");
    for path in [
        &["mchid"][..],
        &["out_trade_no"],
        &["transaction_id"],
        &["out_refund_no"],
        &["refund_status"],
        &["amount"],
        &["amount", "refund"],
        &["success_time"],
    ] {
        assert_eq!(stray_of(&Wxpay::refund(&without(&refund, path))), "missing_field", "{path:?}");
    }
    let share = wxpay_share();
    for path in [
        &["mchid"][..],
        &["transaction_id"],
        &["out_order_no"],
        &["receiver"],
        &["receiver", "type"],
        &["receiver", "account"],
        &["receiver", "amount"],
        &["success_time"],
    ] {
        assert_eq!(stray_of(&Wxpay::share(&without(&share, path))), "missing_field", "{path:?}");
    }
    for field in ["app_id", "seller_id", "out_trade_no", "trade_no", "total_amount", "trade_status"] {
        assert_eq!(only_stray(&Alipay::payment().without(field).receive().unwrap()), "missing_field", "{field}");
        assert_eq!(only_stray(&Alipay::payment().set(field, "").receive().unwrap()), "missing_field", "{field} blank");
    }
    // What tells the signature itself is refused when it is missing.
    assert_eq!(Alipay::payment().without("sign_type").receive().unwrap_err().code(), "malformed");
    for body in [Alipay::payment().unsigned_body(), format!("{}&sign=", Alipay::payment().unsigned_body())] {
        assert_eq!(alipay_receive(body.as_bytes()).unwrap_err().code(), "malformed");
    }
}

#[test]
fn an_amount_we_cannot_book_is_kept() {
    for total in ["0", "-1", "100.0", "1e2", "10.001", "9223372036854775808", "1e400", "\"1000\"", "true", "[1]", "{}"]
    {
        let payment = wxpay_payment().to_string().replace("\"total\":1000", &format!("\"total\":{total}"));
        let message = Wxpay { plaintext: payment, ..Wxpay::payment(&wxpay_payment()) };
        assert_eq!(stray_of(&message), "unusable_amount", "{total}");
        let refund = wxpay_refund("SUCCESS").to_string().replace("\"refund\":300", &format!("\"refund\":{total}"));
        let message = Wxpay { plaintext: refund, ..Wxpay::refund(&wxpay_refund("SUCCESS")) };
        assert_eq!(stray_of(&message), "unusable_amount", "refund {total}");
    }
    for payer_total in ["-1", "9.5"] {
        let payment =
            wxpay_payment().to_string().replace("\"payer_total\":1000", &format!("\"payer_total\":{payer_total}"));
        let message = Wxpay { plaintext: payment, ..Wxpay::payment(&wxpay_payment()) };
        assert_eq!(stray_of(&message), "unusable_amount", "{payer_total}");
    }
    assert_eq!(
        stray_of(&Wxpay::payment(&with(&wxpay_payment(), &["amount", "currency"], json!("XXQ")))),
        "unusable_amount"
    );
    let largest = with(&wxpay_payment(), &["amount", "total"], json!(i64::MAX));
    assert_eq!(paid_minor(&Wxpay::payment(&largest).receive().unwrap()), i64::MAX);

    for total in ["0", "0.00", "-88.88", "88.888", "88.880", "1e2", "abc", "+1", "92233720368547758.08"] {
        let notice = Alipay::payment().set("total_amount", total).receive().unwrap();
        assert_eq!(only_stray(&notice), "unusable_amount", "{total}");
    }
    let coupon = Alipay::payment().set("buyer_pay_amount", "0.00").receive().unwrap();
    assert_eq!(paid_minor(&coupon), 8888);
    let refund = Alipay::payment().set("refund_fee", "-1.00").receive().unwrap();
    assert!(matches!(refund.observations[0].fact, Fact::Payment(_)), "the payment stands");
    assert_eq!(refund.strays[0].fact.code, "unusable_amount");
}

#[test]
fn an_order_number_that_no_order_can_have_is_kept() {
    let odd = ["a b", "订单1", "a/b", "a\u{0}b", "a:b", "x".repeat(65).leak(), "a%2Fb", "'; DROP TABLE events;--"];
    for number in odd {
        assert_eq!(
            stray_of(&Wxpay::payment(&with(&wxpay_payment(), &["out_trade_no"], json!(number)))),
            "unusable_number"
        );
        let notice = Alipay::payment().set("out_trade_no", number).receive().unwrap();
        assert_eq!(only_stray(&notice), "unusable_number", "{number}");
    }
    let longest = "A1_-|*@z".repeat(8);
    let notice = Wxpay::payment(&with(&wxpay_payment(), &["out_trade_no"], json!(longest))).receive().unwrap();
    assert_eq!(notice.observations[0].order_no.as_ref().unwrap().as_str(), longest);
    let notice = Alipay::payment().set("out_trade_no", &longest).receive().unwrap();
    assert_eq!(notice.observations[0].order_no.as_ref().unwrap().as_str(), longest);
}

#[test]
fn a_success_event_that_says_otherwise_books_nothing_and_is_flagged() {
    let mut contents = std::collections::BTreeSet::new();
    for state in ["NOTPAY", "CLOSED", "USERPAYING", "PAYERROR", "REVOKED", "REFUND", "ACCEPT", "success", "SOMETHING"] {
        let notice = Wxpay::payment(&with(&wxpay_payment(), &["trade_state"], json!(state))).receive().unwrap();
        match only_fact(&notice) {
            Fact::Flag(flag) => {
                assert_eq!(flag.code, "trade_state_disagrees");
                assert!(flag.detail.contains(state));
                contents.insert(flag.content);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(contents.len(), 9, "one flag for each statement");
    let failed = Wxpay {
        event_type: "TRANSACTION.FAIL",
        ..Wxpay::payment(&with(&wxpay_payment(), &["trade_state"], json!("FAIL")))
    };
    assert!(matches!(only_fact(&failed.receive().unwrap()), Fact::Flag(flag) if flag.code == "attempt_failed"));
    let contradictory = Wxpay { event_type: "TRANSACTION.FAIL", ..Wxpay::payment(&wxpay_payment()) };
    assert!(
        matches!(only_fact(&contradictory.receive().unwrap()), Fact::Flag(flag) if flag.code == "trade_state_disagrees")
    );
}

#[test]
fn another_merchants_message_is_refused() {
    for (path, foreign) in [("mchid", OTHER_MCHID), ("mchid", "1900000666"), ("appid", "wx6666666666666666")] {
        let error = Wxpay::payment(&with(&wxpay_payment(), &[path], json!(foreign))).receive().unwrap_err();
        assert_eq!((error.code(), error.http_status()), ("not_ours", 403), "{path}");
        assert!(error.to_string().contains(foreign));
    }
    let error = Wxpay::refund(&with(&wxpay_refund("SUCCESS"), &["mchid"], json!("1900000666"))).receive().unwrap_err();
    assert_eq!(error.code(), "not_ours");
}

#[test]
fn a_body_that_is_not_one_object_is_refused_and_not_kept() {
    let message = Wxpay::payment(&wxpay_payment());
    let deep = "[".repeat(10_000);
    let envelope = message.envelope().to_string();
    let doubled = envelope.replacen("\"event_type\"", "\"resource\":{},\"event_type\"", 1);
    for body in ["", "null", "[]", "\"x\"", "{", &deep, "{\"id\":\"1\"} trailing", "{\"id\":\"\u{1}\"}", &doubled] {
        let error = message.receive_body(body.as_bytes()).unwrap_err();
        assert_eq!((error.code(), error.http_status()), ("unreadable", 400), "{}", &body[..body.len().min(40)]);
    }
    assert_eq!(message.receive_body(b"{\"id\":\"\xff\"}").unwrap_err().code(), "unreadable");
    let payment = wxpay_payment().to_string();
    for plaintext in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        format!("{payment} ").trim_end().replace("\"total\":1000", "\"total\":1000,\"total\":1"),
        payment.replace("\"out_trade_no\":\"ORD1\"", "\"out_trade_no\":\"ORD1\",\"out_trade_no\":\"ORD2\""),
        format!("{payment}{payment}"),
        "{\"a\":".repeat(5_000),
    ] {
        let error = Wxpay { plaintext, ..message.clone() }.receive().unwrap_err();
        assert_eq!(error.code(), "unreadable");
    }
    for biz_content in ["", "null", "[]", "{\"trade_no\":\"1\",\"trade_no\":\"2\"}", "{\"a\":{\"b\":1,\"b\":1}}"] {
        let result = Alipay::gateway("alipay.trade.order.settle.notify", biz_content).receive();
        match biz_content {
            "" => assert_eq!(only_stray(&result.unwrap()), "missing_field"),
            _ => assert_eq!(result.unwrap_err().code(), "unreadable", "{biz_content}"),
        }
    }
}

#[test]
fn a_resource_that_cannot_be_opened_is_kept_once_and_refused() {
    let message = Wxpay::payment(&wxpay_payment());
    let envelope = message.envelope();
    let refused = |envelope: &Value| message.receive_body(envelope.to_string().as_bytes()).unwrap();
    let nonces = ["", "nonce000001", "nonce00000001", &"n".repeat(64), "nonce00000é", "noncé0000001"];
    let bent = nonces.iter().map(|nonce| with(&envelope, &["resource", "nonce"], json!(nonce))).chain([
        without(&envelope, &["resource"]),
        with(&envelope, &["resource"], json!("x")),
        without(&envelope, &["resource", "nonce"]),
        without(&envelope, &["resource", "ciphertext"]),
        without(&envelope, &["resource", "algorithm"]),
        with(&envelope, &["resource", "ciphertext"], json!("not base64!")),
        with(&envelope, &["resource", "ciphertext"], json!("AAAA")),
        with(&envelope, &["resource", "algorithm"], json!("AEAD_SM4_GCM")),
        with(&envelope, &["resource", "associated_data"], json!(7)),
        json!({}),
    ]);
    for envelope in bent {
        let notice = refused(&envelope);
        let why = notice.refuse_after_recording;
        // "noncé0000001" has 13 bytes, "nonce00000é" 12: the latter is well formed and simply wrong.
        let undecryptable = envelope["resource"]["nonce"] == "nonce00000é";
        let (expected, status) = match undecryptable {
            true => (VerifyErrorAfterRecording::Undecryptable, 500),
            false => (VerifyErrorAfterRecording::BrokenResource, 400),
        };
        assert_eq!((why, why.unwrap().http_status()), (Some(expected), status), "{envelope}");
        assert_eq!((notice.observations.len(), notice.strays.len()), (0, 1));
        assert_eq!(notice.strays[0].fact.code, expected.code());
    }
    let damaged = with(&envelope, &["resource", "associated_data"], json!("another"));
    assert_eq!(refused(&damaged).refuse_after_recording, Some(VerifyErrorAfterRecording::Undecryptable));
}

#[test]
fn texts_that_a_database_dislikes_do_not_block_a_payment() {
    for odd in ["\"a\\u0000b\"", "\"\\ud800\"", "\"\\ud83d\\ude00\"", "\"🀄\""] {
        let plaintext = wxpay_payment().to_string().replacen("\"attach\":\"\"", &format!("\"attach\":{odd}"), 1);
        assert!(plaintext.contains(odd));
        let message = Wxpay { plaintext, ..Wxpay::payment(&wxpay_payment()) };
        assert_eq!(paid_minor(&message.receive().unwrap()), 1000, "{odd}");
    }
    let notice = Alipay::payment().set("subject", [b'a', 0, 0xff, b'b']).receive().unwrap();
    assert_eq!(paid_minor(&notice), 8888);
}

#[test]
fn other_products_are_kept_under_one_name_however_often_they_come() {
    for (event_type, original_type) in [
        ("COUPON.USE", Some("coupon")),
        ("MCHTRANSFER.BILL.FINISHED", Some("mch_payment")),
        ("COMPLAINT.CREATE", Some("complaint")),
        ("SECURITY_ECHO.SUCCESS", Some("security")),
        ("TRANSACTION.SUCCESS", Some("payscore")),
        ("SOMETHING.NEW", None),
    ] {
        let message = Wxpay { event_type, original_type, ..Wxpay::payment(&json!({"state": "SUCCESS", "amount": 5})) };
        let again = Wxpay { nonce: "nonce0000009", timestamp: NOW_SECONDS + 15, ..message.clone() };
        let (first, again) = (message.receive().unwrap(), again.receive().unwrap());
        assert_eq!(only_stray(&first), "unknown_type");
        assert_eq!(first.strays[0].stray_id, again.strays[0].stray_id, "{event_type}");
        assert_eq!(first.strays[0].fact.channel_event_type.as_deref(), Some(event_type));
        assert!(first.strays[0].stray_id.starts_with("wxpay:1900000001:"));
    }
    let unknown = Alipay::payment().set("notify_type", "other");
    let again = unknown.clone().set("notify_time", "2026-01-01 12:04:00").set("notify_id", "2");
    let (first, again) = (unknown.receive().unwrap(), again.receive().unwrap());
    assert_eq!(first.strays[0].stray_id, again.strays[0].stray_id);
    // The shape decides where the envelope does not say what it holds.
    let untold = |plaintext: &Value| Wxpay { original_type: None, ..Wxpay::payment(plaintext) }.receive().unwrap();
    assert!(matches!(only_fact(&untold(&wxpay_payment())), Fact::Payment(_)));
    assert!(matches!(only_fact(&untold(&wxpay_refund("SUCCESS"))), Fact::Refund(_)));
    assert!(matches!(only_fact(&untold(&wxpay_share())), Fact::Share(_)));
}

#[test]
fn headers_are_found_in_any_case_and_refused_when_doubled() {
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string();
    let headers = message.headers(body.as_bytes());
    let receiver = wxpay_receiver(&wxpay_config());
    let spelled = |spell: fn(&str) -> String| -> Vec<(String, Vec<u8>)> {
        headers.iter().map(|(name, value)| (spell(name), value.clone())).collect()
    };
    for spelling in [spelled(str::to_lowercase), spelled(str::to_uppercase)] {
        assert!(receive(receiver.as_ref(), &spelling, body.as_bytes()).is_ok());
        let both: Vec<_> = headers.iter().chain(&spelling).cloned().collect();
        assert_eq!(receive(receiver.as_ref(), &both, body.as_bytes()).unwrap_err().code(), "malformed");
    }
    let sm2: Vec<_> = headers
        .iter()
        .map(|(name, value)| match name.as_str() {
            "Wechatpay-Signature-Type" => (name.clone(), b"WECHATPAY2-SM2-WITH-SM3".to_vec()),
            _ => (name.clone(), value.clone()),
        })
        .collect();
    assert_eq!(receive(receiver.as_ref(), &sm2, body.as_bytes()).unwrap_err().code(), "algorithm_not_allowed");
    let without_type: Vec<_> = headers.iter().filter(|(name, _)| name != "Wechatpay-Signature-Type").cloned().collect();
    assert!(receive(receiver.as_ref(), &without_type, body.as_bytes()).is_ok());
    assert_eq!(receive(receiver.as_ref(), &[], body.as_bytes()).unwrap_err().code(), "malformed");
    let forged = Wxpay { signing_key: "attacker", ..message };
    assert_eq!(forged.receive().unwrap_err().code(), "bad_signature");
}

#[test]
fn evidence_holds_the_signed_bytes_and_nothing_personal_leaves_beside_it() {
    let message = Wxpay::refund(&wxpay_refund("SUCCESS"));
    let body = message.envelope().to_string();
    let headers = message.headers(body.as_bytes());
    let notice = receive(wxpay_receiver(&wxpay_config()).as_ref(), &headers, body.as_bytes()).unwrap();
    assert_eq!(notice.evidence.body, body.as_bytes());
    let names: Vec<&str> = notice.evidence.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "wechatpay-timestamp",
            "wechatpay-nonce",
            "wechatpay-signature",
            "wechatpay-serial",
            "wechatpay-signature-type",
            "request-id"
        ]
    );
    assert!(!format!("{:?}{:?}", notice.observations, notice.strays).contains("招商银行"));
    assert!(!format!("{:?}", Wxpay::payment(&wxpay_payment()).receive().unwrap().observations).contains("oTEST"));
}

/// JSON values that a member may suddenly have.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[ -~]{0,40}".prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        Just(json!([])),
        Just(json!([{"type": "X"}, 1, null])),
        Just(json!({"total": "1", "refund": -1, "total_amount": 1})),
        Just(json!("SUCCESS")),
        Just(json!("2026-02-30T00:00:00+08:00")),
    ]
}

/// What any notice must keep, however odd the message.
fn sane(notice: &Notice) -> bool {
    let amounts_are_positive = notice.observations.iter().all(|observation| match &observation.fact {
        Fact::Payment(fact) => fact.amount.amount_minor > 0,
        Fact::Share(fact) => fact.amount.amount_minor > 0,
        Fact::Refund(_) | Fact::AttemptClosed(_) | Fact::Flag(_) | Fact::Nothing => true,
    });
    amounts_are_positive && notice.observations.len() + notice.strays.len() >= 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_signed_wxpay_message_makes_a_panic(
        which in 0..3_usize, member in any::<prop::sample::Index>(), value in odd_value(), inner in any::<bool>(),
    ) {
        let (message, mut plaintext) = match which {
            0 => (Wxpay::payment(&json!({})), wxpay_payment()),
            1 => (Wxpay::refund(&json!({})), wxpay_refund("SUCCESS")),
            _ => (Wxpay::share(&json!({})), wxpay_share()),
        };
        let target = if inner {
            &mut plaintext[["amount", "amount", "receiver"][which]]
        } else {
            &mut plaintext
        };
        let keys: Vec<String> = target.as_object().unwrap().keys().cloned().collect();
        target[member.get(&keys)] = value;
        let message = Wxpay { plaintext: plaintext.to_string(), ..message };
        if let Ok(notice) = message.receive() {
            prop_assert!(sane(&notice), "{notice:?}");
        }
    }

    #[test]
    fn no_signed_alipay_message_makes_a_panic(
        member in any::<prop::sample::Index>(), value in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let form = Alipay::payment().set("refund_fee", "1.00").set("gmt_refund", "2026-01-01 12:30:00.1");
        let keys: Vec<String> = form.pairs.iter().map(|(key, _)| key.clone()).collect();
        let form = form.set(member.get::<String>(&keys), value);
        if let Ok(notice) = form.receive() {
            prop_assert!(sane(&notice), "{notice:?}");
        }
    }

    #[test]
    fn no_bytes_make_a_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let refused = alipay_receive(&body).unwrap_err();
        prop_assert_eq!(refused.http_status(), 401);
        let message = Wxpay::payment(&wxpay_payment());
        prop_assert_eq!(message.receive_body(&body).unwrap_err().http_status(), 400);
    }
}
