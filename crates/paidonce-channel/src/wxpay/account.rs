//! One WeChat Pay account: who we are there, and the keys of both directions of trust.

use std::collections::{BTreeSet, HashMap};

use paidonce_order::ids::{AccountId, AccountRef, Channel};
use paidonce_order::timestamp::Timestamp;

use crate::api::LearnedKey;
use crate::keys::{
    Apiv3Key, ConfigProblem, RsaHash, RsaPrivateKey, RsaPublicKey, SecretText, Validity, certificate_from_pem,
    check_api_url, normal_serial, spki_from_text,
};

/// Prefix of a WeChat Pay public key id; part of the id.
const PUBLIC_KEY_ID_PREFIX: &str = "PUB_KEY_ID_";

/// What the configuration file says about one account.
#[derive(Debug, Clone)]
pub struct WxpayAccountConfig {
    /// Merchant number: mchid, or sp_mchid of a service provider.
    pub mchid: String,
    /// Our appids. Checked only where a message has one (refund and share notices have none).
    pub appids: Vec<String>,
    /// Direct merchant, or service provider with sub-merchants.
    pub mode: MerchantMode,
    /// Platform certificates and public keys; several may be live at once.
    pub platform_keys: Vec<PlatformKeyConfig>,
    /// The 32-character APIv3 key.
    pub apiv3_key: SecretText,
    /// The one before, while a rotation is under way (a message carries no key id).
    pub apiv3_key_previous: Option<SecretText>,
    /// What it takes to ask WeChat Pay; `None`: this account only listens.
    pub api: Option<WxpayApiConfig>,
}

/// Where WeChat Pay answers, unless configured otherwise.
pub const WXPAY_API_URL: &str = "https://api.mch.weixin.qq.com";

/// What it takes to ask WeChat Pay.
#[derive(Debug, Clone)]
pub struct WxpayApiConfig {
    /// Base URL without a path, [`WXPAY_API_URL`] as a rule.
    pub api_url: String,
    /// Serial number of our API certificate, as the merchant platform shows it.
    pub merchant_serial: String,
    /// The private key of that certificate, PEM.
    pub merchant_private_key: SecretText,
}

/// Whose money an account receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MerchantMode {
    /// The mchid's own.
    Direct,
    /// A service provider (sp_mchid): also that of these sub-merchants. `*` means any.
    Partner {
        /// sub_mchids.
        sub_mchids: Vec<String>,
    },
}

/// One key of WeChat Pay.
#[derive(Debug, Clone)]
pub enum PlatformKeyConfig {
    /// A platform certificate; its serial number is read from it.
    Certificate {
        /// PEM text.
        pem: String,
    },
    /// A WeChat Pay public key.
    PublicKey {
        /// `PUB_KEY_ID_` and digits, compared exactly.
        id: String,
        /// PEM text.
        pem: String,
    },
}

/// A checked account. Guarantees: at least one platform key and a usable APIv3 key.
#[derive(Debug, Clone)]
pub struct WxpayAccount {
    pub(super) account: AccountRef,
    pub(super) appids: BTreeSet<String>,
    pub(super) sub_mchids: SubMchids,
    platform_keys: HashMap<String, PlatformKey>,
    /// The first configured public key id: the one that answers shall be signed with.
    pub(super) public_key_id: Option<String>,
    pub(super) apiv3_keys: Vec<Apiv3Key>,
    pub(super) api: Option<WxpayApiKeys>,
}

/// What it takes to ask, checked.
#[derive(Debug, Clone)]
pub(super) struct WxpayApiKeys {
    /// Without a slash at the end.
    pub(super) api_url: String,
    /// As configured: WeChat Pay compares it as text.
    pub(super) merchant_serial: String,
    pub(super) private_key: RsaPrivateKey,
}

/// A key of WeChat Pay and how we came to trust it.
#[derive(Debug, Clone)]
struct PlatformKey {
    key: RsaPublicKey,
    /// Of a certificate; a public key has none.
    validity: Option<Validity>,
    trust: Trust,
}

/// Why a platform key is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// A person configured it. Its dates never refuse a message: the person is told instead, since a genuine callback
    /// must not be lost because somebody was slow to change a file.
    Configured,
    /// WeChat Pay told us of it, sealed with the APIv3 key: only within its dates.
    Learned,
}

