//! What WeChat Pay's answers mean: the same facts as its notifications, and never more than a good signature says (P3, P5).

use paidonce_channel::api::{ApiAnswer, ApiCall, Ask, ReplyState};
use paidonce_channel::wxpay::{MerchantMode, PlatformKeyConfig, WxpayAccountConfig};
use paidonce_channel::{Fact, SecretText, Source};
use paidonce_order::command::{RefundAmount, RefundOutcome, ShareKind};
use paidonce_order::ids::ChannelTradeNo;
use paidonce_order::{Money, Timestamp};
use serde_json::{Value, json};

use crate::api_signer::*;
use crate::signer::*;

fn read(call: &ApiCall, response: &Response) -> ApiAnswer {
    response.read(wxpay_api(&wxpay_api_config()).as_ref(), call)
}

fn read_body(call: &ApiCall, body: &Value) -> ApiAnswer {
    read(call, &Response::wxpay(200, body))
}

#[test]
fn a_paid_order_is_the_same_fact_as_its_notification() {
    let reply = final_reply(read_body(&ask_payment(), &wxpay_paid()));
    assert_eq!(reply.platform_state, "SUCCESS");
    let notice = reply.notice.get();
    assert_eq!(notice.observations.len(), 1);
    assert_eq!(notice.observations[0].order_no, Some(order_no(ORDER_NO)));
    let pushed = Wxpay::payment(&wxpay_paid()).receive().unwrap();
    assert_eq!(notice.observations, pushed.observations, "both doors make one fact");
}

#[test]
fn an_answer_is_kept_as_evidence_that_can_be_checked_again() {
    let response = Response::wxpay(200, &wxpay_paid());
    let reply = final_reply(read(&ask_payment(), &response));
    let evidence = &reply.notice.get().evidence;
    assert_eq!(evidence.source, Source::Query);
    assert_eq!(evidence.body, response.body);
    assert_eq!(evidence.key_id, PUBLIC_KEY_ID);
    let kept = |name: &str| evidence.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_bytes());
    for name in ["wechatpay-timestamp", "wechatpay-nonce", "wechatpay-signature", "wechatpay-serial"] {
        let sent = response.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice());
        assert_eq!(kept(name), sent, "{name}");
    }
}

#[test]
fn every_trade_state_has_its_meaning() {
    for (trade_state, expected, facts_expected) in [
        ("SUCCESS", "final Paid", 1),
        ("REFUND", "final PaidWithRefunds", 1),
        ("NOTPAY", "final Unpaid", 0),
        ("USERPAYING", "final Unpaid", 0),
        ("PAYERROR", "final Unpaid", 0),
        ("ACCEPT", "final Unpaid", 0),
        ("CLOSED", "final Closed", 1),
        ("REVOKED", "final Closed", 1),
        ("SOMETHING_NEW", "unknown unknown_code", 0),
        ("success", "unknown unknown_code", 0),
        ("", "unknown unreadable", 0),
    ] {
        let mut body = wxpay_paid();
        body["trade_state"] = json!(trade_state);
        let answer = read_body(&ask_payment(), &body);
        assert_eq!(word(&answer), expected, "{trade_state}");
        if let ApiAnswer::Final(reply) = answer {
            assert_eq!(facts(&reply).len(), facts_expected, "{trade_state}");
            assert_eq!(reply.platform_state, trade_state);
        }
    }
}

#[test]
fn gotcha_13_trade_state_refund_proves_the_payment_and_no_refund() {
    let mut body = wxpay_paid();
    body["trade_state"] = json!("REFUND");
    let reply = final_reply(read_body(&ask_payment(), &body));
    assert!(matches!(facts(&reply).as_slice(), [Fact::Payment(_)]));
}

#[test]
fn an_unpaid_order_needs_no_number_or_time() {
    let mut body = wxpay_paid();
    for key in ["transaction_id", "success_time", "payer", "trade_type", "bank_type"] {
        body.as_object_mut().unwrap().remove(key);
    }
    for (state, expected) in [("NOTPAY", "final Unpaid"), ("CLOSED", "final Closed")] {
        body["trade_state"] = json!(state);
        assert_eq!(word(&read_body(&ask_payment(), &body)), expected);
    }
    // Paid it is, but it can't be booked: kept for a person.
    body["trade_state"] = json!("SUCCESS");
    let reply = final_reply(read_body(&ask_payment(), &body));
    assert_eq!((facts(&reply).len(), strays(&reply)), (0, vec!["missing_field".to_owned()]));
}

