//! One Alipay account: a seller_id and the apps that take payments for it, each with Alipay's key for that app.

use std::collections::{BTreeMap, BTreeSet};

use paidonce_order::ids::{AccountId, AccountRef, Channel};

use crate::keys::{ConfigProblem, RsaHash, RsaPublicKey, certificate_from_pem, spki_from_text};

/// What the configuration file says about one account.
#[derive(Debug, Clone)]
pub struct AlipayAccountConfig {
    /// Our user number at Alipay, 2088...
    pub seller_id: String,
    /// At least one.
    pub apps: Vec<AlipayAppConfig>,
}

/// One app of the account.
#[derive(Debug, Clone)]
pub struct AlipayAppConfig {
    /// app_id.
    pub app_id: String,
    /// Alipay's key for this app (never the app's own).
    pub key: AlipayKeyConfig,
    /// The only algorithm that is accepted.
    pub sign_type: SignType,
    /// Merchants' apps that this (third-party) app acts for: an auth_app_id that differs from app_id must be here.
    pub auth_app_ids: Vec<String>,
}

/// Alipay's public key.
#[derive(Debug, Clone)]
pub enum AlipayKeyConfig {
    /// PEM, or the console's bare base64.
    PublicKey(String),
    /// `alipayCertPublicKey_RSA2.crt`, PEM.
    Certificate(String),
}

/// The signature algorithm of an app, chosen by us and never by the message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SignType {
    /// SHA-256.
    #[default]
    Rsa2,
    /// SHA-1: broken, only for old apps and only when asked for.
    Rsa,
}

impl SignType {
    /// Alipay's word: `RSA2`, `RSA`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rsa2 => "RSA2",
            Self::Rsa => "RSA",
        }
    }

    /// Reads Alipay's word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Rsa2, Self::Rsa].into_iter().find(|sign_type| sign_type.as_str() == text)
    }

    const fn hash(self) -> RsaHash {
        match self {
            Self::Rsa2 => RsaHash::Sha256,
            Self::Rsa => RsaHash::Sha1,
        }
    }
}

/// A checked account. Guarantees: at least one app, each with a usable key.
#[derive(Debug)]
pub struct AlipayAccount {
    pub(super) account: AccountRef,
    pub(super) apps: BTreeMap<String, AlipayApp>,
}

/// A checked app.
#[derive(Debug)]
pub(super) struct AlipayApp {
    pub(super) key: RsaPublicKey,
    pub(super) sign_type: SignType,
    pub(super) auth_app_ids: BTreeSet<String>,
}

impl AlipayAccount {
    /// Checks everything and reads the keys. Errors: every problem found, not only the first.
    pub fn try_new(config: &AlipayAccountConfig) -> Result<Self, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let account = AccountId::parse(&config.seller_id);
        if let Err(error) = &account {
            problems.push(ConfigProblem::new("seller_id", error.to_string()));
        }
        if config.apps.is_empty() {
            problems.push(ConfigProblem::new("apps", "is empty: add the app that takes payments for this seller"));
        }
        let mut apps = BTreeMap::new();
        for (index, app_config) in config.apps.iter().enumerate() {
            let Some(app) = app(index, app_config, &mut problems) else { continue };
            if apps.insert(app_config.app_id.clone(), app).is_some() {
                let problem = format!("{} is there twice: remove one", app_config.app_id);
                problems.push(ConfigProblem::new(format!("apps[{index}].app_id"), problem));
            }
        }
        match account {
            Ok(account) if problems.is_empty() => {
                Ok(Self { account: AccountRef { channel: Channel::Alipay, account }, apps })
            }
            _ => Err(problems),
        }
    }

    /// `alipay:<seller_id>`.
    #[must_use]
    pub const fn account(&self) -> &AccountRef {
        &self.account
    }

    /// Our app_ids, sorted: for `doctor`.
    #[must_use]
    pub fn app_ids(&self) -> Vec<&str> {
        self.apps.keys().map(String::as_str).collect()
    }
}

fn app(index: usize, config: &AlipayAppConfig, problems: &mut Vec<ConfigProblem>) -> Option<AlipayApp> {
    let found = problems.len();
    if config.app_id.is_empty() || !config.app_id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let problem = format!("{:?} is not an app_id such as 2021000000000001", config.app_id);
        problems.push(ConfigProblem::new(format!("apps[{index}].app_id"), problem));
    }
    let key = match &config.key {
        AlipayKeyConfig::PublicKey(text) => spki_from_text(text).map_err(|problem| ("alipay_public_key", problem)),
        AlipayKeyConfig::Certificate(pem) => {
            certificate_from_pem(pem).map(|certificate| certificate.spki).map_err(|problem| ("alipay_cert", problem))
        }
    };
    let key = key.and_then(|spki| {
        RsaPublicKey::from_spki_der(&spki, config.sign_type.hash()).map_err(|problem| ("alipay_public_key", problem))
    });
    match key {
        Ok(key) if problems.len() == found => Some(AlipayApp {
            key,
            sign_type: config.sign_type,
            auth_app_ids: config.auth_app_ids.iter().cloned().collect(),
        }),
        Ok(_) => None,
        Err((field, problem)) => {
            problems.push(ConfigProblem::new(format!("apps[{index}].{field}"), problem));
            None
        }
    }
}
