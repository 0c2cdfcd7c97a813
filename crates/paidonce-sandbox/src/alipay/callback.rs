//! Alipay's notices: which changes are told, and how a try is written and signed. `notify_id` is the same on every try of a
//! notice, `notify_time` is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::encode;
use super::shares::settled;
use crate::fate::Fate;
use crate::keys::{KeyError, random_hex};
use crate::moment::Moment;
use crate::money::yuan;
use crate::notice::{Content, Notice, Push, Signed};
use crate::order::{Charset, Order};
use crate::platforms::Platforms;
use crate::wire::Message;

type Fields = BTreeMap<String, String>;

/// Of a payment; every product tells of it.
#[must_use]
pub fn of_payment(platforms: &Platforms, order: &Order, now: Moment) -> Vec<Notice> {
    let mut fields = common(order);
    let fate = Fate::new(platforms.behaviour.seed);
    if fate.happens(20, "zero refund_fee", &order.key.order_no) {
        // Real success notices have been seen with both: only a value above zero means anything.
        fields.insert("refund_fee".to_owned(), "0.00".to_owned());
        fields.insert("gmt_close".to_owned(), now.text());
    }
    one(order, format!("payment {}", order.trade_no()), fields, now)
}

/// Of a refund: the payment's notice again, with the sum of all refunds. Page pay and face-to-face are silent.
#[must_use]
pub fn of_refund(_: &Platforms, order: &Order, refund_no: &str, now: Moment) -> Vec<Notice> {
    let Some(refund) = order.find_refund(refund_no) else { return Vec::new() };
    if !order.product.tells_all() {
        return Vec::new();
    }
    let refunded = yuan(order.refunded_minor());
    let mut fields = common(order);
    fields.insert("out_biz_no".to_owned(), refund_no.to_owned());
    fields.insert("refund_fee".to_owned(), refunded.clone());
    fields.insert("send_back_fee".to_owned(), refunded);
    fields.insert("gmt_refund".to_owned(), refund.done_at.unwrap_or(now).text_millis());
    if order.refunded_minor() >= order.amount_minor {
        fields.insert("gmt_close".to_owned(), now.text());
    }
    one(order, format!("refund {refund_no}"), fields, now)
}

/// Of a close without payment.
#[must_use]
pub fn of_close(order: &Order, now: Moment) -> Vec<Notice> {
    if !order.product.tells_all() {
        return Vec::new();
    }
    let mut fields = common(order);
    fields.insert("gmt_close".to_owned(), now.text());
    one(order, "close".to_owned(), fields, now)
}

/// Of the end of the time for refunds.
#[must_use]
pub fn of_finish(order: &Order, now: Moment) -> Vec<Notice> {
    if order.product.tells_all() { one(order, "finish".to_owned(), common(order), now) } else { Vec::new() }
}

/// Of a royalty: a message to the application gateway.
#[must_use]
pub fn of_share(platforms: &Platforms, order: &Order, out_order_no: &str, now: Moment) -> Vec<Notice> {
    let Some(share) = order.shares.iter().find(|share| share.out_order_no == out_order_no) else { return Vec::new() };
    let mut content = settled(share);
    for (name, value) in [("trade_no", order.trade_no()), ("settle_no", share.order_id.as_str())] {
        crate::wxpay::orders::set(&mut content, name, serde_json::json!(value));
    }
    let mut fields = Fields::new();
    for (name, value) in [
        ("msg_method", "alipay.trade.order.settle.notify".to_owned()),
        ("biz_content", content.to_string()),
        ("utc_timestamp", (now.micros() / 1_000).to_string()),
        ("version", "1.1".to_owned()),
        ("app_id", order.app_id.clone()),
        ("charset", "UTF-8".to_owned()),
        ("sign_type", "RSA2".to_owned()),
    ] {
        fields.insert(name.to_owned(), value);
    }
    let content = Content::Alipay { fields, charset: Charset::Utf8, signed: Signed::WithSignType };
    let url = platforms.notify_url(&order.key.account);
    notice(order, &url, format!("share {out_order_no}"), content, now).into_iter().collect()
}