#[test]
fn an_answer_about_something_else_is_not_ours() {
    for (key, value) in [("out_trade_no", "ORD2"), ("mchid", "1900000777"), ("appid", "wx2222222222222222")] {
        let mut body = wxpay_paid();
        body[key] = json!(value);
        assert_eq!(word(&read_body(&ask_payment(), &body)), "unknown not_ours", "{key}");
    }
    let number = ChannelTradeNo::parse("4200000000202601010000000777").unwrap();
    let by_trade_no = ask(Ask::PaymentByTradeNo { order_no: order_no(ORDER_NO), channel_trade_no: number });
    assert_eq!(word(&read_body(&by_trade_no, &wxpay_paid())), "unknown not_ours");
}

#[test]
fn gotcha_33_a_partners_answer_must_name_the_pair_that_was_asked_for() {
    let mode = MerchantMode::Partner { sub_mchids: vec!["*".to_owned()] };
    let api = wxpay_api(&WxpayAccountConfig { mode, ..wxpay_api_config() });
    let call = ApiCall { sub_mchid: Some("1900000109".to_owned()), ..ask_payment() };
    let answer = |change: fn(&mut Value)| {
        let mut body = wxpay_paid();
        body.as_object_mut().unwrap().retain(|key, _| key != "mchid" && key != "appid");
        body["sp_mchid"] = json!(MCHID);
        body["sp_appid"] = json!(APPID);
        body["sub_mchid"] = json!("1900000109");
        change(&mut body);
        word(&Response::wxpay(200, &body).read(api.as_ref(), &call))
    };
    assert_eq!(answer(|_| ()), "final Paid");
    assert_eq!(answer(|body| body["sub_mchid"] = json!("1900000110")), "unknown not_ours");
    assert_eq!(answer(|body| body["sp_mchid"] = json!("1900000110")), "unknown not_ours");
    assert_eq!(answer(|body| body["sub_mchid"] = json!("")), "unknown unreadable");
}

#[test]
fn a_combine_payment_books_every_sub_order() {
    let sub_order = |mchid: &str, no: &str, state: &str, total: i64| {
        json!({
            "mchid": mchid, "out_trade_no": no, "transaction_id": format!("42000000002026010100000{no}"),
            "trade_type": "JSAPI", "trade_state": state, "success_time": "2026-01-01T11:59:58.120+08:00",
            "amount": { "total_amount": total, "payer_amount": total, "currency": "CNY", "payer_currency": "CNY" }
        })
    };
    let combine = |states: [&str; 2]| {
        json!({
            "combine_appid": APPID, "combine_mchid": MCHID, "combine_out_trade_no": "COMBINE1",
            "sub_orders": [sub_order(MCHID, "SUB001", states[0], 10), sub_order(OTHER_MCHID, "SUB002", states[1], 990)]
        })
    };
    let call = ask_combine();
    let reply = final_reply(read_body(&call, &combine(["SUCCESS", "SUCCESS"])));
    let amounts: Vec<i64> = facts(&reply)
        .iter()
        .map(|fact| if let Fact::Payment(fact) = fact { fact.amount.amount_minor } else { panic!("{fact:?}") })
        .collect();
    assert_eq!(amounts, [10, 990]);
    for (states, expected) in [
        (["SUCCESS", "REFUND"], "final Paid PaidWithRefunds"),
        (["SUCCESS", "CLOSED"], "final Paid Closed"),
        (["NOTPAY", "NOTPAY"], "final Unpaid Unpaid"),
        (["CLOSED", "NOTPAY"], "final Closed Unpaid"),
        (["CLOSED", "NEW_WORD"], "unknown unknown_code"),
    ] {
        assert_eq!(word(&read_body(&call, &combine(states))), expected, "{states:?}");
    }
    // A stranger's part has no state, and is kept only once it is paid: a question every minute must not make a stray.
    for (state, strays) in [("NOTPAY", 0), ("SUCCESS", 1)] {
        let mut mixed = combine(["NOTPAY", state]);
        mixed["sub_orders"][1]["mchid"] = json!("1999999999");
        let answer = read_body(&call, &mixed);
        assert_eq!(word(&answer), "final Unpaid None");
        assert_eq!(final_reply(answer).notice.get().strays.len(), strays, "{state}");
    }
    let gone = Response::wxpay(404, &json!({ "code": "ORDER_NOT_EXIST", "message": "订单不存在" }));
    assert_eq!(word(&read(&call, &gone)), "final NotFound");
    let mut foreign = combine(["SUCCESS", "SUCCESS"]);
    foreign["combine_out_trade_no"] = json!("COMBINE2");
    assert_eq!(word(&read_body(&call, &foreign)), "unknown not_ours");
}

