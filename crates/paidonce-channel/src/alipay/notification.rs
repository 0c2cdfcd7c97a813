//! A notification of Alipay: verify the form, read it.

use std::sync::Arc;

use paidonce_order::ids::AccountRef;

use super::account::AlipayAccount;
use crate::channel::{ChannelReceiver, RawNotification, VerifyError};
use crate::observation::{Notice, Verified};

/// Receives the notifications of one seller_id.
#[derive(Debug, Clone)]
pub struct AlipayReceiver {
    account: Arc<AlipayAccount>,
}

impl AlipayReceiver {
    /// For this account.
    #[must_use]
    pub const fn new(account: Arc<AlipayAccount>) -> Self {
        Self { account }
    }
}

impl ChannelReceiver for AlipayReceiver {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn receive(&self, _raw: RawNotification<'_>) -> Result<Verified<Notice>, VerifyError> {
        Err(VerifyError::Malformed { field: "sign", hint: "the verifier refuses everything as yet" })
    }
}
