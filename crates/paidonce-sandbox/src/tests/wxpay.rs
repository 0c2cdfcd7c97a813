//! WeChat Pay played: orders, refunds, shares, keys, and trouble on demand.

use serde_json::{Value, json};

use super::World;
use crate::accounts::Channel;
use crate::control::{ConsoleRefund, OrderName, Part, Pay, PayCombined, SharePart, StartShare};
use crate::failures::{Api, FailKind};
use crate::notice::Verdict;
use crate::options::{Behaviour, MCHID, PUBLIC_KEY_ID, SP_MCHID, SUB_MCHID};
use crate::order::{RefundStatus, ShareResult};
use crate::wire::Ending;

const ORDER: &str = "ORDER0001";

fn world() -> World {
    World::new(Behaviour::default())
}

fn paid() -> World {
    let mut world = world();
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1_000));
    world
}

fn query(world: &mut World) -> (u16, Value) {
    world.wxpay(MCHID, "GET", &format!("/v3/pay/transactions/out-trade-no/{ORDER}?mchid={MCHID}"), "")
}

fn refund(world: &mut World, refund_no: &str, minor: i64) -> (u16, Value) {
    let amount = json!({ "refund": minor, "total": 1_000, "currency": "CNY" });
    let body = json!({ "out_trade_no": ORDER, "out_refund_no": refund_no, "amount": amount }).to_string();
    world.wxpay(MCHID, "POST", "/v3/refund/domestic/refunds", &body)
}

fn refund_status(world: &mut World, refund_no: &str) -> (u16, Value) {
    let (status, body) = world.wxpay(MCHID, "GET", &format!("/v3/refund/domestic/refunds/{refund_no}"), "");
    (status, body["status"].clone())
}

#[test]
fn an_order_is_unknown_then_unpaid_then_paid() {
    let mut world = world();
    assert_eq!(query(&mut world).0, 404);
    world.platforms.open(&Pay::new(Channel::Wxpay, ORDER, 1_000), world.now).unwrap();
    let (status, body) = query(&mut world);
    assert_eq!((status, &body["trade_state"], body.get("transaction_id")), (200, &json!("NOTPAY"), None));
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1_000));
    let (_, body) = query(&mut world);
    assert_eq!((&body["trade_state"], &body["amount"]["total"]), (&json!("SUCCESS"), &json!(1_000)));
    let by_trade_no = format!("/v3/pay/transactions/id/{}?mchid={MCHID}", body["transaction_id"].as_str().unwrap());
    assert_eq!(world.wxpay(MCHID, "GET", &by_trade_no, "").1, body);
}

#[test]
fn every_answer_is_signed_with_the_key_that_the_caller_asked_for() {
    let mut world = paid();
    let certificate = world.platforms.ring.wxpay_certificates[0].clone();
    let public = world.platforms.ring.wxpay_public.clone();
    let target = format!("/v3/pay/transactions/out-trade-no/{ORDER}?mchid={MCHID}");
    for (asked, id, key) in [
        (None, PUBLIC_KEY_ID, &public),
        (Some(PUBLIC_KEY_ID), PUBLIC_KEY_ID, &public),
        (Some(certificate.serial.as_str()), certificate.serial.as_str(), &certificate.key),
    ] {
        let mut request = world.signed(MCHID, "GET", &target, "");
        request.serial = asked.map(str::to_owned);
        let reply = world.wxpay_raw(&request);
        let header = |name: &str| reply.headers.iter().find(|(known, _)| *known == name).unwrap().1.as_str();
        assert_eq!(header("Wechatpay-Serial"), id);
        let body = std::str::from_utf8(reply.body()).unwrap();
        let message = format!("{}\n{}\n{body}\n", header("Wechatpay-Timestamp"), header("Wechatpay-Nonce"));
        assert!(key.verifies(message.as_bytes(), header("Wechatpay-Signature")));
    }
}

#[test]
fn a_request_that_is_not_signed_exactly_is_refused() {
    let mut world = paid();
    let good = world.signed(MCHID, "GET", &format!("/v3/pay/transactions/out-trade-no/{ORDER}?mchid={MCHID}"), "");
    assert_eq!(world.wxpay_raw(&good).status, 200);
    let header = good.authorization.clone().unwrap();
    let broken = [
        None,
        Some(header.replace("WECHATPAY2-SHA256-RSA2048", "WECHATPAY2-SM2-WITH-SM3")),
        Some(header.replace("nonce_str=\"n0nce\"", "nonce_str=\"other\"")),
        Some(header.replace("serial_no=\"", "serial_no=\"0")),
        Some(format!("{header},mchid=\"{MCHID}\"")),
        Some(header.replace(MCHID, SP_MCHID)),
    ];
    for authorization in broken {
        let request = crate::wxpay::authorization::Request { authorization, ..good.clone() };
        let reply = world.wxpay_raw(&request);
        let body: Value = serde_json::from_slice(reply.body()).unwrap();
        assert_eq!((reply.status, &body["code"]), (401, &json!("SIGN_ERROR")));
    }
    let other_query = crate::wxpay::authorization::Request { query: format!("mchid={MCHID}&a=1"), ..good.clone() };
    assert_eq!(world.wxpay_raw(&other_query).status, 401);
    let no_agent = crate::wxpay::authorization::Request { user_agent: None, ..good.clone() };
    assert_eq!(world.wxpay_raw(&no_agent).status, 400);
    world.wait(301);
    assert_eq!(world.wxpay_raw(&good).status, 401);
}