#[test]
fn gotcha_12_refund_answers_say_status_where_notices_say_refund_status() {
    let reply = final_reply(read_body(&ask_refund_state(wxpay_payment_ref()), &wxpay_refund_answer("SUCCESS")));
    let mut pushed = wxpay_refund_answer("SUCCESS");
    let object = pushed.as_object_mut().unwrap();
    let status = object.remove("status").unwrap();
    object.insert("refund_status".to_owned(), status);
    object.insert("mchid".to_owned(), json!(MCHID));
    let pushed = Wxpay::refund(&pushed).receive().unwrap();
    assert_eq!(reply.notice.get().observations, pushed.observations, "both doors make one fact");
    let mut neither = wxpay_refund_answer("SUCCESS");
    neither.as_object_mut().unwrap().remove("status");
    let call = ask_refund_state(wxpay_payment_ref());
    assert_eq!(word(&read_body(&call, &neither)), "unknown unreadable", "never defaulted");
}

#[test]
fn gotcha_15_a_refund_is_done_when_its_status_says_so_and_not_when_it_was_accepted() {
    for call in [ask_refund(wxpay_payment_ref()), ask_refund_state(wxpay_payment_ref())] {
        for (status, expected, outcome) in [
            ("PROCESSING", "final Processing", None),
            ("SUCCESS", "final Succeeded", Some(RefundOutcome::Succeeded)),
            ("CLOSED", "final Failed", Some(RefundOutcome::Failed)),
            ("ABNORMAL", "final Stalled", Some(RefundOutcome::Stalled)),
            ("NEW_WORD", "unknown unknown_code", None),
        ] {
            let answer = read_body(&call, &wxpay_refund_answer(status));
            assert_eq!(word(&answer), expected, "{status}");
            let ApiAnswer::Final(reply) = answer else { continue };
            let said =
                facts(&reply).into_iter().map(|fact| if let Fact::Refund(fact) = fact { fact } else { panic!() });
            let said: Vec<_> = said.map(|fact| (fact.outcome, fact.amount)).collect();
            let amount = RefundAmount::Exact(Money::fen(300));
            assert_eq!(said, outcome.map(|outcome| (outcome, amount)).into_iter().collect::<Vec<_>>(), "{status}");
        }
    }
}

#[test]
fn gotcha_14_a_stuck_refund_is_stalled_and_may_still_succeed() {
    let call = ask_refund_state(wxpay_payment_ref());
    let fact = |status: &str| {
        let said = facts(&final_reply(read_body(&call, &wxpay_refund_answer(status))));
        let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
        fact.clone()
    };
    let (stuck, done) = (fact("ABNORMAL"), fact("SUCCESS"));
    assert_eq!((stuck.outcome, done.outcome), (RefundOutcome::Stalled, RefundOutcome::Succeeded));
    assert_eq!((&stuck.refund_no, &stuck.channel_refund_no), (&done.refund_no, &done.channel_refund_no));
}

#[test]
fn a_refund_number_that_the_platform_knows_for_another_payment_is_told_to_our_order() {
    let call = ask_refund_state(wxpay_payment_ref());
    for status in ["SUCCESS", "PROCESSING"] {
        let mut body = wxpay_refund_answer(status);
        body["transaction_id"] = json!("4200000000202601010000000777");
        body["out_trade_no"] = json!("ANOTHER");
        let reply = final_reply(read_body(&call, &body));
        assert!(matches!(reply.state, ReplyState::Refund(paidonce_channel::api::RefundState::Failed)));
        let observation = &reply.notice.get().observations[0];
        assert_eq!(observation.order_no, Some(order_no(ORDER_NO)));
        let Fact::Refund(fact) = &observation.fact else { panic!() };
        assert_eq!(fact.payment.channel_trade_no.as_str(), "4200000000202601010000000777");
    }
    for (key, value) in [("out_refund_no", "RFD0002"), ("out_trade_no", "ANOTHER"), ("mchid", "1900000777")] {
        let mut body = wxpay_refund_answer("SUCCESS");
        body[key] = json!(value);
        assert_eq!(word(&read_body(&call, &body)), "unknown not_ours", "{key}");
    }
}

