//! One Alipay account: a seller_id and the apps that take payments for it, each with Alipay's key for that app.

use std::collections::{BTreeMap, BTreeSet};

use paidonce_order::ids::{AccountId, AccountRef, Channel};

use paidonce_order::timestamp::Timestamp;

use super::cert_sn::{cert_sn, root_cert_sn};
use super::chain::{Trust, TrustedCertificate};
use crate::api::LearnedKey;
use crate::keys::{
    ConfigProblem, RsaHash, RsaPrivateKey, RsaPublicKey, SecretText, Validity, certificate_from_pem, check_api_url,
    spki_from_text,
};

/// What the configuration file says about one account.
#[derive(Debug, Clone)]
pub struct AlipayAccountConfig {
    /// Our user number at Alipay, 2088...
    pub seller_id: String,
    /// At least one.
    pub apps: Vec<AlipayAppConfig>,
    /// The gateway, [`ALIPAY_API_URL`] as a rule.
    pub api_url: String,
}

/// Alipay's gateway, unless configured otherwise.
pub const ALIPAY_API_URL: &str = "https://openapi.alipay.com/gateway.do";

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
    /// What it takes to ask Alipay; the first app that has it asks for the account.
    pub api: Option<AlipayAppApiConfig>,
}

/// What it takes to ask Alipay.
#[derive(Debug, Clone)]
pub struct AlipayAppApiConfig {
    /// The app's own private key: PKCS#8 or PKCS#1, PEM or bare base64.
    pub private_key: SecretText,
    /// In certificate mode.
    pub certs: Option<AlipayApiCerts>,
    /// `app_auth_token`: for an app that acts for a merchant who authorised it.
    pub app_auth_token: Option<SecretText>,
}

/// The certificates whose numbers a request carries in certificate mode.
#[derive(Debug, Clone)]
pub struct AlipayApiCerts {
    /// `appCertPublicKey_<app_id>.crt`, PEM.
    pub app_cert: String,
    /// `alipayRootCert.crt`, PEM with several certificates.
    pub alipay_root_cert: String,
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
#[derive(Debug, Clone)]
pub struct AlipayAccount {
    pub(super) account: AccountRef,
    pub(super) apps: BTreeMap<String, AlipayApp>,
    pub(super) api_url: String,
    /// The app that asks for the account: the first that can.
    asking_app_id: Option<String>,
}

/// A checked app.
#[derive(Debug, Clone)]
pub(super) struct AlipayApp {
    pub(super) key: RsaPublicKey,
    pub(super) sign_type: SignType,
    pub(super) auth_app_ids: BTreeSet<String>,
    /// In certificate mode: the number of the certificate that `key` is from.
    pub(super) alipay_cert_sn: Option<String>,
    validity: Option<Validity>,
    /// Certificates that Alipay has handed out since, by number.
    learned: BTreeMap<String, LearnedCertificate>,
    pub(super) api: Option<AppApiKeys>,
}

/// A key with the dates of its certificate.
#[derive(Debug, Clone)]
struct LearnedCertificate {
    key: RsaPublicKey,
    validity: Validity,
}

/// What it takes to ask, checked.
#[derive(Debug, Clone)]
pub(super) struct AppApiKeys {
    pub(super) private_key: RsaPrivateKey,
    /// In certificate mode.
    pub(super) certs: Option<AppCerts>,
    pub(super) app_auth_token: Option<SecretText>,
}

/// Of certificate mode.
#[derive(Debug, Clone)]
pub(super) struct AppCerts {
    /// A request carries it.
    pub(super) app_cert_sn: String,
    /// A request carries it.
    pub(super) alipay_root_cert_sn: String,
    /// What a new certificate of Alipay is held against; `None` when Alipay's key is configured without a certificate.
    trust: Option<Trust>,
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
        let api_url = check_api_url(&config.api_url, &mut problems);
        let asking = config.apps.iter().find(|app| app.api.is_some());
        let asking_app_id = asking.map(|app| app.app_id.clone());
        match account {
            Ok(account) if problems.is_empty() => {
                let account = AccountRef { channel: Channel::Alipay, account };
                Ok(Self { account, apps, api_url, asking_app_id })
            }
            _ => Err(problems),
        }
    }

