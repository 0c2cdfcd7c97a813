//! Trade bill and fund-flow bill: UTF-8 with BOM, CRLF, a backtick before every value, amounts in yuan, fees with five
//! decimals. The answer names a download address; the file's only check is its SHA-1.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::json;

use super::authorization::Request;
use super::{Content, Outcome, Refusal};
use crate::accounts::KnownMerchant;
use crate::bill::{Download, Movement, fee_minor, gzip, movements};
use crate::keys::random_hex;
use crate::moment::Moment;
use crate::money::yuan;
use crate::order::{Order, RefundStatus};
use crate::platforms::Platforms;

/// A download address lives this long.
const URL_LIVES: Duration = Duration::from_secs(300);
/// Bills are built from nine o'clock of the next day on.
const BUILT_AT: Duration = Duration::from_secs(33 * 3600);
/// Three months back.
const KEPT: Duration = Duration::from_secs(92 * 24 * 3600);

/// The seven columns that a bill of payments only lacks.
const REFUND_COLUMNS: [&str; 7] =
    ["微信退款单号", "商户退款单号", "退款金额", "充值券退款金额", "退款类型", "退款状态", "申请退款金额"];
/// The two columns that only a bill of refunds has.
const REFUND_TIMES: [&str; 2] = ["退款申请时间", "退款成功时间"];

/// `bill_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BillType {
    All,
    Success,
    Refund,
}

impl BillType {
    fn lists(self, movement: &Movement<'_>) -> bool {
        match (self, movement) {
            (Self::All, _) | (Self::Success, Movement::Payment(_)) | (Self::Refund, Movement::Refund(..)) => true,
            (Self::Success, Movement::Refund(..)) | (Self::Refund, Movement::Payment(_)) => false,
        }
    }

    fn has(self, column: &str) -> bool {
        match self {
            Self::All => !REFUND_TIMES.contains(&column),
            Self::Success => !REFUND_TIMES.contains(&column) && !REFUND_COLUMNS.contains(&column),
            Self::Refund => true,
        }
    }
}

type Row = Vec<(&'static str, String)>;

impl Platforms {
    pub(super) fn wxpay_trade_bill(&mut self, caller: &Arc<KnownMerchant>, request: &Request, now: Moment) -> Outcome {
        let bill_type = match request.parameter("bill_type").as_deref() {
            None | Some("ALL") => BillType::All,
            Some("SUCCESS") => BillType::Success,
            Some("REFUND") => BillType::Refund,
            Some(_) => return Err(Refusal::parameter("参数bill_type不正确")),
        };
        let day = day(request, now)?;
        let wanted = request.parameter("sub_mchid");
        let own = self.bill_orders(caller).filter(|order| wanted.is_none() || order.key.sub_mchid == wanted);
        let moved = movements(own);
        let listed = moved.iter().filter(|one| one.at().day() == day && bill_type.lists(one));
        let end = Moment::parse_day(&day).map_or(now, |begin| begin.plus(Duration::from_secs(24 * 3600)));
        let rows: Vec<Row> = listed.clone().map(|one| row(one, caller, end)).collect();
        if rows.is_empty() {
            return Err(none());
        }
        let listed: Vec<Movement<'_>> = listed.copied().collect();
        let text = written(&rows, bill_type, &summary(&listed, bill_type));
        self.offer(request, text, now)
    }

    pub(super) fn wxpay_fund_flow_bill(
        &mut self,
        caller: &Arc<KnownMerchant>,
        request: &Request,
        now: Moment,
    ) -> Outcome {
        let day = day(request, now)?;
        match request.parameter("account_type").as_deref() {
            None | Some("BASIC") => {}
            Some("OPERATION" | "FEES") => return Err(none()),
            Some(_) => return Err(Refusal::parameter("参数account_type不正确")),
        }
        let flows = flows(&movements(self.bill_orders(caller)));
        let listed: Vec<&Flow> = flows.iter().filter(|flow| flow.at.day() == day).collect();
        if listed.is_empty() {
            return Err(none());
        }
        let text = flow_text(&listed);
        self.offer(request, text, now)
    }

    /// The file itself: the right address is not enough, the call must be signed; the answer is not.
    pub(super) fn wxpay_download(&self, request: &Request, now: Moment) -> Outcome {
        let token = request.parameter("token").ok_or_else(|| Refusal::parameter("缺少参数token"))?;
        let found = self.downloads.get(&token).filter(|download| now < download.until);
        let found = found.ok_or_else(|| Refusal::new(400, "INVALID_REQUEST", "下载地址已失效"))?;
        Ok(Content::File(found.bytes.clone()))
    }

    fn bill_orders<'a>(&'a self, caller: &'a KnownMerchant) -> impl Iterator<Item = &'a Order> + 'a {
        self.orders.values().filter(|order| order.key.account == caller_account(caller))
    }

    fn offer(&mut self, request: &Request, text: String, now: Moment) -> Outcome {
        let hash = hex::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()));
        let bytes = match request.parameter("tar_type").as_deref() {
            None => text.into_bytes(),
            Some("GZIP") => gzip(text.as_bytes()),
            Some(_) => return Err(Refusal::parameter("参数tar_type不正确")),
        };
        let token = random_hex(16).map_err(|_| Refusal::new(500, "SYSTEM_ERROR", "系统异常，请稍后重试"))?;
        self.downloads.retain(|_, download| now < download.until);
        self.downloads.insert(token.clone(), Download { bytes, until: now.plus(URL_LIVES) });
        let url = format!("{}/v3/billdownload/file?token={token}", self.own_url);
        // Of the file as it is when it is not compressed.
        Ok(Content::Json(json!({ "hash_type": "SHA1", "hash_value": hash, "download_url": url })))
    }
}

