//! The accounts whose notifications we take, each with its keys. Replaced as a whole when keys are reloaded, so that a
//! request sees either all old or all new keys.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use paidonce_channel::ChannelReceiver;
use paidonce_order::ids::AccountRef;

type Registry = BTreeMap<AccountRef, Arc<dyn ChannelReceiver>>;

/// Registry of receivers by account.
#[derive(Default)]
pub struct Accounts {
    current: RwLock<Arc<Registry>>,
}

impl Accounts {
    /// From the receivers of the configuration; a later receiver of the same account replaces an earlier one.
    #[must_use]
    pub fn new(receivers: Vec<Arc<dyn ChannelReceiver>>) -> Self {
        let accounts = Self::default();
        accounts.replace(receivers);
        accounts
    }

    /// Puts new receivers in place of all old ones. Requests under way finish with the keys they began with.
    pub fn replace(&self, receivers: Vec<Arc<dyn ChannelReceiver>>) {
        let registry: Registry = receivers.into_iter().map(|receiver| (receiver.account().clone(), receiver)).collect();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }

    /// The receiver of an account.
    #[must_use]
    pub fn find(&self, account: &AccountRef) -> Option<Arc<dyn ChannelReceiver>> {
        self.snapshot().get(account).cloned()
    }

    /// Whether the account is configured.
    #[must_use]
    pub fn knows(&self, account: &AccountRef) -> bool {
        self.snapshot().contains_key(account)
    }

    /// All configured accounts, sorted.
    #[must_use]
    pub fn list(&self) -> Vec<AccountRef> {
        self.snapshot().keys().cloned().collect()
    }

    fn snapshot(&self) -> Arc<Registry> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}
