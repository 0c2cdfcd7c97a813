//! Alipay played: trades, refunds, shares, and trouble on demand.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::World;
use crate::accounts::Channel;
use crate::alipay::certificates::AlipayCertificates;
use crate::control::Pay;
use crate::failures::{Api, FailKind};
use crate::options::{AlipayKeyMode, Behaviour};

const ORDER: &str = "ORDER0001";

fn paid() -> World {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1_000));
    world
}

#[test]
fn a_trade_is_unknown_until_its_payer_came_and_then_paid() {
    let mut world = World::new(Behaviour::default());
    let biz = json!({ "out_trade_no": ORDER });
    let answer = world.alipay("alipay.trade.query", &biz);
    assert_eq!((&answer["code"], &answer["sub_code"]), (&json!("40004"), &json!("ACQ.TRADE_NOT_EXIST")));
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1_000));
    let answer = world.alipay("alipay.trade.query", &biz);
    assert_eq!((&answer["trade_status"], &answer["total_amount"]), (&json!("TRADE_SUCCESS"), &json!("10.00")));
    assert!(answer.get("send_pay_date").is_some());
    let by_trade_no = json!({ "trade_no": answer["trade_no"], "out_trade_no": "something else" });
    assert_eq!(world.alipay("alipay.trade.query", &by_trade_no)["out_trade_no"], json!(ORDER));
}

#[test]
fn a_request_that_is_not_signed_exactly_is_refused() {
    let mut world = paid();
    let biz = json!({ "out_trade_no": ORDER });
    let good = world.alipay_form("alipay.trade.query", &biz, &[]);
    assert_eq!(world.alipay_raw(&good)["code"], json!("10000"));
    let sub_code = |world: &mut World, form: &str| world.alipay_raw(form)["sub_code"].as_str().unwrap().to_owned();
    let changed = good.replace("alipay%2Etrade%2Equery", "alipay%2Etrade%2Eclose");
    assert_eq!(sub_code(&mut world, &changed), "isv.invalid-signature");
    assert_eq!(sub_code(&mut world, &format!("{good}&extra=1")), "isv.invalid-signature");
    assert_eq!(sub_code(&mut world, &format!("{good}&method=1")), "isv.invalid-parameter");
    for (name, value, expected) in [
        ("app_id", "2021999", "isv.invalid-app-id"),
        ("sign_type", "RSA", "isv.invalid-signature-type"),
        ("timestamp", "2020-01-01 00:00:00", "isv.invalid-timestamp"),
        ("method", "alipay.trade.unknown", "isv.invalid-method"),
        ("version", "2.0", "isv.missing-version"),
    ] {
        let form = world.alipay_form("alipay.trade.query", &biz, &[(name, value)]);
        assert_eq!(sub_code(&mut world, &form), expected, "{name}");
    }
}

#[test]
fn refunds_are_cumulative_and_only_fund_change_tells_whether_money_moved() {
    let mut world = paid();
    let refund = |no: &str, yuan: &str| json!({ "out_trade_no": ORDER, "out_request_no": no, "refund_amount": yuan });
    let answer = world.alipay("alipay.trade.refund", &refund("R1", "4.00"));
    assert_eq!((&answer["fund_change"], &answer["refund_fee"]), (&json!("Y"), &json!("4.00")));
    let answer = world.alipay("alipay.trade.refund", &refund("R1", "4.00"));
    assert_eq!((&answer["fund_change"], &answer["refund_fee"]), (&json!("N"), &json!("4.00")));
    let answer = world.alipay("alipay.trade.refund", &refund("R1", "4.01"));
    assert_eq!(answer["sub_code"], json!("ACQ.DISCORDANT_REPEAT_REQUEST"));
    let answer = world.alipay("alipay.trade.refund", &refund("R2", "6.01"));
    assert_eq!(answer["sub_code"], json!("ACQ.REASON_TRADE_REFUND_FEE_ERR"));
    let answer = world.alipay("alipay.trade.refund", &refund("R2", "6.00"));
    assert_eq!(answer["refund_fee"], json!("10.00"));
    let answer = world.alipay("alipay.trade.query", &json!({ "out_trade_no": ORDER }));
    assert_eq!(answer["trade_status"], json!("TRADE_CLOSED"));
    assert!(answer.get("send_pay_date").is_some(), "closed after a payment, not instead of one");
}

#[test]
fn the_refund_query_knows_nothing_right_after_the_refund_nor_of_what_never_was() {
    let mut world = paid();
    let refund = json!({ "out_trade_no": ORDER, "out_request_no": "R1", "refund_amount": "10.00" });
    world.alipay("alipay.trade.refund", &refund);
    let ask = |no: &str| json!({ "out_trade_no": ORDER, "out_request_no": no });
    let early = world.alipay("alipay.trade.fastpay.refund.query", &ask("R1"));
    assert_eq!((&early["code"], early.get("refund_status")), (&json!("10000"), None));
    world.wait(10);
    let answer = world.alipay("alipay.trade.fastpay.refund.query", &ask("R1"));
    assert_eq!((&answer["refund_status"], &answer["refund_amount"]), (&json!("REFUND_SUCCESS"), &json!("10.00")));
    let never = world.alipay("alipay.trade.fastpay.refund.query", &ask("R9"));
    assert_eq!((&never["code"], never.get("refund_status")), (&json!("10000"), None));
}