fn common(order: &Order) -> Fields {
    let amount = yuan(order.amount_minor);
    let mut fields = Fields::new();
    let mut put = |name: &str, value: String| fields.insert(name.to_owned(), value);
    put("app_id", order.app_id.clone());
    put("auth_app_id", order.app_id.clone());
    put("buyer_id", "2088000000000099".to_owned());
    put("buyer_logon_id", "tes***@sandbox.com".to_owned());
    put("charset", charset_name(order.charset).to_owned());
    put("gmt_create", order.created_at.text());
    put("notify_type", "trade_status_sync".to_owned());
    put("out_trade_no", order.key.order_no.clone());
    put("seller_email", "shop@sandbox.com".to_owned());
    put("seller_id", order.key.account.id.clone());
    put("subject", "一件商品 + 运费".to_owned());
    put("total_amount", amount.clone());
    put("trade_status", order.platform_state().to_owned());
    put("version", "1.0".to_owned());
    if !order.attach.is_empty() {
        put("passback_params", order.attach.clone());
    }
    match &order.payment {
        Some(payment) => {
            let payer = yuan(payment.payer_minor);
            put("trade_no", payment.trade_no.clone());
            put("gmt_payment", payment.paid_at.text());
            put("fund_bill_list", format!(r#"[{{"amount":"{payer}","fundChannel":"ALIPAYACCOUNT"}}]"#));
            put("buyer_pay_amount", payer.clone());
            put("invoice_amount", payer);
            put("receipt_amount", amount);
            put("point_amount", "0.00".to_owned());
        }
        None => {
            let number = order.created_at.micros() % 10_000_000_000;
            put("trade_no", format!("{}2200199999{number:010}", order.created_at.compact_day()));
        }
    }
    fields
}

const fn charset_name(charset: Charset) -> &'static str {
    match charset {
        Charset::Utf8 => "utf-8",
        Charset::Gbk => "GBK",
    }
}

fn one(order: &Order, what: String, fields: Fields, now: Moment) -> Vec<Notice> {
    let content = Content::Alipay { fields, charset: order.charset, signed: Signed::WithoutSignType };
    notice(order, &order.notify_url, what, content, now).into_iter().collect()
}

fn notice(order: &Order, url: &str, what: String, content: Content, now: Moment) -> Option<Notice> {
    Some(Notice {
        what: format!("{} {} {what}", order.key.account, order.key.order_no),
        account: order.key.account.clone(),
        order_no: order.key.order_no.clone(),
        url: url.to_owned(),
        push_id: random_hex(17).ok()?,
        created_at: now,
        content: Arc::new(content),
    })
}

/// One try of an Alipay notice. Errors: the key can't be used.
pub fn write(push: &Push) -> Result<Message, KeyError> {
    let Content::Alipay { fields, charset, signed } = push.notice.content.as_ref() else {
        return Err(KeyError("this notice is not Alipay's"));
    };
    let mut fields = fields.clone();
    fields.insert("notify_id".to_owned(), push.notice.push_id.clone());
    if *signed == Signed::WithoutSignType {
        fields.insert("notify_time".to_owned(), push.at.text());
    }
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let sign = push.signer.key.sign(&encode(&pairs.join("&"), *charset))?;
    fields.insert("sign_type".to_owned(), "RSA2".to_owned());
    fields.insert("sign".to_owned(), sign);
    let form: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", form_encode(&encode(value, *charset)))).collect();
    let media_type = format!("application/x-www-form-urlencoded; charset={}", charset_name(*charset));
    Ok(Message { headers: vec![("Content-Type", media_type)], body: form.join("&").into_bytes() })
}

fn form_encode(value: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(*byte)),
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
