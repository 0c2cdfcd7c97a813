//! Short words for commands and a tiny ledger: what the tables of these tests are written in.

use paidonce_order::command::{
    AttemptFact, FlagFact, Operator, OrderCommand, PaymentFact, PaymentRef, RefundAmount, RefundFact, RefundOrigin,
    RefundOutcome, RefundRequest, ShareFact, ShareKind, Terms,
};
use paidonce_order::decide::decide;
use paidonce_order::order::{Order, Status};
use paidonce_order::project::{Aggregate, FlowRow, RowChanges, project};
use paidonce_order::{
    AccountRef, ChannelTradeNo, Digest, LedgerEvent, Money, OrderError, OrderEvent, OrderNo, RefundNo, Timestamp,
};

pub const WX: &str = "wxpay:1900000001";
pub const WX2: &str = "wxpay:1900000002";
pub const ALI: &str = "alipay:2088000000000001";

pub fn order_no() -> OrderNo {
    OrderNo::parse("2025010812345678").unwrap()
}

pub fn account(text: &str) -> AccountRef {
    AccountRef::parse(text).unwrap()
}

pub fn payment_ref(at: &str, trade_no: &str) -> PaymentRef {
    PaymentRef { account: account(at), channel_trade_no: ChannelTradeNo::parse(trade_no).unwrap() }
}

pub fn refund_no(text: &str) -> RefundNo {
    RefundNo::parse(text).unwrap()
}

/// Stands for SHA-256: the same text gives the same digest, another text another one.
pub fn digest(text: &str) -> Digest {
    let mut bytes = [0_u8; 32];
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&paidonce_order::ids::fnv1a_64(&format!("{i}/{text}")).to_be_bytes());
    }
    Digest(bytes)
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_736_300_000_000_000 + seconds * 1_000_000)
}

pub fn operator() -> Operator {
    Operator { name: "Lin".to_owned(), reason: "the customer called".to_owned() }
}

pub fn terms(amount: Money, accounts: &[&str]) -> Terms {
    let accounts = accounts.iter().map(|text| account(text)).collect();
    Terms { amount, accounts, description: None, expires_at: None, supersedes: None, sub_mchid: None, combine: None }
}

/// Opens the order of these tests: 88.88 yuan, payable at WX and ALI.
pub fn open() -> OrderCommand {
    OrderCommand::OpenOrder(terms(Money::fen(8888), &[WX, ALI]))
}

pub fn close() -> OrderCommand {
    OrderCommand::CloseOrder { reason: "timeout".to_owned() }
}

pub fn payment(at_account: &str, trade_no: &str, fen: i64) -> PaymentFact {
    PaymentFact {
        payment: payment_ref(at_account, trade_no),
        amount: Money::fen(fen),
        payer_amount: None,
        occurred_at: at(0),
        channel_trade_type: None,
        content: digest(&format!("{at_account}/{trade_no}/{fen}")),
    }
}

pub fn pay(at_account: &str, trade_no: &str, fen: i64) -> OrderCommand {
    OrderCommand::RecordPayment(payment(at_account, trade_no, fen))
}

pub fn request(trade_no: Option<(&str, &str)>, number: &str, fen: i64) -> OrderCommand {
    OrderCommand::RequestRefund(RefundRequest {
        payment: trade_no.map(|(at, no)| payment_ref(at, no)),
        refund_no: refund_no(number),
        amount: Money::fen(fen),
        reason: None,
        origin: RefundOrigin::Request,
    })
}

pub fn refund_fact(trade: (&str, &str), number: &str, outcome: RefundOutcome, amount: RefundAmount) -> RefundFact {
    RefundFact {
        payment: payment_ref(trade.0, trade.1),
        refund_no: refund_no(number),
        channel_refund_no: None,
        outcome,
        amount,
        payer_amount: None,
        occurred_at: at(60),
        content: digest(&format!("{trade:?}/{number}/{outcome:?}/{amount:?}")),
    }
}

/// The channel says: this refund, of this amount, is done.
pub fn refunded(trade: (&str, &str), number: &str, fen: i64) -> OrderCommand {
    let amount = RefundAmount::Exact(Money::fen(fen));
    OrderCommand::RecordRefund(refund_fact(trade, number, RefundOutcome::Succeeded, amount))
}

/// The channel says: with this refund, so much of the payment is back in all.
pub fn refunded_in_all(trade: (&str, &str), number: &str, fen: i64) -> OrderCommand {
    let amount = RefundAmount::Cumulative(Money::fen(fen));
    OrderCommand::RecordRefund(refund_fact(trade, number, RefundOutcome::Succeeded, amount))
}

pub fn refund_failed(trade: (&str, &str), number: &str, fen: i64) -> OrderCommand {
    let amount = RefundAmount::Exact(Money::fen(fen));
    OrderCommand::RecordRefund(refund_fact(trade, number, RefundOutcome::Failed, amount))
}

pub fn refund_stalled(trade: (&str, &str), number: &str, fen: i64) -> OrderCommand {
    let amount = RefundAmount::Exact(Money::fen(fen));
    OrderCommand::RecordRefund(refund_fact(trade, number, RefundOutcome::Stalled, amount))
}

