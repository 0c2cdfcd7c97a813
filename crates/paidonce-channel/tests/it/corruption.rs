//! Every single-byte change of a signed message is refused (promise P5).

use paidonce_channel::api::Ask;
use paidonce_channel::{Notice, VerifyError};
use proptest::strategy::Strategy;

use crate::api_signer::*;
use crate::signer::*;

/// Changes that a byte can suffer: one bit low and high, the case of a letter, gone, doubled, replaced by a space.
fn changes(body: &[u8], at: usize) -> Vec<Vec<u8>> {
    let with = |byte: u8| {
        let mut changed = body.to_vec();
        changed[at] = byte;
        changed
    };
    let mut gone = body.to_vec();
    gone.remove(at);
    let mut doubled = body.to_vec();
    doubled.insert(at, body[at]);
    let all = [with(body[at] ^ 1), with(body[at] ^ 0x80), with(body[at] ^ 0x20), with(b' '), gone, doubled];
    all.into_iter().filter(|changed| changed != body).collect()
}

fn refused_as_unverified(result: &Result<Notice, VerifyError>) -> bool {
    result.as_ref().is_err_and(|error| error.http_status() == 401)
}

#[test]
fn any_changed_byte_of_a_wxpay_body_is_refused() {
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string().into_bytes();
    let headers = message.headers(&body);
    let receiver = wxpay_receiver(&wxpay_config());
    assert!(receive(receiver.as_ref(), &headers, &body).is_ok());
    for at in 0..body.len() {
        for changed in changes(&body, at) {
            let result = receive(receiver.as_ref(), &headers, &changed);
            assert_eq!(result.map(|_| ()).map_err(|error| error.code()), Err("bad_signature"), "byte {at}");
        }
    }
    let longer = [body.as_slice(), b" "].concat();
    assert!(receive(receiver.as_ref(), &headers, &longer).is_err());
}

#[test]
fn any_changed_byte_of_a_wxpay_signature_header_is_refused() {
    let message = Wxpay::payment(&wxpay_payment());
    let body = message.envelope().to_string().into_bytes();
    let headers = message.headers(&body);
    let receiver = wxpay_receiver(&wxpay_config());
    for name in ["Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature", "Wechatpay-Signature-Type"] {
        let index = headers.iter().position(|(found, _)| found == name).unwrap();
        for at in 0..headers[index].1.len() {
            for changed in changes(&headers[index].1, at) {
                let mut bent = headers.clone();
                bent[index].1 = changed;
                assert!(refused_as_unverified(&receive(receiver.as_ref(), &bent, &body)), "{name} byte {at}");
            }
        }
    }
    // The serial chooses the key and is not signed itself: another spelling of the same number is the same key.
    let index = headers.iter().position(|(found, _)| found == "Wechatpay-Serial").unwrap();
    for at in 0..headers[index].1.len() {
        for changed in changes(&headers[index].1, at) {
            let same_number = String::from_utf8(changed.clone()).is_ok_and(|text| {
                text.to_uppercase().trim_start_matches('0') == CERTIFICATE_SERIAL.trim_start_matches('0')
            });
            let mut bent = headers.clone();
            bent[index].1 = changed;
            assert_eq!(receive(receiver.as_ref(), &bent, &body).is_ok(), same_number, "serial byte {at}");
        }
    }
}

#[test]
fn any_changed_byte_of_an_alipay_form_is_refused_or_says_the_very_same() {
    let form = Alipay::payment();
    let body = form.body().into_bytes();
    let good = alipay_receive(&body).unwrap();
    let mut same = 0;
    for at in 0..body.len() {
        for changed in changes(&body, at) {
            match alipay_receive(&changed) {
                Err(error) => assert_eq!(error.http_status(), 401, "byte {at}: {error}"),
                // `%2b` is `%2B`, `A` is `%41`, a second `&` separates nothing: other bytes of the same form.
                Ok(notice) => {
                    assert_eq!(notice.observations, good.observations, "byte {at}");
                    assert_eq!(decoded(&changed), decoded(&body), "byte {at}");
                    same += 1;
                }
            }
        }
    }
    assert!(same < body.len(), "most changes are refused");
}