    /// `alipay:<seller_id>`.
    #[must_use]
    pub const fn account(&self) -> &AccountRef {
        &self.account
    }

    /// Our app_ids, sorted: for the start log.
    #[must_use]
    pub fn app_ids(&self) -> Vec<&str> {
        self.apps.keys().map(String::as_str).collect()
    }

    /// `true` when this account can ask Alipay.
    #[must_use]
    pub const fn can_ask(&self) -> bool {
        self.asking_app_id.is_some()
    }

    /// What a person should know about the dates of the configured certificates: for start, reload and `config check`.
    /// An expired certificate still verifies: refusing would lose genuine callbacks.
    #[must_use]
    pub fn key_warnings(&self, now: Timestamp) -> Vec<ConfigProblem> {
        let warning = |(app_id, app): (&String, &AlipayApp)| {
            let problem = app.validity?.problem(now)?;
            Some(ConfigProblem::new("alipay_cert", format!("the Alipay certificate of app {app_id} {problem}")))
        };
        self.apps.iter().filter_map(warning).collect()
    }

    /// The same account, its apps in certificate mode trusting these certificates of Alipay too, as far as they lead to the
    /// configured root.
    #[must_use]
    pub fn with_learned_keys(&self, keys: &[LearnedKey]) -> Self {
        let mut account = self.clone();
        for app in account.apps.values_mut() {
            for key in keys {
                app.learn(key);
            }
        }
        account
    }

    /// The app that asks for the account.
    pub(super) fn asking_app(&self) -> Option<(&str, &AlipayApp, &AppApiKeys)> {
        let (app_id, app) = self.apps.get_key_value(self.asking_app_id.as_ref()?)?;
        Some((app_id, app, app.api.as_ref()?))
    }
}

impl AlipayApp {
    /// The name of a key in the evidence: `2021000000000001/RSA2`, and the number of the certificate after it when Alipay
    /// handed it out.
    pub(super) fn key_id(&self, app_id: &str, cert_sn: Option<&str>) -> String {
        let sign_type = self.sign_type.as_str();
        match cert_sn.filter(|cert_sn| self.learned.contains_key(*cert_sn)) {
            Some(cert_sn) => format!("{app_id}/{sign_type}/{cert_sn}"),
            None => format!("{app_id}/{sign_type}"),
        }
    }

    /// What a new certificate of Alipay is held against.
    pub(super) fn trust(&self) -> Option<&Trust> {
        self.api.as_ref()?.certs.as_ref()?.trust.as_ref()
    }

    fn learn(&mut self, learned: &LearnedKey) {
        let checked = self.trust().and_then(|trust| trust.check(&learned.pem, learned.valid_from).ok());
        let Some(TrustedCertificate { cert_sn, spki, validity }) = checked else { return };
        let Ok(key) = RsaPublicKey::from_spki_der(&spki, self.sign_type.hash()) else { return };
        if self.alipay_cert_sn.as_ref() != Some(&cert_sn) {
            self.learned.insert(cert_sn, LearnedCertificate { key, validity });
        }
    }

    /// In certificate mode: the key of this `alipay_cert_sn`, and nothing else chooses. A learned one counts within its
    /// dates.
    pub(super) fn key_of_cert(&self, cert_sn: &str, now: Timestamp) -> Option<&RsaPublicKey> {
        if self.alipay_cert_sn.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(cert_sn)) {
            return Some(&self.key);
        }
        let learned = self.learned.get(&cert_sn.to_ascii_lowercase())?;
        learned.validity.contains(now).then_some(&learned.key)
    }

    /// Every key that may have signed a notification, which does not say by which certificate; with the number of a learned
    /// one.
    pub(super) fn keys(&self, now: Timestamp) -> impl Iterator<Item = (Option<&str>, &RsaPublicKey)> {
        let learned = self.learned.iter().filter(move |(_, learned)| learned.validity.contains(now));
        let learned = learned.map(|(cert_sn, learned)| (Some(cert_sn.as_str()), &learned.key));
        std::iter::once((None, &self.key)).chain(learned)
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn app(index: usize, config: &AlipayAppConfig, problems: &mut Vec<ConfigProblem>) -> Option<AlipayApp> {
    let found = problems.len();
    if config.app_id.is_empty() || !config.app_id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let problem = format!("{:?} is not an app_id such as 2021000000000001", config.app_id);
        problems.push(ConfigProblem::new(format!("apps[{index}].app_id"), problem));
    }
    let mut told =
        |(field, problem): Told| problems.push(ConfigProblem::new(format!("apps[{index}].{field}"), problem));
    let platform_key = platform_key(config).map_err(&mut told).ok();
    let api = config.api.as_ref().map(|api| api_keys(api, config)).transpose().map_err(&mut told).ok();
    let (platform_key, api) = (platform_key?, api?);
    (problems.len() == found).then(|| AlipayApp {
        key: platform_key.key,
        sign_type: config.sign_type,
        auth_app_ids: config.auth_app_ids.iter().cloned().collect(),
        alipay_cert_sn: platform_key.cert_sn,
        learned: BTreeMap::new(),
        validity: platform_key.validity,
        api,
    })
}

