//! Bills of both platforms, as they come: every fixture with the totals its author counted, and the gotchas of bills.

use std::cell::Cell;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use paidonce_channel::bill::{
    BillDay, BillError, BillHash, BillOf, CashDirection, CashRow, CashTotals, Side, TradeKind, TradeRow, TradeTotals,
    read_cash_bill, read_trade_bill,
};
use paidonce_order::ids::AccountRef;
use serde_json::Value;

pub const HEADER: &str = "交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,\
货币种类,应结订单金额,代金券金额,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,商品名称,商户数据包,手续费,\
费率,订单金额,申请退款金额,费率备注";
pub const FOOTER: &str = "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额";
pub const ALIPAY_HEADER: &str = "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,\
对方账户,订单金额（元）,商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,券名称,\
商家红包消费金额（元）,卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注";

pub fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/vectors/bills").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn of(account: &str, day: &str) -> BillOf {
    BillOf { account: AccountRef::parse(account).unwrap(), day: BillDay::parse(day).unwrap(), hash: None }
}

pub fn wxpay() -> BillOf {
    of("wxpay:1900000001", "2026-01-01")
}

pub fn alipay() -> BillOf {
    of("alipay:2088000000000002", "2026-01-01")
}

pub fn trades(bytes: &[u8], of: &BillOf) -> Result<(Vec<TradeRow>, TradeTotals), BillError> {
    let mut rows = Vec::new();
    let totals = read_trade_bill(Cursor::new(bytes), of, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok((rows, totals))
}

pub fn cash(bytes: &[u8], of: &BillOf) -> Result<(Vec<CashRow>, CashTotals), BillError> {
    let mut rows = Vec::new();
    let totals = read_cash_bill(Cursor::new(bytes), of, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok((rows, totals))
}

/// A row of a trade bill ALL.
pub fn wx_row(no: usize, amount: &str, fee: &str, goods: &str) -> String {
    format!(
        "`2026-01-01 11:59:58,`wx1,`1900000001,`0,`,`42000{no:023},`ORD{no},`o,`JSAPI,`SUCCESS,`OTHERS,`CNY,`{amount},\
         `0.00,`0,`0,`0.00,`0.00,`,`,`{goods},`,`{fee},`0.60%,`{amount},`0.00,`"
    )
}

/// A trade bill ALL of these rows.
pub fn wx_bill(rows: &[String], totals: &str) -> Vec<u8> {
    format!("\u{FEFF}{HEADER}\r\n{}\r\n{FOOTER}\r\n{totals}\r\n", rows.join("\r\n")).into_bytes()
}

pub fn alipay_text(rows: &[&str], footer: &str) -> String {
    format!(
        "#支付宝业务明细查询\r\n#账号：[20880000000000020156]\r\n#起始日期：[2026年01月01日 00:00:00]   终止日期：[2026年01月02日 \
         00:00:00]\r\n#----业务明细列表----\r\n{ALIPAY_HEADER}\r\n{}\r\n#----业务明细列表结束----\r\n{footer}",
        rows.join("\r\n")
    )
}

pub fn gb18030(text: &str) -> Vec<u8> {
    let (bytes, _, unmappable) = encoding_rs::GB18030.encode(text);
    assert!(!unmappable);
    bytes.into_owned()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn member<'v>(index: &'v Value, file: &str) -> &'v Value {
    let files = index["files"].as_array().unwrap();
    files.iter().find(|entry| entry["file"].as_str().unwrap().starts_with(file)).unwrap()
}

fn number(value: &Value) -> i128 {
    i128::from(value.as_i64().unwrap())
}

/// Guards the reading of a real WeChat Pay trade bill, plain and compressed, against its author's totals and hash.
#[test]
fn the_wxpay_trade_bill_foots_with_what_its_author_counted() {
    let index: Value = serde_json::from_slice(&fixture("bills.json")).unwrap();
    let expected = member(&index, "wechat_tradebill_ALL");
    let hash = BillHash::parse("SHA1", expected["sha1_of_uncompressed"].as_str().unwrap()).unwrap();
    for file in ["wechat_tradebill_ALL_2026-01-01.csv", "wechat_tradebill_ALL_2026-01-01.csv.gz"] {
        let (rows, totals) = trades(&fixture(file), &BillOf { hash: Some(hash.clone()), ..wxpay() }).unwrap();
        assert_eq!(i128::from(totals.rows()), number(&expected["rows"]));
        assert_eq!(totals.payments, Side { rows: 2, amount_minor: number(&expected["pay_minor_total"]) });
        assert_eq!(totals.refunds, Side { rows: 2, amount_minor: number(&expected["refund_minor_total"]) });
        assert_eq!(totals.fee_e5, number(&expected["fee_hundred_thousandths_total"]));
        assert_eq!(rows[0].at.to_string(), "2026-01-01T03:59:58Z");
        assert_eq!(
            (rows[0].order_no.as_str(), rows[0].amount.amount_minor, rows[0].fee_e5),
            ("ORD20260101000001", 1_000, 6_000)
        );
        assert_eq!((rows[0].line, rows[3].line), (2, 5));
    }
}

/// Guards the fund flow bill: what proves the cash.
#[test]
fn the_wxpay_fund_flow_bill_foots_with_what_its_author_counted() {
    let index: Value = serde_json::from_slice(&fixture("bills.json")).unwrap();
    let expected = member(&index, "wechat_fundflow_BASIC");
    let hash = BillHash::parse("SHA1", expected["sha1"].as_str().unwrap()).unwrap();
    let bytes = fixture("wechat_fundflow_BASIC_2026-01-01.csv");
    let (rows, totals) = cash(&bytes, &BillOf { hash: Some(hash), ..wxpay() }).unwrap();
    assert_eq!(i128::try_from(rows.len()).unwrap(), number(&expected["rows"]));
    assert_eq!(totals.incoming.amount_minor, number(&expected["income_minor"]));
    assert_eq!(totals.outgoing.amount_minor, number(&expected["expense_minor"]));
    assert!(rows.iter().any(|row| row.direction == CashDirection::Out && row.purpose.contains("手续费")));
}

/// Guards Alipay's zip: GBK content, GBK names, refunds with a sign, fees with a sign.
#[test]
fn the_alipay_trade_bill_foots_with_what_its_author_counted() {
    let index: Value = serde_json::from_slice(&fixture("bills.json")).unwrap();
    let expected = member(&index, "alipay_trade");
    for file in ["alipay_trade_2026-01-01.zip", "alipay_trade_2026-01-01_detail.gbk.csv"] {
        let (rows, totals) = trades(&fixture(file), &alipay()).unwrap();
        assert_eq!(i128::from(totals.rows()), number(&expected["rows"]));
        assert_eq!(totals.payments.amount_minor, number(&expected["pay_minor_total"]));
        assert_eq!(totals.refunds.amount_minor, number(&expected["refund_minor_total"]));
        // The file's sign is the platform's: a fee that was taken is negative there and positive here.
        assert_eq!(totals.fee_e5, -number(&expected["fee_minor_total"]) * 1_000);
        assert_eq!(rows[0].channel_trade_no, "2026010122001400000500000001", "the tab is gone");
        assert_eq!(rows[2].at.to_string(), "2026-01-01T15:59:59Z");
    }
}

/// Guards the account bill, which no fixture shows: columns and footer as fact B7 has them.
#[test]
fn the_alipay_account_bill_says_what_moved_the_balance() {
    let text = |out_total: &str| {
        format!(
            "#支付宝账务明细查询\r\n#账号：[20880000000000020156]\r\n#起始日期：[2026年01月01日 00:00:00]   终止日期：[2026年01月02日 \
             00:00:00]\r\n账务流水号,业务流水号,商户订单号,商品名称,发生时间,对方账号,收入金额（+元）,支出金额（-元）,账户余额（元）,\
             交易渠道,业务类型,备注,业务描述\r\n1\t,2026T1\t,O1\t,票,2026-01-01 10:00:00,x,88.88,0.00,88.88,支付宝,在线支付,,\r\n2\t,\
             2026T1\t,O1\t,票,2026-01-01 10:00:00,x,,-0.53,88.35,支付宝,收费,,\r\n#----\r\n#支出合计：1笔，共{out_total}元\r\n\
             #收入合计：1笔，共88.88元\r\n#导出时间：[2026年01月02日 08:00:00]\r\n"
        )
    };
    let (rows, totals) = cash(&gb18030(&text("-0.53")), &alipay()).unwrap();
    assert_eq!((totals.incoming.amount_minor, totals.outgoing.amount_minor), (8_888, 53));
    assert_eq!(
        (rows[1].purpose.as_str(), rows[1].balance.amount_minor, rows[1].merchant_no.as_str()),
        ("收费", 8_835, "O1")
    );
    let error = cash(&gb18030(&text("-0.52")), &alipay()).unwrap_err();
    assert_eq!(error.code(), "footer_does_not_foot", "{error}");
}

/// Gotcha 24: yuan and fen, fees finer than a fen, no floating point.
#[test]
fn gotcha_24_yuan_become_fen_exactly_and_fees_keep_five_decimals() {
    let amounts =
        [("0.29", 29), ("1.10", 110), ("4.35", 435), ("19.99", 1_999), ("90071992547409.93", 9_007_199_254_740_993)];
    let rows: Vec<String> = amounts.iter().zip(1..).map(|((text, _), no)| wx_row(no, text, "0.00500", "票")).collect();
    let bill = wx_bill(&rows, "`5,`90071992547435.66,`0.00,`0.00,`0.02500,`90071992547435.66,`0.00");
    let (rows, totals) = trades(&bill, &wxpay()).unwrap();
    assert_eq!(rows.iter().map(|row| row.amount.amount_minor).collect::<Vec<_>>(), amounts.map(|(_, fen)| fen));
    assert_eq!((rows[0].fee_e5, totals.fee_e5), (500, 2_500));
    for wrong in ["1.001", "1e2", "1,00", " 1.00", "+1.00", "-1.00", ""] {
        let bill = wx_bill(&[wx_row(1, wrong, "0.00600", "票")], "`1,`1.00,`0.00,`0.00,`0.00600,`1.00,`0.00");
        let error = trades(&bill, &wxpay()).unwrap_err();
        assert_eq!(error.code(), "unusable_value", "{wrong:?}: {error}");
        assert!(error.to_string().starts_with("line 2, column "), "{error}");
    }
}

/// Gotcha 25: the hash is over the uncompressed bytes, in hex of either case, and an error in a changed file is its hash.
#[test]
fn gotcha_25_the_hash_is_that_of_the_uncompressed_file() {
    let index: Value = serde_json::from_slice(&fixture("bills.json")).unwrap();
    let entry = member(&index, "wechat_tradebill_ALL");
    let (plain, packed) = (entry["sha1_of_uncompressed"].as_str().unwrap(), entry["sha1_of_gzip"].as_str().unwrap());
    let read = |bytes: &[u8], hash: &str| {
        let hash = BillHash::parse("SHA1", hash).unwrap();
        trades(bytes, &BillOf { hash: Some(hash), ..wxpay() }).map_err(|error| error.code())
    };
    let file = fixture("wechat_tradebill_ALL_2026-01-01.csv");
    assert!(read(&file, plain).is_ok() && read(&gzip(&file), &plain.to_uppercase()).is_ok());
    assert_eq!(read(&fixture("wechat_tradebill_ALL_2026-01-01.csv.gz"), packed).unwrap_err(), "wrong_hash");
    for at in [5, 700, file.len() - 4] {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert_eq!(read(&changed, plain).unwrap_err(), "wrong_hash", "byte {at}");
        assert_eq!(read(&gzip(&changed), plain).unwrap_err(), "wrong_hash", "byte {at}");
    }
    assert_eq!(BillHash::parse("MD5", plain).unwrap_err().code(), "unusable_hash");
    assert_eq!(BillHash::parse("SHA1", "12").unwrap_err().code(), "unusable_hash");
}

/// Gotcha 26: what the bill says of a refund is frozen, so it is handed on as the bill's word and nothing more.
#[test]
fn gotcha_26_a_refund_keeps_the_status_and_the_request_time_of_its_bill() {
    let (rows, _) = trades(&fixture("wechat_tradebill_ALL_2026-01-01.csv"), &wxpay()).unwrap();
    let TradeKind::Refund { refund_no, channel_refund_no, status } = &rows[3].kind else { panic!("{:?}", rows[3]) };
    assert_eq!((refund_no.as_str(), status.as_str()), ("RFD0005", "PROCESSING"));
    assert_eq!(channel_refund_no, "50000000382026010100000000005");
    assert_eq!((rows[3].at.to_string().as_str(), rows[3].fee_e5), ("2026-01-01T15:59:59Z", -1_000));
}

/// Gotcha 27: a count may be written `2.0`, exactly one backtick is taken off, the first header has a byte order mark.
#[test]
fn gotcha_27_a_decimal_count_one_backtick_and_a_byte_order_mark() {
    let mut row = wx_row(1, "1.00", "0.00600", "`quoted` A CO.,LIMITED");
    row = row.replace("`ORD1,", "``ORD1,");
    let (rows, _) = trades(&wx_bill(&[row], "`1.0,`1.0,`0.0,`0,`0.006,`1,`0.00"), &wxpay()).unwrap();
    assert_eq!(rows[0].order_no, "`ORD1");
    let error = trades(&wx_bill(&[wx_row(1, "1.00", "0.00600", "票")], "`1.5,`1.0,`0,`0,`0.006,`1,`0"), &wxpay());
    assert_eq!(error.unwrap_err().code(), "unusable_value");
}

/// Gotcha 58: what a file of the zip is, its columns say; two detail files are one bill.
#[test]
fn gotcha_58_files_of_a_zip_are_told_apart_by_their_columns() {
    let detail = fixture("alipay_trade_2026-01-01_detail.gbk.csv");
    let other = alipay_text(
        &[
            "2026010122001400000500000009\t,ALI9\t,交易,票,2026-01-01 11:00:00,2026-01-01 11:00:00,,,,,x,1.00,1.00,0.00,0.00,0.00,\
           0.00,0.00,,0.00,0.00,,-0.01,0.00,",
        ],
        "#交易合计：1笔，商家实收共1.00元，商家优惠共0.00元\r\n#退款合计：0笔，商家实收退款共0元\r\n",
    );
    let summary = gb18030("#支付宝业务汇总查询\r\n门店编号,交易订单总笔数\r\n合计,3\r\n");
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let files = [("业务明细.csv", detail.clone()), ("业务明细(汇总).csv", summary.clone()), ("x", gb18030(&other))];
        let files: Vec<_> = order.iter().map(|at| files[*at].clone()).collect();
        let (_, totals) = trades(&zip_of(&files), &alipay()).unwrap();
        assert_eq!((totals.rows(), totals.payments.amount_minor), (4, 8_989), "{order:?}");
    }
    let error = trades(&zip_of(&[("业务明细.csv", summary)]), &alipay()).unwrap_err();
    assert_eq!(error.code(), "no_column", "{error}");
}

