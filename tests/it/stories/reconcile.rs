//! Bills against the ledger: a quiet day balances, and every planted difference is found, and nothing else.

use std::path::Path;

use paidonce_sandbox::alipay::request as alipay_request;
use paidonce_sandbox::options::MCHID;
use paidonce_sandbox::wxpay::authorization::{self, Request};
use paidonce_sandbox::{Channel, ConsoleRefund, OrderName, Pay};
use paidonce_tests::app::TestApp;
use paidonce_tests::database::Engine;
use paidonce_tests::process::program;
use serde_json::{Value, json};

use super::audit::text;
use super::audit_replay::tamper;
use super::town::Town;
use super::{ALIPAY, WXPAY, on_both};

/// The day on which the signed payments of the tests happened.
const DAY: &str = "2026-01-15";

/// Runs `paidonce reconcile` beside the server.
fn reconcile(app: &TestApp, account: &str, day: &str, bill: &Path, more: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = std::process::Command::new(program());
    command.arg("reconcile").args(["--account", account, "--day", day, "--json"]).arg("--file").arg(bill).args(more);
    command.arg("--config").arg(app.dir().join("paidonce.toml")).current_dir(app.dir()).env_remove("DATABASE_URL");
    let done = command.output().expect("run reconcile");
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap_or_default(), text(&done))
}

