//! Callbacks: signatures, schedules, and what gets lost on the way.

use std::collections::BTreeSet;

use serde_json::Value;

use super::World;
use crate::accounts::Channel;
use crate::control::{ConsoleRefund, OrderName, Pay};
use crate::notice::{ALIPAY_PAUSES, Push, Signing, Verdict, WXPAY_PAUSES, Wish};
use crate::options::{Behaviour, KeyMode, MCHID, PUBLIC_KEY_ID};
use crate::order::{Charset, Product};
use crate::wire::Message;

const ORDER: &str = "ORDER0001";

fn header<'a>(message: &'a Message, name: &str) -> &'a str {
    &message.headers.iter().find(|(known, _)| *known == name).unwrap().1
}

fn wxpay_message(push: &Push) -> Message {
    crate::wxpay::callback::write(push).unwrap()
}

/// The form's fields as text.
fn alipay_fields(push: &Push) -> Vec<(String, String)> {
    let message = crate::alipay::callback::write(push).unwrap();
    let text = String::from_utf8(message.body).unwrap();
    let decode =
        |part: &str| percent_encoding::percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    text.split('&')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

fn field(fields: &[(String, String)], name: &str) -> Option<String> {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// Seconds after the first try at which a refused notice is tried again.
fn tries(world: &mut World) -> Vec<i64> {
    let begun = world.now;
    let mut seconds = Vec::new();
    while let Some(due) = world.platforms.next_due() {
        world.now = due.max(world.now);
        let pushes = world.push(Verdict::NotTaken);
        seconds.extend(pushes.iter().map(|_| world.now.seconds() - begun.seconds()));
    }
    seconds
}

#[test]
fn a_payment_is_told_with_a_signature_and_a_resource_that_the_apiv3_key_opens() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 8_888));
    let message = wxpay_message(&world.push(Verdict::Taken)[0]);
    let body = std::str::from_utf8(&message.body).unwrap();
    let signed =
        format!("{}\n{}\n{body}\n", header(&message, "Wechatpay-Timestamp"), header(&message, "Wechatpay-Nonce"));
    assert_eq!(header(&message, "Wechatpay-Serial"), PUBLIC_KEY_ID);
    assert!(world.platforms.ring.wxpay_public.verifies(signed.as_bytes(), header(&message, "Wechatpay-Signature")));
    let envelope: Value = serde_json::from_str(body).unwrap();
    let resource = |name: &str| envelope["resource"][name].as_str().unwrap();
    let key = world.merchant(MCHID).apiv3_key.clone();
    let plain =
        crate::seal::open(&key, resource("associated_data"), resource("nonce"), resource("ciphertext")).unwrap();
    let plain: Value = serde_json::from_str(&plain).unwrap();
    assert_eq!((plain["out_trade_no"].as_str(), plain["amount"]["total"].as_i64()), (Some(ORDER), Some(8_888)));
}

#[test]
fn wechat_sends_again_fifteen_times_over_a_day_and_four_minutes() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1));
    let tries = tries(&mut world);
    assert_eq!(tries.len(), 16);
    assert_eq!(tries[1..5], [15, 30, 60, 240]);
    assert_eq!(tries[15], 24 * 3600 + 4 * 60);
    assert_eq!(WXPAY_PAUSES.iter().sum::<u64>(), 24 * 3600 + 4 * 60);
    assert_eq!(world.platforms.state(None, world.now).notices.given_up, 1);
}

#[test]
fn alipay_sends_again_seven_times() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1));
    let tries = tries(&mut world);
    assert_eq!(tries.len(), 8);
    assert_eq!(tries[1..4], [240, 840, 1440]);
    assert_eq!(i64::try_from(ALIPAY_PAUSES.iter().sum::<u64>()).unwrap(), tries[7]);
}

#[test]
fn a_time_scale_divides_every_pause() {
    let mut world = World::new(Behaviour { time_scale: 60, ..Behaviour::default() });
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1));
    assert_eq!(tries(&mut world)[1..4], [4, 14, 24]);
}

