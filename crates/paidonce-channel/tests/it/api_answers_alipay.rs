//! What Alipay's answers mean: the same facts as its notifications, and never more than a good signature says (P3, P5).

use paidonce_channel::alipay::{AlipayAccountConfig, AlipayApiCerts, AlipayKeyConfig};
use paidonce_channel::api::{ApiAnswer, ApiCall};
use paidonce_channel::{Fact, Source};
use paidonce_order::Money;
use paidonce_order::command::{RefundAmount, RefundOutcome, ShareKind};
use serde_json::{Value, json};

use crate::api_signer::*;
use crate::signer::*;

fn read(call: &ApiCall, response: &Response) -> ApiAnswer {
    response.read(alipay_api(&alipay_api_config()).as_ref(), call)
}

fn read_body(call: &ApiCall, method: &str, body: &Value) -> ApiAnswer {
    read(call, &Response::alipay(method, &body.to_string()))
}

fn read_payment(body: &Value) -> ApiAnswer {
    read_body(&ask_payment(), "alipay.trade.query", body)
}

/// What the query of a paid order says.
fn paid() -> Value {
    json!({
        "code": "10000", "msg": "Success", "buyer_logon_id": "138****0000", "buyer_pay_amount": "88.88",
        "buyer_user_id": "2088000000000009", "invoice_amount": "88.88", "out_trade_no": ORDER_NO,
        "point_amount": "0.00", "receipt_amount": "88.88", "send_pay_date": "2026-01-01 11:59:58",
        "total_amount": "88.88", "trade_no": ALIPAY_TRADE_NO, "trade_status": "TRADE_SUCCESS"
    })
}

fn failure(code: &str, sub_code: &str) -> Value {
    json!({ "code": code, "msg": "Business Failed", "sub_code": sub_code, "sub_msg": "words" })
}

#[test]
fn a_paid_order_is_the_same_fact_as_its_notification() {
    let response = Response::alipay("alipay.trade.query", &paid().to_string());
    let reply = final_reply(read(&ask_payment(), &response));
    assert_eq!(reply.platform_state, "TRADE_SUCCESS");
    let pushed = Alipay::new(&[
        ("app_id", APP_ID),
        ("seller_id", SELLER_ID),
        ("charset", "utf-8"),
        ("sign_type", "RSA2"),
        ("notify_type", "trade_status_sync"),
        ("notify_time", "2026-01-01 12:00:00"),
        ("out_trade_no", ORDER_NO),
        ("trade_no", ALIPAY_TRADE_NO),
        ("trade_status", "TRADE_SUCCESS"),
        ("total_amount", "88.88"),
        ("buyer_pay_amount", "88.88"),
        ("gmt_payment", "2026-01-01 11:59:58"),
    ]);
    let pushed = alipay_receive(pushed.body().as_bytes()).unwrap();
    let notice = reply.notice.get();
    assert_eq!(notice.observations, pushed.observations, "both doors make one fact");
    assert_eq!(notice.evidence.source, Source::Query);
    assert_eq!(notice.evidence.body, response.body, "the raw body holds node and sign: it can be checked again");
}

#[test]
fn every_trade_status_has_its_meaning() {
    for (status, expected) in [
        ("TRADE_SUCCESS", "final Paid"),
        ("TRADE_FINISHED", "final Paid"),
        ("WAIT_BUYER_PAY", "final Unpaid"),
        ("TRADE_CLOSED", "final Closed"),
        ("TRADE_NEW_WORD", "unknown unknown_code"),
        ("", "unknown unknown_code"),
    ] {
        let mut body = paid();
        body["trade_status"] = json!(status);
        assert_eq!(word(&read_payment(&body)), expected, "{status}");
    }
}

