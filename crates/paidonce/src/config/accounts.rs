//! `[[wxpay]]` and `[[alipay]]`: the accounts and their key material. The channel crate parses and checks the keys; here its
//! findings get the line of the file.

use std::collections::BTreeMap;

use paidonce_channel::alipay::{
    ALIPAY_API_URL, AlipayAccount, AlipayAccountConfig, AlipayApiCerts, AlipayAppApiConfig, AlipayAppConfig,
    AlipayKeyConfig, SignType,
};
use paidonce_channel::keys::{ConfigProblem, SecretText};
use paidonce_channel::wxpay::{
    MerchantMode, PlatformKeyConfig, WXPAY_API_URL, WxpayAccount, WxpayAccountConfig, WxpayApiConfig,
};
use paidonce_http::Money;
use paidonce_order::ids::AccountRef;

use super::secret::{Secret, variable_part};
use super::section::{Located, Section};

/// All accounts of the configuration, checked.
#[derive(Debug, Clone, Default)]
pub struct AccountsConfig {
    /// Ready for the channel crate.
    pub ours: paidonce_channel::OurAccounts,
    /// One line for a person about each.
    pub summary: Vec<(AccountRef, String)>,
    /// Those whose platform changes its certificates by itself, and that can ask for the new ones.
    pub refreshed: Vec<AccountRef>,
}

/// Where the fields of one account stand, and which of them were already complained about.
struct Lines<'a, 'b> {
    section: &'a Section<'b>,
    by_field: BTreeMap<String, Option<usize>>,
    told: Vec<String>,
}

impl<'a, 'b> Lines<'a, 'b> {
    const fn new(section: &'a Section<'b>) -> Self {
        Self { section, by_field: BTreeMap::new(), told: Vec::new() }
    }

    fn at(&mut self, field: impl Into<String>, line: Option<usize>) {
        self.by_field.insert(field.into(), line);
    }

    /// A problem of our own: what the channel crate would say of the same field is dropped.
    fn missing(&mut self, field: &str, what_to_do: &str) {
        self.section.problem(None, format!("{} is missing: {what_to_do}", self.section.name(field)));
        self.told.push(field.to_owned());
    }

    /// What the channel crate says, with the line of the longest field name that we know.
    fn report(&self, problems: Vec<ConfigProblem>) {
        for ConfigProblem { field, problem } in problems {
            if self.told.iter().any(|told| field.starts_with(told.as_str())) {
                continue;
            }
            let known = self.by_field.iter().filter(|(known, _)| field.starts_with(known.as_str()));
            let line = known.max_by_key(|(known, _)| known.len()).and_then(|(_, line)| *line);
            let name = self.section.name(&counted_from_one(&field));
            self.section.problem(line, format!("{name}: {problem}"));
        }
    }
}

/// `platform_keys[0].certificate` as people count: `platform_keys[1].certificate`.
fn counted_from_one(field: &str) -> String {
    let mut parts = field.split('[');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (index, rest) = part.split_once(']').unwrap_or((part, ""));
        let index = index.parse::<usize>().map_or_else(|_| index.to_owned(), |index| (index + 1).to_string());
        name.push_str(&format!("[{index}]{rest}"));
    }
    name
}

/// What an account with our private key does.
const ASKS: &str = "asks its platform";
const LISTENS: &str = "only listens (no private key)";

pub(super) fn read(root: &Section<'_>, money: Money) -> AccountsConfig {
    let (wxpay, alipay) = (root.sections("wxpay"), root.sections("alipay"));
    let wxpay: Vec<_> = wxpay.iter().filter_map(|section| read_wxpay(section, money)).collect();
    let alipay: Vec<_> = alipay.iter().filter_map(|section| read_alipay(section, money)).collect();
    let of_wxpay = wxpay.iter().map(|account| {
        let (keys, asks) = (account.platform_key_ids().join(", "), if account.can_ask() { ASKS } else { LISTENS });
        (account.account().clone(), format!("platform keys {keys}; {asks}"))
    });
    let of_alipay = alipay.iter().map(|account| {
        let (apps, asks) = (account.app_ids().join(", "), if account.can_ask() { ASKS } else { LISTENS });
        (account.account().clone(), format!("apps {apps}; {asks}"))
    });
    let summary = of_wxpay.chain(of_alipay).collect();
    let refreshed = wxpay.iter().filter(|account| account.can_ask() && has_certificate(account));
    let refreshed = refreshed.map(|account| account.account().clone()).collect();
    match paidonce_channel::OurAccounts::try_new(wxpay, alipay) {
        Ok(ours) => AccountsConfig { ours, summary, refreshed },
        Err(problems) => {
            problems.into_iter().for_each(|problem| root.problem(None, problem.to_string()));
            AccountsConfig::default()
        }
    }
}