fn caller_account(caller: &KnownMerchant) -> crate::accounts::Account {
    crate::accounts::Account { channel: crate::accounts::Channel::Wxpay, id: caller.merchant.mchid.clone() }
}

fn none() -> Refusal {
    Refusal::new(400, "NO_STATEMENT_EXIST", "账单文件不存在")
}

/// The day, when there can be a bill of it.
fn day(request: &Request, now: Moment) -> Result<String, Refusal> {
    let day = request.parameter("bill_date").ok_or_else(|| Refusal::parameter("缺少参数bill_date"))?;
    let begin = Moment::parse_day(&day).ok_or_else(|| Refusal::new(400, "INVALID_REQUEST", "账单日期不正确"))?;
    if now < begin.plus(Duration::from_secs(24 * 3600)) || begin.plus(KEPT) < now {
        return Err(Refusal::new(400, "INVALID_REQUEST", "账单日期不正确"));
    }
    if now < begin.plus(BUILT_AT) {
        return Err(Refusal::new(400, "STATEMENT_CREATING", "账单生成中，请稍后再试"));
    }
    Ok(day)
}

/// Five decimals.
fn fee(minor: i64) -> String {
    format!("{}000", yuan(minor))
}

/// Line breaks would break the file.
fn one_line(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

fn row(movement: &Movement<'_>, caller: &KnownMerchant, end: Moment) -> Row {
    let order = movement.order();
    let coupon = order.payment.as_ref().map_or(0, |paid| order.amount_minor.saturating_sub(paid.payer_minor));
    let (settled, coupon, fee_minor, state) = match movement {
        Movement::Payment(_) => (order.amount_minor, coupon, fee_minor(order.amount_minor), "SUCCESS"),
        // The fee comes back with the money.
        Movement::Refund(_, refund) => (0, 0, fee_minor(refund.amount_minor).saturating_neg(), "REFUND"),
    };
    let mut row: Row = vec![
        ("交易时间", movement.at().text()),
        ("公众账号ID", order.app_id.clone()),
        ("商户号", caller.merchant.mchid.clone()),
        ("特约商户号", order.key.sub_mchid.clone().unwrap_or_else(|| "0".to_owned())),
        ("设备号", String::new()),
        ("微信订单号", order.trade_no().to_owned()),
        ("商户订单号", order.key.order_no.clone()),
        ("用户标识", "otest".to_owned()),
        ("交易类型", "JSAPI".to_owned()),
        ("交易状态", state.to_owned()),
        ("付款银行", "OTHERS".to_owned()),
        ("货币种类", "CNY".to_owned()),
        ("应结订单金额", yuan(settled)),
        ("代金券金额", yuan(coupon)),
    ];
    row.extend(refund_columns(movement, end));
    row.extend([
        ("商品名称", "一件商品".to_owned()),
        ("商户数据包", one_line(&order.attach)),
        ("手续费", fee(fee_minor)),
        ("费率", "0.60%".to_owned()),
        ("订单金额", yuan(settled)),
        ("申请退款金额", yuan(refunded(movement))),
        ("费率备注", String::new()),
    ]);
    row
}

const fn refunded(movement: &Movement<'_>) -> i64 {
    match movement {
        Movement::Payment(_) => 0,
        Movement::Refund(_, refund) => refund.amount_minor,
    }
}

/// Bills are never corrected: a refund that was done after the day's end stays PROCESSING in it.
fn refund_columns(movement: &Movement<'_>, end: Moment) -> Row {
    let (refund_id, refund_no, kind, status, asked, done) = match movement {
        Movement::Payment(_) => {
            ("0".to_owned(), "0".to_owned(), String::new(), String::new(), String::new(), String::new())
        }
        Movement::Refund(_, refund) => {
            let done = refund.done_at.filter(|at| refund.status == RefundStatus::Success && *at < end);
            let status = if done.is_some() { "SUCCESS" } else { "PROCESSING" };
            (
                refund.refund_id.clone(),
                refund.refund_no.clone(),
                "ORIGINAL".to_owned(),
                status.to_owned(),
                refund.requested_at.text(),
                done.map(Moment::text).unwrap_or_default(),
            )
        }
    };
    vec![
        ("退款申请时间", asked),
        ("退款成功时间", done),
        ("微信退款单号", refund_id),
        ("商户退款单号", refund_no),
        ("退款金额", yuan(refunded(movement))),
        ("充值券退款金额", yuan(0)),
        ("退款类型", kind),
        ("退款状态", status),
    ]
}

fn sum(movements: &[Movement<'_>], of: impl Fn(&Movement<'_>) -> i64) -> i64 {
    movements.iter().fold(0, |sum, one| sum.saturating_add(of(one)))
}

fn summary(listed: &[Movement<'_>], bill_type: BillType) -> Row {
    let paid = sum(listed, |one| match one {
        Movement::Payment(order) => order.amount_minor,
        Movement::Refund(..) => 0,
    });
    let back = sum(listed, refunded);
    let fees = sum(listed, |one| match one {
        Movement::Payment(order) => fee_minor(order.amount_minor),
        Movement::Refund(_, refund) => fee_minor(refund.amount_minor).saturating_neg(),
    });
    let mut row: Row = vec![("总交易单数", listed.len().to_string()), ("应结订单总金额", yuan(paid))];
    if bill_type != BillType::Success {
        row.extend([("退款总金额", yuan(back)), ("充值券退款总金额", yuan(0))]);
    }
    row.extend([("手续费总金额", fee(fees)), ("订单总金额", yuan(paid))]);
    if bill_type != BillType::Success {
        row.push(("申请退款总金额", yuan(back)));
    }
    row
}

fn written(rows: &[Row], bill_type: BillType, summary: &Row) -> String {
    let kept = |row: &Row| -> Row { row.iter().filter(|(column, _)| bill_type.has(column)).cloned().collect() };
    let rows: Vec<Row> = rows.iter().map(kept).collect();
    let header = rows.first().map(names).unwrap_or_default();
    let lines: Vec<String> = rows.iter().map(values).collect();
    file(&[vec![header], lines, vec![names(summary), values(summary)]].concat())
}

fn file(lines: &[String]) -> String {
    format!("\u{FEFF}{}\r\n", lines.join("\r\n"))
}

fn names(row: &Row) -> String {
    row.iter().map(|(column, _)| *column).collect::<Vec<_>>().join(",")
}

fn values(row: &Row) -> String {
    row.iter().map(|(_, value)| format!("`{value}")).collect::<Vec<_>>().join(",")
}

/// A movement of cash.
struct Flow {
    at: Moment,
    business_no: String,
    name: &'static str,
    kind: &'static str,
    /// Negative: out.
    minor: i64,
    balance_minor: i64,
    remark: String,
    voucher: String,
}

/// All cash from the beginning, with the balance after each: a payment and its fee are two rows, a refund is one, less the
/// fee that comes back.
fn flows(movements: &[Movement<'_>]) -> Vec<Flow> {
    let (mut flows, mut balance_minor) = (Vec::new(), 0_i64);
    let mut put = |movement: &Movement<'_>, what: (&'static str, &'static str), minor: i64, remark: String| {
        balance_minor = balance_minor.saturating_add(minor);
        let (business_no, voucher) = match movement {
            Movement::Payment(order) => (order.trade_no().to_owned(), order.key.order_no.clone()),
            Movement::Refund(_, refund) => (refund.refund_id.clone(), refund.refund_no.clone()),
        };
        let (at, (name, kind)) = (movement.at(), what);
        flows.push(Flow { at, business_no, name, kind, minor, balance_minor, remark, voucher });
    };
    for movement in movements {
        let (amount, fee) = (movement.amount_minor(), fee_minor(movement.amount_minor()));
        match movement {
            Movement::Payment(_) => {
                let remark = format!("结算总金额 {} 元;含手续费 {} 元", yuan(amount), yuan(fee));
                put(movement, ("交易", "交易"), amount, remark);
                if fee > 0 {
                    put(movement, ("扣除交易手续费", "交易"), fee.saturating_neg(), String::new());
                }
            }
            Movement::Refund(..) => {
                let remark = format!("退款总金额 {} 元;含手续费 {} 元", yuan(amount), yuan(fee));
                put(movement, ("退款", "退款"), fee.saturating_sub(amount), remark);
            }
        }
    }
    flows
}

fn flow_text(listed: &[&Flow]) -> String {
    let row = |(index, flow): (usize, &&Flow)| -> Row {
        vec![
            ("记账时间", flow.at.text()),
            ("微信支付业务单号", flow.business_no.clone()),
            ("资金流水单号", format!("{}{index:04}", flow.business_no)),
            ("业务名称", flow.name.to_owned()),
            ("业务类型", flow.kind.to_owned()),
            ("收支类型", if flow.minor < 0 { "支出" } else { "收入" }.to_owned()),
            ("收支金额(元)", yuan(flow.minor.saturating_abs())),
            ("账户结余(元)", yuan(flow.balance_minor)),
            ("资金变更提交申请人", "system".to_owned()),
            ("备注", flow.remark.clone()),
            ("业务凭证号", flow.voucher.clone()),
        ]
    };
    let rows: Vec<Row> = listed.iter().enumerate().map(row).collect();
    let side = |wanted: fn(i64) -> bool| {
        let of_side = listed.iter().filter(|flow| wanted(flow.minor));
        let sum = of_side.clone().fold(0_i64, |sum, flow| sum.saturating_add(flow.minor));
        (of_side.count(), sum.saturating_abs())
    };
    let (incoming, outgoing) = (side(|minor| minor >= 0), side(|minor| minor < 0));
    let summary: Row = vec![
        ("资金流水总笔数", listed.len().to_string()),
        ("收入笔数", incoming.0.to_string()),
        ("收入金额", yuan(incoming.1)),
        ("支出笔数", outgoing.0.to_string()),
        ("支出金额", yuan(outgoing.1)),
    ];
    let header = rows.first().map(names).unwrap_or_default();
    let lines: Vec<String> = rows.iter().map(values).collect();
    file(&[vec![header], lines, vec![names(&summary), values(&summary)]].concat())
}
