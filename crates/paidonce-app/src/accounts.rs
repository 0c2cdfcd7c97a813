//! The accounts whose notifications we take, each with its keys. Replaced as a whole when keys are reloaded, so that a
//! request sees either all old or all new keys. What a platform told us of its keys stays over a reload.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use paidonce_channel::api::{ChannelApi, LearnedKey};
use paidonce_channel::{ChannelReceiver, OurAccounts};
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;

/// Learned keys per account. A platform has one or two in force; more would only be old ones.
const LEARNED_MAX: usize = 16;

/// The directory in force. Clones are the same directory.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    current: Arc<RwLock<Directory>>,
}

#[derive(Debug, Default)]
struct Directory {
    configured: OurAccounts,
    /// By serial.
    learned: BTreeMap<AccountRef, BTreeMap<String, LearnedKey>>,
    /// The configured accounts with what was learned.
    in_force: OurAccounts,
}

impl Directory {
    fn put_in_force(&mut self) {
        let with_keys = |ours: OurAccounts, (account, keys): (&AccountRef, &BTreeMap<String, LearnedKey>)| {
            ours.with_learned_keys(account, keys.values().cloned().collect())
        };
        self.in_force = self.learned.iter().fold(self.configured.clone(), with_keys);
    }
}

impl Accounts {
    /// From the configuration.
    #[must_use]
    pub fn new(accounts: OurAccounts) -> Self {
        let directory = Directory { configured: accounts.clone(), learned: BTreeMap::new(), in_force: accounts };
        Self { current: Arc::new(RwLock::new(directory)) }
    }

    /// Puts new accounts in place of all old ones, with the keys that were learned for them. Requests under way finish with
    /// the keys they began with.
    pub fn replace(&self, accounts: OurAccounts) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.learned.retain(|account, _| accounts.contains(account));
        current.configured = accounts;
        current.put_in_force();
    }

    /// Trusts these keys of a platform beside the configured ones; how many serials are new. Expired ones are forgotten.
    pub fn learn(&self, account: &AccountRef, keys: Vec<LearnedKey>, now: Timestamp) -> usize {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !current.configured.contains(account) {
            return 0;
        }
        let known = current.learned.entry(account.clone()).or_default();
        known.retain(|_, key| key.valid_to >= now);
        let usable = keys.into_iter().filter(|key| key.valid_to >= now);
        let new = usable.filter(|key| known.insert(key.serial.clone(), key.clone()).is_none()).count();
        while known.len() > LEARNED_MAX {
            let oldest = known.values().min_by_key(|key| key.valid_to).map(|key| key.serial.clone());
            known.remove(&oldest.unwrap_or_default());
        }
        current.put_in_force();
        new
    }

    /// The receiver of an account, with the keys of now.
    #[must_use]
    pub fn find(&self, account: &AccountRef) -> Option<Box<dyn ChannelReceiver>> {
        self.snapshot().find_receiver(account.channel, account.account.as_str())
    }

    /// The calls of an account, with the keys of now; `None` when it is not ours or can't ask.
    #[must_use]
    pub fn find_api(&self, account: &AccountRef) -> Option<Box<dyn ChannelApi>> {
        self.snapshot().find_api(account)
    }

    /// Whether the account is configured.
    #[must_use]
    pub fn knows(&self, account: &AccountRef) -> bool {
        self.snapshot().contains(account)
    }

    /// All configured accounts, sorted.
    #[must_use]
    pub fn list(&self) -> Vec<AccountRef> {
        self.snapshot().list()
    }

    fn snapshot(&self) -> OurAccounts {
        self.current.read().unwrap_or_else(PoisonError::into_inner).in_force.clone()
    }
}
