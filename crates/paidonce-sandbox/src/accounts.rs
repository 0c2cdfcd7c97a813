//! The accounts that both platforms know, each with the keys of both sides.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::certificate::Certificate;
use crate::keys::Key;
use crate::options::{Merchant, Seller};

/// Which platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// WeChat Pay.
    Wxpay,
    /// Alipay.
    Alipay,
}

impl Channel {
    /// As paths and accounts name it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wxpay => "wxpay",
            Self::Alipay => "alipay",
        }
    }
}

/// An account in the words of the ledger: `wxpay:1900000001`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Where.
    pub channel: Channel,
    /// mchid, sp_mchid or seller_id.
    pub id: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.channel.word(), self.id)
    }
}

/// A merchant at WeChat Pay with its secrets.
#[derive(Debug, Clone)]
pub struct KnownMerchant {
    /// Who.
    pub merchant: Merchant,
    /// The 32 characters with which resources are sealed.
    pub apiv3_key: String,
    /// The merchant's own key: signs its requests.
    pub key: Key,
    /// Serial of the merchant's API certificate.
    pub serial: String,
}

/// A seller at Alipay with its secrets.
#[derive(Debug, Clone)]
pub struct KnownSeller {
    /// Who.
    pub seller: Seller,
    /// The app's own key: signs its requests.
    pub key: Key,
    /// The certificate around it, for certificate mode.
    pub certificate: Certificate,
}

/// All accounts. They do not change while a sandbox runs.
#[derive(Debug, Clone)]
pub struct Accounts {
    /// At WeChat Pay.
    pub merchants: Vec<Arc<KnownMerchant>>,
    /// At Alipay.
    pub sellers: Vec<Arc<KnownSeller>>,
}

impl Accounts {
    /// The merchant of this mchid or sp_mchid.
    #[must_use]
    pub fn find_merchant(&self, mchid: &str) -> Option<&Arc<KnownMerchant>> {
        self.merchants.iter().find(|known| known.merchant.mchid == mchid)
    }

    /// The seller of this app.
    #[must_use]
    pub fn find_seller_of_app(&self, app_id: &str) -> Option<&Arc<KnownSeller>> {
        self.sellers.iter().find(|known| known.seller.app_id == app_id)
    }

    /// The seller of this id.
    #[must_use]
    pub fn find_seller(&self, seller_id: &str) -> Option<&Arc<KnownSeller>> {
        self.sellers.iter().find(|known| known.seller.seller_id == seller_id)
    }

    /// The account of this id, or the first of the channel.
    #[must_use]
    pub fn choose(&self, channel: Channel, id: Option<&str>) -> Option<Account> {
        let id = match (channel, id) {
            (Channel::Wxpay, Some(id)) => self.find_merchant(id)?.merchant.mchid.clone(),
            (Channel::Wxpay, None) => self.merchants.first()?.merchant.mchid.clone(),
            (Channel::Alipay, Some(id)) => self.find_seller(id)?.seller.seller_id.clone(),
            (Channel::Alipay, None) => self.sellers.first()?.seller.seller_id.clone(),
        };
        Some(Account { channel, id })
    }
}