#[test]
fn a_short_balance_is_stalled_and_not_failed() {
    let error = json!({ "code": "NOT_ENOUGH", "message": "基本账户余额不足" });
    let answer = read(&ask_refund(wxpay_payment_ref()), &Response::wxpay(403, &error));
    assert_eq!(word(&answer), "final BalanceShort");
    let reply = final_reply(answer);
    let said = facts(&reply);
    let [Fact::Refund(fact)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(fact.outcome, RefundOutcome::Stalled);
    assert_eq!(fact.amount, RefundAmount::Exact(Money::fen(300)));
    assert_eq!(fact.refund_no.as_str(), REFUND_NO);
}

#[test]
fn gotcha_22_a_close_of_a_paid_order_says_query_and_books_nothing() {
    for code in ["ORDER_PAID", "ORDERPAID", "268449538", "268498689", "268449641"] {
        let error = json!({ "code": code, "message": "订单已支付" });
        let reply = final_reply(read(&ask_close(), &Response::wxpay(400, &error)));
        assert!(matches!(reply.state, ReplyState::Close(paidonce_channel::api::CloseState::MaybePaid)), "{code}");
        assert_eq!(facts(&reply), [], "{code}");
    }
    let number = json!({ "code": 268_449_538, "message": "" });
    assert_eq!(word(&read(&ask_close(), &Response::wxpay(400, &number))), "final MaybePaid");
}

#[test]
fn a_signed_204_closes_and_an_unsigned_one_does_not() {
    let closed = Response::wxpay_text(204, "");
    let reply = final_reply(read(&ask_close(), &closed));
    assert!(matches!(reply.state, ReplyState::Close(paidonce_channel::api::CloseState::Closed)));
    // The signature of an empty body names no order: a state, not a fact.
    assert_eq!(facts(&reply), []);
    assert_eq!(word(&read(&ask_close(), &Response::unsigned(204, ""))), "unknown unsigned");
    let forged = Response::unsigned(204, "").signed("attacker", PUBLIC_KEY_ID);
    assert_eq!(word(&read(&ask_close(), &forged)), "unknown bad_signature");
}

#[test]
fn gotcha_28_a_finished_share_is_judged_by_each_receiver() {
    let share = |state: &str, results: &[&str]| {
        let receivers: Vec<Value> = results
            .iter()
            .zip(["1900000201", "1900000202", "1900000203"])
            .map(|(result, account)| {
                json!({
                    "type": "MERCHANT_ID", "account": account, "amount": 100, "description": "分账", "result": result,
                    "fail_reason": if *result == "CLOSED" { json!("NO_RELATION") } else { Value::Null },
                    "detail_id": "360", "create_time": "2026-01-01T12:00:00+08:00",
                    "finish_time": "2026-01-01T12:00:05+08:00"
                })
            })
            .collect();
        json!({
            "transaction_id": TRADE_NO, "out_order_no": "SHARE1", "order_id": "3008450740201411110007820472",
            "state": state, "receivers": receivers
        })
    };
    let call = ask_share(wxpay_payment_ref());
    for (state, results, expected, kinds) in [
        ("FINISHED", ["SUCCESS", "SUCCESS", "SUCCESS"], "final Finished", "sss"),
        ("FINISHED", ["SUCCESS", "CLOSED", "SUCCESS"], "final Finished", "sfs"),
        ("FINISHED", ["CLOSED", "CLOSED", "CLOSED"], "final Finished", "fff"),
        ("FINISHED", ["SUCCESS", "PENDING", "CLOSED"], "final Processing", "sf"),
        ("PROCESSING", ["SUCCESS", "SUCCESS", "SUCCESS"], "final Processing", "sss"),
        ("PROCESSING", ["PENDING", "PENDING", "PENDING"], "final Processing", ""),
    ] {
        let reply = final_reply(read_body(&call, &share(state, &results)));
        let kind = |fact: &Fact| match fact {
            Fact::Share(fact) => {
                assert_eq!((fact.kind, fact.share_no.as_str()), (ShareKind::Shared, "SHARE1"));
                's'
            }
            Fact::Flag(flag) => {
                assert_eq!(flag.code, "share_failed");
                assert!(flag.detail.contains("NO_RELATION"), "{}", flag.detail);
                assert!(!flag.detail.contains("19000002"), "who receives is not for texts: {}", flag.detail);
                'f'
            }
            other => panic!("{other:?}"),
        };
        let found: String = facts(&reply).iter().map(kind).collect();
        assert_eq!(found, kinds, "{state} {results:?}");
        assert_eq!(word(&ApiAnswer::Final(Box::new(reply))), expected, "{state} {results:?}");
    }
    let mut unfrozen = share("FINISHED", &["SUCCESS"]);
    unfrozen["receivers"][0]["account"] = json!(MCHID);
    assert_eq!(facts(&final_reply(read_body(&call, &unfrozen))), [], "unfrozen money never left us");
    for (key, value) in [("transaction_id", "42000"), ("out_order_no", "SHARE2")] {
        let mut body = share("FINISHED", &["SUCCESS"]);
        body[key] = json!(value);
        assert_eq!(word(&read_body(&call, &body)), "unknown not_ours", "{key}");
    }
}

#[test]
fn a_share_found_by_query_is_the_same_fact_as_its_receivers_notice() {
    let queried = json!({
        "transaction_id": TRADE_NO, "out_order_no": "SHARE1", "order_id": "3008450740201411110007820472",
        "state": "FINISHED", "receivers": [{
            "type": "MERCHANT_ID", "account": "1900000201", "amount": 100, "result": "SUCCESS",
            "finish_time": "2026-01-01T12:00:05+08:00"
        }]
    });
    let pushed = json!({
        "mchid": MCHID, "transaction_id": TRADE_NO, "out_order_no": "SHARE1", "order_id": "3008450740201411110007820472",
        "receiver": { "type": "MERCHANT_ID", "account": "1900000201", "amount": 100, "description": "分账" },
        "success_time": "2026-01-01T12:00:05+08:00"
    });
    let reply = final_reply(read_body(&ask_share(wxpay_payment_ref()), &queried));
    let notice = Wxpay::share(&pushed).receive().unwrap();
    assert_eq!(reply.notice.get().observations, notice.observations);
}

#[test]
fn what_no_signature_proves_is_unknown() {
    let good = Response::wxpay(200, &wxpay_paid());
    let bent = |change: fn(&mut Response)| {
        let mut response = good.clone();
        change(&mut response);
        word(&read(&ask_payment(), &response))
    };
    fn header<'r>(response: &'r mut Response, name: &str) -> &'r mut Vec<u8> {
        &mut response.headers.iter_mut().find(|(found, _)| found == name).unwrap().1
    }
    assert_eq!(bent(|_| ()), "final Paid");
    assert_eq!(bent(|response| response.headers.clear()), "unknown unsigned");
    assert_eq!(
        bent(|response| *header(response, "wechatpay-signature") = b"WECHATPAY/SIGNTEST/abc=".to_vec()),
        "unknown probe"
    );
    assert_eq!(
        bent(|response| *header(response, "wechatpay-serial") = b"PUB_KEY_ID_02".to_vec()),
        "unknown unknown_serial"
    );
    assert_eq!(
        bent(|response| *response = response.clone().signed("attacker", PUBLIC_KEY_ID)),
        "unknown bad_signature"
    );
    assert_eq!(bent(|response| response.now_seconds += 300), "unknown bad_signature");
    assert_eq!(bent(|response| response.now_seconds -= 300), "unknown bad_signature");
    assert_eq!(bent(|response| response.headers.truncate(3)), "unknown bad_signature");
    for status in [500, 502, 503, 504] {
        let error = json!({ "code": "SYSTEM_ERROR", "message": "" });
        for call in wxpay_calls().into_iter().map(|(_, call)| call) {
            assert_eq!(word(&read(&call, &Response::wxpay(status, &error))), "unknown server_error");
            assert_eq!(word(&read(&call, &Response::unsigned(status, "<html>busy</html>"))), "unknown server_error");
        }
    }
    assert_eq!(word(&read(&ask_payment(), &Response::wxpay_text(302, ""))), "unknown unreadable");
    assert_eq!(word(&read(&ask_payment(), &Response::wxpay_text(200, "[]"))), "unknown unreadable");
    assert_eq!(word(&read(&ask_payment(), &Response::wxpay_text(404, "not json"))), "unknown unreadable");
}

