//! What happens to the orders of a day: each has one story, at one of the accounts.

use paidonce_sandbox::options::{SP_MCHID, SUB_MCHID};
use paidonce_sandbox::{
    Channel, Charset, ConsoleRefund, FailKind, FailNext, OrderName, Pay, SharePart, ShareResult, StartShare, Wish,
};
use paidonce_tests::wire::Request;
use serde_json::Value;

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Story {
    Paid,
    NeverPaid,
    ClosedByTheShop,
    ClosedThenPaid,
    PaidTwice,
    PaidWithAnotherAmount,
    RefundedInPart,
    RefundedWhole,
    RefundedTwice,
    RefundedAtTheConsole,
    RefundedWithTrouble,
    CallbackLost,
    /// Through a service provider, for a sub-merchant.
    PaidAtAProvider,
    RefundedAtAProvider,
    /// Paid, then shared among two, of whom one is refused.
    Shared,
    /// Alipay tells of it in GBK, with a text that is no ASCII.
    ToldInGbk,
}

/// The orders of a normal day, again and again.
pub(super) const STORIES: [Story; 25] = [
    Story::Paid,
    Story::RefundedInPart,
    Story::Paid,
    Story::ClosedByTheShop,
    Story::CallbackLost,
    Story::Paid,
    Story::ClosedThenPaid,
    Story::RefundedWithTrouble,
    Story::Paid,
    Story::PaidTwice,
    Story::RefundedWhole,
    Story::Paid,
    Story::NeverPaid,
    Story::RefundedWithTrouble,
    Story::Paid,
    Story::RefundedTwice,
    Story::PaidWithAnotherAmount,
    Story::Paid,
    Story::RefundedAtTheConsole,
    Story::CallbackLost,
    Story::PaidAtAProvider,
    Story::Shared,
    Story::ToldInGbk,
    Story::RefundedAtAProvider,
    Story::Shared,
];

/// Trouble of a refund call, one after the other.
pub(super) const TROUBLE: [FailKind; 7] = [
    FailKind::Disconnect,
    FailKind::SystemError,
    FailKind::BadSignature,
    FailKind::ServerError,
    FailKind::BalanceShort,
    FailKind::Abnormal,
    FailKind::Timeout,
];

#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) order_no: String,
    pub(super) channel: Channel,
    pub(super) story: Story,
    pub(super) amount: i64,
    pub(super) number: usize,
}

/// Something that is done in a later tick.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// The shop asks the ledger, again and again until it is answered with one of these.
    Ask {
        request: Request,
        until: &'static [u16],
        about: String,
    },
    /// Something at the platform.
    Pay(Pay),
    PayLate(Pay),
    Console(ConsoleRefund),
    Share(StartShare),
    Fail(FailNext),
}

impl Act {
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Ask { request, about, .. } => format!("{about}: {} {}", request.method, request.path),
            Self::Pay(_) | Self::PayLate(_) | Self::Console(_) | Self::Share(_) | Self::Fail(_) => {
                format!("{self:?}")
            }
        }
    }
}

impl Planned {
    /// The accounts that the shop lets the customer pay through.
    pub(super) fn accounts(&self) -> Vec<String> {
        match (self.story, self.channel) {
            (Story::PaidTwice, _) => vec![super::super::WXPAY.to_owned(), super::super::ALIPAY.to_owned()],
            (Story::PaidAtAProvider | Story::RefundedAtAProvider, _) => vec![format!("wxpay:{SP_MCHID}")],
            (_, Channel::Wxpay) => vec![super::super::WXPAY.to_owned()],
            (_, Channel::Alipay) => vec![super::super::ALIPAY.to_owned()],
        }
    }