/// Which sub-merchants are ours.
#[derive(Debug, Clone)]
pub(super) enum SubMchids {
    /// A direct merchant has none.
    None,
    /// Whoever works under this service provider.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

impl SubMchids {
    pub(super) fn has(&self, sub_mchid: &str) -> bool {
        match self {
            Self::None => false,
            Self::Any => !sub_mchid.is_empty(),
            Self::Only(set) => set.contains(sub_mchid),
        }
    }
}

impl WxpayAccount {
    /// Checks everything and reads the keys. Errors: every problem found, not only the first.
    pub fn try_new(config: &WxpayAccountConfig) -> Result<Self, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let account = AccountId::parse(&config.mchid);
        if let Err(error) = &account {
            problems.push(ConfigProblem::new("mchid", error.to_string()));
        }
        check_appids(&config.appids, &mut problems);
        let sub_mchids = sub_mchids(&config.mode, &mut problems);
        let platform_keys = platform_keys(&config.platform_keys, &mut problems);
        let apiv3_keys = apiv3_keys(config, &mut problems);
        let api = config.api.as_ref().and_then(|api| api_keys(api, &mut problems));
        match account {
            Ok(account) if problems.is_empty() => Ok(Self {
                account: AccountRef { channel: Channel::Wxpay, account },
                appids: config.appids.iter().cloned().collect(),
                sub_mchids,
                platform_keys,
                public_key_id: config.platform_keys.iter().find_map(PlatformKeyConfig::public_key_id),
                apiv3_keys,
                api,
            }),
            _ => Err(problems),
        }
    }

    /// `wxpay:<mchid>`.
    #[must_use]
    pub const fn account(&self) -> &AccountRef {
        &self.account
    }

    /// Ids under which a signature is accepted (serials without leading zeros, public key ids), sorted: for the start log.
    #[must_use]
    pub fn platform_key_ids(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = self.platform_keys.keys().map(String::as_str).collect();
        ids.sort_unstable();
        ids
    }

    /// What a person should know about the dates of the configured certificates: for start, reload and `config check`.
    /// An expired certificate still verifies: refusing would lose genuine callbacks.
    #[must_use]
    pub fn key_warnings(&self, now: Timestamp) -> Vec<ConfigProblem> {
        let configured = self.platform_keys.iter().filter(|(_, key)| key.trust == Trust::Configured);
        let warning = |(id, key): (&String, &PlatformKey)| {
            let problem = key.validity?.problem(now)?;
            Some(ConfigProblem::new("platform_keys", format!("platform certificate {id} {problem}")))
        };
        let mut warnings: Vec<ConfigProblem> = configured.filter_map(warning).collect();
        warnings.sort_by(|left, right| left.problem.cmp(&right.problem));
        warnings
    }

    /// The same account, knowing these keys too. A configured key of the same serial wins; what is not a usable
    /// certificate of its serial is left out.
    #[must_use]
    pub fn with_learned_keys(&self, keys: &[LearnedKey]) -> Self {
        let mut account = self.clone();
        for learned in keys {
            let Some((serial, key)) = learned_key(learned) else { continue };
            let configured = account.platform_keys.get(&serial).is_some_and(|known| known.trust == Trust::Configured);
            if !configured {
                account.platform_keys.insert(serial, key);
            }
        }
        account
    }

    /// `true` when this account can ask WeChat Pay.
    #[must_use]
    pub const fn can_ask(&self) -> bool {
        self.api.is_some()
    }

    /// The key that `Wechatpay-Serial` names, and nothing else chooses. Also gives its id in normal form.
    pub(super) fn platform_key(&self, serial: &str, now: Timestamp) -> Option<(&str, &RsaPublicKey)> {
        let id = if serial.starts_with(PUBLIC_KEY_ID_PREFIX) { serial.to_owned() } else { normal_serial(serial)? };
        let (id, known) = self.platform_keys.get_key_value(&id)?;
        let trusted = match known.trust {
            Trust::Configured => true,
            Trust::Learned => known.validity.is_some_and(|validity| validity.contains(now)),
        };
        trusted.then_some((id.as_str(), &known.key))
    }
}

impl PlatformKeyConfig {
    fn public_key_id(&self) -> Option<String> {
        match self {
            Self::PublicKey { id, .. } => Some(id.clone()),
            Self::Certificate { .. } => None,
        }
    }
}

/// The certificate of a learned key, when it is one and has the serial that it was announced with.
fn learned_key(learned: &LearnedKey) -> Option<(String, PlatformKey)> {
    let certificate = certificate_from_pem(&learned.pem).ok()?;
    if normal_serial(&learned.serial)? != certificate.serial {
        return None;
    }
    let key = RsaPublicKey::from_spki_der(&certificate.spki, RsaHash::Sha256).ok()?;
    let announced = Validity { from: learned.valid_from, to: learned.valid_to };
    let validity = Some(announced.overlap(certificate.validity));
    Some((certificate.serial, PlatformKey { key, validity, trust: Trust::Learned }))
}

