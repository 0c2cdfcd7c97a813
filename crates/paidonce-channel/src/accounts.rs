//! The directory of our accounts: which receiver a path gets, and whose a sub-order of a combine payment is.

use std::collections::BTreeMap;
use std::sync::Arc;

use paidonce_order::ids::{AccountRef, Channel};

use paidonce_order::timestamp::Timestamp;

use crate::alipay::{AlipayAccount, AlipayApi, AlipayReceiver};
use crate::api::{ChannelApi, LearnedKey};
use crate::channel::ChannelReceiver;
use crate::keys::ConfigProblem;
use crate::wxpay::{WxpayAccount, WxpayApi, WxpayReceiver};

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

    /// The calls of this account; `None` when it is not ours or has no credentials.
    #[must_use]
    pub fn find_api(&self, account: &AccountRef) -> Option<Box<dyn ChannelApi>> {
        let name = account.account.as_str();
        match account.channel {
            Channel::Wxpay => {
                let api = WxpayApi::find(Arc::clone(self.wxpay.get(name)?), self.clone())?;
                Some(Box::new(api))
            }
            Channel::Alipay => {
                let api = AlipayApi::find(Arc::clone(self.alipay.get(name)?))?;
                Some(Box::new(api))
            }
        }
    }

    /// What a person should know about the dates of configured platform certificates.
    #[must_use]
    pub fn key_warnings(&self, now: Timestamp) -> Vec<(AccountRef, ConfigProblem)> {
        let wxpay = self.wxpay.values().map(|account| (account.account(), account.key_warnings(now)));
        let alipay = self.alipay.values().map(|account| (account.account(), account.key_warnings(now)));
        let named = wxpay
            .chain(alipay)
            .flat_map(|(account, warnings)| warnings.into_iter().map(|warning| (account.clone(), warning)));
        named.collect()
    }

    /// The same accounts, one of them knowing these platform keys too (configured keys win). For an account that is not ours
    /// nothing changes.
    #[must_use]
    pub fn with_learned_keys(&self, account: &AccountRef, keys: Vec<LearnedKey>) -> Self {
        let name = account.account.as_str();
        let mut with_keys = self.clone();
        match account.channel {
            Channel::Wxpay => {
                if let Some(found) = self.wxpay.get(name) {
                    let found = Arc::new(found.with_learned_keys(&keys));
                    Arc::make_mut(&mut with_keys.wxpay).insert(name.to_owned(), found);
                }
            }
            Channel::Alipay => {
                if let Some(found) = self.alipay.get(name) {
                    let found = Arc::new(found.with_learned_keys(&keys));
                    Arc::make_mut(&mut with_keys.alipay).insert(name.to_owned(), found);
                }
            }
        }
        with_keys
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
