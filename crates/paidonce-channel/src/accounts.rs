//! The directory of our accounts: which receiver a path gets, and whose a sub-order of a combine payment is.

use std::collections::BTreeMap;
use std::sync::Arc;

use paidonce_order::ids::{AccountRef, Channel};

use crate::alipay::{AlipayAccount, AlipayReceiver};
use crate::channel::ChannelReceiver;
use crate::keys::ConfigProblem;
use crate::wxpay::{WxpayAccount, WxpayReceiver};

/// All accounts of this ledger. Cheap to clone; a key reload builds a new one and swaps it.
#[derive(Debug, Clone, Default)]
pub struct OurAccounts {
    wxpay: Arc<BTreeMap<String, Arc<WxpayAccount>>>,
    alipay: Arc<BTreeMap<String, Arc<AlipayAccount>>>,
}

impl OurAccounts {
    /// From checked accounts. Errors: one problem for each account that is there twice.
    pub fn try_new(wxpay: Vec<WxpayAccount>, alipay: Vec<AlipayAccount>) -> Result<Self, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let mut wxpay_by_mchid = BTreeMap::new();
        for account in wxpay {
            let mchid = account.account().account.as_str().to_owned();
            if wxpay_by_mchid.insert(mchid.clone(), Arc::new(account)).is_some() {
                problems.push(ConfigProblem::new("wxpay", format!("mchid {mchid} is there twice: remove one")));
            }
        }
        let mut alipay_by_seller = BTreeMap::new();
        for account in alipay {
            let seller_id = account.account().account.as_str().to_owned();
            if alipay_by_seller.insert(seller_id.clone(), Arc::new(account)).is_some() {
                problems
                    .push(ConfigProblem::new("alipay", format!("seller_id {seller_id} is there twice: remove one")));
            }
        }
        if problems.is_empty() {
            Ok(Self { wxpay: Arc::new(wxpay_by_mchid), alipay: Arc::new(alipay_by_seller) })
        } else {
            Err(problems)
        }
    }

    /// The receiver of `/callbacks/{channel}/{account}`; `None` when the account is not ours (404).
    #[must_use]
    pub fn find_receiver(&self, channel: Channel, account: &str) -> Option<Box<dyn ChannelReceiver>> {
        match channel {
            Channel::Wxpay => {
                let found = Arc::clone(self.wxpay.get(account)?);
                Some(Box::new(WxpayReceiver::new(found, self.clone())))
            }
            Channel::Alipay => Some(Box::new(AlipayReceiver::new(Arc::clone(self.alipay.get(account)?)))),
        }
    }

    /// `true` when the account is one of ours.
    #[must_use]
    pub fn contains(&self, account: &AccountRef) -> bool {
        match account.channel {
            Channel::Wxpay => self.wxpay.contains_key(account.account.as_str()),
            Channel::Alipay => self.alipay.contains_key(account.account.as_str()),
        }
    }

    /// All of them, sorted.
    #[must_use]
    pub fn list(&self) -> Vec<AccountRef> {
        let wxpay = self.wxpay.values().map(|account| account.account().clone());
        let alipay = self.alipay.values().map(|account| account.account().clone());
        wxpay.chain(alipay).collect()
    }

    pub(crate) fn find_wxpay(&self, mchid: &str) -> Option<&WxpayAccount> {
        self.wxpay.get(mchid).map(Arc::as_ref)
    }
}