#[test]
fn a_service_providers_order_needs_both_numbers() {
    let mut world = world();
    let mut pay = Pay::new(Channel::Wxpay, ORDER, 1_000);
    pay.name.account = Some(SP_MCHID.to_owned());
    world.pay(&pay);
    let path = format!("/v3/pay/partner/transactions/out-trade-no/{ORDER}");
    let (status, body) = world.wxpay(SP_MCHID, "GET", &format!("{path}?sp_mchid={SP_MCHID}&sub_mchid={SUB_MCHID}"), "");
    assert_eq!((status, &body["sub_mchid"], body.get("mchid")), (200, &json!(SUB_MCHID), None));
    assert_eq!(world.wxpay(SP_MCHID, "GET", &format!("{path}?sp_mchid={SP_MCHID}"), "").0, 400);
    assert_eq!(world.wxpay(SP_MCHID, "GET", &format!("{path}?sp_mchid={SP_MCHID}&sub_mchid=1"), "").0, 403);
}

/// Two orders that are paid in one go.
fn combined() -> PayCombined {
    let part = |no: &str| Part { order_no: no.to_owned(), amount_minor: 300 };
    PayCombined {
        combine_no: "COMBINE1".to_owned(),
        account: None,
        orders: vec![part("PART-01"), part("PART-02")],
        callback: crate::Wish::AsUsual,
    }
}

#[test]
fn a_combined_order_is_found_only_by_its_combined_number() {
    let mut world = world();
    let combined = combined();
    world.platforms.pay_combined(&combined, world.now).unwrap();
    assert_eq!(world.push(Verdict::Taken).len(), 1);
    let (status, body) = world.wxpay(MCHID, "GET", "/v3/combine-transactions/out-trade-no/COMBINE1", "");
    assert_eq!(status, 200);
    let sub_orders = body["sub_orders"].as_array().unwrap();
    assert_eq!(sub_orders.len(), 2);
    assert_eq!(sub_orders[0]["amount"]["total_amount"], json!(300));
    let plain = format!("/v3/pay/transactions/out-trade-no/PART-01?mchid={MCHID}");
    assert_eq!(world.wxpay(MCHID, "GET", &plain, "").1["code"], json!("ORDER_NOT_EXIST"));
}

#[test]
fn a_combined_order_is_closed_as_a_whole_by_naming_every_part() {
    let mut world = world();
    let combined = combined();
    world.platforms.open_combined(&combined, world.now).unwrap();
    let other = PayCombined { orders: vec![combined.orders[0].clone(); 2], ..combined.clone() };
    assert!(world.platforms.open_combined(&other, world.now).is_err(), "known with other orders");
    let path = "/v3/combine-transactions/out-trade-no/COMBINE1";
    let appid = world.wxpay(MCHID, "GET", path, "").1["combine_appid"].clone();
    let one = json!({ "mchid": MCHID, "out_trade_no": "PART-01" });
    let two = json!({ "mchid": MCHID, "out_trade_no": "PART-02" });
    let mut close = |appid: &serde_json::Value, parts: &[&serde_json::Value]| {
        let body = json!({ "combine_appid": appid, "sub_orders": parts }).to_string();
        world.wxpay_raw(&world.signed(MCHID, "POST", &format!("{path}/close"), &body)).status
    };
    assert_eq!(close(&json!("wxother"), &[&one, &two]), 400, "another app");
    assert_eq!(close(&appid, &[&one]), 400, "a part is missing");
    assert_eq!(close(&appid, &[&one, &one]), 400, "a part stands for another");
    assert_eq!((close(&appid, &[&one, &two]), close(&appid, &[&two, &one])), (204, 204));
    assert!(world.platforms.pay_combined(&combined, world.now).is_err(), "closed");
}

