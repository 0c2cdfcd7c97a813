//! Alipay as it pushes: a form whose fields are signed in sorted order.

use std::collections::BTreeMap;

use anyhow::Context as _;
use paidonce_order::timestamp::Timestamp;
use time::format_description::BorrowedFormatItem;
use time::macros::{format_description, offset};

use super::{Callback, Happening, News, Signer, Signing, Trade, now};

const BEIJING: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// One merchant account as Alipay knows it.
pub struct AlipayPlatform {
    /// Merchant.
    pub seller_id: String,
    /// App.
    pub app_id: String,
    /// Alipay's private key.
    pub signer: Signer,
}

type Fields = BTreeMap<&'static str, String>;

impl AlipayPlatform {
    pub(super) fn write(&self, news: &News, forger: &Signer) -> anyhow::Result<Callback> {
        let mut fields = self.fields(news)?;
        let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let message = pairs.join("&");
        let sign = match news.signing {
            Signing::Genuine => self.signer.sign(message.as_bytes())?,
            Signing::Forged => forger.sign(message.as_bytes())?,
            Signing::Probe => anyhow::bail!("Alipay sends no probes"),
        };
        fields.insert("sign_type", "RSA2".to_owned());
        fields.insert("sign", sign);
        let form: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", form_encode(value))).collect();
        let headers = vec![("Content-Type", "application/x-www-form-urlencoded; charset=utf-8".to_owned())];
        Ok(Callback {
            path: format!("/callbacks/alipay/{}", self.seller_id),
            headers,
            body: form.join("&").into_bytes(),
        })
    }

    fn fields(&self, news: &News) -> anyhow::Result<Fields> {
        match &news.happening {
            Happening::Payment(trade) => {
                let mut fields = self.common(news, trade)?;
                fields.insert("trade_status", "TRADE_SUCCESS".to_owned());
                Ok(fields)
            }
            Happening::Refund { trade, refund_no } => {
                let mut fields = self.common(news, trade)?;
                // All of it went back: the trade is closed, and its payment time is still told.
                fields.insert("trade_status", "TRADE_CLOSED".to_owned());
                fields.insert("refund_fee", yuan(trade.amount_minor));
                fields.insert("out_biz_no", refund_no.clone());
                fields.insert("gmt_refund", format!("{}.143", beijing(news.occurred_at)?));
                fields.insert("gmt_close", beijing(news.occurred_at)?);
                Ok(fields)
            }
            Happening::Combine(_) => anyhow::bail!("Alipay has no combined payments"),
        }
    }

    fn common(&self, news: &News, trade: &Trade) -> anyhow::Result<Fields> {
        let at = beijing(news.occurred_at)?;
        let amount = yuan(trade.amount_minor);
        Ok(Fields::from([
            ("app_id", self.app_id.clone()),
            ("auth_app_id", self.app_id.clone()),
            ("buyer_id", "2088000000000099".to_owned()),
            ("buyer_logon_id", "tes***@example.com".to_owned()),
            ("buyer_pay_amount", amount.clone()),
            ("charset", "utf-8".to_owned()),
            ("fund_bill_list", format!(r#"[{{"amount":"{amount}","fundChannel":"ALIPAYACCOUNT"}}]"#)),
            ("gmt_create", at.clone()),
            ("gmt_payment", at),
            ("invoice_amount", amount.clone()),
            ("notify_id", news.push_id.clone()),
            ("notify_time", beijing(now())?),
            ("notify_type", "trade_status_sync".to_owned()),
            ("out_trade_no", trade.order_no.clone()),
            ("point_amount", "0.00".to_owned()),
            ("receipt_amount", amount.clone()),
            ("seller_email", "shop@example.com".to_owned()),
            ("seller_id", self.seller_id.clone()),
            ("subject", "一件商品 + 运费".to_owned()),
            ("total_amount", amount),
            ("trade_no", trade.trade_no.clone()),
            ("version", "1.0".to_owned()),
        ]))
    }
}

fn beijing(at: Timestamp) -> anyhow::Result<String> {
    at.to_datetime().to_offset(offset!(+8)).format(&BEIJING).context("a time that can't be written")
}

fn yuan(minor: i64) -> String {
    format!("{}.{:02}", minor.div_euclid(100), minor.rem_euclid(100))
}

/// application/x-www-form-urlencoded, one value.
fn form_encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_in_yuan_with_two_decimals() {
        assert_eq!((yuan(1), yuan(8888), yuan(100)), ("0.01".to_owned(), "88.88".to_owned(), "1.00".to_owned()));
    }

    #[test]
    fn a_form_value_survives_its_encoding() {
        assert_eq!(form_encode("a+b c/=é"), "a%2Bb+c%2F%3D%C3%A9");
    }
}