/// A public key has a name of its own and is changed by a person.
fn has_certificate(account: &WxpayAccount) -> bool {
    account.platform_key_ids().iter().any(|id| !id.starts_with("PUB_KEY_ID_"))
}

/// The text of a required field; empty when it was reported as missing.
fn required(lines: &mut Lines<'_, '_>, key: &'static str, what_to_do: &str) -> String {
    match lines.section.string(key) {
        Some(found) => {
            lines.at(key, found.line);
            found.value
        }
        None if lines.section.has(key) => {
            lines.told.push(key.to_owned());
            String::new()
        }
        None => {
            lines.missing(key, what_to_do);
            String::new()
        }
    }
}

fn read_wxpay(section: &Section<'_>, money: Money) -> Option<WxpayAccount> {
    let lines = &mut Lines::new(section);
    let mchid = required(lines, "mchid", "write mchid = \"1900000001\"");
    let appids = strings(lines, "appids", "write appids = [\"wx0000000000000001\"]");
    let mode = read_mode(lines);
    let variable = format!("PAIDONCE_WXPAY_{}_APIV3_KEY", variable_part(&mchid));
    let apiv3_key = section.secret(["apiv3_key", "apiv3_key_file"], &variable);
    if apiv3_key.is_none() {
        lines.told.push("apiv3_key".to_owned());
        if !section.has("apiv3_key_file") && !section.has("apiv3_key") {
            lines.missing("apiv3_key_file", &format!("name a file with the APIv3 key, or set {variable}"));
        }
    }
    let previous = section.secret(["apiv3_key_previous", "apiv3_key_previous_file"], &format!("{variable}_PREVIOUS"));
    let mut text = |field: &str, secret: Located<Secret>| {
        lines.at(field, secret.line);
        SecretText::from(secret.value.reveal())
    };
    let apiv3_key = apiv3_key.map(|key| text("apiv3_key", key)).unwrap_or_else(|| SecretText::from(""));
    let apiv3_key_previous = previous.map(|key| text("apiv3_key_previous", key));
    let platform_keys = read_platform_keys(lines);
    let api = read_wxpay_api(lines, &mchid, money);
    section.finish();
    let config = WxpayAccountConfig { mchid, appids, mode, platform_keys, apiv3_key, apiv3_key_previous, api };
    WxpayAccount::try_new(&config).map_err(|problems| lines.report(problems)).ok()
}

/// What it takes to ask: both keys or none.
fn read_wxpay_api(lines: &mut Lines<'_, '_>, mchid: &str, money: Money) -> Option<WxpayApiConfig> {
    let section = lines.section;
    let variable = format!("PAIDONCE_WXPAY_{}_MERCHANT_PRIVATE_KEY", variable_part(mchid));
    let key = section.secret(["merchant_private_key", "merchant_private_key_file"], &variable);
    let has_key = key.is_some() || section.has("merchant_private_key") || section.has("merchant_private_key_file");
    let serial = section.string("merchant_serial");
    let api_url = read_api_url(lines, WXPAY_API_URL, money);
    match (section.has("merchant_serial"), has_key) {
        (true, true) => {}
        (false, false) => return None,
        (true, false) => {
            let what = format!("name a file with the private key of our API certificate, or set {variable}");
            lines.missing("merchant_private_key_file", &what);
        }
        (false, true) => {
            lines.missing(
                "merchant_serial",
                "write the serial number of our API certificate, as the merchant platform shows it",
            );
        }
    }
    let (serial, key) = (serial?, key?);
    lines.at("merchant_serial", serial.line);
    lines.at("merchant_private_key", key.line);
    let merchant_private_key = SecretText::from(key.value.reveal());
    Some(WxpayApiConfig { api_url, merchant_serial: serial.value, merchant_private_key })
}

