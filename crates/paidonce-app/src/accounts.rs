//! The accounts whose notifications we take, each with its keys. Replaced as a whole when keys are reloaded, so that a
//! request sees either all old or all new keys.

use std::sync::{Arc, PoisonError, RwLock};

use paidonce_channel::{ChannelReceiver, OurAccounts};
use paidonce_order::ids::AccountRef;

/// The directory in force. Clones are the same directory.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    current: Arc<RwLock<OurAccounts>>,
}

impl Accounts {
    /// From the configuration.
    #[must_use]
    pub fn new(accounts: OurAccounts) -> Self {
        Self { current: Arc::new(RwLock::new(accounts)) }
    }

    /// Puts new accounts in place of all old ones. Requests under way finish with the keys they began with.
    pub fn replace(&self, accounts: OurAccounts) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = accounts;
    }

    /// The receiver of an account, with the keys of now.
    #[must_use]
    pub fn find(&self, account: &AccountRef) -> Option<Box<dyn ChannelReceiver>> {
        self.snapshot().find_receiver(account.channel, account.account.as_str())
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
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
