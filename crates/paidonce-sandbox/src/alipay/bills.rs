//! Bills: an address that is good for thirty seconds, a zip with a summary and a detail file, both GBK, their names too.
//! Refund rows are negative, and so is the fee of a payment.

use std::time::Duration;

use serde_json::json;

use super::answer::encode;
use super::request::Caller;
use super::{Outcome, Refusal};
use crate::bill::{Download, Movement, fee_minor, movements, zip};
use crate::keys::random_hex;
use crate::moment::Moment;
use crate::money::yuan;
use crate::order::Charset;
use crate::platforms::Platforms;

/// A download address lives this long.
const URL_LIVES: Duration = Duration::from_secs(30);

const TRADE_COLUMNS: &str = "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,\
对方账户,订单金额（元）,商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,券名称,\
商家红包消费金额（元）,卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注";
const SUMMARY_COLUMNS: &str = "门店编号,门店名称,交易订单总笔数,退款订单总笔数,订单金额（元）,商家实收（元）,支付宝优惠（元）,\
商家优惠（元）,卡消费金额（元）,服务费（元）,分润（元）,实收净额（元）";
const ACCOUNT_COLUMNS: &str = "账务流水号,业务流水号,商户订单号,商品名称,发生时间,对方账号,收入金额（+元）,支出金额（-元）,\
账户余额（元）,交易渠道,业务类型,备注";

impl Platforms {
    pub(super) fn alipay_bill(&mut self, caller: &Caller, now: Moment) -> Outcome {
        let invalid = || Refusal::business("isv.invalid_arguments", "参数错误");
        let date = caller.text("bill_date").ok_or_else(invalid)?.to_owned();
        let begin = match date.len() {
            7 => Moment::parse_day(&format!("{date}-01")),
            _ => Moment::parse_day(&date),
        };
        // Today and this month are not over: there is no bill of them yet.
        if begin.is_none() || now.day().starts_with(&date) || begin > Some(now) {
            return Err(invalid());
        }
        let account = caller.account();
        let moved = movements(self.orders.values().filter(|order| order.key.account == account));
        if !moved.iter().any(|one| one.at().day().starts_with(&date)) {
            return Err(Refusal::business("isp.bill_not_exist", "账单不存在"));
        }
        let bill = Bill { pid: format!("{}0156", account.id), date, now };
        let entries = match caller.text("bill_type") {
            Some("trade") => bill.trade(&moved),
            Some("signcustomer") => bill.account(&moved),
            Some(_) | None => return Err(invalid()),
        };
        let gbk = |text: &String| encode(text, Charset::Gbk);
        let bytes = zip(&entries.iter().map(|(name, text)| (gbk(name), gbk(text))).collect::<Vec<_>>());
        let token = random_hex(16).map_err(|_| Refusal::business("isp.unknown-error", "系统繁忙"))?;
        self.downloads.retain(|_, download| now < download.until);
        self.downloads.insert(token.clone(), Download { bytes, until: now.plus(URL_LIVES) });
        Ok(json!({ "bill_download_url": format!("{}/dwbillcenter/{token}.zip", self.own_url) }))
    }

    /// The file behind an address, while it is good.
    #[must_use]
    pub fn alipay_download(&self, token: &str, now: Moment) -> Option<Vec<u8>> {
        let found = self.downloads.get(token.trim_end_matches(".zip")).filter(|download| now < download.until)?;
        Some(found.bytes.clone())
    }
}

/// One day's (or month's) bill.
struct Bill {
    pid: String,
    date: String,
    now: Moment,
}

impl Bill {
    fn head(&self, title: &str, list: &str) -> String {
        let (pid, date) = (&self.pid, self.date.replace('-', ""));
        let rule = "-".repeat(41);
        format!("#{title}\r\n#账号：[{pid}]\r\n#起始日期：[{date}]   终止日期：[{date}]\r\n#{rule}{list}{rule}\r\n")
    }

    fn foot(&self, list: &str, totals: &str) -> String {
        let rule = "-".repeat(41);
        format!("#{rule}{list}结束{rule}\r\n{totals}#导出时间：[{}]\r\n", self.now.text())
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{}_{what}.csv", self.pid, self.date.replace('-', ""))
    }

    fn lists(&self, movement: &Movement<'_>) -> bool {
        movement.at().day().starts_with(&self.date)
    }