fn read_api_url(lines: &mut Lines<'_, '_>, default: &str, money: Money) -> String {
    let Some(found) = lines.section.string("api_url") else { return default.to_owned() };
    lines.at("api_url", found.line);
    if found.value.starts_with("http://") && money == Money::Real {
        let name = lines.section.name("api_url");
        let warning =
            format!("{name} is not https://: whoever is between reads our orders (the sandbox says [sandbox])");
        lines.section.document.warning(found.line, warning);
    }
    found.value
}

fn strings(lines: &mut Lines<'_, '_>, key: &'static str, what_to_do: &str) -> Vec<String> {
    let found = lines.section.strings(key).unwrap_or_default();
    if found.is_empty() && !lines.section.has(key) {
        lines.missing(key, what_to_do);
    }
    for (index, text) in found.iter().enumerate() {
        lines.at(format!("{key}[{index}]"), text.line);
    }
    lines.at(key, found.first().and_then(|text| text.line));
    found.into_iter().map(|text| text.value).collect()
}

fn read_mode(lines: &mut Lines<'_, '_>) -> MerchantMode {
    let section = lines.section;
    if section.boolean("partner") == Some(true) {
        return MerchantMode::Partner {
            sub_mchids: strings(lines, "sub_mchids", "write sub_mchids = [\"*\"] for any"),
        };
    }
    if let Some(first) = section.strings("sub_mchids").and_then(|list| list.into_iter().next()) {
        let name = section.name("sub_mchids");
        section.problem(first.line, format!("{name} is for partners only: write partner = true, or remove it"));
    }
    MerchantMode::Direct
}

fn read_platform_keys(lines: &mut Lines<'_, '_>) -> Vec<PlatformKeyConfig> {
    let sections = lines.section.sections("platform_keys");
    if sections.is_empty() {
        lines.missing("platform_keys", "add a [[wxpay.platform_keys]] with the certificate or the public key");
    }
    let mut keys = Vec::new();
    for section in &sections {
        // The index among the good ones: that is what the channel crate counts.
        let Some(key) = read_platform_key(section) else { continue };
        lines.at(format!("platform_keys[{}]", keys.len()), section.line);
        keys.push(key);
    }
    if keys.is_empty() {
        lines.told.push("platform_keys".to_owned());
    }
    keys
}

fn read_platform_key(section: &Section<'_>) -> Option<PlatformKeyConfig> {
    let (certificate, id) = (section.file("certificate_file"), section.string("public_key_id"));
    let pem = section.file("public_key_file");
    let has = |key| section.has(key);
    let given = (has("certificate_file"), has("public_key_id"), has("public_key_file"));
    section.finish();
    let path = &section.path;
    match given {
        (true, false, false) => Some(PlatformKeyConfig::Certificate { pem: certificate?.value }),
        (false, true, true) => Some(PlatformKeyConfig::PublicKey { id: id?.value, pem: pem?.value }),
        (false, _, _) => {
            section.problem(None, format!("{path} needs certificate_file, or public_key_id and public_key_file"));
            None
        }
        (true, _, _) => {
            let problem =
                format!("{path} has a certificate and a public key: write a [[wxpay.platform_keys]] for each");
            section.problem(None, problem);
            None
        }
    }
}

