//! The gotchas of Alipay (protocol facts, part D), one test each. Where the order or the server has the other half, the test
//! says so.

use paidonce_channel::alipay::{AlipayAccountConfig, SignType};
use paidonce_channel::channel::{acknowledge, refuse};
use paidonce_channel::{Fact, Notice};
use paidonce_order::command::{PaymentFact, RefundAmount, RefundFact, RefundOutcome};
use paidonce_order::ids::Channel;
use paidonce_order::money::Money;

use crate::signer::*;

fn facts(notice: &Notice) -> Vec<&Fact> {
    assert!(notice.strays.is_empty(), "{:?}", notice.strays);
    notice.observations.iter().map(|observation| &observation.fact).collect()
}

fn payment_and_refund(notice: &Notice) -> (&PaymentFact, &RefundFact) {
    match facts(notice).as_slice() {
        [Fact::Payment(payment), Fact::Refund(refund)] => (payment, refund),
        other => panic!("{other:?}"),
    }
}

fn refunded(total: &str, out_biz_no: &str) -> Alipay {
    Alipay::payment()
        .set("refund_fee", total)
        .set("gmt_refund", "2026-01-01 12:30:00.123")
        .set("out_biz_no", out_biz_no)
        .set("notify_time", "2026-01-01 12:30:01")
}

#[test]
fn gotcha_35_a_refund_fee_of_zero_and_a_close_time_are_no_refund() {
    for zero in ["0.00", "0", "0.0"] {
        let form = Alipay::payment().set("refund_fee", zero).set("gmt_close", "2026-01-01 12:00:00");
        assert_eq!(paid_minor(&form.receive().unwrap()), 8888, "{zero}");
    }
    // A time of refund without an amount is contradictory: the payment stands, a person looks.
    let unclear = Alipay::payment().set("gmt_refund", "2026-01-01 12:30:00").receive().unwrap();
    assert!(matches!(facts(&unclear).as_slice(), [Fact::Payment(_), Fact::Flag(_)]));
}

#[test]
fn gotcha_36_trade_closed_is_a_timeout_a_full_refund_or_unclear() {
    let closed = Alipay::payment().set("trade_status", "TRADE_CLOSED").set("gmt_close", "2026-01-01 12:15:00");
    let timeout = closed.clone().without("gmt_payment").receive().unwrap();
    match facts(&timeout).as_slice() {
        [Fact::AttemptClosed(fact)] => assert_eq!(fact.occurred_at.to_string(), "2026-01-01T04:15:00Z"),
        other => panic!("{other:?}"),
    }
    let zero = closed.clone().without("gmt_payment").set("refund_fee", "0.00").receive().unwrap();
    assert!(matches!(facts(&zero).as_slice(), [Fact::AttemptClosed(_)]));

    let full = refunded("88.88", "RF3").set("trade_status", "TRADE_CLOSED").receive().unwrap();
    let (payment, refund) = payment_and_refund(&full);
    assert_eq!(payment.amount, Money::fen(8888));
    assert_eq!(refund.amount, RefundAmount::Cumulative(Money::fen(8888)));

    let unclear = closed.receive().unwrap();
    assert!(matches!(facts(&unclear).as_slice(), [Fact::Flag(_)]), "paid, closed, no word of the money");
    let without_fee = Alipay::payment()
        .set("trade_status", "TRADE_CLOSED")
        .set("gmt_refund", "2026-01-01 12:30:00")
        .without("gmt_payment");
    assert!(matches!(facts(&without_fee.receive().unwrap()).as_slice(), [Fact::Flag(_)]));
}

