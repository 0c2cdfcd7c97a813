//! Trouble on demand: what the next calls of an API meet.

use serde::{Deserialize, Serialize};

use crate::accounts::Channel;

/// A group of API calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Whatever comes next.
    Any,
    /// How an order stands; combined orders too.
    Query,
    /// Refund; WeChat Pay's abnormal refund too.
    Refund,
    /// How a refund stands.
    RefundQuery,
    /// Close; combined orders too.
    Close,
    /// Share, return, unfreeze.
    Share,
    /// How a share or a return stands, and what is left to share.
    ShareQuery,
    /// WeChat Pay's certificates.
    Certificates,
    /// Where a bill is.
    Bill,
    /// The bill itself.
    Download,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailKind {
    /// No answer; the caller gives up waiting.
    Timeout,
    /// The answer breaks off.
    Disconnect,
    /// 502 with HTML, not signed.
    #[serde(rename = "5xx", alias = "server_error")]
    ServerError,
    /// The platform's own system error, signed.
    SystemError,
    /// Too many calls.
    RateLimit,
    /// Signed by somebody else.
    BadSignature,
    /// Not signed.
    Unsigned,
    /// Signature that begins with `WECHATPAY/SIGNTEST/`.
    Probe,
    /// The merchant's balance is short: refunds only.
    BalanceShort,
    /// The refund is accepted and becomes ABNORMAL: WeChat Pay refunds only.
    Abnormal,
}

/// `POST /sandbox/fail-next`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailNext {
    /// Which calls.
    pub api: Api,
    /// Of one platform; both when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// What happens to them.
    pub kind: FailKind,
    /// To how many.
    #[serde(default = "once")]
    pub times: u32,
    /// Whether the platform does what it was asked, although the caller does not learn it. Otherwise: yes for `timeout` and
    /// `disconnect`, no for `5xx` and `system_error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<bool>,
}

const fn once() -> u32 {
    1
}

/// Whether the platform did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did.
    Executed,
    /// It did not.
    None,
}

/// What a call meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// What.
    pub kind: FailKind,
    /// See [`Effect`].
    pub effect: Effect,
}

impl Trouble {
    /// Trouble of a kind, with the effect that is usual for it.
    #[must_use]
    pub const fn of(kind: FailKind) -> Self {
        let effect = match kind {
            FailKind::ServerError | FailKind::SystemError | FailKind::RateLimit | FailKind::BalanceShort => {
                Effect::None
            }
            FailKind::Timeout
            | FailKind::Disconnect
            | FailKind::BadSignature
            | FailKind::Unsigned
            | FailKind::Probe
            | FailKind::Abnormal => Effect::Executed,
        };
        Self { kind, effect }
    }
}

/// What was asked for and has not happened yet.
#[derive(Debug, Default)]
pub struct Failures(Vec<FailNext>);

impl Failures {
    /// Adds to the end.
    pub fn put(&mut self, fail: FailNext) {
        self.0.push(fail);
    }

    /// The first that is meant for this call, used up by one.
    pub fn take(&mut self, channel: Channel, api: Api) -> Option<Trouble> {
        let fits = |fail: &FailNext| {
            fail.times > 0 && fail.channel.is_none_or(|of| of == channel) && (fail.api == api || fail.api == Api::Any)
        };
        let fail = self.0.iter_mut().find(|fail| fits(fail))?;
        fail.times = fail.times.saturating_sub(1);
        let usual = Trouble::of(fail.kind);
        let effect = match fail.executed {
            Some(true) => Effect::Executed,
            Some(false) => Effect::None,
            None => usual.effect,
        };
        self.0.retain(|fail| fail.times > 0);
        Some(Trouble { effect, ..usual })
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(api: Api, kind: FailKind, times: u32) -> FailNext {
        FailNext { api, channel: None, kind, times, executed: None }
    }

    #[test]
    fn trouble_comes_to_the_named_calls_as_often_as_was_asked() {
        let mut failures = Failures::default();
        failures.put(fail(Api::Refund, FailKind::Timeout, 2));
        assert_eq!(failures.take(Channel::Wxpay, Api::Query), None);
        let timeout = Some(Trouble { kind: FailKind::Timeout, effect: Effect::Executed });
        assert_eq!(failures.take(Channel::Wxpay, Api::Refund), timeout);
        assert_eq!(failures.take(Channel::Alipay, Api::Refund), timeout);
        assert_eq!(failures.take(Channel::Alipay, Api::Refund), None);
    }

    #[test]
    fn whether_the_platform_did_it_can_be_said() {
        let mut failures = Failures::default();
        failures.put(FailNext { executed: Some(true), ..fail(Api::Any, FailKind::ServerError, 1) });
        let trouble = failures.take(Channel::Wxpay, Api::Close);
        assert_eq!(trouble, Some(Trouble { kind: FailKind::ServerError, effect: Effect::Executed }));
    }
}