/// Gotcha 59: negative refunds, tabs, wide and narrow brackets, `#` only at the beginning of a line, quoted commas.
#[test]
fn gotcha_59_signs_tabs_brackets_and_comments() {
    let rows = [
        "2026010122001400000500000001\t,A1\t,交易\t,\"喆€ #1, LTD\",2026-01-01 11:00:00,2026-01-01 11:00:00,,,,,x,1.00,1.00,0,0,0,0,0,,0,0,,\
         -0.01,0.00,",
        "2026010122001400000500000001\t,A1\t,退款\t,a \" b,2026-01-01 11:00:00,2026-01-01 11:00:00,,,,,x,-1.00,-1.00,0,0,0,0,0,,0,0,R1\t,\
         0.01,0.00,",
    ];
    for footer in [
        "#交易合计：1笔，商家实收共1.00元，商家优惠共0.00元\r\n#退款合计：1笔，商家实收退款共-1.00元，商家优惠退款共0.00元\r\n",
        "#交易合计:1笔,商家实收共1.00元\r\n#退款合计:1笔,商家实收退款共1元\r\n#导出时间：[2026年01月02日]",
    ] {
        for text in [alipay_text(&rows, footer), alipay_text(&rows, footer).replace('（', "(").replace('）', ")")] {
            let (rows, totals) = trades(&gb18030(&text), &alipay()).unwrap();
            assert_eq!((totals.payments.amount_minor, totals.refunds.amount_minor, totals.fee_e5), (100, 100, 0));
            assert!(matches!(&rows[1].kind, TradeKind::Refund { refund_no, .. } if refund_no == "R1"), "{rows:?}");
        }
    }
}