/// The order's half (the difference is booked, decreases are ignored) is tested in `paidonce-order`.
#[test]
fn gotcha_37_refund_fee_is_the_sum_so_far_and_says_so() {
    for (total, out_biz_no, fen) in [("30.00", "R1", 3000), ("50.00", "R2", 5000), ("30.00", "R1", 3000)] {
        let notice = refunded(total, out_biz_no).receive().unwrap();
        let (payment, refund) = payment_and_refund(&notice);
        assert_eq!(refund.amount, RefundAmount::Cumulative(Money::fen(fen)));
        assert_eq!(refund.refund_no.as_str(), out_biz_no);
        assert_eq!(refund.outcome, RefundOutcome::Succeeded);
        assert_eq!(refund.payment, payment.payment);
    }
    // Without a number of its own it is named by the trade, as Alipay does; without gmt_payment only the refund is proven.
    let unnamed = refunded("10.00", "X").without("out_biz_no").receive().unwrap();
    assert_eq!(payment_and_refund(&unnamed).1.refund_no.as_str(), "2026010122001400000500000001");
    let alone = refunded("10.00", "R1").without("gmt_payment").receive().unwrap();
    assert!(matches!(facts(&alone).as_slice(), [Fact::Refund(_)]));
    // A refund number we could never have made is kept, and the payment is still booked.
    let odd = refunded("10.00", "nr 1").receive().unwrap();
    assert!(matches!(odd.observations[0].fact, Fact::Payment(_)));
    assert_eq!((odd.observations.len(), odd.strays[0].fact.code.as_str()), (1, "unusable_number"));
}

/// The order's half (a duplicate makes no event) is tested in `paidonce-order`.
#[test]
fn gotcha_38_trade_finished_months_later_says_the_same_payment() {
    let success = Alipay::payment().receive().unwrap();
    let finished = Alipay::payment()
        .set("trade_status", "TRADE_FINISHED")
        .set("notify_id", "20260401002221200000000000007")
        .set("notify_time", "2026-04-01 00:00:00");
    let finished = finished.receive().unwrap();
    assert_eq!(success.observations, finished.observations);
}

#[test]
fn gotcha_39_trade_finished_first_is_a_payment() {
    let finished = Alipay::payment().set("trade_status", "TRADE_FINISHED").receive().unwrap();
    assert_eq!(paid_minor(&finished), 8888);
}

#[test]
fn gotcha_41_values_are_decoded_once_whatever_they_hold() {
    let form = Alipay::payment()
        .set("subject", "a+b %2B 100%25 = & \"&quot;\" 'x' <b>")
        .set("body", " leading, a\ttab and a\nline")
        .set("passback_params", "k%3Dv%26x")
        .set("fund_bill_list", "[{\"amount\":\"88.88\",\"fundChannel\":\"ALIPAYACCOUNT\"}]")
        .set("z_new_field", "1");
    assert_eq!(paid_minor(&form.receive().unwrap()), 8888);
    // A sign whose plus signs arrived as spaces was changed on its way: refused, never shortened.
    let plus = (0..).map(|n| Alipay::payment().set("subject", n.to_string()));
    let form = plus.into_iter().find(|form| form.signature().contains('+')).unwrap();
    let bare = format!("{}&sign={}", form.unsigned_body(), escape(form.signature().as_bytes()).replace("%2B", "+"));
    assert_eq!(alipay_receive(bare.as_bytes()).unwrap_err().code(), "malformed");
    assert!(alipay_receive(form.body().as_bytes()).is_ok());
}

#[test]
fn gotcha_42_a_gbk_form_is_verified_over_gbk_bytes() {
    let (subject, _, _) = encoding_rs::GBK.encode("测试商品喆€");
    for charset in ["GBK", "gbk", "GB2312"] {
        let form = Alipay::payment().set("charset", charset).set("subject", &subject);
        assert_eq!(paid_minor(&form.receive().unwrap()), 8888, "{charset}");
    }
    // Labelled UTF-8: the bytes are still the signed ones, and no number depends on the subject.
    assert_eq!(paid_minor(&Alipay::payment().set("subject", &subject).receive().unwrap()), 8888);
    let unknown = Alipay::payment().set("charset", "BIG5").receive().unwrap();
    assert_eq!(only_stray(&unknown), "unknown_charset");
}

