//! Bills that must be refused as a whole, each with its name, its line and what to do; and what small files may not do.

use std::io::{self, Cursor};

use paidonce_channel::bill::{BillError, BillOf, read_trade_bill};

use crate::bills::{
    FOOTER, HEADER, alipay, alipay_text, cash, fixture, gb18030, gzip, of, trades, wx_bill, wx_row, wxpay, zip_of,
};

fn refused(bytes: &[u8], of: &BillOf) -> (&'static str, String) {
    let error = trades(bytes, of).unwrap_err();
    (error.code(), error.to_string())
}

fn two_rows() -> Vec<String> {
    vec![wx_row(1, "1.00", "0.00600", "票"), wx_row(2, "2.00", "0.01200", "票")]
}

const TWO: &str = "`2,`3.00,`0.00,`0.00,`0.01800,`3.00,`0.00";

/// Guards against a file that was cut: wherever it ends, it is refused.
#[test]
fn a_cut_bill_is_refused_wherever_it_was_cut() {
    let whole = wx_bill(&two_rows(), TWO);
    assert!(trades(&whole, &wxpay()).is_ok());
    // The last line break carries nothing; the last values without it are still whole.
    for end in 0..whole.len() - 2 {
        let found = trades(&whole[..end], &wxpay());
        let last_value_is_shorter = end > whole.len() - 6;
        assert!(found.is_err() || last_value_is_shorter, "{end} of {}: {found:?}", whole.len());
    }
    let footless = format!("\u{FEFF}{HEADER}\r\n{}\r\n", two_rows().join("\r\n"));
    let (code, text) = refused(footless.as_bytes(), &wxpay());
    assert_eq!(code, "no_footer");
    assert!(
        text.contains("总交易单数") && text.contains("after 2 rows") && text.contains("download it again"),
        "{text}"
    );
    let text = String::from_utf8(fixture("wechat_fundflow_BASIC_2026-01-01.csv")).unwrap();
    let cut = text.split("资金流水总笔数").next().unwrap();
    assert_eq!(cash(cut.as_bytes(), &wxpay()).unwrap_err().code(), "no_footer");
}

/// Guards each of the seven totals, and the count.
#[test]
fn a_footer_that_does_not_foot_is_refused_whichever_total_it_is() {
    let right = ["`2", "`3.00", "`0.00", "`0.00", "`0.01800", "`3.00", "`0.00"];
    for (at, wrong) in ["`3", "`3.01", "`0.01", "`0.01", "`0.01801", "`2.99", "`0.10"].into_iter().enumerate() {
        let mut totals = right;
        totals[at] = wrong;
        let (code, text) = refused(&wx_bill(&two_rows(), &totals.join(",")), &wxpay());
        assert_eq!(code, "footer_does_not_foot", "{wrong}");
        assert!(text.contains(FOOTER.split(',').nth(at).unwrap()), "{text}");
    }
    let detail = String::from_utf8(gbk_detail()).unwrap();
    for (from, to) in
        [("2笔", "3笔"), ("共88.89元", "共88.88元"), ("退款合计：1笔", "退款合计：0笔"), ("共-10.00元", "共-9.00元")]
    {
        let (code, text) = refused(&gb18030(&detail.replace(from, to)), &alipay());
        assert_eq!(code, "footer_does_not_foot", "{from}: {text}");
    }
    for line in ["#交易合计", "#退款合计"] {
        let without: String = detail.split_inclusive('\n').filter(|text| !text.starts_with(line)).collect();
        assert_eq!(refused(&gb18030(&without), &alipay()).0, "no_footer", "{line}");
    }
}

/// The fixture as UTF-8.
fn gbk_detail() -> Vec<u8> {
    let bytes = fixture("alipay_trade_2026-01-01_detail.gbk.csv");
    encoding_rs::GB18030.decode_without_bom_handling_and_without_replacement(&bytes).unwrap().into_owned().into_bytes()
}

/// Guards against a bill of somebody else, or of another day.
#[test]
fn a_bill_of_another_account_or_day_is_refused() {
    let wx = fixture("wechat_tradebill_ALL_2026-01-01.csv");
    let (code, text) = refused(&wx, &of("wxpay:1900000002", "2026-01-01"));
    assert_eq!(code, "wrong_account");
    assert!(text.contains("1900000001") && text.contains("1900000002"), "{text}");
    assert_eq!(refused(&wx, &of("wxpay:1900000001", "2026-01-02")).0, "wrong_day");
    let ali = fixture("alipay_trade_2026-01-01.zip");
    assert_eq!(refused(&ali, &of("alipay:2088000000000001", "2026-01-01")).0, "wrong_account");
    assert_eq!(refused(&ali, &of("alipay:2088000000000002", "2025-12-31")).0, "wrong_day");
    let fund = fixture("wechat_fundflow_BASIC_2026-01-01.csv");
    assert_eq!(cash(&fund, &of("wxpay:1900000001", "2026-01-02")).unwrap_err().code(), "wrong_day");
    // The kinds of bills are not taken for each other.
    assert_eq!(refused(&fund, &wxpay()).0, "no_column");
    assert_eq!(cash(&wx, &wxpay()).unwrap_err().code(), "no_column");
    assert_eq!(refused(&wx, &alipay()).0, "wrong_encoding");
    assert_eq!(refused(&ali, &wxpay()).0, "wrong_encoding");
}