    /// Under a service provider.
    pub(super) fn sub_mchid(&self) -> Option<&'static str> {
        matches!(self.story, Story::PaidAtAProvider | Story::RefundedAtAProvider).then_some(SUB_MCHID)
    }

    /// At the platform.
    pub(super) fn name(&self) -> OrderName {
        let account = self.sub_mchid().map(|_| SP_MCHID.to_owned());
        let sub_mchid = self.sub_mchid().map(str::to_owned);
        OrderName { account, sub_mchid, ..OrderName::new(self.channel, &self.order_no) }
    }

    /// As it is placed at the platform.
    pub(super) fn payment(&self) -> Pay {
        let placed = self.amount - i64::from(self.story == Story::PaidWithAnotherAmount);
        let mut pay = Pay { name: self.name(), ..Pay::new(self.channel, &self.order_no, placed) };
        if self.story == Story::CallbackLost {
            pay.callback = Wish::Lost;
        }
        if self.story == Story::ToldInGbk {
            pay.charset = Charset::Gbk;
            pay.attach = "会员=张三&备注=送货上门".to_owned();
        }
        pay
    }

    /// Who gets what of it: the second one is refused.
    pub(super) fn share(&self) -> StartShare {
        let part = |account: &str, result| SharePart {
            kind: None,
            account: account.to_owned(),
            amount_minor: self.amount / 10,
            result,
            fail_reason: (result == ShareResult::Closed).then(|| "ACCOUNT_ABNORMAL".to_owned()),
        };
        let receivers = vec![part("1900000771", ShareResult::Success), part("1900000772", ShareResult::Closed)];
        StartShare { name: self.name(), out_order_no: self.share_no(), receivers }
    }

    /// out_order_no of its share.
    pub(super) fn share_no(&self) -> String {
        format!("{}-P", self.order_no)
    }
}

/// The order of this number.
pub(super) fn planned(number: usize) -> Planned {
    let story = STORIES[number % STORIES.len()];
    // Every story at both platforms, unless only one of them knows it.
    let is_of_wxpay = matches!(story, Story::PaidAtAProvider | Story::RefundedAtAProvider);
    let is_of_alipay = story == Story::ToldInGbk;
    let in_turn = (number / STORIES.len()).is_multiple_of(2);
    let channel = if is_of_wxpay || (in_turn && !is_of_alipay) { Channel::Wxpay } else { Channel::Alipay };
    Planned {
        order_no: format!("DAY-{number:05}"),
        channel,
        story,
        amount: 1_000 + i64::try_from(number).expect("a number") % 97,
        number,
    }
}

/// Why an order has not ended as its story says; `None`: it has.
pub(super) fn problem_of(order: &Planned, shown: &Value) -> Option<String> {
    let figure = |name: &str| shown[name].as_i64().unwrap_or(-1);
    let figures = (
        shown["status"].as_str().unwrap_or("?"),
        figure("paid_minor"),
        figure("refunded_minor"),
        figure("surplus_minor"),
    );
    let amount = order.amount;
    let expected = match order.story {
        Story::Paid | Story::CallbackLost | Story::PaidAtAProvider | Story::Shared | Story::ToldInGbk => {
            ("PAID", amount, 0, 0)
        }
        Story::NeverPaid | Story::ClosedByTheShop => ("CLOSED", 0, 0, 0),
        Story::ClosedThenPaid => ("CLOSED", 0, amount, amount),
        Story::PaidTwice => ("PAID", amount, amount, amount),
        Story::PaidWithAnotherAmount => ("CLOSED", 0, 0, amount - 1),
        Story::RefundedInPart | Story::RefundedAtAProvider => ("PAID", amount, amount / 3, 0),
        Story::RefundedWhole => ("REFUNDED", amount, amount, 0),
        Story::RefundedTwice => ("PAID", amount, amount / 3 + amount / 4, 0),
        Story::RefundedAtTheConsole => ("PAID", amount, 77, 0),
        Story::RefundedWithTrouble => ("PAID", amount, amount / 2, 0),
    };
    (figures != expected).then(|| format!("is {figures:?}, should be {expected:?}"))
}