#[test]
fn gotcha_43_sha1_is_refused_unless_the_configuration_asks_for_it() {
    let vector = vector("alipay.json", "ali-pay-success-rsa1");
    let body = vector["body"].as_str().unwrap().as_bytes();
    assert_eq!(alipay_receive(body).unwrap_err().code(), "algorithm_not_allowed");
    let mut config = alipay_config();
    config.apps[0].sign_type = SignType::Rsa;
    let receiver = alipay_receiver(&config);
    assert_eq!(paid_minor(&receive(receiver.as_ref(), &[], body).unwrap()), 8888);
    // And then SHA-256 is the one that is not allowed: the message never chooses.
    let error = receive(receiver.as_ref(), &[], Alipay::payment().body().as_bytes()).unwrap_err();
    assert_eq!(error.code(), "algorithm_not_allowed");
    for sign_type in ["", "rsa2", "RSA2 ", "SM2"] {
        let error = Alipay::payment().set("sign_type", sign_type).receive().unwrap_err();
        assert_eq!(error.http_status(), 401, "{sign_type}");
    }
}

#[test]
fn gotcha_44_the_presence_of_msg_method_chooses_the_rule() {
    let biz_content = r#"{"trade_no":"2026010122001400000500000001","dback_status":"S"}"#;
    let message = Alipay::gateway("alipay.trade.refund.depositback.completed", biz_content);
    assert_eq!(only_stray(&message.receive().unwrap()), "refund_depositback");
    let without_sign_type = Alipay { signs_sign_type: SignsSignType::No, ..message };
    assert_eq!(without_sign_type.receive().unwrap_err().code(), "bad_signature");
    let with_sign_type = Alipay { signs_sign_type: SignsSignType::Yes, ..Alipay::payment() };
    assert_eq!(with_sign_type.receive().unwrap_err().code(), "bad_signature");
}

/// The server hands over the body alone (tested in `paidonce-http`): what a framework mixes in breaks the signature.
#[test]
fn gotcha_45_a_parameter_that_was_not_signed_breaks_the_signature() {
    let body = format!("{}&merchant=1", Alipay::payment().body());
    assert_eq!(alipay_receive(body.as_bytes()).unwrap_err().code(), "bad_signature");
    // Blank ones are outside of the signed string by Alipay's own rule, and say nothing.
    let blank = format!("{}&merchant=", Alipay::payment().body());
    assert_eq!(paid_minor(&alipay_receive(blank.as_bytes()).unwrap()), 8888);
}

#[test]
fn gotcha_46_a_key_twice_is_refused() {
    for second in ["total_amount=88.88", "total_amount=0.01", "total%5Famount=0.01", "total_amount=", "sign=AAAA"] {
        let body = Alipay::payment().body();
        for bent in [format!("{body}&{second}"), format!("{second}&{body}")] {
            let error = alipay_receive(bent.as_bytes()).unwrap_err();
            assert_eq!((error.code(), error.http_status()), ("malformed", 401), "{second}");
        }
    }
}

#[test]
fn gotcha_47_success_is_seven_bytes_and_a_refusal_never_is() {
    let success = acknowledge(Channel::Alipay);
    assert_eq!((success.status, success.body.as_slice()), (200, &b"success"[..]));
    for status in [200, 400, 401, 403, 500, 503] {
        let refusal = refuse(Channel::Alipay, status, "why");
        assert_eq!((refusal.status >= 400, refusal.body.as_slice()), (true, &b"fail"[..]));
    }
}