/// Kinds of the differences, sorted.
fn kinds(report: &Value) -> Vec<&str> {
    let differences = report["differences"].as_array().expect("differences");
    let mut kinds: Vec<&str> = differences.iter().filter_map(|it| it["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds
}

on_both! {
    /// A day at both platforms, with refunds: their own bills agree with the ledger to the cent.
    async fn the_bills_of_both_platforms_balance(engine: Engine) {
        let town = Town::start(engine, |_| {}, |_| {}).await;
        let day = town.sandbox.now().rfc3339()[..10].to_owned();
        // Noon in Beijing, so that nothing of this day falls on the next.
        let midnight = time::OffsetDateTime::parse(
            &format!("{day}T04:00:00Z"),
            &time::format_description::well_known::Rfc3339,
        );
        let to_noon = (midnight.expect("a time") + time::Duration::days(1) - town.app.now()).whole_seconds();
        town.move_clocks(to_noon).await;
        let day = town.sandbox.now().rfc3339()[..10].to_owned();
        for number in 0..6 {
            let (channel, account) = if number % 2 == 0 { (Channel::Wxpay, WXPAY) } else { (Channel::Alipay, ALIPAY) };
            let order_no = format!("BILL-{number}");
            town.open(&json!({ "order_no": order_no, "amount_minor": 1_000 + number, "currency": "CNY", "accounts": [account] })).await;
            town.sandbox.play(|platforms, now| platforms.pay(&Pay::new(channel, &order_no, 1_000 + number), now)).expect("pay");
            town.tick(1).await;
            if number < 4 {
                let name = OrderName::new(channel, &order_no);
                let refund = ConsoleRefund { name, amount_minor: Some(100 + number), refund_no: None };
                town.sandbox.play(|platforms, now| platforms.console_refund(&refund, now)).expect("refund");
            }
        }
        for _ in 0..6 {
            town.tick(60).await;
        }
        town.move_clocks(26 * 3600).await;
        let wxpay = town.app.dir().join("wxpay.csv");
        let hash = wxpay_bill(&town, &day, &wxpay);
        let alipay = town.app.dir().join("alipay.zip");
        alipay_bill(&town, &day, &alipay);
        for (account, bill, more) in [(WXPAY, &wxpay, vec!["--hash", hash.as_str()]), (ALIPAY, &alipay, vec![])] {
            let (code, report, shown) = reconcile(&town.app, account, &day, bill, &more);
            assert_eq!(code, Some(0), "{shown}");
            assert_eq!((report["agreed"].as_i64(), kinds(&report).len()), (Some(5), 0), "{shown}");
            assert_eq!(report["bill_payments"], report["ledger_payments"], "{shown}");
            assert_eq!(report["bill_refunds"], report["ledger_refunds"], "{shown}");
        }
        let (code, _, shown) = reconcile(&town.app, WXPAY, &day, &wxpay, &["--hash", &"ab".repeat(20)]);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains("nothing of it was used"), "{shown}");
        town.finish().await;
    }

    /// Every kind of difference, each planted once, is found with what to do about it; what agrees is not named.
    async fn every_planted_difference_is_found_and_nothing_else(engine: Engine) {
        let app = TestApp::start(engine).await;
        let mut rows = Vec::new();
        for number in 0..9_i64 {
            let (order_no, trade_no) = (format!("PLANT-{number}"), format!("420001{number:04}"));
            app.open(&order_no, 100 + number, &[WXPAY]).await;
            assert_eq!(app.send(&app.wx_payment(&order_no, &trade_no, 100 + number)).await.status, 204);
            rows.push(payment(&order_no, &trade_no, 100 + number));
        }
        let flow = |number: i64| format!("idem_key = 'WXPAY:PLANT-{number}:PAY'");
        let (earlier, nowhere) = match engine {
            Engine::Sqlite => ("occurred_at - 86400000000".to_owned(), "'420009999'"),
            Engine::Postgres => ("occurred_at - interval '1 day'".to_owned(), "'420009999'"),
        };
        tamper(&app, &format!(
            "UPDATE t_order_flow SET amount_minor = 1 WHERE {};
             UPDATE t_order_flow SET order_no = 'PLANT-8' WHERE {};
             UPDATE t_order_flow SET occurred_at = {earlier} WHERE {};
             UPDATE t_order_flow SET channel_trade_no = {nowhere} WHERE {}",
            flow(0), flow(1), flow(2), flow(3)
        ));
        rows.push(refund("PLANT-4", "4200010004", ("R-OPEN", 10), "PROCESSING"));
        rows.push(refund("PLANT-5", "4200010005", ("R-LOST", 20), "SUCCESS"));
        rows.push(Row { state: "REVOKED", ..refund("PLANT-6", "4200010006", ("0", 30), "SUCCESS") });
        rows.push(Row { state: "MYSTERY", ..payment("STRANGE", "420002", 7) });
        let bill = app.dir().join("planted.csv");
        std::fs::write(&bill, written(&rows)).expect("write the bill");
        let (code, report, shown) = reconcile(&app, WXPAY, DAY, &bill, &[]);
        assert_eq!(code, Some(1), "{shown}");
        let expected = [
            "amount", "missing_at_channel", "missing_in_ledger", "missing_in_ledger", "order_no", "other_day",
            "refund_processing", "reversal", "unknown_state",
        ];
        assert_eq!(kinds(&report), expected, "{shown}");
        assert_eq!(report["agreed"], 5, "{shown}");
        let differences = report["differences"].as_array().expect("differences");
        assert!(differences.iter().all(|it| it["note"].as_str().is_some_and(|note| note.len() > 20)), "{shown}");
        let lost = differences.iter().find(|it| it["refund_no"] == "R-LOST").expect("the lost refund");
        assert_eq!((&lost["kind"], &lost["bill_minor"]), (&json!("missing_in_ledger"), &json!(20)));
        app.abandon();
    }

    /// A bill that can't be believed is refused as a whole, with the line and what to do.
    async fn a_bill_that_cannot_be_believed_is_refused_as_a_whole(engine: Engine) {
        let app = TestApp::start(engine).await;
        app.open("GOOD", 100, &[WXPAY]).await;
        assert_eq!(app.send(&app.wx_payment("GOOD", "4200010000", 100)).await.status, 204);
        let good = written(&[payment("GOOD", "4200010000", 100)]);
        let path = app.dir().join("bill.csv");
        for (what, bill, account, day, said) in [
            ("cut", good.split("总交易单数").next().expect("a beginning").to_owned(), WXPAY, DAY, "footer"),
            ("another total", good.replace("`1,`1.00", "`1,`2.00"), WXPAY, DAY, "the rows have"),
            ("another account", good.clone(), "wxpay:1900000002", DAY, "another account"),
            ("another day", good.clone(), WXPAY, "2026-01-16", "another day"),
            ("no bill", "hello".to_owned(), WXPAY, DAY, "line 1"),
        ] {
            std::fs::write(&path, bill).expect("write the bill");
            let (code, _, shown) = reconcile(&app, account, day, &path, &[]);
            assert_eq!(code, Some(2), "{what}: {shown}");
            assert!(shown.contains(said) && shown.contains("nothing of it was used"), "{what}: {shown}");
        }
        std::fs::write(&path, &good).expect("write the bill");
        assert_eq!(reconcile(&app, WXPAY, DAY, &path, &[]).0, Some(0));
        app.finish().await;
    }
}

/// A row of a trade bill ALL.
#[derive(Clone)]
struct Row {
    order_no: String,
    trade_no: String,
    state: &'static str,
    paid: i64,
    refund: Option<(String, i64, &'static str)>,
}

fn payment(order_no: &str, trade_no: &str, paid: i64) -> Row {
    Row { order_no: order_no.to_owned(), trade_no: trade_no.to_owned(), state: "SUCCESS", paid, refund: None }
}

fn refund(order_no: &str, trade_no: &str, (number, minor): (&str, i64), status: &'static str) -> Row {
    let refund = Some((number.to_owned(), minor, status));
    Row { state: "REFUND", refund, ..payment(order_no, trade_no, 0) }
}

fn yuan(minor: i64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
}

fn written(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let (number, back, status) = row.refund.clone().unwrap_or(("0".to_owned(), 0, ""));
        let (paid, back) = (yuan(row.paid), yuan(back));
        format!(
            "`{DAY} 12:00:00,`wx0000000000000001,`1900000001,`0,`,`{},`{},`o,`JSAPI,`{},`OTHERS,`CNY,`{paid},`0.00,`0,`{number},\
             `{back},`0.00,`ORIGINAL,`{status},`goods,`,`0.00000,`0.60%,`{paid},`{back},`",
            row.trade_no, row.order_no, row.state
        )
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    let paid = yuan(rows.iter().map(|row| row.paid).sum());
    let back = yuan(rows.iter().filter_map(|row| row.refund.as_ref()).map(|(_, minor, _)| minor).sum());
    format!(
        "\u{FEFF}交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,\
         应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,手续费,\
         费率,订单金额,申请退款金额,费率备注\r\n{}\r\n总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,\
         订单总金额,申请退款总金额\r\n`{},`{paid},`{back},`0.00,`0.00000,`{paid},`{back}\r\n",
        lines.join("\r\n"),
        rows.len()
    )
}

/// Asks for the day's trade bill and writes it; its hash.
fn wxpay_bill(town: &Town, day: &str, to: &Path) -> String {
    let ask = |target: &str| {
        town.sandbox.play(|platforms, now| {
            let merchant = platforms.accounts.find_merchant(MCHID).expect("the merchant").clone();
            let (timestamp, nonce) = (now.seconds(), "0123456789ABCDEF0123456789ABCDEF");
            let signature =
                merchant.key.sign(format!("GET\n{target}\n{timestamp}\n{nonce}\n\n").as_bytes()).expect("sign");
            let serial = &merchant.serial;
            let authorization = format!(
                "WECHATPAY2-SHA256-RSA2048 mchid=\"{MCHID}\",nonce_str=\"{nonce}\",timestamp=\"{timestamp}\",\
                 serial_no=\"{serial}\",signature=\"{signature}\""
            );
            let (path, query) = target.split_once('?').expect("a query");
            let request = Request {
                method: "GET".to_owned(),
                path: path.to_owned(),
                query: query.to_owned(),
                authorization: Some(authorization),
                serial: None,
                accept: Some("application/json".to_owned()),
                user_agent: Some("test".to_owned()),
                content_type: None,
                body: Vec::new(),
            };
            let caller = authorization::check(&platforms.accounts, &request, now);
            paidonce_sandbox::wxpay::answer::write(platforms.wxpay(&request, caller, now)).expect("an answer")
        })
    };
    let answer = ask(&format!("/v3/bill/tradebill?bill_date={day}"));
    let answer: Value = serde_json::from_slice(answer.body()).expect("JSON");
    let url = answer["download_url"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let file = ask(&url[url.find("/v3").expect("a path")..]);
    std::fs::write(to, file.body()).expect("write the bill");
    answer["hash_value"].as_str().expect("a hash").to_owned()
}

fn alipay_bill(town: &Town, day: &str, to: &Path) {
    let bytes = town.sandbox.play(|platforms, now| {
        let seller = platforms.accounts.sellers.first().expect("the seller").clone();
        let biz = json!({ "bill_type": "trade", "bill_date": day }).to_string();
        let fields = [
            ("app_id", seller.seller.app_id.as_str()),
            ("biz_content", &biz),
            ("charset", "utf-8"),
            ("format", "JSON"),
            ("method", "alipay.data.dataservice.bill.downloadurl.query"),
            ("sign_type", "RSA2"),
            ("timestamp", &now.text()),
            ("version", "1.0"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let content: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let sign = seller.key.sign(content.join("&").as_bytes()).expect("sign");
        let escape =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let form: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
        let form = format!("{}&sign={}", form.join("&"), escape(&sign));
        let caller = alipay_request::check(&platforms.accounts, "", form.as_bytes(), now);
        let answer = platforms.alipay(caller, now);
        let url = answer.node["bill_download_url"].as_str().unwrap_or_else(|| panic!("{}", answer.node)).to_owned();
        platforms.alipay_download(url.rsplit('/').next().expect("a name"), now)
    });
    std::fs::write(to, bytes.expect("the file")).expect("write the bill");
}