#[test]
fn only_a_waiting_trade_can_be_closed() {
    let mut world = World::new(Behaviour::default());
    let biz = json!({ "out_trade_no": ORDER });
    assert_eq!(world.alipay("alipay.trade.close", &biz)["sub_code"], json!("ACQ.TRADE_NOT_EXIST"));
    world.platforms.open(&Pay::new(Channel::Alipay, ORDER, 1_000), world.now).unwrap();
    assert_eq!(world.alipay("alipay.trade.close", &biz)["code"], json!("10000"));
    assert_eq!(world.alipay("alipay.trade.close", &biz)["sub_code"], json!("ACQ.TRADE_STATUS_ERROR"));
    let answer = world.alipay("alipay.trade.query", &biz);
    assert_eq!((&answer["trade_status"], answer.get("send_pay_date")), (&json!("TRADE_CLOSED"), None));
}

#[test]
fn system_errors_come_in_both_spellings() {
    let mut world = paid();
    let biz = json!({ "out_trade_no": ORDER });
    let mut codes = Vec::new();
    for _ in 0..2 {
        world.fail(Api::Query, FailKind::SystemError);
        codes.push(world.alipay("alipay.trade.query", &biz)["code"].as_str().unwrap().to_owned());
    }
    codes.sort();
    assert_eq!(codes, ["20000", "40004"]);
    world.fail(Api::Refund, FailKind::BalanceShort);
    let refund = json!({ "out_trade_no": ORDER, "out_request_no": "R1", "refund_amount": "10.00" });
    let answer = world.alipay("alipay.trade.refund", &refund);
    assert_eq!(answer["sub_code"], json!("ACQ.SELLER_BALANCE_NOT_ENOUGH"));
    assert_eq!(world.alipay("alipay.trade.refund", &refund)["fund_change"], json!("Y"));
}

#[test]
fn a_royalty_is_followed_by_its_query() {
    let mut world = paid();
    let settle = json!({
        "out_request_no": "S1", "out_trade_no": ORDER,
        "royalty_parameters": [{ "trans_in": "2088000000000002", "amount": "1.50" }],
    });
    assert_eq!(world.alipay("alipay.trade.order.settle", &settle)["code"], json!("10000"));
    let ask = json!({ "out_request_no": "S1", "out_trade_no": ORDER });
    let state = |world: &mut World| {
        world.alipay("alipay.trade.order.settle.query", &ask)["royalty_detail_list"][0]["state"].clone()
    };
    assert_eq!(state(&mut world), json!("PROCESSING"));
    world.wait(5);
    assert_eq!(state(&mut world), json!("SUCCESS"));
}

/// Certificate mode is strict: a caller that passes here names the certificates that Alipay wants.
#[test]
fn in_certificate_mode_both_sides_name_their_certificates() {
    let mut world = paid();
    world.platforms.behaviour.alipay_keys = AlipayKeyMode::Certificate;
    let biz = json!({ "out_trade_no": ORDER });
    let app = AlipayCertificates::app_sn(&world.platforms.accounts.sellers[0].certificate);
    let root = world.platforms.ring.alipay_certificates.root_sn();
    let ask = |world: &mut World, method: &str, biz: &Value, changes: &[(&str, &str)]| {
        let form = world.alipay_form(method, biz, changes);
        world.alipay_raw(&form)
    };
    let query = "alipay.trade.query";
    let good = [("app_cert_sn", app.as_str()), ("alipay_root_cert_sn", root.as_str())];
    assert_eq!(ask(&mut world, query, &biz, &good)["code"], json!("10000"));
    assert_eq!(ask(&mut world, query, &biz, &[])["sub_code"], json!("isv.invalid-app-cert-sn"));
    assert_eq!(ask(&mut world, query, &biz, &good[..1])["sub_code"], json!("isv.invalid-root-cert-sn"));
    let number = world.platforms.ring.rotate_alipay(world.now).unwrap();
    // The helper checks that the answer names the new one and is signed with it.
    assert_eq!(ask(&mut world, query, &biz, &good)["code"], json!("10000"));
    let download = "alipay.open.app.alipaycert.download";
    let found = ask(&mut world, download, &json!({ "alipay_cert_sn": number }), &good);
    let pem = STANDARD.decode(found["alipay_cert_content"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(pem).unwrap().matches("BEGIN CERTIFICATE").count(), 2, "with the authority behind it");
    let unknown = ask(&mut world, download, &json!({ "alipay_cert_sn": "0".repeat(32) }), &good);
    assert_eq!(unknown["sub_code"], json!("isv.cert-not-exist"));
}

/// An app that acts for somebody else must show that it may; nobody else may show anything.
#[test]
fn the_token_of_an_authorised_app_is_wanted() {
    let mut world = paid();
    let biz = json!({ "out_trade_no": ORDER });
    let form = world.alipay_form("alipay.trade.query", &biz, &[("app_auth_token", "202601BB0001")]);
    assert_eq!(world.alipay_raw(&form)["sub_code"], json!("aop.invalid-app-auth-token"));
    let mut accounts = world.platforms.accounts.as_ref().clone();
    let mut seller = accounts.sellers[0].as_ref().clone();
    seller.seller.app_auth_token = Some("202601BB0001".to_owned());
    accounts.sellers = vec![Arc::new(seller)];
    world.platforms.accounts = Arc::new(accounts);
    let form = world.alipay_form("alipay.trade.query", &biz, &[("app_auth_token", "202601BB0001")]);
    assert_eq!(world.alipay_raw(&form)["code"], json!("10000"));
    assert_eq!(world.alipay("alipay.trade.query", &biz)["code"], json!("20001"));
}
