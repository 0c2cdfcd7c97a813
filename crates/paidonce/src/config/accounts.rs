//! `[[wxpay]]` and `[[alipay]]`: the accounts and their key material, as text. The channel crate parses the keys.

use paidonce_order::ids::AccountId;

use super::secret::{Secret, variable_part};
use super::section::{Located, Section};

/// One WeChat Pay account.
#[derive(Debug, Clone)]
pub struct WxpayAccountConfig {
    /// mchid, or sp_mchid of a partner.
    pub mchid: AccountId,
    /// Line of the table.
    pub line: Option<usize>,
    /// Our appids.
    pub appids: Vec<String>,
    /// What kind of merchant.
    pub merchant: WxpayMerchant,
    /// APIv3 keys, the current one first.
    pub apiv3_keys: Vec<Located<Secret>>,
    /// Platform certificates and public keys.
    pub platform_keys: Vec<WxpayPlatformKey>,
}

/// Direct or partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WxpayMerchant {
    /// Its own orders only.
    Direct,
    /// Service provider; `["*"]` means any sub merchant.
    Partner {
        /// Which sub merchants.
        sub_mchids: Vec<String>,
    },
}

/// A key of the platform.
#[derive(Debug, Clone)]
pub enum WxpayPlatformKey {
    /// Its serial stands in it.
    Certificate {
        /// PEM text.
        pem: Located<String>,
    },
    /// Named by an id.
    PublicKey {
        /// `PUB_KEY_ID_..`.
        id: String,
        /// PEM text.
        pem: Located<String>,
    },
}

/// One Alipay account.
#[derive(Debug, Clone)]
pub struct AlipayAccountConfig {
    /// seller_id (2088..).
    pub seller_id: AccountId,
    /// Line of the table.
    pub line: Option<usize>,
    /// Our apps.
    pub apps: Vec<AlipayAppConfig>,
}

/// One app of an Alipay account.
#[derive(Debug, Clone)]
pub struct AlipayAppConfig {
    /// app_id.
    pub app_id: String,
    /// What Alipay signs with.
    pub key: AlipayKey,
    /// Pinned algorithm.
    pub sign_type: AlipaySignType,
}

/// Alipay's public key.
#[derive(Debug, Clone)]
pub enum AlipayKey {
    /// PEM, or the console's bare base64.
    PublicKey(Located<String>),
    /// Certificate in PEM.
    Certificate(Located<String>),
}

/// Pinned algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlipaySignType {
    /// SHA-256 with RSA.
    Rsa2,
    /// SHA-1 with RSA; only when asked for.
    Rsa,
}

/// AES-256.
const APIV3_KEY_BYTES: usize = 32;