fn api_keys(config: &WxpayApiConfig, problems: &mut Vec<ConfigProblem>) -> Option<WxpayApiKeys> {
    let found = problems.len();
    let api_url = check_api_url(&config.api_url, problems);
    let serial = config.merchant_serial.as_str();
    if normal_serial(serial).is_none() {
        let problem = format!(
            "{serial:?} is not a hexadecimal serial number: copy it from the merchant platform (API security, API certificate)"
        );
        problems.push(ConfigProblem::new("merchant_serial", problem));
    }
    let private_key = RsaPrivateKey::from_text(&config.merchant_private_key)
        .map_err(|problem| problems.push(ConfigProblem::new("merchant_private_key", problem)))
        .ok()?;
    (problems.len() == found).then(|| WxpayApiKeys { api_url, merchant_serial: serial.to_owned(), private_key })
}

fn check_appids(appids: &[String], problems: &mut Vec<ConfigProblem>) {
    if appids.is_empty() {
        problems.push(ConfigProblem::new("appids", "is empty: list the appids that take payments for this mchid"));
    }
    for (index, appid) in appids.iter().enumerate() {
        if appid.is_empty() || !appid.bytes().all(|b| b.is_ascii_alphanumeric()) {
            let problem = format!("{appid:?} is not an appid such as wx0000000000000001");
            problems.push(ConfigProblem::new(format!("appids[{index}]"), problem));
        }
    }
}

fn sub_mchids(mode: &MerchantMode, problems: &mut Vec<ConfigProblem>) -> SubMchids {
    let MerchantMode::Partner { sub_mchids } = mode else { return SubMchids::None };
    if sub_mchids.iter().any(|sub| sub == "*") {
        return SubMchids::Any;
    }
    if sub_mchids.is_empty() {
        problems.push(ConfigProblem::new("sub_mchids", "is empty: list the sub-merchants, or \"*\" for any"));
    }
    for (index, sub_mchid) in sub_mchids.iter().enumerate() {
        if let Err(error) = AccountId::parse(sub_mchid) {
            problems.push(ConfigProblem::new(format!("sub_mchids[{index}]"), error.to_string()));
        }
    }
    SubMchids::Only(sub_mchids.iter().cloned().collect())
}

fn platform_keys(configs: &[PlatformKeyConfig], problems: &mut Vec<ConfigProblem>) -> HashMap<String, PlatformKey> {
    let mut keys = HashMap::new();
    if configs.is_empty() {
        let problem =
            "is empty: give the platform certificate or the WeChat Pay public key, without one nothing verifies";
        problems.push(ConfigProblem::new("platform_keys", problem));
    }
    for (index, config) in configs.iter().enumerate() {
        match platform_key(config) {
            Ok((id, key)) => {
                if keys.insert(id.clone(), key).is_some() {
                    let problem = format!("{id} is there twice: remove one");
                    problems.push(ConfigProblem::new(format!("platform_keys[{index}]"), problem));
                }
            }
            Err((field, problem)) => {
                problems.push(ConfigProblem::new(format!("platform_keys[{index}].{field}"), problem));
            }
        }
    }
    keys
}

fn platform_key(config: &PlatformKeyConfig) -> Result<(String, PlatformKey), (&'static str, String)> {
    let trust = Trust::Configured;
    match config {
        PlatformKeyConfig::Certificate { pem } => {
            let certificate = certificate_from_pem(pem).map_err(|problem| ("certificate", problem))?;
            let key = RsaPublicKey::from_spki_der(&certificate.spki, RsaHash::Sha256)
                .map_err(|problem| ("certificate", problem))?;
            Ok((certificate.serial, PlatformKey { key, validity: Some(certificate.validity), trust }))
        }
        PlatformKeyConfig::PublicKey { id, pem } => {
            let digits = id.strip_prefix(PUBLIC_KEY_ID_PREFIX).unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
                let problem = format!("{id:?} is not {PUBLIC_KEY_ID_PREFIX} and digits: copy the whole id");
                return Err(("public_key_id", problem));
            }
            let spki = spki_from_text(pem).map_err(|problem| ("public_key", problem))?;
            let key = RsaPublicKey::from_spki_der(&spki, RsaHash::Sha256).map_err(|problem| ("public_key", problem))?;
            Ok((id.clone(), PlatformKey { key, validity: None, trust }))
        }
    }
}

fn apiv3_keys(config: &WxpayAccountConfig, problems: &mut Vec<ConfigProblem>) -> Vec<Apiv3Key> {
    let current = [("apiv3_key", Some(&config.apiv3_key))];
    let previous = [("apiv3_key_previous", config.apiv3_key_previous.as_ref())];
    let mut keys = Vec::new();
    for (field, text) in current.into_iter().chain(previous) {
        match text.map(Apiv3Key::try_new) {
            Some(Ok(key)) => keys.push(key),
            Some(Err(problem)) => problems.push(ConfigProblem::new(field, problem)),
            None => {}
        }
    }
    keys
}