/// A field of the app and what is wrong with it.
type Told = (&'static str, String);

/// Alipay's key and, in certificate mode, what its certificate says.
struct AppPlatformKey {
    key: RsaPublicKey,
    cert_sn: Option<String>,
    validity: Option<Validity>,
}

fn platform_key(config: &AlipayAppConfig) -> Result<AppPlatformKey, Told> {
    let hash = config.sign_type.hash();
    match &config.key {
        AlipayKeyConfig::PublicKey(text) => {
            let told = |problem| ("alipay_public_key", problem);
            let key = spki_from_text(text).and_then(|spki| RsaPublicKey::from_spki_der(&spki, hash)).map_err(told)?;
            Ok(AppPlatformKey { key, cert_sn: None, validity: None })
        }
        AlipayKeyConfig::Certificate(pem) => {
            let told = |problem| ("alipay_cert", problem);
            let certificate = certificate_from_pem(pem).map_err(told)?;
            let key = RsaPublicKey::from_spki_der(&certificate.spki, hash).map_err(told)?;
            let cert_sn = Some(cert_sn(pem).map_err(told)?);
            Ok(AppPlatformKey { key, cert_sn, validity: Some(certificate.validity) })
        }
    }
}

fn api_keys(api: &AlipayAppApiConfig, config: &AlipayAppConfig) -> Result<AppApiKeys, Told> {
    if config.sign_type != SignType::Rsa2 {
        return Err((
            "sign_type",
            "must be RSA2 for an app that asks Alipay: leave app_private_key out, or change it at Alipay".to_owned(),
        ));
    }
    if matches!(config.key, AlipayKeyConfig::Certificate(_)) && api.certs.is_none() {
        return Err((
            "app_cert",
            "is missing: with alipay_cert, Alipay wants app_cert and alipay_root_cert too".to_owned(),
        ));
    }
    let private_key = RsaPrivateKey::from_text(&api.private_key).map_err(|problem| ("app_private_key", problem))?;
    let checked = |certs: &AlipayApiCerts| {
        let app_cert_sn = cert_sn(&certs.app_cert).map_err(|problem| ("app_cert", problem))?;
        let alipay_root_cert_sn =
            root_cert_sn(&certs.alipay_root_cert).map_err(|problem| ("alipay_root_cert", problem))?;
        let trust = match &config.key {
            AlipayKeyConfig::PublicKey(_) => None,
            AlipayKeyConfig::Certificate(pem) => {
                let trust = Trust::try_new(&certs.alipay_root_cert, pem);
                Some(trust.map_err(|problem| ("alipay_root_cert", problem))?)
            }
        };
        Ok(AppCerts { app_cert_sn, alipay_root_cert_sn, trust })
    };
    let certs = api.certs.as_ref().map(checked).transpose()?;
    let app_auth_token = api.app_auth_token.clone();
    if app_auth_token.as_ref().is_some_and(|token| !is_token(token.expose())) {
        let problem = "is not a token as Alipay gives it (printable ASCII without spaces): copy it again";
        return Err(("app_auth_token", problem.to_owned()));
    }
    Ok(AppApiKeys { private_key, certs, app_auth_token })
}