/// Gotcha 60: a bill's times are Beijing times, whatever the zone of this host: one second decides the day.
#[test]
fn gotcha_60_the_day_of_a_bill_is_a_day_in_beijing() {
    let at = |time: &str| {
        let row = wx_row(1, "1.00", "0.00600", "票").replace("2026-01-01 11:59:58", time);
        trades(&wx_bill(&[row], "`1,`1.00,`0.00,`0.00,`0.00600,`1.00,`0.00"), &wxpay())
    };
    assert_eq!(at("2026-01-01 00:00:00").unwrap().0[0].at.to_string(), "2025-12-31T16:00:00Z");
    assert!(at("2026-01-01 23:59:59").is_ok());
    for time in ["2026-01-02 00:00:00", "2025-12-31 23:59:59"] {
        let error = at(time).unwrap_err();
        assert_eq!(error.code(), "wrong_day", "{error}");
    }
    assert_eq!(at("2026-01-01T00:00:00+08:00").unwrap_err().code(), "unusable_value");
}

/// Guards the bill of merchants with the old names of the columns, and the bills of payments and of refunds only.
#[test]
fn old_column_names_and_the_bills_of_one_side_are_read() {
    let old = "\u{FEFF}交易时间,公众账号ID,商户号,子商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,总金额,\
               企业红包金额,微信退款单号,商户退款单号,退款金额,企业红包退款金额,退款类型,退款状态,商品名称,商户数据包,手续费,费率\r\n\
               `2026-01-01 11:00:00,`wx1,`1900000001,`0,`,`4200,`O1,`o,`JSAPI,`SUCCESS,`CFT,`CNY,`1.00,`0.00,`0,`0,`0.00,`0.00,`,`,`票,`,\
               `0.01000,`0.60%\r\n\
               `2026-01-01 12:00:00,`wx1,`1900000001,`0,`,`4200,`O1,`o,`JSAPI,`REFUND,`CFT,`CNY,`0.00,`0.00,`5000,`R1,`0.40,`0.00,`ORIGINAL,\
               `SUCCESS,`票,`,`0.00000,`0.60%\r\n\
               总交易单数,总交易额,总退款金额,总企业红包退款金额,手续费总金额\r\n`2,`1.00,`0.40,`0.00,`0.01000\r\n";
    let (rows, totals) = trades(old.as_bytes(), &wxpay()).unwrap();
    assert_eq!((totals.payments.amount_minor, totals.refunds.amount_minor, rows.len()), (100, 40, 2));
    let success = "\u{FEFF}交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,\
                   应结订单金额,代金券金额,商品名称,商户数据包,手续费,费率,订单金额,费率备注\r\n`2026-01-01 11:00:00,`wx1,`1900000001,`0,`,`4200,`O1,\
                   `o,`JSAPI,`SUCCESS,`CFT,`CNY,`0.90,`0.10,`票,`,`0.01000,`0.60%,`1.00,`\r\n\
                   总交易单数,应结订单总金额,手续费总金额,订单总金额\r\n`1,`0.90,`0.01000,`1.00\r\n";
    let (rows, _) = trades(success.as_bytes(), &wxpay()).unwrap();
    assert_eq!(rows[0].amount.amount_minor, 100, "what the API calls amount.total, not what is settled");
    // The time of a REFUND bill that counts is the one of the request.
    let refund_header = HEADER.replace("代金券金额,", "代金券金额,退款申请时间,退款成功时间,");
    let refund = format!(
        "\u{FEFF}{refund_header}\r\n`2025-12-30 11:00:00,`wx1,`1900000001,`0,`,`4200,`O1,`o,`JSAPI,`REFUND,`CFT,`CNY,`0.00,`0.00,\
         `2026-01-01 23:59:59,`2026-01-02 00:00:03,`5000,`R1,`0.40,`0.00,`ORIGINAL,`SUCCESS,`票,`,`-0.00240,`0.60%,`0.00,`0.50,`\r\n\
         {FOOTER}\r\n`1,`0.00,`0.40,`0.00,`-0.00240,`0.00,`0.50\r\n"
    );
    let (rows, _) = trades(refund.as_bytes(), &wxpay()).unwrap();
    assert_eq!((rows[0].at.to_string().as_str(), rows[0].amount.amount_minor), ("2026-01-01T15:59:59Z", 50));
}

