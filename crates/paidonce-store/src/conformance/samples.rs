//! Commands for the checks: small, deterministic, and as the channels would make them.

use std::sync::Arc;

use paidonce_order::command::{
    OrderCommand, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOrigin, RefundOutcome, RefundRequest,
    StrayCommand, StrayFact, Terms,
};
use paidonce_order::idem_key::IdemKey;
use paidonce_order::ids::{AccountRef, ChannelTradeNo, Digest, OrderNo, RefundNo};
use paidonce_order::money::Money;
use paidonce_order::project::ApiKey;
use paidonce_order::timestamp::Timestamp;

use crate::store::{CommandContext, EvidenceRow, Target, Work};

/// 2025-01-08T12:34:56.789Z.
pub const PAID_AT: Timestamp = Timestamp::from_micros(1_736_339_696_789_000);

/// The WeChat Pay account of the checks.
#[must_use]
pub fn wxpay() -> AccountRef {
    AccountRef::parse("wxpay:1900000001").unwrap()
}

/// The Alipay account of the checks.
#[must_use]
pub fn alipay() -> AccountRef {
    AccountRef::parse("alipay:2088000000000001").unwrap()
}

/// An order number.
#[must_use]
pub fn order_no(text: &str) -> OrderNo {
    OrderNo::parse(text).unwrap()
}

/// A digest that only equal texts share (not a real one: nothing here checks it).
#[must_use]
pub fn digest(text: &str) -> Digest {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    Digest(hash.as_ref().try_into().unwrap())
}

/// A command for an order, with a source and, for facts, evidence.
#[must_use]
pub fn order_work(order_no: &OrderNo, command: OrderCommand) -> Work {
    let context = CommandContext { source: "api".to_owned(), ..CommandContext::default() };
    Work { target: Target::Order { order_no: order_no.clone(), command }, context }
}

/// Opens an order over 88.88 CNY that both accounts may be paid through.
#[must_use]
pub fn open(order_no: &OrderNo) -> Work {
    open_for(order_no, 8_888)
}

/// Opens an order over so many fen.
#[must_use]
pub fn open_for(order_no: &OrderNo, fen: i64) -> Work {
    let terms = Terms {
        amount: Money::fen(fen),
        accounts: vec![alipay(), wxpay()],
        description: Some("tea \"龙井\" \\ 100 g".to_owned()),
        expires_at: Some(PAID_AT.plus_micros(86_400_000_000)),
        supersedes: None,
        sub_mchid: None,
        combine: None,
    };
    order_work(order_no, OrderCommand::OpenOrder(terms))
}

/// The same work with an `Idempotency-Key`.
#[must_use]
pub fn with_api_key(mut work: Work, key: &str, request: &str) -> Work {
    let idem_key = IdemKey::from_parts(&["API", "shop", key]);
    work.context.api_key = Some(ApiKey { idem_key, request: digest(request) });
    work
}

/// The payment `trade_no` of an order, at the WeChat account, over 88.88 CNY.
#[must_use]
pub fn pay(order_no: &OrderNo, trade_no: &str) -> Work {
    pay_at(order_no, &wxpay(), trade_no, 8_888)
}

/// A payment at an account over so many fen.
#[must_use]
pub fn pay_at(order_no: &OrderNo, account: &AccountRef, trade_no: &str, fen: i64) -> Work {
    let fact = PaymentFact {
        payment: payment(account, trade_no),
        amount: Money::fen(fen),
        payer_amount: None,
        occurred_at: PAID_AT,
        channel_trade_type: Some("JSAPI".to_owned()),
        content: digest(&format!("{account}{trade_no}{fen}")),
    };
    with_evidence(order_work(order_no, OrderCommand::RecordPayment(fact)), trade_no)
}

/// Asks for a refund of the settling payment.
#[must_use]
pub fn request_refund(order_no: &OrderNo, refund_no: &str, fen: i64) -> Work {
    let request = RefundRequest {
        payment: None,
        refund_no: RefundNo::parse(refund_no).unwrap(),
        amount: Money::fen(fen),
        reason: None,
        origin: RefundOrigin::Request,
    };
    order_work(order_no, OrderCommand::RequestRefund(request))
}

/// The channel says that a refund of `trade_no` succeeded.
#[must_use]
pub fn refunded(order_no: &OrderNo, trade_no: &str, refund_no: &str, fen: i64) -> Work {
    let fact = RefundFact {
        payment: payment(&wxpay(), trade_no),
        refund_no: RefundNo::parse(refund_no).unwrap(),
        channel_refund_no: None,
        outcome: RefundOutcome::Succeeded,
        amount: RefundAmount::Exact(Money::fen(fen)),
        payer_amount: None,
        occurred_at: PAID_AT,
        content: digest(&format!("{trade_no}{refund_no}{fen}")),
    };
    with_evidence(order_work(order_no, OrderCommand::RecordRefund(fact)), refund_no)
}

/// Closes an order.
#[must_use]
pub fn close(order_no: &OrderNo) -> Work {
    order_work(order_no, OrderCommand::CloseOrder { reason: "expired".to_owned() })
}

/// Something verified that names no order.
#[must_use]
pub fn stray(name: &str) -> Work {
    let content = digest(name);
    let fact = StrayFact {
        account: wxpay(),
        code: "unknown_type".to_owned(),
        detail: format!("event_type {name}"),
        channel_event_type: Some(name.to_owned()),
        occurred_at: PAID_AT,
        content,
    };
    let target = Target::Stray { stray_id: format!("{}:{content}", wxpay()), command: StrayCommand::RecordStray(fact) };
    with_evidence(Work { target, context: CommandContext::default() }, name)
}

fn payment(account: &AccountRef, trade_no: &str) -> PaymentRef {
    PaymentRef { account: account.clone(), channel_trade_no: ChannelTradeNo::parse(trade_no).unwrap() }
}

fn with_evidence(mut work: Work, body: &str) -> Work {
    work.context.source = "callback".to_owned();
    work.context.evidence = Some(Arc::new(EvidenceRow {
        digest: digest(body),
        account: wxpay(),
        source: "callback".to_owned(),
        headers: vec![("wechatpay-nonce".to_owned(), "a\"b/c".to_owned())],
        body: body.as_bytes().to_vec(),
        key_id: "PUB_KEY_ID_TEST".to_owned(),
        received_at: PAID_AT,
    }));
    work
}