    fn trade(&self, moved: &[Movement<'_>]) -> Vec<(String, String)> {
        let listed: Vec<&Movement<'_>> = moved.iter().filter(|one| self.lists(one)).collect();
        let (paid, back) = (totals(&listed, signed_payment), totals(&listed, signed_refund));
        let rows: String = listed.iter().map(|one| trade_row(one)).collect();
        let totals_text = format!(
            "#交易合计：{}笔，商家实收共{}元，商家优惠共0.00元\r\n#退款合计：{}笔，商家实收退款共{}元，商家优惠退款共0.00元\r\n",
            paid.0,
            yuan(paid.1),
            back.0,
            yuan(back.1)
        );
        let detail = format!(
            "{}{TRADE_COLUMNS}\r\n{rows}{}",
            self.head("支付宝业务明细查询", "业务明细列表"),
            self.foot("业务明细列表", &totals_text)
        );
        let net = yuan(paid.1.saturating_add(back.1));
        let fees = listed.iter().fold(0_i64, |sum, one| sum.saturating_add(signed_fee(one)));
        let whole = yuan(paid.1.saturating_add(back.1).saturating_add(fees));
        let row = format!("合计,,{},{},{net},{net},0.00,0.00,0.00,{},0.00,{whole}\r\n", paid.0, back.0, yuan(fees));
        let summary = format!(
            "{}{SUMMARY_COLUMNS}\r\n{row}{}",
            self.head("支付宝业务汇总查询", "业务汇总列表"),
            self.foot("业务汇总列表", "")
        );
        vec![(self.name("业务明细(汇总)"), summary), (self.name("业务明细"), detail)]
    }

    /// Every movement of the balance: a fee is its own row.
    fn account(&self, moved: &[Movement<'_>]) -> Vec<(String, String)> {
        let (mut rows, mut balance, mut number) = (String::new(), 0_i64, 0_u64);
        let (mut incoming, mut outgoing) = ((0_u64, 0_i64), (0_u64, 0_i64));
        for movement in moved {
            let main = signed_payment(movement).unwrap_or(0).saturating_add(signed_refund(movement).unwrap_or(0));
            let kind = if main < 0 { "交易退款" } else { "在线支付" };
            for (minor, kind) in [(main, kind), (signed_fee(movement), "收费")] {
                if minor == 0 {
                    continue;
                }
                balance = balance.saturating_add(minor);
                number = number.saturating_add(1);
                if !self.lists(movement) {
                    continue;
                }
                let side = if minor < 0 { &mut outgoing } else { &mut incoming };
                *side = (side.0.saturating_add(1), side.1.saturating_add(minor));
                rows.push_str(&account_row(movement, (number, kind), minor, balance));
            }
        }
        let totals_text = format!(
            "#支出合计：{}笔，共{}元\r\n#收入合计：{}笔，共{}元\r\n",
            outgoing.0,
            yuan(outgoing.1),
            incoming.0,
            yuan(incoming.1)
        );
        let detail = format!(
            "{}{ACCOUNT_COLUMNS}\r\n{rows}{}",
            self.head("支付宝账务明细查询", "账务明细列表"),
            self.foot("账务明细列表", &totals_text)
        );
        let summary = format!(
            "{}类型,支付宝账户笔数,收入（+元）,支出（-元）\r\n合计,{},{},{}\r\n{}",
            self.head("支付宝账务汇总查询", "账务汇总列表"),
            incoming.0.saturating_add(outgoing.0),
            yuan(incoming.1),
            yuan(outgoing.1),
            self.foot("账务汇总列表", "")
        );
        vec![(self.name("账务明细(汇总)"), summary), (self.name("账务明细"), detail)]
    }
}

/// A payment's amount, as a bill writes it; `None` for a refund.
fn signed_payment(movement: &Movement<'_>) -> Option<i64> {
    match movement {
        Movement::Payment(order) => Some(order.amount_minor),
        Movement::Refund(..) => None,
    }
}

/// A refund's amount, as a bill writes it; `None` for a payment.
fn signed_refund(movement: &Movement<'_>) -> Option<i64> {
    match movement {
        Movement::Payment(_) => None,
        Movement::Refund(_, refund) => Some(refund.amount_minor.saturating_neg()),
    }
}

fn signed_fee(movement: &Movement<'_>) -> i64 {
    match movement {
        Movement::Payment(order) => fee_minor(order.amount_minor).saturating_neg(),
        Movement::Refund(_, refund) => fee_minor(refund.amount_minor),
    }
}

fn totals(listed: &[&Movement<'_>], of: impl Fn(&Movement<'_>) -> Option<i64>) -> (u64, i64) {
    let amounts = listed.iter().filter_map(|one| of(one));
    amounts.fold((0, 0), |(count, sum), minor| (count.saturating_add(1), sum.saturating_add(minor)))
}

/// Numbers end in a tab, so that a spreadsheet does not round them.
fn trade_row(movement: &Movement<'_>) -> String {
    let order = movement.order();
    let (kind, amount, refund_no) = match movement {
        Movement::Payment(order) => ("交易", yuan(order.amount_minor), ""),
        Movement::Refund(_, refund) => ("退款", yuan(refund.amount_minor.saturating_neg()), refund.refund_no.as_str()),
    };
    format!(
        "{}\t,{}\t,{kind},一件商品 + 运费,{},{},,,,,*测(tes***@sandbox.com),{amount},{amount},0.00,0.00,0.00,0.00,0.00,,\
         0.00,0.00,{refund_no},{},0.00,\r\n",
        order.trade_no(),
        order.key.order_no,
        order.created_at.text(),
        movement.at().text(),
        yuan(signed_fee(movement)),
    )
}

fn account_row(movement: &Movement<'_>, (number, kind): (u64, &str), minor: i64, balance: i64) -> String {
    let order = movement.order();
    let (incoming, outgoing) = if minor < 0 { (yuan(0), yuan(minor)) } else { (yuan(minor), yuan(0)) };
    format!(
        "{}{number:08}\t,{}\t,{}\t,一件商品 + 运费,{},tes***@sandbox.com,{incoming},{outgoing},{},支付宝,{kind},\r\n",
        movement.at().compact_day(),
        order.trade_no(),
        order.key.order_no,
        movement.at().text(),
        yuan(balance),
    )
}
