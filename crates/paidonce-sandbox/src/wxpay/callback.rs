//! WeChat Pay's callbacks: what is told when, and how a try is sealed and signed. Every try has its own nonce, ciphertext
//! and timestamp; only the id stays.

use std::sync::Arc;

use serde_json::{Value, json};

use super::orders;
use crate::accounts::{Account, Channel, KnownMerchant};
use crate::fate::Fate;
use crate::keys::{KeyError, random_hex};
use crate::moment::Moment;
use crate::notice::{Content, Notice, Push, Signing};
use crate::order::{Order, RefundStatus, ShareResult};
use crate::platforms::Platforms;
use crate::seal::seal;
use crate::wire::Message;

/// A resource on its way into a notice.
struct Told {
    what: String,
    event_type: &'static str,
    original_type: &'static str,
    summary: &'static str,
    plaintext: Value,
}

/// Of a payment: one notice for the order, or one for all orders that were paid together.
#[must_use]
pub fn of_payment(platforms: &Platforms, order: &Order, now: Moment) -> Vec<Notice> {
    let Some(merchant) = platforms.accounts.find_merchant(&order.key.account.id) else { return Vec::new() };
    let plaintext = match &order.combine_no {
        None => orders::payment(order, merchant),
        Some(combine_no) => {
            let together =
                |one: &&Order| one.combine_no.as_ref() == Some(combine_no) && one.key.account == order.key.account;
            let all: Vec<&Order> = platforms.orders.values().filter(together).collect();
            orders::combined(merchant, combine_no, &all)
        }
    };
    let told = Told {
        what: format!("{} {} payment {}", order.key.account, order.key.order_no, order.trade_no()),
        event_type: "TRANSACTION.SUCCESS",
        original_type: "transaction",
        summary: "支付成功",
        plaintext,
    };
    notice(order, merchant, &order.notify_url, told, now).into_iter().collect()
}

/// Of a refund that took a state.
#[must_use]
pub fn of_refund(platforms: &Platforms, order: &Order, refund_no: &str, now: Moment) -> Vec<Notice> {
    let Some(merchant) = platforms.accounts.find_merchant(&order.key.account.id) else { return Vec::new() };
    let Some(refund) = order.find_refund(refund_no) else { return Vec::new() };
    let (event_type, summary) = match refund.status {
        RefundStatus::Processing => return Vec::new(),
        RefundStatus::Success => ("REFUND.SUCCESS", "退款成功"),
        RefundStatus::Abnormal => ("REFUND.ABNORMAL", "退款异常"),
        RefundStatus::Closed => ("REFUND.CLOSED", "退款关闭"),
    };
    let payer_total = order.payment.as_ref().map_or(order.amount_minor, |paid| paid.payer_minor);
    let mut plaintext = json!({
        "transaction_id": order.trade_no(),
        "out_trade_no": order.key.order_no,
        "refund_id": refund.refund_id,
        "out_refund_no": refund.refund_no,
        "refund_status": refund.status.word(),
        "user_received_account": "支付用户零钱",
        "amount": {
            "total": order.amount_minor,
            "refund": refund.amount_minor,
            "payer_total": payer_total,
            "payer_refund": refund.amount_minor.min(payer_total),
        },
    });
    match &order.key.sub_mchid {
        Some(sub_mchid) => {
            orders::set(&mut plaintext, "sp_mchid", json!(merchant.merchant.mchid));
            orders::set(&mut plaintext, "sub_mchid", json!(sub_mchid));
        }
        None => orders::set(&mut plaintext, "mchid", json!(merchant.merchant.mchid)),
    }
    if refund.status == RefundStatus::Success {
        orders::set(&mut plaintext, "success_time", json!(refund.done_at.unwrap_or(now).rfc3339()));
    }
    let what = format!("{} {} refund {refund_no} {}", order.key.account, order.key.order_no, refund.status.word());
    let told = Told { what, event_type, original_type: "refund", summary, plaintext };
    let url = refund.notify_url.clone().unwrap_or_else(|| platforms.notify_url(&order.key.account));
    notice(order, merchant, &url, told, now).into_iter().collect()
}

