//! The gotchas of WeChat Pay (protocol facts, part D), one test each. Where the order or the server has the other half, the
//! test says so.

use paidonce_channel::channel::{acknowledge, refuse};
use paidonce_channel::wxpay::{MerchantMode, WxpayAccountConfig};
use paidonce_channel::{Fact, Notice, SecretText, VerifyError, VerifyErrorAfterRecording};
use paidonce_order::command::{PaymentFact, RefundAmount, RefundFact, RefundOutcome, ShareFact, ShareKind};
use paidonce_order::ids::Channel;
use paidonce_order::money::Money;
use serde_json::{Value, json};

use crate::signer::*;

fn payment(notice: &Notice) -> &PaymentFact {
    match only_fact(notice) {
        Fact::Payment(fact) => fact,
        other => panic!("not a payment: {other:?}"),
    }
}

fn refund(notice: &Notice) -> &RefundFact {
    match only_fact(notice) {
        Fact::Refund(fact) => fact,
        other => panic!("not a refund: {other:?}"),
    }
}

fn share(notice: &Notice) -> &ShareFact {
    match only_fact(notice) {
        Fact::Share(fact) => fact,
        other => panic!("not a share: {other:?}"),
    }
}

fn with_header(headers: &[(String, Vec<u8>)], name: &str, value: &str) -> Vec<(String, Vec<u8>)> {
    let replace = |(found, old): &(String, Vec<u8>)| {
        (found.clone(), if found == name { value.as_bytes().to_vec() } else { old.clone() })
    };
    headers.iter().map(replace).collect()
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

fn without(mut object: Value, key: &str) -> Value {
    object.as_object_mut().unwrap().remove(key);
    object
}

#[test]
fn gotcha_01_signtest_probe_is_refused_and_the_good_copy_is_accepted() {
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string();
    let good = message.headers(body.as_bytes());
    let receiver = wxpay_receiver(&wxpay_config());
    for probe in ["WECHATPAY/SIGNTEST/", "WECHATPAY/SIGNTEST/not base64 at all", "WECHATPAY/SIGNTEST/AAAA"] {
        let headers = with_header(&good, "Wechatpay-Signature", probe);
        let error = receive(receiver.as_ref(), &headers, body.as_bytes()).unwrap_err();
        assert_eq!((error.code(), error.http_status()), ("probe", 401));
    }
    assert_eq!(paid_minor(&receive(receiver.as_ref(), &good, body.as_bytes()).unwrap()), 1000);
}

#[test]
fn gotcha_02_only_the_raw_bytes_verify_not_a_body_written_again() {
    let vector = vector("wechatpay_v3.json", "wx-pay-success-coupon-pretty-body");
    let headers: Vec<(String, Vec<u8>)> = vector["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().as_bytes().to_vec()))
        .collect();
    let receiver = wxpay_receiver(&wxpay_config());
    let body = vector["body"].as_str().unwrap();
    assert_eq!(paid_minor(&receive(receiver.as_ref(), &headers, body.as_bytes()).unwrap()), 10_000);
    let written_again = serde_json::from_str::<Value>(body).unwrap().to_string();
    let error = receive(receiver.as_ref(), &headers, written_again.as_bytes()).unwrap_err();
    assert_eq!(error.code(), "bad_signature");
}

#[test]
fn gotcha_03_the_signed_text_ends_in_a_line_feed_also_when_the_body_is_empty() {
    let message = Wxpay::payment(&wxpay_payment());
    let receiver = wxpay_receiver(&wxpay_config());
    // Rightly signed and empty: the signature holds, there is only nothing to read.
    let headers = message.headers(b"");
    assert_eq!(receive(receiver.as_ref(), &headers, b"").unwrap_err().code(), "unreadable");
    // The last line feed forgotten.
    for body in ["".to_owned(), message.envelope().to_string()] {
        let unfinished = format!("{}\n{}\n{body}", message.timestamp, message.header_nonce);
        let signature = sign("wechat_platform_a", unfinished.as_bytes());
        let headers = with_header(&message.headers(body.as_bytes()), "Wechatpay-Signature", &signature);
        assert_eq!(receive(receiver.as_ref(), &headers, body.as_bytes()).unwrap_err().code(), "bad_signature");
    }
}

#[test]
fn gotcha_04_certificate_and_public_key_live_together_and_the_serial_alone_chooses() {
    let by_certificate = Wxpay::payment(&wxpay_payment());
    let by_public_key = Wxpay { signing_key: "wechat_platform_pub", serial: PUBLIC_KEY_ID, ..by_certificate.clone() };
    assert_eq!(by_certificate.receive().unwrap().evidence.key_id, CERTIFICATE_SERIAL.trim_start_matches('0'));
    assert_eq!(by_public_key.receive().unwrap().evidence.key_id, PUBLIC_KEY_ID);
    for crossed in [
        Wxpay { serial: PUBLIC_KEY_ID, ..by_certificate.clone() },
        Wxpay { serial: CERTIFICATE_SERIAL, ..by_public_key.clone() },
    ] {
        assert_eq!(crossed.receive().unwrap_err().code(), "bad_signature");
    }
    // The id is a text, prefix and all: neither a number nor another case of it.
    for serial in
        ["0119000000012025010100000000000001", "pub_key_id_0119000000012025010100000000000001", "PUB_KEY_ID_9"]
    {
        let error = Wxpay { serial, ..by_public_key.clone() }.receive().unwrap_err();
        assert_eq!(error, VerifyError::UnknownSerial { serial: serial.to_owned() });
    }
}

#[test]
fn gotcha_06_a_timestamp_that_is_missing_odd_or_300_seconds_off_is_refused() {
    let receiver = wxpay_receiver(&wxpay_config());
    for (off, code) in [(-299, None), (299, None), (-300, Some("stale")), (300, Some("stale")), (86_400, Some("stale"))]
    {
        let message = Wxpay { timestamp: NOW_SECONDS + off, ..Wxpay::payment(&wxpay_payment()) };
        assert_eq!(message.receive().err().map(|error| error.code()), code, "{off}");
    }
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string();
    let headers = message.headers(body.as_bytes());
    for odd in ["", "0x69", "-1", "+1767240000", "1767240000.0", " 1767240000", "999999999999999999999", "１"] {
        let bent = with_header(&headers, "Wechatpay-Timestamp", odd);
        assert_eq!(receive(receiver.as_ref(), &bent, body.as_bytes()).unwrap_err().code(), "malformed", "{odd}");
    }
    for name in ["Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature", "Wechatpay-Serial"] {
        let fewer: Vec<_> = headers.iter().filter(|(found, _)| found != name).cloned().collect();
        let twice: Vec<_> = headers.iter().chain(headers.iter().filter(|(found, _)| found == name)).cloned().collect();
        for bent in [fewer, twice] {
            let error = receive(receiver.as_ref(), &bent, body.as_bytes()).unwrap_err();
            assert_eq!((error.code(), error.http_status()), ("malformed", 401), "{name}");
        }
    }
}

/// The order's half (one event for both) is tested in `paidonce-order` and by the cases.
#[test]
fn gotcha_07_a_redelivery_has_other_bytes_and_the_same_fact() {
    let first = Wxpay::payment(&wxpay_payment());
    let again = Wxpay {
        nonce: "nonce0000002",
        header_nonce: "HEADERNONCE0000000000000000000002",
        timestamp: NOW_SECONDS + 15,
        ..first.clone()
    };
    let (first, again) = (first.receive().unwrap(), again.receive().unwrap());
    assert_eq!(payment(&first), payment(&again));
    assert_ne!(first.evidence.digest, again.evidence.digest);
}

#[test]
fn gotcha_08_a_certificate_serial_is_a_number() {
    for serial in [
        "0A5DFF7711C0FFEE00112233445566778899AABB",
        "A5DFF7711C0FFEE00112233445566778899AABB",
        "0a5dff7711c0ffee00112233445566778899aabb",
        "000A5dff7711C0ffee00112233445566778899aabb",
    ] {
        assert!(Wxpay { serial, ..Wxpay::payment(&wxpay_payment()) }.receive().is_ok(), "{serial}");
    }
}

#[test]
fn gotcha_09_empty_or_missing_associated_data_means_empty() {
    let sealed_bare = Wxpay { sealed_with: "", ..Wxpay::payment(&wxpay_payment()) };
    for associated_data in [json!(""), Value::Null] {
        let message = Wxpay { associated_data, ..sealed_bare.clone() };
        assert_eq!(paid_minor(&message.receive().unwrap()), 1000);
    }
    let mut envelope = Wxpay { associated_data: json!(""), ..sealed_bare.clone() }.envelope();
    envelope["resource"].as_object_mut().unwrap().remove("associated_data");
    assert_eq!(paid_minor(&sealed_bare.receive_body(envelope.to_string().as_bytes()).unwrap()), 1000);
    // Labelled empty but sealed with another: never guessed.
    let mislabelled = Wxpay { associated_data: json!(""), ..Wxpay::payment(&wxpay_payment()) };
    let notice = mislabelled.receive().unwrap();
    assert_eq!(notice.refuse_after_recording, Some(VerifyErrorAfterRecording::Undecryptable));
}

#[test]
fn gotcha_10_a_share_announced_as_a_transaction_success_is_not_a_payment() {
    let announced = Wxpay { event_type: "TRANSACTION.SUCCESS", ..Wxpay::share(&wxpay_share()) };
    assert_eq!(share(&announced.receive().unwrap()).kind, ShareKind::Shared);
    let returned = Wxpay { summary: "分账回退", ..announced };
    assert_eq!(share(&returned.receive().unwrap()).kind, ShareKind::Returned);
    let by_type = Wxpay { event_type: "PROFITSHARING.RETURN", ..Wxpay::share(&wxpay_share()) };
    assert_eq!(share(&by_type.receive().unwrap()).kind, ShareKind::Returned);
}

#[test]
fn gotcha_11_each_sub_order_of_a_combine_payment_is_booked_for_its_own_mchid() {
    let sub_order = |mchid: &str, order_no: &str, total: i64, payer: i64| {
        json!({
            "mchid": mchid, "trade_type": "JSAPI", "trade_state": "SUCCESS", "bank_type": "OTHERS", "attach": "a",
            "amount": {"total_amount": total, "payer_amount": payer, "currency": "CNY", "payer_currency": "CNY"},
            "success_time": "2026-01-15T09:59:58.120+08:00", "out_trade_no": order_no,
            "transaction_id": format!("42000099992026011500000000{order_no}"),
        })
    };
    let combine = json!({
        "combine_appid": APPID, "combine_mchid": MCHID, "combine_out_trade_no": "CO1",
        "combine_payer_info": {"openid": "oTEST"},
        "sub_orders": [sub_order(MCHID, "A1", 10, 10), sub_order(OTHER_MCHID, "B1", 990, 900)],
    });
    let notice = Wxpay::payment(&combine).receive().unwrap();
    let told: Vec<_> = notice
        .observations
        .iter()
        .map(|observation| match &observation.fact {
            Fact::Payment(fact) => (
                observation.order_no.as_ref().unwrap().as_str(),
                fact.payment.account.to_string(),
                fact.amount.amount_minor,
                fact.payer_amount.unwrap().amount_minor,
                fact.occurred_at.to_string(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    let at = "2026-01-15T01:59:58.12Z".to_owned();
    assert_eq!(
        told,
        [
            ("A1", "wxpay:1900000001".to_owned(), 10, 10, at.clone()),
            ("B1", "wxpay:1900000002".to_owned(), 990, 900, at),
        ]
    );

    // One that is not paid is flagged, one that is not ours is kept, and the others are booked all the same.
    let mut mixed = combine;
    mixed["sub_orders"][0]["trade_state"] = json!("NOTPAY");
    mixed["sub_orders"].as_array_mut().unwrap().push(sub_order("1900000666", "C1", 5, 5));
    let notice = Wxpay::payment(&mixed).receive().unwrap();
    assert!(matches!(notice.observations[0].fact, Fact::Flag(_)));
    assert!(matches!(notice.observations[1].fact, Fact::Payment(_)));
    assert_eq!((notice.observations.len(), notice.strays.len()), (2, 1));
    assert_eq!(notice.strays[0].fact.code, "foreign_sub_order");
    assert_eq!(notice.refuse_after_recording, None);

    let foreign = with(mixed, "combine_mchid", json!(OTHER_MCHID));
    assert_eq!(Wxpay::payment(&foreign).receive().unwrap_err().code(), "not_ours");
}

#[test]
fn gotcha_12_refund_status_in_a_notice_is_status_in_an_answer() {
    let notice = wxpay_refund("SUCCESS");
    let answer = with(without(notice.clone(), "refund_status"), "status", json!("SUCCESS"));
    let (notice_read, answer_read) =
        (Wxpay::refund(&notice).receive().unwrap(), Wxpay::refund(&answer).receive().unwrap());
    assert_eq!(refund(&notice_read), refund(&answer_read));
    let neither = without(notice.clone(), "refund_status");
    assert_eq!(only_stray(&Wxpay::refund(&neither).receive().unwrap()), "missing_field");
    let both = with(notice, "status", json!("CLOSED"));
    assert_eq!(only_stray(&Wxpay::refund(&both).receive().unwrap()), "unknown_type");
}

/// The order's half (an open item that may still be confirmed) is tested in `paidonce-order`.
#[test]
fn gotcha_14_abnormal_is_stuck_and_not_failed() {
    let outcome = |status: &str| {
        let notice = Wxpay::refund(&wxpay_refund(status)).receive().unwrap();
        let fact = refund(&notice);
        assert_eq!(fact.amount, RefundAmount::Exact(Money::fen(300)));
        assert_eq!(fact.channel_refund_no.as_ref().unwrap().as_str(), "50000000382026010100000000001");
        (fact.outcome, fact.content)
    };
    let (abnormal, closed, success) = (outcome("ABNORMAL"), outcome("CLOSED"), outcome("SUCCESS"));
    assert_eq!(abnormal.0, RefundOutcome::Stalled);
    assert_eq!(closed.0, RefundOutcome::Failed);
    assert_eq!(success.0, RefundOutcome::Succeeded);
    assert_ne!(abnormal.1, success.1, "a later success is another statement");
    // Not a word of the notices that the platform documents: flagged, nothing moves.
    let processing = Wxpay::refund(&wxpay_refund("PROCESSING")).receive().unwrap();
    assert!(matches!(only_fact(&processing), Fact::Flag(_)));
}

#[test]
fn gotcha_17_a_coupon_makes_the_payer_pay_less_than_the_order() {
    for payer_total in [920, 0] {
        let mut plaintext = wxpay_payment();
        plaintext["amount"]["payer_total"] = json!(payer_total);
        plaintext["promotion_detail"] = json!([{"coupon_id": "1", "amount": 80, "wechatpay_contribute": 80}]);
        let notice = Wxpay::payment(&plaintext).receive().unwrap();
        assert_eq!(payment(&notice).amount, Money::fen(1000));
        assert_eq!(payment(&notice).payer_amount, Some(Money::fen(payer_total)));
    }
}

/// The server's half (what is sent, and when) is tested in `paidonce-http`.
#[test]
fn gotcha_18_success_is_204_and_a_refusal_is_never_a_2xx() {
    let success = acknowledge(Channel::Wxpay);
    assert_eq!((success.status, success.body.as_slice(), success.content_type), (204, &b""[..], None));
    for status in [400, 401, 403, 500, 503] {
        let refusal = refuse(Channel::Wxpay, status, "why \"quoted\"");
        assert_eq!(refusal.status, status);
        let body: Value = serde_json::from_slice(&refusal.body).unwrap();
        assert_eq!((body["code"].as_str(), body["message"].as_str()), (Some("FAIL"), Some("why \"quoted\"")));
    }
    for status in [200, 201, 204, 302] {
        assert_eq!(refuse(Channel::Wxpay, status, "").status, 500);
    }
}

/// The server's half (append, answer, then work) is tested in `paidonce-http`: here is shown that reading has no effect and
/// keeps no state, so that nothing but the append stands before the answer.
#[test]
fn gotcha_19_reading_a_notice_does_no_work_of_its_own() {
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string();
    let headers = message.headers(body.as_bytes());
    let receiver = wxpay_receiver(&wxpay_config());
    let read = || receive(receiver.as_ref(), &headers, body.as_bytes()).unwrap();
    let (first, second) = (read(), read());
    assert_eq!(first.observations, second.observations);
    assert_eq!(first.evidence, second.evidence);
}

#[test]
fn gotcha_31_both_apiv3_keys_open_during_a_rotation() {
    const OLD_KEY: &str = "vutsrqponmlkjihgfedcba9876543210";
    let sealed_new = Wxpay::payment(&wxpay_payment());
    let sealed_old = Wxpay { apiv3_key: OLD_KEY, ..sealed_new.clone() };
    let rotating = WxpayAccountConfig { apiv3_key_previous: Some(SecretText::from(OLD_KEY)), ..wxpay_config() };
    for message in [&sealed_new, &sealed_old] {
        assert_eq!(paid_minor(&message.receive_at(&rotating).unwrap()), 1000);
    }
    // With one key only: kept once under its push id, and refused so that it is sent again.
    let (first, second) = (sealed_old.receive().unwrap(), sealed_old.receive().unwrap());
    assert_eq!(first.refuse_after_recording, Some(VerifyErrorAfterRecording::Undecryptable));
    assert_eq!(first.refuse_after_recording.unwrap().http_status(), 500);
    assert_eq!(first.strays[0].stray_id, "wxpay:1900000001:11111111-0000-5000-8000-000000000001");
    assert_eq!(first.strays, second.strays);
    assert!(first.observations.is_empty());
}

#[test]
fn gotcha_33_a_service_provider_is_known_by_the_pair() {
    let mut partner = without(without(wxpay_payment(), "mchid"), "appid");
    partner["sp_mchid"] = json!(MCHID);
    partner["sp_appid"] = json!(APPID);
    partner["sub_mchid"] = json!("1900000003");
    partner["payer"] = json!({"sp_openid": "oTEST", "sub_openid": "oTEST2"});
    let config = |sub_mchids: &[&str]| WxpayAccountConfig {
        mode: MerchantMode::Partner { sub_mchids: sub_mchids.iter().map(|sub| (*sub).to_owned()).collect() },
        ..wxpay_config()
    };
    let message = Wxpay::payment(&partner);
    for ours in [config(&["*"]), config(&["1900000009", "1900000003"])] {
        assert_eq!(payment(&message.receive_at(&ours).unwrap()).payment.account.to_string(), "wxpay:1900000001");
    }
    let foreign = |plaintext: &Value, config: &WxpayAccountConfig| {
        Wxpay::payment(plaintext).receive_at(config).unwrap_err().code()
    };
    assert_eq!(foreign(&partner, &config(&["1900000009"])), "not_ours");
    assert_eq!(foreign(&partner, &wxpay_config()), "not_ours", "a direct merchant has no sub-merchants");
    assert_eq!(foreign(&with(partner.clone(), "sp_mchid", json!("1900000666")), &config(&["*"])), "not_ours");
    assert_eq!(foreign(&with(partner.clone(), "sp_appid", json!("wx6660000000000000")), &config(&["*"])), "not_ours");
    assert_eq!(foreign(&with(partner.clone(), "mchid", json!("1900000666")), &config(&["*"])), "not_ours");
    for missing in ["sub_mchid", "sp_appid"] {
        let notice = Wxpay::payment(&without(partner.clone(), missing)).receive_at(&config(&["*"])).unwrap();
        assert_eq!(only_stray(&notice), "missing_field", "{missing}");
    }
    let mut partner_refund = without(wxpay_refund("SUCCESS"), "mchid");
    partner_refund["sp_mchid"] = json!(MCHID);
    partner_refund["sub_mchid"] = json!("1900000003");
    assert_eq!(refund(&Wxpay::refund(&partner_refund).receive_at(&config(&["*"])).unwrap()).refund_no.as_str(), "RFD1");
}