pub(super) fn read_wxpay(sections: &[Section<'_>]) -> Vec<WxpayAccountConfig> {
    let accounts: Vec<_> = sections.iter().filter_map(read_wxpay_account).collect();
    report_repeats(sections, "mchid", accounts.iter().map(|account| (account.mchid.as_str(), account.line)));
    accounts
}

fn read_account_id(section: &Section<'_>, key: &str, example: &str) -> Option<AccountId> {
    let found = section.required(key, example)?;
    AccountId::parse(&found.value)
        .map_err(|error| section.problem(found.line, format!("{}: {error}", section.name(key))))
        .ok()
}

fn read_wxpay_account(section: &Section<'_>) -> Option<WxpayAccountConfig> {
    let mchid = read_account_id(section, "mchid", "\"1900000001\"");
    let appids = section.strings("appids");
    if appids.as_ref().is_none_or(Vec::is_empty) {
        section
            .problem(None, format!("{} is missing: write appids = [\"wx0000000000000001\"]", section.name("appids")));
    }
    let merchant = read_merchant(section);
    let variable =
        mchid.as_ref().map_or_else(String::new, |id| format!("PAIDONCE_WXPAY_{}_", variable_part(id.as_str())));
    let apiv3_keys = read_apiv3_keys(section, &variable);
    let key_sections = section.sections("platform_keys");
    if key_sections.is_empty() {
        let name = section.name("platform_keys");
        section.problem(
            None,
            format!("{name} is missing: add a [[wxpay.platform_keys]] with the certificate or the public key"),
        );
    }
    let platform_keys = key_sections.iter().filter_map(read_platform_key).collect();
    section.finish();
    let appids = appids.unwrap_or_default().into_iter().map(|appid| appid.value).collect();
    Some(WxpayAccountConfig { mchid: mchid?, line: section.line, appids, merchant, apiv3_keys, platform_keys })
}

fn read_merchant(section: &Section<'_>) -> WxpayMerchant {
    let sub_mchids = section.strings("sub_mchids");
    let name = section.name("sub_mchids");
    if section.boolean("partner") == Some(true) {
        let sub_mchids = sub_mchids.unwrap_or_default();
        if sub_mchids.is_empty() {
            section.problem(None, format!("{name} is missing: list the sub merchants, or write sub_mchids = [\"*\"]"));
        }
        return WxpayMerchant::Partner { sub_mchids: sub_mchids.into_iter().map(|found| found.value).collect() };
    }
    if let Some(first) = sub_mchids.and_then(|list| list.into_iter().next()) {
        section.problem(first.line, format!("{name} is for partners only: write partner = true, or remove it"));
    }
    WxpayMerchant::Direct
}

fn read_apiv3_keys(section: &Section<'_>, variable: &str) -> Vec<Located<Secret>> {
    let current = section.secret(["apiv3_key", "apiv3_key_file"], &format!("{variable}APIV3_KEY"));
    if current.is_none() && !section.has("apiv3_key_file") && !section.has("apiv3_key") {
        let name = section.name("apiv3_key_file");
        section.problem(None, format!("{name} is missing: name a file with the APIv3 key, or set {variable}APIV3_KEY"));
    }
    let previous =
        section.secret(["apiv3_key_previous", "apiv3_key_previous_file"], &format!("{variable}APIV3_KEY_PREVIOUS"));
    let keys: Vec<_> = current.into_iter().chain(previous).collect();
    for key in &keys {
        let bytes = key.value.reveal().len();
        if bytes != APIV3_KEY_BYTES {
            let path = &section.path;
            section
                .problem(key.line, format!("{path}: an APIv3 key has {APIV3_KEY_BYTES} bytes, this one has {bytes}"));
        }
    }
    keys
}

fn read_platform_key(section: &Section<'_>) -> Option<WxpayPlatformKey> {
    let (certificate, id) = (section.file("certificate_file"), section.string("public_key_id"));
    let pem = section.file("public_key_file");
    let named = |key| section.has(key);
    let (has_certificate, has_id, has_key) =
        (named("certificate_file"), named("public_key_id"), named("public_key_file"));
    section.finish();
    let path = &section.path;
    match (has_certificate, has_id, has_key) {
        (true, false, false) => Some(WxpayPlatformKey::Certificate { pem: certificate? }),
        (false, true, true) => Some(WxpayPlatformKey::PublicKey { id: id?.value, pem: pem? }),
        (false, _, _) => {
            section.problem(None, format!("{path} needs certificate_file, or public_key_id and public_key_file"));
            None
        }
        (true, _, _) => {
            section.problem(
                None,
                format!("{path} has a certificate and a public key: write a [[wxpay.platform_keys]] for each"),
            );
            None
        }
    }
}

pub(super) fn read_alipay(sections: &[Section<'_>]) -> Vec<AlipayAccountConfig> {
    let accounts: Vec<_> = sections.iter().filter_map(read_alipay_account).collect();
    report_repeats(sections, "seller_id", accounts.iter().map(|account| (account.seller_id.as_str(), account.line)));
    accounts
}

fn read_alipay_account(section: &Section<'_>) -> Option<AlipayAccountConfig> {
    let seller_id = read_account_id(section, "seller_id", "\"2088000000000001\"");
    let app_sections = section.sections("apps");
    if app_sections.is_empty() {
        let name = section.name("apps");
        section
            .problem(None, format!("{name} is missing: add a [[alipay.apps]] with app_id and alipay_public_key_file"));
    }
    let apps = app_sections.iter().filter_map(read_alipay_app).collect();
    section.finish();
    Some(AlipayAccountConfig { seller_id: seller_id?, line: section.line, apps })
}

fn read_alipay_app(section: &Section<'_>) -> Option<AlipayAppConfig> {
    let app_id = section.required("app_id", "\"2021000000000001\"");
    let (public_key, certificate) = (section.file("alipay_public_key_file"), section.file("alipay_cert_file"));
    let (has_key, has_certificate) = (section.has("alipay_public_key_file"), section.has("alipay_cert_file"));
    let sign_type = read_sign_type(section);
    section.finish();
    let key = match (has_key, has_certificate) {
        (true, false) => public_key.map(AlipayKey::PublicKey),
        (false, true) => certificate.map(AlipayKey::Certificate),
        (true, true) | (false, false) => {
            let path = &section.path;
            section.problem(None, format!("{path} needs one of alipay_public_key_file and alipay_cert_file"));
            None
        }
    };
    Some(AlipayAppConfig { app_id: app_id?.value, key: key?, sign_type })
}

fn read_sign_type(section: &Section<'_>) -> AlipaySignType {
    let Some(found) = section.string("sign_type") else { return AlipaySignType::Rsa2 };
    match found.value.as_str() {
        "RSA2" => AlipaySignType::Rsa2,
        "RSA" => AlipaySignType::Rsa,
        other => {
            section.problem(found.line, format!("{} must be RSA2 or RSA, not {other:?}", section.name("sign_type")));
            AlipaySignType::Rsa2
        }
    }
}

/// Two tables for one name would make one of them dead.
pub(super) fn report_repeats<'a>(
    sections: &[Section<'_>],
    key: &str,
    names: impl Iterator<Item = (&'a str, Option<usize>)>,
) {
    let Some(section) = sections.first() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for (name, line) in names {
        if !seen.insert(name) {
            section.document.problem(line, format!("{key} {name:?} is given twice: keep one table"));
        }
    }
}