#[test]
fn an_unsigned_refusal_is_no_refusal_but_its_code_is_shown() {
    let error = r#"{"code":"SIGN_ERROR","message":"sign error"}"#;
    let doubt = doubt(read(&ask_payment(), &Response::unsigned(401, error)));
    assert_eq!(doubt.code, "unsigned");
    assert!(doubt.detail.contains("SIGN_ERROR") && doubt.detail.contains("unverified"), "{}", doubt.detail);
}

#[test]
fn transport_status_and_business_status_are_two_things() {
    // QRY-08: a body that says PROCESSING under 200, a 404 whose body has another "status".
    let call = ask_refund_state(wxpay_payment_ref());
    assert_eq!(word(&read_body(&call, &wxpay_refund_answer("PROCESSING"))), "final Processing");
    let missing = json!({ "code": "RESOURCE_NOT_EXISTS", "message": "退款单不存在", "status": "SUCCESS" });
    assert_eq!(word(&read(&call, &Response::wxpay(404, &missing))), "final NotFound");
}

// ---- certificates ----

/// The list as the vector has it: the usual certificate, sealed with the APIv3 key.
fn certificate_list() -> String {
    vector("wechatpay_v3.json", "wx-resp-certificates")["body"].as_str().unwrap().to_owned()
}