#[test]
fn an_opened_combined_order_is_paid_by_its_number_alone() {
    let mut world = world();
    let combined = combined();
    world.platforms.open_combined(&combined, world.now).unwrap();
    let by_number = PayCombined { orders: Vec::new(), ..combined };
    assert_eq!(world.platforms.pay_combined(&by_number, world.now).unwrap().len(), 2);
    assert!(world.platforms.pay_combined(&by_number, world.now).is_err(), "paid already");
    assert_eq!(world.push(Verdict::Taken).len(), 1);
}

#[test]
fn a_close_is_answered_by_a_signed_nothing_and_a_paid_order_is_not_closed() {
    let mut world = world();
    world.platforms.open(&Pay::new(Channel::Wxpay, ORDER, 1_000), world.now).unwrap();
    let target = format!("/v3/pay/transactions/out-trade-no/{ORDER}/close");
    let body = json!({ "mchid": MCHID }).to_string();
    for _ in 0..2 {
        let reply = world.wxpay_raw(&world.signed(MCHID, "POST", &target, &body));
        assert_eq!((reply.status, reply.body().len()), (204, 0));
        assert!(reply.headers.iter().any(|(name, _)| *name == "Wechatpay-Signature"));
    }
    assert_eq!(query(&mut world).1["trade_state"], json!("CLOSED"));
    assert!(world.platforms.pay(&Pay::new(Channel::Wxpay, ORDER, 1_000), world.now).is_err());
    world.platforms.pay_late(&Pay::new(Channel::Wxpay, ORDER, 1_000), world.now).unwrap();
    let (status, body) = world.wxpay(MCHID, "POST", &target, &body);
    assert_eq!((status, &body["code"]), (400, &json!("ORDER_PAID")));
}

#[test]
fn a_refund_is_accepted_then_done_and_its_number_moves_money_once() {
    let mut world = paid();
    let (status, body) = refund(&mut world, "R1", 400);
    assert_eq!((status, &body["status"]), (200, &json!("PROCESSING")));
    assert_eq!(query(&mut world).1["trade_state"], json!("REFUND"));
    world.wait(5);
    assert_eq!(refund(&mut world, "R1", 400).1["status"], json!("SUCCESS"));
    assert_eq!(refund(&mut world, "R1", 401).0, 400);
    assert_eq!(refund(&mut world, "R2", 100).1["code"], json!("FREQUENCY_LIMITED"));
    world.wait(60);
    assert_eq!(refund(&mut world, "R2", 601).0, 400);
    assert_eq!(refund(&mut world, "R2", 600).0, 200);
    world.wait(5);
    assert_eq!(refund_status(&mut world, "R2"), (200, json!("SUCCESS")));
    assert_eq!(refund_status(&mut world, "R3").0, 404);
    let state = world.platforms.state(None, world.now);
    assert_eq!(state.orders[0].refunded_minor, 1_000);
}

#[test]
fn a_refund_number_belongs_to_one_order_of_the_merchant() {
    let mut world = paid();
    world.pay(&Pay::new(Channel::Wxpay, "ORDER0002", 1_000));
    assert_eq!(refund(&mut world, "R1", 400).0, 200);
    let amount = json!({ "refund": 400, "total": 1_000, "currency": "CNY" });
    let body = json!({ "out_trade_no": "ORDER0002", "out_refund_no": "R1", "amount": amount }).to_string();
    assert_eq!(world.wxpay(MCHID, "POST", "/v3/refund/domestic/refunds", &body).0, 400);
}

#[test]
fn trouble_on_demand_is_what_it_is_called() {
    let mut world = paid();
    world.fail(Api::Query, FailKind::RateLimit);
    assert_eq!(query(&mut world).0, 429);
    world.fail(Api::Query, FailKind::SystemError);
    let (status, body) = query(&mut world);
    assert_eq!((status, &body["code"]), (500, &json!("SYSTEM_ERROR")));
    world.fail(Api::Refund, FailKind::BalanceShort);
    assert_eq!(refund(&mut world, "R1", 100).1["code"], json!("NOT_ENOUGH"));
    assert_eq!(refund_status(&mut world, "R1").0, 404);
    // The answer is lost, the refund is not.
    world.fail(Api::Refund, FailKind::Timeout);
    let body = json!({
        "out_trade_no": ORDER, "out_refund_no": "R1",
        "amount": { "refund": 100, "total": 1_000, "currency": "CNY" },
    });
    let request = world.signed(MCHID, "POST", "/v3/refund/domestic/refunds", &body.to_string());
    assert_eq!(world.wxpay_raw(&request).ending, Ending::Never);
    assert_eq!(refund_status(&mut world, "R1"), (200, json!("PROCESSING")));
}