/// Guards money in states that a reader may not know: nothing is left out, a reversal is money that goes back.
#[test]
fn no_row_is_left_out_because_of_its_state() {
    let pay = wx_row(1, "5.00", "0.03000", "票");
    let reversal = wx_row(1, "0.00", "-0.03000", "票")
        .replace("`SUCCESS", "`REVOKED")
        .replace("`0,`0,`0.00,`0.00,`,`", "`0,`0,`5.00,`0.00,`ORIGINAL,`SUCCESS")
        .replace("`0.00,`0.00,`\r", "`0.00,`5.00,`\r");
    let reversal = format!("{},`5.00,`", reversal.strip_suffix(",`0.00,`").unwrap());
    let unknown = wx_row(3, "2.00", "0.01200", "票").replace("`SUCCESS", "`NEWSTATE");
    let bill = wx_bill(&[pay, reversal, unknown], "`3,`7.00,`5.00,`0.00,`0.01200,`7.00,`5.00");
    let (rows, totals) = trades(&bill, &wxpay()).unwrap();
    assert_eq!(rows[1].kind, TradeKind::Reversal);
    assert_eq!(rows[2].kind, TradeKind::Unknown { word: "NEWSTATE".to_owned() });
    assert_eq!((totals.refunds.amount_minor, totals.unknown.amount_minor), (500, 200));
}