/// Knows the public key alone.
fn without_certificates() -> WxpayAccountConfig {
    let mut config = wxpay_api_config();
    config.platform_keys.retain(|key| matches!(key, PlatformKeyConfig::PublicKey { .. }));
    config
}

#[test]
fn a_certificate_list_may_be_signed_by_a_certificate_that_only_it_contains() {
    // KEY-01: trust comes from the APIv3 key that opens it, not from the signature alone.
    let api = wxpay_api(&without_certificates());
    let call = ask(Ask::Certificates);
    let own = Response::unsigned(200, &certificate_list()).signed("wechat_platform_a", CERTIFICATE_SERIAL);
    let reply = final_reply(own.read(api.as_ref(), &call));
    let ReplyState::Certificates(keys) = reply.state else { panic!() };
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].serial, "A5DFF7711C0FFEE00112233445566778899AABB");
    let unsigned = Response::unsigned(200, &certificate_list());
    assert_eq!(word(&unsigned.read(api.as_ref(), &call)), "unknown unsigned");
    let forged = Response::unsigned(200, &certificate_list()).signed("attacker", CERTIFICATE_SERIAL);
    assert_eq!(word(&forged.read(api.as_ref(), &call)), "unknown bad_signature");
    // With another APIv3 key nothing opens, so nothing is trusted.
    let config = WxpayAccountConfig {
        apiv3_key: SecretText::from("00000000000000000000000000000000"),
        ..without_certificates()
    };
    assert_eq!(word(&own.read(wxpay_api(&config).as_ref(), &call)), "unknown unknown_serial");
    let known_key = Response::wxpay_text(200, &certificate_list());
    assert_eq!(word(&known_key.read(wxpay_api(&config).as_ref(), &call)), "unknown unreadable");
    // A key that is being rotated out still opens it.
    let rotating = WxpayAccountConfig { apiv3_key_previous: Some(SecretText::from(APIV3_KEY)), ..config };
    assert_eq!(word(&own.read(wxpay_api(&rotating).as_ref(), &call)), "final 1 keys");
    // No other call may learn a key on the way.
    assert_eq!(word(&own.read(api.as_ref(), &ask_payment())), "unknown unknown_serial");
}

#[test]
fn a_certificate_outside_of_its_dates_is_not_learned_or_used() {
    let call = ask(Ask::Certificates);
    let api = wxpay_api(&without_certificates());
    let with_dates = |from: &str, to: &str| {
        let mut list: Value = serde_json::from_str(&certificate_list()).unwrap();
        list["data"][0]["effective_time"] = json!(from);
        list["data"][0]["expire_time"] = json!(to);
        Response::wxpay(200, &list).read(api.as_ref(), &call)
    };
    assert_eq!(word(&with_dates("2020-01-01T00:00:00Z", "2025-12-31T00:00:00Z")), "final 0 keys");
    assert_eq!(word(&with_dates("2026-06-01T00:00:00Z", "2031-01-01T00:00:00Z")), "final 1 keys");
    let mut wrong_serial: Value = serde_json::from_str(&certificate_list()).unwrap();
    wrong_serial["data"][0]["serial_no"] = json!("0A5DFF77");
    assert_eq!(word(&Response::wxpay(200, &wrong_serial).read(api.as_ref(), &call)), "unknown unreadable");
}