fn read_alipay(section: &Section<'_>, money: Money) -> Option<AlipayAccount> {
    let lines = &mut Lines::new(section);
    let seller_id = required(lines, "seller_id", "write seller_id = \"2088000000000001\"");
    let sections = section.sections("apps");
    if sections.is_empty() {
        lines.missing("apps", "add a [[alipay.apps]] with app_id and alipay_public_key_file");
    }
    let mut apps = Vec::new();
    for app_section in &sections {
        let Some(app) = read_app(app_section) else { continue };
        lines.at(format!("apps[{}]", apps.len()), app_section.line);
        apps.push(app);
    }
    if apps.is_empty() {
        lines.told.push("apps".to_owned());
    }
    let api_url = read_api_url(lines, ALIPAY_API_URL, money);
    section.finish();
    let config = AlipayAccountConfig { seller_id, apps, api_url };
    AlipayAccount::try_new(&config).map_err(|problems| lines.report(problems)).ok()
}

fn read_app(section: &Section<'_>) -> Option<AlipayAppConfig> {
    let app_id = section.required("app_id", "\"2021000000000001\"");
    let (public_key, certificate) = (section.file("alipay_public_key_file"), section.file("alipay_cert_file"));
    let given = (section.has("alipay_public_key_file"), section.has("alipay_cert_file"));
    let sign_type = read_sign_type(section);
    let auth_app_ids = section.strings("auth_app_ids").unwrap_or_default();
    let api = read_app_api(section, app_id.as_ref().map_or("", |id| &id.value));
    section.finish();
    let key = match given {
        (true, false) => public_key.map(|text| AlipayKeyConfig::PublicKey(text.value)),
        (false, true) => certificate.map(|text| AlipayKeyConfig::Certificate(text.value)),
        (true, true) | (false, false) => {
            let path = &section.path;
            section.problem(None, format!("{path} needs one of alipay_public_key_file and alipay_cert_file"));
            None
        }
    };
    let auth_app_ids = auth_app_ids.into_iter().map(|id| id.value).collect();
    Some(AlipayAppConfig { app_id: app_id?.value, key: key?, sign_type, auth_app_ids, api })
}

/// What it takes to ask through this app; `None` when it has no private key, or when it was complained about.
fn read_app_api(section: &Section<'_>, app_id: &str) -> Option<AlipayAppApiConfig> {
    let variable = format!("PAIDONCE_ALIPAY_{}_APP_PRIVATE_KEY", variable_part(app_id));
    let key = section.secret(["app_private_key", "app_private_key_file"], &variable);
    let has_key = key.is_some() || section.has("app_private_key") || section.has("app_private_key_file");
    let (app_cert, root_cert) = (section.file("app_cert_file"), section.file("alipay_root_cert_file"));
    let given = (section.has("app_cert_file"), section.has("alipay_root_cert_file"));
    let path = &section.path;
    if given.0 != given.1 {
        let problem = format!("{path} needs app_cert_file and alipay_root_cert_file together, or neither");
        section.problem(None, problem);
        return None;
    }
    if given.0 && !has_key {
        let problem =
            format!("{path} has certificates to ask with, but no key: add app_private_key_file, or set {variable}");
        section.problem(None, problem);
        return None;
    }
    let variable = format!("PAIDONCE_ALIPAY_{}_APP_AUTH_TOKEN", variable_part(app_id));
    let app_auth_token = section.secret(["app_auth_token", "app_auth_token_file"], &variable);
    if app_auth_token.is_some() && !has_key {
        section
            .problem(None, format!("{path} has an app_auth_token, but no key to ask with: add app_private_key_file"));
        return None;
    }
    let app_auth_token = app_auth_token.map(|token| SecretText::from(token.value.reveal()));
    let private_key = SecretText::from(key?.value.reveal());
    let certs = match given {
        (true, true) => Some(AlipayApiCerts { app_cert: app_cert?.value, alipay_root_cert: root_cert?.value }),
        (true, false) | (false, true) | (false, false) => None,
    };
    Some(AlipayAppApiConfig { private_key, certs, app_auth_token })
}

fn read_sign_type(section: &Section<'_>) -> SignType {
    let Some(found) = section.string("sign_type") else { return SignType::default() };
    SignType::parse(&found.value).unwrap_or_else(|| {
        let (name, value) = (section.name("sign_type"), &found.value);
        section.problem(found.line, format!("{name} must be RSA2 or RSA, not {value:?}"));
        SignType::default()
    })
}