pub fn zip_of(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Text that is made while it is read, and counts what was taken of it.
struct Generated<F> {
    line: F,
    lines: usize,
    next: usize,
    pending: Cursor<Vec<u8>>,
    taken: Rc<Cell<usize>>,
}

impl<F: Fn(usize) -> String> Read for Generated<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.pending.read(buffer)?;
        if count == 0 && self.next < self.lines {
            self.pending = Cursor::new((self.line)(self.next).into_bytes());
            self.next += 1;
            return self.read(buffer);
        }
        self.taken.set(self.taken.get() + count);
        Ok(count)
    }
}

impl<F> Seek for Generated<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // Only asked for the first bytes.
        assert_eq!(to, SeekFrom::Start(0));
        (self.next, self.pending) = (0, Cursor::new(Vec::new()));
        self.taken.set(0);
        Ok(0)
    }
}

/// Guards constant memory: while 200,000 rows go by, the reader is never more than two buffers ahead of the rows it gave.
#[test]
fn a_bill_of_200_000_rows_is_read_with_bounded_buffers() {
    const ROWS: usize = 200_000;
    const AHEAD_BYTES_MAX: usize = 130 * 1024;
    let row_bytes = wx_row(0, "1.00", "0.00600", "票").len() + 2;
    let taken = Rc::new(Cell::new(0));
    let line = move |index: usize| match index {
        0 => format!("\u{FEFF}{HEADER}\r\n"),
        last if last == ROWS + 1 => {
            format!("{FOOTER}\r\n`{ROWS},`{ROWS}.00,`0.00,`0.00,`1200.00000,`{ROWS}.00,`0.00\r\n")
        }
        no => format!("{}\r\n", wx_row(no % 10, "1.00", "0.00600", "票")),
    };
    let source = Generated { line, lines: ROWS + 2, next: 0, pending: Cursor::default(), taken: Rc::clone(&taken) };
    let (mut rows, mut ahead_max, header) = (0, 0, HEADER.len() + 5);
    let totals = read_trade_bill(source, &wxpay(), &mut |_| {
        rows += 1;
        ahead_max = ahead_max.max(taken.get() - header - rows * row_bytes);
        Ok(())
    });
    assert_eq!(totals.unwrap().rows(), u64::try_from(ROWS).unwrap());
    assert!(taken.get() > 30 * 1024 * 1024, "the bill is much larger than the bound: {}", taken.get());
    assert!(ahead_max <= AHEAD_BYTES_MAX, "{ahead_max} bytes ahead");
}