#[test]
fn gotcha_05_learned_keys_verify_within_their_dates_and_never_replace_a_configured_one() {
    use paidonce_channel::api::LearnedKey;
    use paidonce_channel::wxpay::WxpayAccount;
    use paidonce_channel::{OurAccounts, RawNotification};
    use paidonce_order::ids::Channel;

    let at = |text: &str| Timestamp::parse(text).unwrap();
    let learned = |serial: &str, from: &str, to: &str| LearnedKey {
        serial: serial.to_owned(),
        pem: KEYS["cert_pem"]["wechat_platform_a"].as_str().unwrap().to_owned(),
        valid_from: at(from),
        valid_to: at(to),
    };
    let ours = OurAccounts::try_new(vec![WxpayAccount::try_new(&without_certificates()).unwrap()], vec![]).unwrap();
    let message = Wxpay::payment(&wxpay_paid());
    let body = message.envelope().to_string().into_bytes();
    let headers = message.headers(&body);
    let receives = |ours: &OurAccounts| {
        let raw = RawNotification { headers: &headers, body: &body, now: moment().now };
        ours.find_receiver(Channel::Wxpay, MCHID).unwrap().receive(raw).map(|_| ()).map_err(|error| error.code())
    };
    assert_eq!(receives(&ours), Err("unknown_serial"));
    let named = account("wxpay:1900000001");
    let good = learned(CERTIFICATE_SERIAL, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z");
    assert_eq!(receives(&ours.with_learned_keys(&named, vec![good.clone()])), Ok(()));
    let expired = learned(CERTIFICATE_SERIAL, "2020-01-01T00:00:00Z", "2025-12-31T00:00:00Z");
    assert_eq!(receives(&ours.with_learned_keys(&named, vec![expired.clone()])), Err("unknown_serial"));
    let early = learned(CERTIFICATE_SERIAL, "2026-02-01T00:00:00Z", "2030-01-01T00:00:00Z");
    assert_eq!(receives(&ours.with_learned_keys(&named, vec![early])), Err("unknown_serial"));
    let misnamed = learned("0A5DFF78", "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z");
    assert_eq!(receives(&ours.with_learned_keys(&named, vec![misnamed])), Err("unknown_serial"));
    let elsewhere = ours.with_learned_keys(&account("wxpay:1900000777"), vec![good.clone()]);
    assert_eq!(receives(&elsewhere), Err("unknown_serial"));
    // A configured certificate keeps verifying whatever the list says of it.
    let configured = OurAccounts::try_new(vec![WxpayAccount::try_new(&wxpay_api_config()).unwrap()], vec![]).unwrap();
    assert_eq!(receives(&configured.with_learned_keys(&named, vec![expired])), Ok(()));
}

#[test]
fn an_expired_configured_certificate_is_told_and_still_verifies() {
    use paidonce_channel::wxpay::WxpayAccount;

    let account = WxpayAccount::try_new(&wxpay_api_config()).unwrap();
    let warned = |text: &str| account.key_warnings(Timestamp::parse(text).unwrap()).len();
    // Valid from 2020-01-01 to 2045-01-01.
    assert_eq!(warned("2026-01-01T00:00:00Z"), 0);
    assert_eq!(warned("2044-12-15T00:00:00Z"), 1, "soon");
    assert_eq!(warned("2046-01-01T00:00:00Z"), 1, "expired");
    assert_eq!(warned("2019-01-01T00:00:00Z"), 1, "not yet");
    let told = account.key_warnings(Timestamp::parse("2046-01-01T00:00:00Z").unwrap())[0].to_string();
    assert!(told.contains("expired") && told.contains("A5DFF77"), "{told}");
    let mut late = Response::unsigned(200, &wxpay_paid().to_string());
    let seconds = 2_400_000_000_i64;
    late.now_seconds = seconds;
    let message = format!("{seconds}\nN\n{}\n", wxpay_paid());
    late.headers = [
        ("Wechatpay-Timestamp", seconds.to_string()),
        ("Wechatpay-Nonce", "N".to_owned()),
        ("Wechatpay-Signature", sign("wechat_platform_a", message.as_bytes())),
        ("Wechatpay-Serial", CERTIFICATE_SERIAL.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value.into_bytes()))
    .into();
    assert_eq!(word(&late.read(wxpay_api(&wxpay_api_config()).as_ref(), &ask_payment())), "final Paid");
}