#[test]
fn an_abnormal_refund_stays_open_until_the_merchant_gives_another_way() {
    let mut world = paid();
    world.fail(Api::Refund, FailKind::Abnormal);
    let (_, body) = refund(&mut world, "R1", 1_000);
    world.wait(5);
    assert_eq!(refund_status(&mut world, "R1").1, json!("ABNORMAL"));
    let refund_id = body["refund_id"].as_str().unwrap();
    let target = format!("/v3/refund/domestic/refunds/{refund_id}/apply-abnormal-refund");
    assert_eq!(world.wxpay(MCHID, "POST", &target, "{}").0, 200);
    world.wait(5);
    assert_eq!(refund_status(&mut world, "R1").1, json!("SUCCESS"));
}

#[test]
fn a_refund_at_the_console_is_told_without_anybody_having_asked() {
    let mut world = paid();
    world.push(Verdict::Taken);
    let name = OrderName::new(Channel::Wxpay, ORDER);
    let wanted = ConsoleRefund { name, amount_minor: Some(250), refund_no: None };
    let state = world.platforms.console_refund(&wanted, world.now).unwrap();
    assert_eq!(state.refunds[0].status, RefundStatus::Processing);
    world.wait(5);
    assert_eq!(world.push(Verdict::Taken).len(), 1);
    assert_eq!(world.platforms.state(None, world.now).orders[0].refunded_minor, 250);
}

#[test]
fn certificates_are_opened_with_the_apiv3_key() {
    let mut world = world();
    world.platforms.ring.rotate(world.now).unwrap();
    let (_, body) = world.wxpay(MCHID, "GET", "/v3/certificates", "");
    let key = world.merchant(MCHID).apiv3_key.clone();
    let list = body["data"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    for (entry, known) in list.iter().zip(&world.platforms.ring.wxpay_certificates) {
        let sealed = &entry["encrypt_certificate"];
        let text = |name: &str| sealed[name].as_str().unwrap();
        let pem = crate::seal::open(&key, text("associated_data"), text("nonce"), text("ciphertext")).unwrap();
        assert_eq!((pem.as_str(), &entry["serial_no"]), (known.pem.as_str(), &json!(known.serial)));
    }
}

#[test]
fn a_finished_share_says_for_each_receiver_what_became_of_it() {
    let mut world = paid();
    world.push(Verdict::Taken);
    let part = |account: &str, result, fail_reason: Option<&str>| SharePart {
        kind: None,
        account: account.to_owned(),
        amount_minor: 200,
        result,
        fail_reason: fail_reason.map(str::to_owned),
    };
    let wanted = StartShare {
        name: OrderName::new(Channel::Wxpay, ORDER),
        out_order_no: "S1".to_owned(),
        receivers: vec![
            part(MCHID, ShareResult::Success, None),
            part("1900000999", ShareResult::Closed, Some("NO_RELATION")),
        ],
    };
    let state = world.platforms.start_share_of(&wanted, world.now).unwrap();
    let trade_no = state.channel_trade_no.unwrap();
    let target = format!("/v3/profitsharing/orders/S1?transaction_id={trade_no}");
    assert_eq!(world.wxpay(MCHID, "GET", &target, "").1["state"], json!("PROCESSING"));
    world.wait(5);
    // Only a receiver that is a merchant of the sandbox is told.
    assert_eq!(world.push(Verdict::Taken).len(), 1);
    let (_, body) = world.wxpay(MCHID, "GET", &target, "");
    assert_eq!(body["state"], json!("FINISHED"));
    assert_eq!(body["receivers"][0]["result"], json!("SUCCESS"));
    assert_eq!(body["receivers"][1]["fail_reason"], json!("NO_RELATION"));
    let back = json!({
        "out_order_no": "S1", "out_return_no": "B1", "return_mchid": MCHID, "amount": 50, "description": "back",
    });
    let (status, body) = world.wxpay(MCHID, "POST", "/v3/profitsharing/return-orders", &back.to_string());
    assert_eq!((status, &body["result"]), (200, &json!("SUCCESS")));
    let unsplit = format!("/v3/profitsharing/transactions/{trade_no}/amounts");
    assert_eq!(world.wxpay(MCHID, "GET", &unsplit, "").1["unsplit_amount"], json!(800));
    let again = json!({ "transaction_id": trade_no, "out_order_no": "S1", "description": "rest" }).to_string();
    assert_eq!(world.wxpay(MCHID, "POST", "/v3/profitsharing/orders/unfreeze", &again).0, 400);
}

#[test]
fn too_many_calls_in_a_second_are_refused_until_the_next() {
    let mut world = World::new(Behaviour { calls_per_second_max: 3, ..Behaviour::default() });
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1_000));
    let statuses: Vec<u16> = (0..4).map(|_| query(&mut world).0).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    world.wait(1);
    assert_eq!(query(&mut world).0, 200);
}