#[test]
fn every_resend_is_sealed_anew_and_keeps_its_id() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1));
    let first = wxpay_message(&world.push(Verdict::NotTaken)[0]);
    world.wait(15);
    let second = wxpay_message(&world.push(Verdict::Taken)[0]);
    let parse = |message: &Message| serde_json::from_slice::<Value>(&message.body).unwrap();
    let (a, b) = (parse(&first), parse(&second));
    assert_eq!((&a["id"], &a["create_time"]), (&b["id"], &b["create_time"]));
    assert_ne!(a["resource"]["nonce"], b["resource"]["nonce"]);
    assert_ne!(a["resource"]["ciphertext"], b["resource"]["ciphertext"]);
    for name in ["Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature"] {
        assert_ne!(header(&first, name), header(&second, name), "{name}");
    }
    world.wait(100_000);
    assert!(world.push(Verdict::Taken).is_empty(), "what was taken is not sent again");
}

#[test]
fn a_switch_signs_with_either_key_at_random() {
    let mut world = World::new(Behaviour { wxpay_keys: KeyMode::Switching, ..Behaviour::default() });
    for number in 0..20 {
        world.pay(&Pay::new(Channel::Wxpay, &format!("ORDER{number:04}"), 1));
    }
    let ids: BTreeSet<String> = world.push(Verdict::Taken).into_iter().map(|push| push.signer.id).collect();
    let certificate = world.platforms.ring.wxpay_certificates[0].serial.clone();
    assert_eq!(ids, BTreeSet::from([certificate, PUBLIC_KEY_ID.to_owned()]));
}

#[test]
fn a_probe_is_signed_wrong_and_the_next_try_right() {
    let mut world = World::new(Behaviour { probe_percent: 100, ..Behaviour::default() });
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1));
    let probe = &world.push(Verdict::NotTaken)[0];
    assert_eq!(probe.signing, Signing::Probe);
    assert!(header(&wxpay_message(probe), "Wechatpay-Signature").starts_with("WECHATPAY/SIGNTEST/"));
    world.wait(15);
    assert_eq!(world.push(Verdict::Taken)[0].signing, Signing::Genuine);
    let counts = world.platforms.state(None, world.now).notices;
    assert_eq!((counts.probes, counts.probes_taken, counts.taken), (1, 0, 1));
}

#[test]
fn fates_are_met_and_the_same_seed_gives_the_same() {
    let behaviour = Behaviour { lose_percent: 20, duplicate_percent: 30, ..Behaviour::default() };
    let lost = |seed| {
        let mut world = World::new(Behaviour { seed, ..behaviour.clone() });
        for number in 0..200 {
            world.pay(&Pay::new(Channel::Alipay, &format!("O{number}"), 1));
        }
        world.wait(3_600);
        let told: Vec<String> = world.push(Verdict::Taken).into_iter().map(|push| push.notice.order_no).collect();
        (world.platforms.state(None, world.now).notices.lost, told)
    };
    let (first, again, other) = (lost(1), lost(1), lost(2));
    assert_eq!(first, again);
    assert_ne!(first.1, other.1);
    assert!((20..60).contains(&first.0), "{} of 200 lost", first.0);
    assert!(first.1.len() > 170, "some of those that came, came twice: {}", first.1.len());
}

#[test]
fn the_maker_of_a_payment_may_decide_about_its_callback() {
    let mut world = World::new(Behaviour { lose_percent: 100, ..Behaviour::default() });
    for (order_no, callback) in
        [("LOST01", Wish::Lost), ("PROMPT", Wish::Prompt), ("DELAYED", Wish::Delayed), ("TWICE1", Wish::Duplicated)]
    {
        world.pay(&Pay { callback, ..Pay::new(Channel::Wxpay, order_no, 1) });
    }
    let told = |world: &mut World| -> Vec<String> {
        world.push(Verdict::Taken).into_iter().map(|push| push.notice.order_no).collect()
    };
    assert_eq!(told(&mut world), ["PROMPT", "TWICE1"]);
    world.wait(3_600);
    let mut later = told(&mut world);
    later.sort();
    assert_eq!(later, ["DELAYED", "TWICE1"]);
}