#[test]
fn any_changed_byte_of_a_wxpay_answer_is_an_unknown_outcome() {
    let api = wxpay_api(&wxpay_api_config());
    let error = serde_json::json!({ "code": "ORDER_NOT_EXIST", "message": "订单不存在" });
    let list = vector("wechatpay_v3.json", "wx-resp-certificates");
    let all = usize::MAX;
    for (response, call, changes_max) in [
        (Response::wxpay(200, &wxpay_paid()), ask_payment(), all),
        (Response::wxpay(404, &error), ask_payment(), all),
        (Response::wxpay(200, &wxpay_refund_answer("SUCCESS")), ask_refund(wxpay_payment_ref()), 2),
        (Response::wxpay_text(200, list["body"].as_str().unwrap()), ask(Ask::Certificates), 1),
    ] {
        assert!(word(&response.read(api.as_ref(), &call)).starts_with("final"));
        for at in 0..response.body.len() {
            for body in changes(&response.body, at).into_iter().take(changes_max) {
                let bent = Response { body, ..response.clone() };
                assert_eq!(word(&bent.read(api.as_ref(), &call)), "unknown bad_signature", "byte {at}");
            }
        }
    }
    let closed = Response::wxpay_text(204, "");
    for body in [&b"\n"[..], b" ", b"{}"] {
        let bent = Response { body: body.to_vec(), ..closed.clone() };
        assert_eq!(word(&bent.read(api.as_ref(), &ask_close())), "unknown bad_signature");
    }
}

#[test]
fn any_changed_byte_of_an_alipay_answer_is_an_unknown_outcome() {
    let api = alipay_api(&alipay_api_config());
    let paid = vector("alipay.json", "ali-resp-query-ok");
    let paid = Response::unsigned(200, paid["body"].as_str().unwrap());
    let missing =
        r#"{"code":"40004","msg":"Business Failed","sub_code":"ACQ.TRADE_NOT_EXIST","sub_msg":"https:\/\/a"}"#;
    let missing = Response::alipay("alipay.trade.query", missing);
    let call = ask(Ask::Payment { order_no: order_no("ALI20260101000001") });
    for response in [paid, missing] {
        assert!(word(&response.read(api.as_ref(), &call)).starts_with("final"));
        for at in 0..response.body.len() {
            for body in changes(&response.body, at) {
                let bent = Response { body, ..response.clone() };
                let word = word(&bent.read(api.as_ref(), &call));
                assert!(word == "unknown bad_signature" || word == "unknown unsigned", "byte {at}: {word}");
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_answer_makes_the_reader_panic_or_believe_it(
        status in 100_u16..600,
        body in proptest::prelude::prop_oneof![
            proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            "[\\[\\]{}\":,0-9a-z_. ]{0,120}".prop_map(String::into_bytes),
            r#"\{"(alipay_trade_query_response|error_response)":[{}":,0-9a-z]{0,40},"sign":"[A-Za-z0-9+/=]{0,20}"\}"#
                .prop_map(String::into_bytes),
        ],
    ) {
        let (wxpay, alipay) = (wxpay_api(&wxpay_api_config()), alipay_api(&alipay_api_config()));
        let headers = Response::wxpay(200, &wxpay_paid()).headers;
        let response = Response { status, headers, body, now_seconds: NOW_SECONDS };
        for (_, call) in wxpay_calls() {
            proptest::prop_assert!(word(&response.read(wxpay.as_ref(), &call)).starts_with("unknown"));
        }
        for (_, _, call) in alipay_calls() {
            proptest::prop_assert!(word(&response.read(alipay.as_ref(), &call)).starts_with("unknown"));
        }
    }
}

/// An independent reading of the form: its non-blank pairs, sorted.
fn decoded(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let unescape = |text: &[u8]| {
        let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        percent_encoding::percent_decode(&spaced).collect::<Vec<u8>>()
    };
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = body
        .split(|byte| *byte == b'&')
        .map(|pair| {
            let middle = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (unescape(&pair[..middle]), unescape(pair.get(middle + 1..).unwrap_or_default()))
        })
        .filter(|(_, value)| !value.is_empty())
        .collect();
    pairs.sort();
    pairs
}