#[test]
fn a_closed_trade_was_never_paid_or_was_paid_and_went_back() {
    let mut body = paid();
    body["trade_status"] = json!("TRADE_CLOSED");
    let reply = final_reply(read_payment(&body));
    let said = facts(&reply);
    let [Fact::Payment(payment), Fact::Flag(flag)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!((payment.amount, flag.code.as_str()), (Money::fen(8888), "closed_without_refund"));
    body.as_object_mut().unwrap().remove("send_pay_date");
    let said = facts(&final_reply(read_payment(&body)));
    let [Fact::AttemptClosed(attempt)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(attempt.channel_trade_no.as_ref().map(|no| no.as_str()), Some(ALIPAY_TRADE_NO));
}

#[test]
fn gotcha_55_an_amount_may_be_a_text_or_a_number_and_is_never_a_float() {
    // PAR-07, and what no binary float holds.
    for (written, fen) in [
        ("\"88.88\"", 8888),
        ("88.88", 8888),
        ("88.8", 8880),
        ("88", 8800),
        ("\"8.80\"", 880),
        ("1.15", 115),
        ("0.29", 29),
        ("4503599627370497.51", 450_359_962_737_049_751),
        ("92233720368547758.07", i64::MAX),
    ] {
        let content = paid().to_string().replace("\"total_amount\":\"88.88\"", &format!("\"total_amount\":{written}"));
        let reply = final_reply(read(&ask_payment(), &Response::alipay("alipay.trade.query", &content)));
        let said = facts(&reply);
        let [Fact::Payment(payment)] = said.as_slice() else { panic!("{written}: {said:?}") };
        assert_eq!(payment.amount, Money::fen(fen), "{written}");
    }
    for written in ["8.888e1", "88.881", "-88.88", "null", "true", "[88.88]", "\"\""] {
        let content = paid().to_string().replace("\"total_amount\":\"88.88\"", &format!("\"total_amount\":{written}"));
        let reply = final_reply(read(&ask_payment(), &Response::alipay("alipay.trade.query", &content)));
        assert_eq!((facts(&reply).len(), strays(&reply).len()), (0, 1), "{written}: kept for a person, not booked");
    }
}

#[test]
fn gotcha_50_a_trade_that_does_not_exist_yet_is_not_found_and_never_failed() {
    let body = failure("40004", "ACQ.TRADE_NOT_EXIST");
    let reply = final_reply(read_payment(&body));
    assert_eq!(reply.platform_state, "ACQ.TRADE_NOT_EXIST");
    assert_eq!(facts(&reply), []);
    assert_eq!(word(&read_payment(&body)), "final NotFound");
    assert_eq!(word(&read_body(&ask_close(), "alipay.trade.close", &body)), "final NotFound");
}

#[test]
fn gotcha_51_a_refund_counts_only_when_this_call_moved_money_or_the_query_names_it() {
    let refund = |change: fn(&mut Value)| {
        let mut body = json!({
            "code": "10000", "msg": "Success", "out_trade_no": ORDER_NO, "trade_no": ALIPAY_TRADE_NO,
            "buyer_logon_id": "138****0000", "fund_change": "Y", "refund_fee": "5.00",
            "gmt_refund_pay": "2026-01-01 12:10:00"
        });
        change(&mut body);
        read_body(&ask_refund(alipay_payment_ref()), "alipay.trade.refund", &body)
    };
    let reply = final_reply(refund(|_| ()));
    let said = facts(&reply);
    let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(fact.outcome, RefundOutcome::Succeeded);
    // 3.00 was asked for, 5.00 have gone back in all.
    assert_eq!(fact.amount, RefundAmount::Cumulative(Money::fen(500)));
    assert_eq!((fact.refund_no.as_str(), fact.occurred_at.to_string().as_str()), (REFUND_NO, "2026-01-01T04:10:00Z"));
    for (change, expected) in [
        ((|_| ()) as fn(&mut Value), "final Succeeded"),
        (|body| body["fund_change"] = json!("N"), "final Processing"),
        (|body| body["fund_change"] = Value::Null, "final Processing"),
        (|body| body["fund_change"] = json!("y"), "unknown unknown_code"),
        (|body| body["refund_fee"] = Value::Null, "unknown unreadable"),
        (|body| body["refund_fee"] = json!("0.00"), "unknown unreadable"),
        (|body| body["refund_fee"] = json!(5.5), "final Succeeded"),
        (|body| body["trade_no"] = json!("2026010122001400000500000777"), "unknown not_ours"),
        (|body| body["out_trade_no"] = json!("ANOTHER"), "unknown not_ours"),
        (|body| body["trade_no"] = Value::Null, "unknown unreadable"),
        (|body| body["code"] = json!("10003"), "final Processing"),
    ] {
        assert_eq!(word(&refund(change)), expected);
    }
}

#[test]
fn gotcha_51_a_refund_query_without_refund_status_is_no_refund() {
    // REF-12.
    let query =
        |body: Value| read_body(&ask_refund_state(alipay_payment_ref()), "alipay.trade.fastpay.refund.query", &body);
    let named = |extra: &[(&str, Value)]| {
        let mut body = json!({
            "code": "10000", "msg": "Success", "out_trade_no": ORDER_NO, "trade_no": ALIPAY_TRADE_NO,
            "out_request_no": REFUND_NO, "refund_amount": "3.00", "total_amount": "10.00"
        });
        for (key, value) in extra {
            body[*key] = value.clone();
        }
        body
    };
    let status = |word: &str| ("refund_status", json!(word));
    assert_eq!(word(&query(json!({ "code": "10000", "msg": "Success" }))), "final NotFound");
    assert_eq!(word(&query(named(&[]))), "final NotFound");
    assert_eq!(word(&query(failure("40004", "ACQ.TRADE_NOT_EXIST"))), "final NotFound");
    assert_eq!(word(&query(named(&[status("REFUND_PROCESSING")]))), "final Processing");
    assert_eq!(word(&query(named(&[status("REFUND_FAIL")]))), "unknown unknown_code");
    let reply = final_reply(query(named(&[status("REFUND_SUCCESS")])));
    let said = facts(&reply);
    let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(fact.amount, RefundAmount::Exact(Money::fen(300)));
    for (key, value) in [("out_request_no", "OTHER"), ("trade_no", "20260101"), ("out_trade_no", "OTHER")] {
        let body = named(&[status("REFUND_SUCCESS"), (key, json!(value))]);
        assert_eq!(word(&query(body)), "unknown not_ours", "{key}");
    }
    let unnamed = named(&[status("REFUND_SUCCESS"), ("out_request_no", Value::Null)]);
    assert_eq!(word(&query(unnamed)), "unknown unreadable");
}

#[test]
fn a_refund_answer_is_read_by_its_codes() {
    let refund = |code: &str, sub_code: &str| {
        read_body(&ask_refund(alipay_payment_ref()), "alipay.trade.refund", &failure(code, sub_code))
    };
    let outcome = |answer: ApiAnswer| {
        let said = facts(&final_reply(answer));
        let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
        (fact.outcome, fact.amount)
    };
    let short = refund("40004", "ACQ.SELLER_BALANCE_NOT_ENOUGH");
    assert_eq!(word(&short), "final BalanceShort");
    assert_eq!(outcome(short), (RefundOutcome::Stalled, RefundAmount::Exact(Money::fen(300))));
    let finished = refund("40004", "ACQ.TRADE_HAS_FINISHED");
    assert_eq!(word(&finished), "final Failed");
    assert_eq!(outcome(finished).0, RefundOutcome::Failed);
}

#[test]
fn gotcha_66_trouble_at_alipay_is_an_unknown_outcome_for_every_call() {
    for (_, method, call) in alipay_calls() {
        for (code, sub_code) in [
            ("20000", ""),
            ("20000", "isp.unknow-error"),
            ("20000", "aop.unknow-error"),
            ("40004", "ACQ.SYSTEM_ERROR"),
            ("40004", "SYSTEM_ERROR"),
        ] {
            let answer = read_body(&call, method, &failure(code, sub_code));
            assert_eq!(word(&answer), "unknown server_error", "{method} {code} {sub_code}");
        }
    }
}

#[test]
fn gotcha_56_the_misspelled_system_error_is_one() {
    for (_, method, call) in alipay_calls() {
        let answer = read_body(&call, method, &failure("40004", "AQC.SYSTEM_ERROR"));
        assert_eq!(word(&answer), "unknown server_error", "{method}");
    }
}

#[test]
fn gotcha_64_a_code_that_nobody_documented_is_an_unknown_outcome() {
    for (_, method, call) in alipay_calls() {
        for (code, sub_code) in [
            ("40004", "ACQ.SOMETHING_NEW"),
            ("40004", ""),
            ("49999", ""),
            ("10003x", ""),
            ("", ""),
            ("40004", "isp.bill_not_exist"),
        ] {
            let answer = word(&read_body(&call, method, &failure(code, sub_code)));
            assert!(answer == "unknown unknown_code" || answer == "unknown unreadable", "{method} {code}: {answer}");
        }
    }
}

#[test]
fn gotcha_54_an_answer_without_a_sign_is_unknown_whatever_it_says() {
    let error = failure("40004", "ACQ.TRADE_NOT_EXIST").to_string();
    for (_, method, call) in alipay_calls() {
        let node = format!("{}_response", method.replace('.', "_"));
        for body in [
            String::new(),
            "<html><body>busy</body></html>".to_owned(),
            "{}".to_owned(),
            "null".to_owned(),
            format!("{{\"error_response\":{error}}}"),
            format!("{{\"{node}\":{}}}", paid()),
            format!("{{\"{node}\":{},\"sign\":null}}", paid()),
        ] {
            assert_eq!(word(&read(&call, &Response::unsigned(200, &body))), "unknown unsigned", "{body}");
            assert_eq!(word(&read(&call, &Response::unsigned(502, &body))), "unknown server_error", "{body}");
        }
    }
    // Signed, the gateway's own refusal counts.
    let limited = failure("40005", "isv.app-call-limited").to_string();
    let answer = read(&ask_payment(), &Response::alipay_node("error_response", &limited));
    assert_eq!(word(&answer), "refused Wait");
    let signature = failure("40002", "isv.invalid-signature").to_string();
    assert_eq!(word(&read(&ask_payment(), &Response::alipay_node("error_response", &signature))), "refused Person");
}

#[test]
fn gotcha_53_the_raw_substring_is_verified_with_its_escapes() {
    // Slashes and characters as escapes, braces and the word "sign" inside strings, spaces: all as it stands.
    let content = paid().to_string();
    let (head, _) = content.rsplit_once('}').unwrap();
    let odd = format!(
        "{head},\"url\":\"https:\\/\\/example.com\\/a\",\"unicode\":\"\\u6d4b\",\"body\":\"}},\\\"sign\\\":\\\"x\\\"{{\", \"n\" : {{\"a\":[1,{{}}]}} }}"
    );
    assert_eq!(word(&read(&ask_payment(), &Response::alipay("alipay.trade.query", &odd))), "final Paid");
    // Parsed and written again it is another text.
    let rewritten: Value = serde_json::from_str(&odd).unwrap();
    let sign_of_odd = sign("alipay_platform", odd.as_bytes());
    let body = format!("{{\"alipay_trade_query_response\":{rewritten},\"sign\":\"{sign_of_odd}\"}}");
    assert_eq!(word(&read(&ask_payment(), &Response::unsigned(200, &body))), "unknown bad_signature");
}

#[test]
fn gotcha_53_a_sign_over_the_text_before_its_slashes_were_escaped_is_good_too() {
    let plain = paid().to_string().replace("138****0000", "https://example.com/a");
    let sign = sign("alipay_platform", plain.as_bytes());
    let escaped = plain.replace('/', "\\/");
    let body = format!("{{\"alipay_trade_query_response\":{escaped},\"sign\":\"{sign}\"}}");
    assert_eq!(word(&read(&ask_payment(), &Response::unsigned(200, &body))), "final Paid");
    let other = escaped.replace("88.88", "88.89");
    let body = format!("{{\"alipay_trade_query_response\":{other},\"sign\":\"{sign}\"}}");
    assert_eq!(word(&read(&ask_payment(), &Response::unsigned(200, &body))), "unknown bad_signature");
}

#[test]
fn only_the_node_of_the_question_is_read() {
    let content = paid().to_string();
    let refund = Response::alipay("alipay.trade.refund", &content);
    assert_eq!(word(&read(&ask_payment(), &refund)), "unknown unsigned");
    let sign = sign("alipay_platform", content.as_bytes());
    let twice = format!(
        "{{\"alipay_trade_query_response\":{content},\"alipay_trade_query_response\":{content},\"sign\":\"{sign}\"}}"
    );
    assert_eq!(word(&read(&ask_payment(), &Response::unsigned(200, &twice))), "unknown unsigned");
    let inside = content.replace("\"code\":\"10000\"", "\"code\":\"10000\",\"code\":\"10000\"");
    assert_eq!(word(&read(&ask_payment(), &Response::alipay("alipay.trade.query", &inside))), "unknown unreadable");
    let sealed = Response::alipay("alipay.trade.query", "\"c2VhbGVk\"");
    assert_eq!(word(&read(&ask_payment(), &sealed)), "unknown unreadable");
}

#[test]
fn an_answer_about_something_else_is_not_ours() {
    let mut body = paid();
    body["out_trade_no"] = json!("ANOTHER");
    assert_eq!(word(&read_payment(&body)), "unknown not_ours");
    let (_, method, by_trade_no) = alipay_calls().remove(1);
    let mut body = paid();
    body["trade_no"] = json!("2026010122001400000500000777");
    assert_eq!(word(&read_body(&by_trade_no, method, &body)), "unknown not_ours");
    let mut closed =
        json!({ "code": "10000", "msg": "Success", "trade_no": ALIPAY_TRADE_NO, "out_trade_no": ORDER_NO });
    assert_eq!(word(&read_body(&ask_close(), "alipay.trade.close", &closed)), "final Closed");
    closed["out_trade_no"] = json!("ANOTHER");
    assert_eq!(word(&read_body(&ask_close(), "alipay.trade.close", &closed)), "unknown not_ours");
}

#[test]
fn a_close_that_found_the_trade_in_another_state_says_query() {
    for sub_code in ["ACQ.TRADE_STATUS_ERROR", "ACQ.REASON_TRADE_STATUS_INVALID", "ACQ.REASON_ILLEGAL_STATUS"] {
        let answer = read_body(&ask_close(), "alipay.trade.close", &failure("40004", sub_code));
        assert_eq!(word(&answer), "final MaybePaid", "{sub_code}");
    }
}

#[test]
fn a_share_is_judged_by_each_of_its_details() {
    let detail = |state: &str, id: &str| {
        json!({
            "operation_type": "transfer", "execute_dt": "2026-01-01 12:00:05", "trans_out": SELLER_ID,
            "trans_out_type": "userId", "trans_in": "2088000000000201", "trans_in_type": "userId", "amount": "1.00",
            "state": state, "detail_id": id, "error_code": if state == "FAIL" { json!("TXN_RESULT_ACCOUNT_BALANCE_NOT_ENOUGH") } else { Value::Null }
        })
    };
    let share = |states: &[&str]| {
        let details: Vec<Value> = states.iter().zip(["1", "2"]).map(|(state, id)| detail(state, id)).collect();
        json!({
            "code": "10000", "msg": "Success", "out_request_no": "SHARE1", "operation_dt": "2026-01-01 12:00:00",
            "royalty_detail_list": details
        })
    };
    let read = |body: &Value| read_body(&ask_share(alipay_payment_ref()), "alipay.trade.order.settle.query", body);
    for (states, expected, kinds) in [
        (["SUCCESS", "SUCCESS"], "final Finished", "ss"),
        (["SUCCESS", "FAIL"], "final Finished", "sf"),
        (["PROCESSING", "SUCCESS"], "final Processing", "s"),
    ] {
        let reply = final_reply(read(&share(&states)));
        let kind = |fact: &Fact| match fact {
            Fact::Share(fact) => {
                assert_eq!((fact.kind, &fact.payment), (ShareKind::Shared, &alipay_payment_ref()));
                's'
            }
            Fact::Flag(flag) => {
                assert!(flag.detail.contains("BALANCE_NOT_ENOUGH"));
                'f'
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(facts(&reply).iter().map(kind).collect::<String>(), kinds);
        assert_eq!(word(&ApiAnswer::Final(Box::new(reply))), expected, "{states:?}");
    }
    assert_eq!(word(&read(&share(&["NEW_WORD", "SUCCESS"]))), "unknown unreadable");
    let mut other = share(&["SUCCESS"]);
    other["out_request_no"] = json!("SHARE2");
    assert_eq!(word(&read(&other)), "unknown not_ours");
    assert_eq!(word(&read(&failure("40004", "ACQ.TRADE_NOT_EXIST"))), "final NotFound");
}

#[test]
fn in_certificate_mode_another_certificate_is_an_unknown_serial() {
    // The usual platform key inside of a certificate is all that this mode needs here.
    let pem = KEYS["cert_pem"]["wechat_platform_a"].as_str().unwrap().to_owned();
    let mut config: AlipayAccountConfig = alipay_api_config();
    config.apps[0].key = AlipayKeyConfig::Certificate(pem.clone());
    let certs = AlipayApiCerts { app_cert: pem.clone(), alipay_root_cert: pem };
    config.apps[0].api.as_mut().unwrap().certs = Some(certs);
    let api = alipay_api(&config);
    let content = paid().to_string();
    let sign = sign("wechat_platform_a", content.as_bytes());
    let answer = |member: &str| {
        let body = format!("{{\"alipay_trade_query_response\":{content},{member}\"sign\":\"{sign}\"}}");
        word(&Response::unsigned(200, &body).read(api.as_ref(), &ask_payment()))
    };
    // As in the test of the request: the number of this very certificate.
    assert_eq!(answer("\"alipay_cert_sn\":\"63d68b7a0edcb6c687f2849fa2f3f614\","), "final Paid");
    assert_eq!(answer("\"alipay_cert_sn\":\"0123456789abcdef0123456789abcdef\","), "unknown unknown_serial");
    assert_eq!(answer(""), "unknown unknown_serial");
    // With a plain public key there is no number to compare: the signature alone decides.
    let body = Response::alipay("alipay.trade.query", &content).body;
    let text = String::from_utf8(body).unwrap().replace(",\"sign\"", ",\"alipay_cert_sn\":\"01\",\"sign\"");
    assert_eq!(word(&read(&ask_payment(), &Response::unsigned(200, &text))), "final Paid");
}
