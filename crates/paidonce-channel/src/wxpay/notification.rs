//! A notification of WeChat Pay: verify the bytes, open the resource, read it.

use std::sync::Arc;

use paidonce_order::ids::AccountRef;

use super::account::WxpayAccount;
use crate::accounts::OurAccounts;
use crate::channel::{ChannelReceiver, RawNotification, VerifyError};
use crate::observation::{Notice, Verified};

/// Receives the notifications of one mchid.
#[derive(Debug, Clone)]
pub struct WxpayReceiver {
    account: Arc<WxpayAccount>,
    ours: OurAccounts,
}

impl WxpayReceiver {
    /// `ours` names the accounts that a combine payment may touch beside `account`.
    #[must_use]
    pub const fn new(account: Arc<WxpayAccount>, ours: OurAccounts) -> Self {
        Self { account, ours }
    }
}

impl ChannelReceiver for WxpayReceiver {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn receive(&self, _raw: RawNotification<'_>) -> Result<Verified<Notice>, VerifyError> {
        let _ = (&self.ours, &self.account.apiv3_keys);
        Err(VerifyError::Malformed { field: "Wechatpay-Signature", hint: "the verifier refuses everything as yet" })
    }
}
