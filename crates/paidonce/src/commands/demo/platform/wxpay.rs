//! WeChat Pay API v3 as it pushes: a JSON envelope around an AES-256-GCM resource, signed in the headers.

use anyhow::Context as _;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paidonce_order::timestamp::Timestamp;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::macros::offset;

use super::{Callback, Happening, News, Signer, Signing, Trade, now, random_hex};

/// One merchant account as WeChat Pay knows it.
pub struct WxpayPlatform {
    /// Merchant.
    pub mchid: String,
    /// App.
    pub appid: String,
    /// Id that the ledger knows our public key by: `PUB_KEY_ID_...` or a certificate serial.
    pub key_id: String,
    /// The 32 bytes of the APIv3 key.
    pub apiv3_key: String,
    /// The platform's private key.
    pub signer: Signer,
}

/// A resource before it is sealed.
struct Resource {
    event_type: &'static str,
    original_type: &'static str,
    summary: &'static str,
    plaintext: Value,
}

impl WxpayPlatform {
    pub(super) fn write(&self, news: &News, forger: &Signer) -> anyhow::Result<Callback> {
        let resource = self.resource(news)?;
        let body = self.envelope(news, &resource)?.to_string();
        let timestamp = now().as_seconds().to_string();
        let nonce = random_hex(16)?;
        let message = format!("{timestamp}\n{nonce}\n{body}\n");
        let signature = match news.signing {
            Signing::Genuine => self.signer.sign(message.as_bytes())?,
            Signing::Forged => forger.sign(message.as_bytes())?,
            Signing::Probe => format!("WECHATPAY/SIGNTEST/{}", forger.sign(message.as_bytes())?),
        };
        let headers = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Wechatpay-Timestamp", timestamp),
            ("Wechatpay-Nonce", nonce),
            ("Wechatpay-Signature", signature),
            ("Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048".to_owned()),
            ("Wechatpay-Serial", self.key_id.clone()),
        ];
        Ok(Callback { path: format!("/callbacks/wxpay/{}", self.mchid), headers, body: body.into_bytes() })
    }

    fn envelope(&self, news: &News, resource: &Resource) -> anyhow::Result<Value> {
        let nonce = random_hex(6)?;
        let ciphertext = self.seal(&nonce, resource)?;
        Ok(json!({
            "id": news.push_id,
            "create_time": beijing(news.occurred_at)?,
            "resource_type": "encrypt-resource",
            "event_type": resource.event_type,
            "summary": resource.summary,
            "resource": {
                "original_type": resource.original_type,
                "algorithm": "AEAD_AES_256_GCM",
                "ciphertext": ciphertext,
                "associated_data": resource.original_type,
                "nonce": nonce,
            },
        }))
    }

    fn seal(&self, nonce: &str, resource: &Resource) -> anyhow::Result<String> {
        let key = UnboundKey::new(&AES_256_GCM, self.apiv3_key.as_bytes()).ok().context("an APIv3 key has 32 bytes")?;
        let nonce = Nonce::try_assume_unique_for_key(nonce.as_bytes()).ok().context("a nonce has 12 bytes")?;
        let mut sealed = resource.plaintext.to_string().into_bytes();
        let aad = Aad::from(resource.original_type.as_bytes());
        LessSafeKey::new(key).seal_in_place_append_tag(nonce, aad, &mut sealed).ok().context("sealing failed")?;
        Ok(STANDARD.encode(sealed))
    }

    fn resource(&self, news: &News) -> anyhow::Result<Resource> {
        let at = beijing(news.occurred_at)?;
        let payment = |plaintext| Resource {
            event_type: "TRANSACTION.SUCCESS",
            original_type: "transaction",
            summary: "支付成功",
            plaintext,
        };
        Ok(match &news.happening {
            Happening::Payment(trade) => payment(self.payment(trade, &at)),
            Happening::Combine(trades) => payment(self.combine(trades, &at, &news.push_id)),
            Happening::Refund { trade, refund_no } => Resource {
                event_type: "REFUND.SUCCESS",
                original_type: "refund",
                summary: "退款成功",
                plaintext: self.refund(trade, refund_no, &at),
            },
        })
    }

    fn payment(&self, trade: &Trade, at: &str) -> Value {
        json!({
            "appid": self.appid,
            "mchid": self.mchid,
            "out_trade_no": trade.order_no,
            "transaction_id": trade.trade_no,
            "trade_type": "JSAPI",
            "trade_state": "SUCCESS",
            "trade_state_desc": "支付成功",
            "bank_type": "OTHERS",
            "attach": "",
            "success_time": at,
            "payer": { "openid": "test-payer" },
            "amount": {
                "total": trade.amount_minor,
                "payer_total": trade.amount_minor,
                "currency": "CNY",
                "payer_currency": "CNY",
            },
        })
    }

    fn refund(&self, trade: &Trade, refund_no: &str, at: &str) -> Value {
        json!({
            "mchid": self.mchid,
            "out_trade_no": trade.order_no,
            "transaction_id": trade.trade_no,
            "out_refund_no": refund_no,
            "refund_id": format!("5{}", trade.trade_no),
            "refund_status": "SUCCESS",
            "success_time": at,
            "user_received_account": "支付用户零钱",
            "amount": {
                "total": trade.amount_minor,
                "refund": trade.amount_minor,
                "payer_total": trade.amount_minor,
                "payer_refund": trade.amount_minor,
            },
        })
    }

    fn combine(&self, trades: &[Trade], at: &str, combine_no: &str) -> Value {
        let sub_order = |trade: &Trade| {
            json!({
                "mchid": self.mchid,
                "out_trade_no": trade.order_no,
                "transaction_id": trade.trade_no,
                "trade_type": "JSAPI",
                "trade_state": "SUCCESS",
                "bank_type": "OTHERS",
                "attach": "",
                "success_time": at,
                "amount": {
                    "total_amount": trade.amount_minor,
                    "payer_amount": trade.amount_minor,
                    "currency": "CNY",
                    "payer_currency": "CNY",
                },
            })
        };
        json!({
            "combine_appid": self.appid,
            "combine_mchid": self.mchid,
            "combine_out_trade_no": combine_no,
            "combine_payer_info": { "openid": "test-payer" },
            "sub_orders": trades.iter().map(sub_order).collect::<Vec<_>>(),
        })
    }
}

/// RFC 3339 at +08:00, whole seconds, as WeChat Pay writes times.
fn beijing(at: Timestamp) -> anyhow::Result<String> {
    let at = Timestamp::from_micros(at.as_seconds().saturating_mul(1_000_000)).to_datetime();
    at.to_offset(offset!(+8)).format(&Rfc3339).context("a time that RFC 3339 can't write")
}