/// Guards against text that was converted, or pasted together from two files.
#[test]
fn mixed_encodings_are_refused_with_their_line() {
    let mut wx = wx_bill(&two_rows(), TWO);
    let at = wx.windows(3).rposition(|three| three == "票".as_bytes()).unwrap();
    wx.splice(at..at + 3, gb18030("订单"));
    let (code, text) = refused(&wx, &wxpay());
    assert_eq!(code, "wrong_encoding");
    assert!(text.starts_with("line 3 is not UTF-8"), "{text}");
    let (code, text) = refused(&gbk_detail(), &alipay());
    assert_eq!((code, text.starts_with("line 1 is not GB18030")), ("wrong_encoding", true), "{text}");
    let lines = String::from_utf8(gbk_detail()).unwrap();
    for utf8_line in [6, 9] {
        let mixed: Vec<u8> = lines
            .split_inclusive('\n')
            .zip(1..)
            .flat_map(|(line, number)| if number == utf8_line { line.as_bytes().to_vec() } else { gb18030(line) })
            .collect();
        let (code, text) = refused(&mixed, &alipay());
        assert_eq!((code, text.starts_with(&format!("line {utf8_line} "))), ("wrong_encoding", true), "{text}");
    }
}

/// Guards against columns that shift: a row with another number of cells stops the file.
#[test]
fn a_row_with_shifted_columns_is_refused() {
    for goods in ["x,`0.01", "x,`"] {
        let rows = [wx_row(1, "1.00", "0.00600", "票"), wx_row(2, "2.00", "0.01200", goods)];
        let (code, text) = refused(&wx_bill(&rows, TWO), &wxpay());
        assert_eq!(code, "shifted_columns");
        assert!(text.starts_with("line 3 has 28 cells, the header has 27"), "{text}");
    }
    let row = "2026T1\t,A1\t,交易,A CO.,LIMITED,2026-01-01 11:00:00,2026-01-01 11:00:00,,,,,x,1.00,1.00,0,0,0,0,0,,0,0,,-0.01,0.00,";
    assert_eq!(refused(&gb18030(&alipay_text(&[row], "")), &alipay()).0, "shifted_columns");
    let open = row.replace("A CO.,LIMITED", "\"A CO.");
    let (code, text) = refused(&gb18030(&alipay_text(&[&open], "")), &alipay());
    assert_eq!((code, text.contains("quote")), ("unexpected_line", true), "{text}");
}

/// Guards against line breaks that were lost on the way, and lines that belong nowhere.
#[test]
fn lost_line_breaks_and_odd_lines_are_refused() {
    let whole = String::from_utf8(wx_bill(&two_rows(), TWO)).unwrap();
    let (code, text) = refused(whole.replace("\r\n", "").as_bytes(), &wxpay());
    assert_eq!((code, text.contains("line breaks were lost")), ("no_header", true), "{text}");
    assert_eq!(refused(b"", &wxpay()).0, "no_header");
    assert_eq!(refused(whole.replacen("`2026", "2026", 1).as_bytes(), &wxpay()).0, "unexpected_line");
    assert_eq!(refused(format!("{whole}{}\r\n", two_rows()[0]).as_bytes(), &wxpay()).0, "unexpected_line");
    assert_eq!(refused(whole.replace("手续费,", "费用,").as_bytes(), &wxpay()).0, "no_column");
    assert_eq!(
        refused(whole.replace("订单总金额", "总计").replace("手续费总金额", "别的").as_bytes(), &wxpay()).0,
        "no_footer"
    );
    assert!(trades(whole.replace("\r\n", "\n").as_bytes(), &wxpay()).is_ok(), "another line break is harmless");
}

/// Guards against compressed data that ends early or is damaged.
#[test]
fn cut_and_damaged_archives_are_refused() {
    let packed = gzip(&wx_bill(&two_rows(), TWO));
    for end in [3, 9, packed.len() / 2, packed.len() - 9, packed.len() - 1] {
        assert_eq!(refused(&packed[..end], &wxpay()).0, "truncated", "{end} of {}", packed.len());
    }
    let zip = fixture("alipay_trade_2026-01-01.zip");
    for end in [30, zip.len() / 2, zip.len() - 30, zip.len() - 1] {
        let (code, text) = refused(&zip[..end], &alipay());
        assert!(matches!(code, "unusable_zip" | "truncated"), "{end}: {code} {text}");
        assert!(text.contains("download it again"), "{text}");
    }
    let mut damaged = zip;
    damaged[200] ^= 1;
    let (code, text) = refused(&damaged, &alipay());
    assert!(matches!(code, "unusable_zip" | "truncated" | "wrong_encoding"), "{code} {text}");
}

/// Guards memory: a few kilobytes that unpack to two gigabytes stop at the longest line there may be.
#[test]
fn a_small_file_that_unpacks_to_gigabytes_stops_early() {
    let bomb = gzip(&vec![0; 8 << 20]).repeat(256);
    assert_eq!(refused(&bomb, &wxpay()).0, "line_too_long");
    assert_eq!(refused(&zip_of(&[("x.csv", vec![b'1'; 8 << 20])]), &alipay()).0, "line_too_long");
}

/// Guards the report of a disk that is full: what the sink says is not taken for a fault of the bill.
#[test]
fn an_error_of_the_sink_ends_the_read_as_what_it_is() {
    let bill = wx_bill(&two_rows(), TWO);
    let read = read_trade_bill(Cursor::new(bill), &wxpay(), &mut |_| Err(io::Error::other("disk full")));
    assert!(matches!(read, Err(BillError::Io(error)) if error.to_string() == "disk full"));
}