/// Of a share: only the receivers that are merchants are told, each of its own part. The sharer must ask.
#[must_use]
pub fn of_share(platforms: &Platforms, order: &Order, out_order_no: &str, now: Moment) -> Vec<Notice> {
    let Some(share) = order.shares.iter().find(|share| share.out_order_no == out_order_no) else { return Vec::new() };
    let fate = Fate::new(platforms.behaviour.seed);
    let received = share.receivers.iter().filter(|one| one.kind == "MERCHANT_ID" && one.result == ShareResult::Success);
    let notices = received.filter_map(|receiver| {
        let merchant = platforms.accounts.find_merchant(&receiver.account)?;
        // Two official pages disagree about the event's name; both are played.
        let event_type = match fate.below(2, "share event", &receiver.detail_id) {
            0 => "PROFITSHARING.SUCCESS",
            _ => "TRANSACTION.SUCCESS",
        };
        let plaintext = json!({
            "mchid": receiver.account,
            "transaction_id": order.trade_no(),
            "order_id": share.order_id,
            "out_order_no": share.out_order_no,
            "receiver": {
                "type": receiver.kind, "account": receiver.account,
                "amount": receiver.amount_minor, "description": receiver.description,
            },
            "success_time": share.done_at.unwrap_or(now).rfc3339(),
        });
        let what = format!("{} {} share {out_order_no} {}", order.key.account, order.key.order_no, receiver.detail_id);
        let told = Told { what, event_type, original_type: "profitsharing", summary: "分账", plaintext };
        let account = Account { channel: Channel::Wxpay, id: receiver.account.clone() };
        notice(order, merchant, &platforms.notify_url(&account), told, now)
    });
    notices.collect()
}

fn notice(order: &Order, merchant: &KnownMerchant, url: &str, told: Told, now: Moment) -> Option<Notice> {
    let Told { what, event_type, original_type, summary, plaintext } = told;
    let apiv3_key = merchant.apiv3_key.clone();
    Some(Notice {
        what,
        account: Account { channel: Channel::Wxpay, id: merchant.merchant.mchid.clone() },
        order_no: order.key.order_no.clone(),
        url: url.to_owned(),
        push_id: uuid_text(&random_hex(16).ok()?),
        created_at: now,
        content: Arc::new(Content::Wxpay { event_type, original_type, summary, plaintext, apiv3_key }),
    })
}

/// 8-4-4-4-12.
fn uuid_text(hex: &str) -> String {
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// One try of a WeChat Pay notice. Errors: a key can't be used.
pub fn write(push: &Push) -> Result<Message, KeyError> {
    let Content::Wxpay { event_type, original_type, summary, plaintext, apiv3_key } = push.notice.content.as_ref()
    else {
        return Err(KeyError("this notice is not WeChat Pay's"));
    };
    let sealed = seal(apiv3_key, original_type, &plaintext.to_string())?;
    let body = json!({
        "id": push.notice.push_id,
        "create_time": push.notice.created_at.rfc3339(),
        "resource_type": "encrypt-resource",
        "event_type": event_type,
        "summary": summary,
        "resource": {
            "original_type": original_type,
            "algorithm": "AEAD_AES_256_GCM",
            "ciphertext": sealed.ciphertext,
            "associated_data": original_type,
            "nonce": sealed.nonce,
        },
    })
    .to_string();
    let (timestamp, nonce) = (push.at.seconds().to_string(), random_hex(16)?);
    let message = format!("{timestamp}\n{nonce}\n{body}\n");
    let signature = match push.signing {
        Signing::Genuine => push.signer.key.sign(message.as_bytes())?,
        Signing::Probe => format!("WECHATPAY/SIGNTEST/{}", random_hex(128)?),
    };
    let headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("User-Agent", "Mozilla/4.0".to_owned()),
        ("Wechatpay-Timestamp", timestamp),
        ("Wechatpay-Nonce", nonce),
        ("Wechatpay-Signature", signature),
        ("Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048".to_owned()),
        ("Wechatpay-Serial", push.signer.id.clone()),
        ("Request-ID", format!("{}-268435462", random_hex(14)?)),
    ];
    Ok(Message { headers, body: body.into_bytes() })
}