#[test]
fn an_alipay_notice_is_signed_over_its_sorted_fields() {
    for charset in [Charset::Utf8, Charset::Gbk] {
        let mut world = World::new(Behaviour::default());
        world.pay(&Pay { charset, ..Pay::new(Channel::Alipay, ORDER, 8_888) });
        let message = crate::alipay::callback::write(&world.push(Verdict::Taken)[0]).unwrap();
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = message
            .body
            .split(|byte| *byte == b'&')
            .map(|pair| {
                let at = pair.iter().position(|byte| *byte == b'=').unwrap();
                let decode = |part: &[u8]| {
                    let spaced: Vec<u8> = part.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
                    percent_encoding::percent_decode(&spaced).collect::<Vec<u8>>()
                };
                (decode(&pair[..at]), decode(&pair[at + 1..]))
            })
            .collect();
        let sign = fields.iter().find(|(name, _)| name == b"sign").unwrap().1.clone();
        fields.retain(|(name, _)| name != b"sign" && name != b"sign_type");
        fields.sort();
        let pairs: Vec<Vec<u8>> = fields.iter().map(|(n, v)| [n.as_slice(), b"=", v].concat()).collect();
        let sign = String::from_utf8(sign).unwrap();
        assert!(world.platforms.ring.alipay.verifies(&pairs.join(&b'&'), &sign));
        let subject = &fields.iter().find(|(name, _)| name == b"subject").unwrap().1;
        assert_eq!(std::str::from_utf8(subject).is_ok(), charset == Charset::Utf8);
    }
}

#[test]
fn alipay_refunds_are_told_as_sums_and_the_last_one_closes_the_trade() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1_000));
    world.push(Verdict::Taken);
    let mut told = Vec::new();
    for (refund_no, amount) in [("R1", 400), ("R2", 600)] {
        let name = OrderName::new(Channel::Alipay, ORDER);
        let refund = ConsoleRefund { name, amount_minor: Some(amount), refund_no: Some(refund_no.to_owned()) };
        world.platforms.console_refund(&refund, world.now).unwrap();
        let fields = alipay_fields(&world.push(Verdict::Taken)[0]);
        assert!(field(&fields, "gmt_refund").unwrap().contains('.'));
        assert!(field(&fields, "gmt_payment").is_some());
        let read = |name| field(&fields, name).unwrap();
        told.push((read("out_biz_no"), read("refund_fee"), read("trade_status")));
    }
    let expected = [("R1", "4.00", "TRADE_SUCCESS"), ("R2", "10.00", "TRADE_CLOSED")];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(told, expected);
}

#[test]
fn page_pay_and_face_to_face_tell_of_the_payment_only() {
    for product in [Product::Page, Product::FaceToFace] {
        let mut world = World::new(Behaviour::default());
        world.pay(&Pay { product, ..Pay::new(Channel::Alipay, ORDER, 1_000) });
        assert_eq!(world.push(Verdict::Taken).len(), 1);
        let name = OrderName::new(Channel::Alipay, ORDER);
        world
            .platforms
            .console_refund(&ConsoleRefund { name, amount_minor: None, refund_no: None }, world.now)
            .unwrap();
        assert!(world.push(Verdict::Taken).is_empty());
    }
}

#[test]
fn a_finished_trade_is_told_months_later_and_takes_no_refund() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Alipay, ORDER, 1_000));
    world.push(Verdict::Taken);
    world.wait(90 * 24 * 3600);
    let name = OrderName::new(Channel::Alipay, ORDER);
    world.platforms.finish(&name, world.now).unwrap();
    let fields = alipay_fields(&world.push(Verdict::Taken)[0]);
    assert_eq!(field(&fields, "trade_status").as_deref(), Some("TRADE_FINISHED"));
    assert!(
        world
            .platforms
            .console_refund(&ConsoleRefund { name, amount_minor: None, refund_no: None }, world.now)
            .is_err()
    );
}

#[test]
fn time_that_is_advanced_brings_resends_nearer_without_moving_the_clock() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Wxpay, ORDER, 1));
    world.push(Verdict::NotTaken);
    assert!(world.push(Verdict::Taken).is_empty());
    world.platforms.advance(std::time::Duration::from_secs(15));
    assert_eq!(world.push(Verdict::Taken).len(), 1);
}