pub fn share_fact(trade: (&str, &str), share_no: &str, receiver: &str, fen: i64) -> ShareFact {
    ShareFact {
        payment: payment_ref(trade.0, trade.1),
        kind: ShareKind::Shared,
        share_no: share_no.to_owned(),
        channel_share_no: None,
        receiver_type: "MERCHANT_ID".to_owned(),
        receiver: digest(receiver),
        amount: Money::fen(fen),
        occurred_at: at(120),
        content: digest(&format!("{trade:?}/{share_no}/{receiver}/{fen}")),
    }
}

pub fn follow(trade: Option<(&str, &str)>, out_order_no: &str) -> OrderCommand {
    let payment = trade.map(|(at, no)| payment_ref(at, no));
    OrderCommand::FollowProfitShare { payment, out_order_no: out_order_no.to_owned() }
}

pub fn share(trade: (&str, &str), share_no: &str, receiver: &str, fen: i64) -> OrderCommand {
    OrderCommand::RecordProfitShare(share_fact(trade, share_no, receiver, fen))
}

pub fn share_back(trade: (&str, &str), share_no: &str, fen: i64) -> OrderCommand {
    let fact = share_fact(trade, share_no, "back", fen);
    OrderCommand::RecordProfitShare(ShareFact { kind: ShareKind::Returned, ..fact })
}

pub fn closed_at(at_account: &str) -> OrderCommand {
    OrderCommand::RecordAttemptClosed(AttemptFact {
        account: account(at_account),
        channel_trade_no: None,
        occurred_at: at(30),
        content: digest(&format!("closed/{at_account}")),
    })
}

pub fn flag(code: &str) -> OrderCommand {
    OrderCommand::RecordFlag(FlagFact {
        account: account(WX),
        code: code.to_owned(),
        detail: "trade_state NOTPAY".to_owned(),
        occurred_at: at(10),
        content: digest(code),
    })
}

pub fn accept(trade: (&str, &str)) -> OrderCommand {
    OrderCommand::AcceptSurplus { payment: payment_ref(trade.0, trade.1), by: operator() }
}

pub fn resolve(item_no: &str) -> OrderCommand {
    OrderCommand::ResolveItem { item_no: item_no.to_owned(), by: operator() }
}

/// One order, its events, and the rows that they made.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub order: Order,
    pub events: Vec<OrderEvent>,
    pub changes: Vec<RowChanges>,
}

impl Ledger {
    /// A ledger after these commands, none of which may be rejected.
    pub fn after(commands: Vec<OrderCommand>) -> Self {
        let mut ledger = Self::default();
        for command in commands {
            ledger.tell(command).unwrap();
        }
        ledger
    }

    /// Decides, applies and projects.
    pub fn tell(&mut self, command: OrderCommand) -> Result<Vec<OrderEvent>, OrderError> {
        let events = decide(&order_no(), &self.order, command)?;
        for event in &events {
            let before = Aggregate::Order(Box::new(self.order.clone()));
            self.order.apply(event);
            let after = Aggregate::Order(Box::new(self.order.clone()));
            self.changes.push(project(order_no().as_str(), &LedgerEvent::Order(event.clone()), &before, &after));
        }
        self.events.extend(events.iter().cloned());
        Ok(events)
    }

    /// The names of the new events, `nothing`, or `rejected <code>`.
    pub fn hear(&mut self, command: OrderCommand) -> String {
        match self.tell(command) {
            Err(error) => format!("rejected {}", error.code()),
            Ok(events) if events.is_empty() => "nothing".to_owned(),
            Ok(events) => events.iter().map(OrderEvent::event_type).collect::<Vec<_>>().join(" + "),
        }
    }

    pub fn status(&self) -> Status {
        self.order.status
    }

    pub fn flows(&self) -> Vec<FlowRow> {
        self.changes.iter().flat_map(|changes| changes.flows.clone()).collect()
    }

    pub fn keys(&self) -> Vec<String> {
        self.changes.iter().filter_map(|changes| changes.idem_key.as_ref()).map(ToString::to_string).collect()
    }

    /// Item numbers that are still open, with their kinds.
    pub fn open_items(&self) -> Vec<(String, &'static str)> {
        let open = self.order.items.iter().filter(|(_, item)| item.is_open());
        open.map(|(key, item)| (key.in_order(&order_no()).to_string(), item.kind.as_str())).collect()
    }

    /// The refunds of a payment as `number amount STATE [derived]`.
    pub fn refunds_of(&self, trade: (&str, &str)) -> Vec<String> {
        let payment = self.order.find_payment(&payment_ref(trade.0, trade.1)).unwrap();
        let line = |refund: &paidonce_order::order::Refund| {
            let derived = if refund.derived { " derived" } else { "" };
            format!("{} {} {:?}{derived}", refund.refund_no, refund.amount.amount_minor, refund.state)
        };
        payment.refunds.iter().map(line).collect()
    }
}
