//! Bills: rows, sums, hashes and files as both platforms write them.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Value, json};

use super::World;
use crate::accounts::Channel;
use crate::control::{ConsoleRefund, OrderName, Pay};
use crate::options::{Behaviour, MCHID};

const DAY: &str = "2026-01-15";

/// A payment and a refund of that day, seen at noon of the next.
fn world(channel: Channel) -> World {
    let mut world = World::new(Behaviour::default());
    for (order_no, amount) in [("ORDER0001", 1_000), ("ORDER0002", 10_000)] {
        world.pay(&Pay { attach: "a\nb".to_owned(), ..Pay::new(channel, order_no, amount) });
    }
    world.wait(60);
    let name = OrderName::new(channel, "ORDER0001");
    let refund = ConsoleRefund { name, amount_minor: Some(300), refund_no: Some("R1".to_owned()) };
    world.platforms.console_refund(&refund, world.now).unwrap();
    world.wait(26 * 3600);
    world
}

fn wxpay_bill(world: &mut World, target: &str) -> (Value, Vec<u8>) {
    let (status, answer) = world.wxpay(MCHID, "GET", target, "");
    assert_eq!(status, 200, "{answer}");
    let url = answer["download_url"].as_str().unwrap().to_owned();
    let request = world.signed(MCHID, "GET", &url[url.find("/v3").unwrap()..], "");
    let reply = world.wxpay_raw(&request);
    assert!(!reply.headers.iter().any(|(name, _)| *name == "Wechatpay-Signature"), "a file is not signed");
    (answer, reply.into_body())
}

#[test]
fn a_trade_bill_has_the_columns_the_backticks_and_the_sums_of_the_documents() {
    let mut world = world(Channel::Wxpay);
    let (answer, bytes) = wxpay_bill(&mut world, &format!("/v3/bill/tradebill?bill_date={DAY}&bill_type=ALL"));
    let hash = hex::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes));
    assert_eq!(answer["hash_value"], json!(hash));
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.strip_prefix('\u{FEFF}').unwrap().split("\r\n").collect();
    assert_eq!(lines.len(), 7, "{text}");
    assert!(lines[0].starts_with("交易时间,公众账号ID,商户号") && lines[0].ends_with("订单金额,申请退款金额,费率备注"));
    assert!(lines[0].split(',').count() == 27 && lines[1..4].iter().all(|line| line.split(",`").count() == 27));
    assert!(lines[3].contains("`R1,`3.00,`0.00,`ORIGINAL,`SUCCESS,") && lines[3].contains("`-0.02000,"), "{text}");
    assert!(lines[1].contains("`a\\nb,"));
    assert_eq!(lines[5], "`3,`110.00,`3.00,`0.00,`0.64000,`110.00,`3.00");
    for (bill_type, columns, rows) in [("SUCCESS", 20, 2), ("REFUND", 29, 1)] {
        let (_, bytes) = wxpay_bill(&mut world, &format!("/v3/bill/tradebill?bill_date={DAY}&bill_type={bill_type}"));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().next().unwrap().split(',').count(), columns, "{bill_type}");
        assert_eq!(text.lines().count(), rows + 3, "{bill_type}");
    }
}

#[test]
fn a_compressed_bill_is_gzip_data_and_its_hash_is_that_of_the_text() {
    let mut world = world(Channel::Wxpay);
    let (plain, text) = wxpay_bill(&mut world, &format!("/v3/bill/tradebill?bill_date={DAY}"));
    let (zipped, bytes) = wxpay_bill(&mut world, &format!("/v3/bill/tradebill?bill_date={DAY}&tar_type=GZIP"));
    assert_eq!(plain["hash_value"], zipped["hash_value"]);
    assert_eq!(bytes[..3], [0x1F, 0x8B, 8]);
    assert_eq!(bytes[15..bytes.len() - 8], text, "stored");
}

#[test]
fn a_fund_flow_bill_proves_the_cash() {
    let mut world = world(Channel::Wxpay);
    let (_, bytes) = wxpay_bill(&mut world, &format!("/v3/bill/fundflowbill?bill_date={DAY}&account_type=BASIC"));
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].trim_start_matches('\u{FEFF}').split(',').count(), 11);
    // Two payments, their two fees, one refund less its fee.
    assert_eq!(lines.last().unwrap(), &"`5,`2,`110.00,`3,`3.64");
    assert!(lines[5].contains("`106.36,"), "{text}");
}

#[test]
fn a_bill_is_there_only_when_its_day_is_over_and_something_moved() {
    let mut world = World::new(Behaviour::default());
    world.pay(&Pay::new(Channel::Wxpay, "ORDER0001", 1_000));
    let code = |world: &mut World, date: &str| {
        let (status, body) = world.wxpay(MCHID, "GET", &format!("/v3/bill/tradebill?bill_date={date}"), "");
        (status, body["code"].as_str().map(str::to_owned).unwrap_or_default())
    };
    assert_eq!(code(&mut world, DAY), (400, "INVALID_REQUEST".to_owned()));
    assert_eq!(code(&mut world, "2025-09-01"), (400, "INVALID_REQUEST".to_owned()));
    assert_eq!(code(&mut world, "2026-01-10"), (400, "NO_STATEMENT_EXIST".to_owned()));
    world.wait(22 * 3600);
    assert_eq!(code(&mut world, DAY), (400, "STATEMENT_CREATING".to_owned()));
    world.wait(3 * 3600);
    assert_eq!(code(&mut world, DAY).0, 200);
}

#[test]
fn an_alipay_bill_is_a_zip_of_gbk_files_behind_an_address_of_thirty_seconds() {
    let mut world = world(Channel::Alipay);
    let method = "alipay.data.dataservice.bill.downloadurl.query";
    let today = json!({ "bill_type": "trade", "bill_date": "2026-01-16" });
    assert_eq!(world.alipay(method, &today)["sub_code"], json!("isv.invalid_arguments"));
    let empty = json!({ "bill_type": "trade", "bill_date": "2026-01-10" });
    assert_eq!(world.alipay(method, &empty)["sub_code"], json!("isp.bill_not_exist"));
    for (bill_type, lines) in [("trade", 3), ("signcustomer", 6)] {
        let answer = world.alipay(method, &json!({ "bill_type": bill_type, "bill_date": DAY }));
        let url = answer["bill_download_url"].as_str().unwrap().to_owned();
        let token = url.rsplit('/').next().unwrap();
        let bytes = world.platforms.alipay_download(token, world.now).unwrap();
        assert!(bytes.starts_with(b"PK\x03\x04"));
        let text = encoding_rs::GBK.decode(&bytes).0.into_owned();
        let name = format!("20880000000000010156_{}_", DAY.replace('-', ""));
        assert!(text.contains(&name) && text.contains("ORDER0002\t,"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("一件商品")).count(), lines, "{text}");
        if bill_type == "trade" {
            assert!(text.contains("退款,一件商品") && text.contains(",-3.00,-3.00,") && text.contains(",R1,0.02,"));
        }
        world.wait(31);
        assert!(world.platforms.alipay_download(token, world.now).is_none());
    }
}