#[test]
fn gotcha_48_a_valid_signature_for_another_merchant_is_refused() {
    for (field, foreign) in
        [("app_id", "2021000000000666"), ("seller_id", "2088000000000666"), ("auth_app_id", "2021000000000777")]
    {
        let error = Alipay::payment().set(field, foreign).receive().unwrap_err();
        assert_eq!((error.code(), error.http_status()), ("not_ours", 403), "{field}");
        assert!(error.to_string().contains(foreign));
        // The same with a stranger's key is a forgery.
        let forged = Alipay { signing_key: "attacker", ..Alipay::payment().set(field, foreign) };
        assert_eq!(forged.receive().unwrap_err().code(), "bad_signature", "{field}");
    }
    // An app that acts for a merchant's app is told so in the configuration.
    let mut config: AlipayAccountConfig = alipay_config();
    config.apps[0].auth_app_ids = vec!["2021000000000777".to_owned()];
    let authorised = Alipay::payment().set("auth_app_id", "2021000000000777");
    assert_eq!(paid_minor(&authorised.receive_at(&config).unwrap()), 8888);
}

#[test]
fn gotcha_49_the_parameters_of_return_url_prove_no_payment() {
    let form = Alipay::new(&[
        ("charset", "utf-8"),
        ("out_trade_no", "ALI1"),
        ("method", "alipay.trade.page.pay.return"),
        ("total_amount", "88.88"),
        ("trade_no", "2026010122001400000500000001"),
        ("auth_app_id", APP_ID),
        ("version", "1.0"),
        ("app_id", APP_ID),
        ("seller_id", SELLER_ID),
        ("timestamp", "2026-01-01 12:00:00"),
        ("sign_type", "RSA2"),
    ]);
    assert_eq!(only_stray(&form.receive().unwrap()), "missing_field");
}

#[test]
fn gotcha_60_times_are_beijing_times_on_every_server() {
    let notice = Alipay::payment().set("gmt_payment", "2026-01-15 00:30:00").receive().unwrap();
    match only_fact(&notice) {
        Fact::Payment(fact) => assert_eq!(fact.occurred_at.to_string(), "2026-01-14T16:30:00Z"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn gotcha_61_a_payer_known_only_by_open_id_has_paid_too() {
    let form =
        Alipay::payment().without("buyer_id").set("buyer_open_id", "074a1CcTG1LelxKe4xQC0zgNdId0nxi95b5lsNpazWYoCo5");
    let notice = form.receive().unwrap();
    assert_eq!(paid_minor(&notice), 8888);
    assert!(!format!("{:?}", notice.observations).contains("074a1CcTG"), "no personal data leaves the adapter");
}

/// The order's half (a replay makes no event) is tested in `paidonce-order` and by the cases.
#[test]
fn gotcha_63_an_old_notice_is_legitimate() {
    let old = Alipay::payment().set("notify_time", "2024-01-01 12:00:00").receive().unwrap();
    let new = Alipay::payment().receive().unwrap();
    assert_eq!(old.observations, new.observations);
}

/// The codes of API answers come with the platform client; here the unknown words of notices.
#[test]
fn gotcha_64_unknown_words_are_kept_and_never_guessed() {
    for (field, word) in [("trade_status", "TRADE_PENDING"), ("trade_status", "trade_success"), ("notify_type", "x")] {
        let notice = Alipay::payment().set(field, word).receive().unwrap();
        assert_eq!(only_stray(&notice), "unknown_type", "{field} {word}");
    }
    let message = Alipay::gateway("alipay.open.servicemarket.order.notify", "{}");
    assert_eq!(only_stray(&message.receive().unwrap()), "unknown_type");
}

#[test]
fn gotcha_67_the_refund_time_may_have_milliseconds() {
    for (text, at) in
        [("2026-01-01 12:30:00.143", "2026-01-01T04:30:00.143Z"), ("2026-01-01 12:30:00", "2026-01-01T04:30:00Z")]
    {
        let notice = refunded("10.00", "R1").set("gmt_refund", text).receive().unwrap();
        assert_eq!(payment_and_refund(&notice).1.occurred_at.to_string(), at);
    }
}
