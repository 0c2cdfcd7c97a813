//! Writes the `paidonce.toml` of a server under test, with its key files beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::database::Database;
use crate::keys::TestKey;
use crate::platform_stub::PlatformStub;
use crate::{keys, signer, warehouse};

/// Bearer secret of the token with scope `service`.
pub const SERVICE_TOKEN: &str = "test-only-token-service-0123456789abcdef";
/// Bearer secret of the token with scope `finance`.
pub const FINANCE_TOKEN: &str = "test-only-token-finance-0123456789abcdef";
/// Bearer secret of the token with scope `operator`.
pub const OPERATOR_TOKEN: &str = "test-only-token-operator-0123456789abcdef";

/// What a test may change about its server.
#[derive(Debug, Clone)]
pub struct Config {
    /// WeChat Pay accounts.
    pub wxpay: Vec<WxAccount>,
    /// Alipay accounts.
    pub alipay: Vec<AlipayAccount>,
    /// `[[subscribers]] events` of the warehouse; empty: there is no subscriber.
    pub warehouse_events: Vec<String>,
    /// `[effects] retry_seconds`.
    pub retry_seconds: Vec<u32>,
    /// `[effects] request_timeout_seconds`.
    pub request_timeout_seconds: u32,
    /// `[database] writers`.
    pub writers: u32,
    /// `[database] queue_jobs_max`.
    pub queue_jobs_max: u32,
    /// `[[wxpay]]`, `[[alipay]]` and `[sandbox]` as a sandbox wrote them, in place of the accounts above.
    pub sandbox_accounts: Option<String>,
    /// Whether the accounts have what it takes to ask the platforms (played by [`PlatformStub`]).
    pub asking: Asking,
    /// `[channel_calls]`, written only when the accounts can ask.
    pub channel_calls: ChannelCalls,
    /// More lines for `[server]`, for example a small queue.
    pub server_lines: String,
    /// More tables, appended as they are.
    pub more: String,
}

/// Whether the accounts can ask the platforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// They have keys of their own.
    Yes,
    /// They only listen.
    No,
}

/// `[channel_calls]`: short times, because a test mostly waits for them.
#[derive(Debug, Clone)]
pub struct ChannelCalls {
    /// Timeout of a call.
    pub request_timeout_seconds: u32,
    /// Answers younger than this are used again.
    pub fresh_seconds: u32,
    /// Between two refreshes of the platform's keys.
    pub key_refresh_min_seconds: u32,
    /// Calls to one account.
    pub calls_per_second: u32,
}

/// A `[[wxpay]]` table.
#[derive(Debug, Clone)]
pub struct WxAccount {
    /// mchid or sp_mchid.
    pub mchid: String,
    /// appids.
    pub appids: Vec<String>,
    /// Whether `mchid` is an sp_mchid; then any sub_mchid.
    pub partner: bool,
    /// Current APIv3 key, then at most one previous.
    pub apiv3_keys: Vec<String>,
    /// Platform certificates and public keys.
    pub keys: Vec<&'static TestKey>,
}

/// An `[[alipay]]` table.
#[derive(Debug, Clone)]
pub struct AlipayAccount {
    /// seller_id.
    pub seller_id: String,
    /// app_ids, all with the key `alipay_platform`.
    pub app_ids: Vec<String>,
}

impl WxAccount {
    /// Merchant 1900000001 with a platform certificate and a public key at once.
    #[must_use]
    pub fn first() -> Self {
        Self {
            mchid: "1900000001".to_owned(),
            appids: vec!["wx0000000000000001".to_owned()],
            partner: false,
            apiv3_keys: vec![signer::APIV3_KEY_A.to_owned()],
            keys: vec![keys::key("platform_cert_1"), keys::key("wechat_public_key_1")],
        }
    }

    /// Merchant 1900000002 with keys of its own.
    #[must_use]
    pub fn second() -> Self {
        Self {
            mchid: "1900000002".to_owned(),
            apiv3_keys: vec![signer::APIV3_KEY_M2.to_owned()],
            keys: vec![keys::key("platform_cert_3")],
            ..Self::first()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wxpay: vec![WxAccount::first(), WxAccount::second()],
            alipay: vec![AlipayAccount {
                seller_id: "2088000000000001".to_owned(),
                app_ids: vec!["2021000000000001".to_owned()],
            }],
            warehouse_events: ["PaymentConfirmed", "RefundConfirmed", "SurplusPaymentRecorded"]
                .map(str::to_owned)
                .to_vec(),
            retry_seconds: vec![60, 300, 1800],
            request_timeout_seconds: 10,
            writers: 2,
            queue_jobs_max: 8192,
            sandbox_accounts: None,
            asking: Asking::No,
            channel_calls: ChannelCalls {
                request_timeout_seconds: 3,
                fresh_seconds: 3,
                key_refresh_min_seconds: 60,
                calls_per_second: 1000,
            },
            server_lines: String::new(),
            more: String::new(),
        }
    }
}

impl Config {
    /// Certificate lists that a server fetches when it starts: one for each account that can ask and has a certificate.
    #[must_use]
    pub fn fetches_at_start(&self) -> usize {
        let asks = self.asking == Asking::Yes && self.sandbox_accounts.is_none();
        let has_certificate = |account: &&WxAccount| account.keys.iter().any(|key| key.certificate_pem.is_some());
        if asks { self.wxpay.iter().filter(has_certificate).count() } else { 0 }
    }

    /// Writes `paidonce.toml` and the key files into `dir`; the path of the file.
    #[must_use]
    pub fn write(&self, dir: &Path, database: &Database, warehouse_url: &str, platforms: &PlatformStub) -> PathBuf {
        let mut toml = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n{}\n[database]\nurl = {:?}\ndata_dir = {:?}\nwriters = {}\n\
             queue_jobs_max = {}\n",
            self.server_lines,
            database.config_url(),
            dir.join("data"),
            self.writers,
            self.queue_jobs_max
        );
        let platforms = (self.asking == Asking::Yes).then_some(platforms);
        match &self.sandbox_accounts {
            Some(written) => toml.push_str(written),
            None => {
                self.wxpay.iter().for_each(|account| write_wxpay(&mut toml, dir, account, platforms));
                self.alipay.iter().for_each(|account| write_alipay(&mut toml, dir, account, platforms));
            }
        }
        if self.asking == Asking::Yes {
            let calls = &self.channel_calls;
            let _ = write!(
                toml,
                "\n[channel_calls]\nrequest_timeout_seconds = {}\nfresh_seconds = {}\nkey_refresh_min_seconds = {}\n\
                 calls_per_second = {}\n",
                calls.request_timeout_seconds,
                calls.fresh_seconds,
                calls.key_refresh_min_seconds,
                calls.calls_per_second
            );
        }
        for (name, scope, secret) in [
            ("shop", "service", SERVICE_TOKEN),
            ("books", "finance", FINANCE_TOKEN),
            ("duty", "operator", OPERATOR_TOKEN),
        ] {
            let _ = write!(toml, "\n[[tokens]]\nname = {name:?}\nscopes = [{scope:?}]\nsecret = {secret:?}\n");
        }
        let _ = write!(toml, "\n[secrets]\nwarehouse = {{ value = {:?} }}\n", warehouse::SECRET);
        let _ = write!(
            toml,
            "\n[effects]\nretry_seconds = {:?}\njitter_percent = 0\nrequest_timeout_seconds = {}\n",
            self.retry_seconds, self.request_timeout_seconds
        );
        if !self.warehouse_events.is_empty() {
            let _ = write!(
                toml,
                "\n[[subscribers]]\nname = \"warehouse\"\nevents = {:?}\nurl = {warehouse_url:?}\nsecret_ref = \"warehouse\"\n",
                self.warehouse_events
            );
        }
        toml.push_str(&self.more);
        let path = dir.join("paidonce.toml");
        fs::write(&path, toml).expect("write the configuration");
        path
    }
}

fn write_wxpay(toml: &mut String, dir: &Path, account: &WxAccount, platforms: Option<&PlatformStub>) {
    let _ = write!(
        toml,
        "\n[[wxpay]]\nmchid = {:?}\nappids = {:?}\npartner = {}\n",
        account.mchid, account.appids, account.partner
    );
    if account.partner {
        toml.push_str("sub_mchids = [\"*\"]\n");
    }
    let field_names = ["apiv3_key_file", "apiv3_key_previous_file"];
    for (field, key) in field_names.iter().zip(&account.apiv3_keys) {
        let file = key_file(dir, &format!("{}.{field}", account.mchid), key);
        let _ = writeln!(toml, "{field} = {file:?}");
    }
    if let Some(platforms) = platforms {
        let own = keys::key("merchant_api");
        let file = key_file(dir, "merchant_api.key.pem", own.private_pem);
        let _ = write!(
            toml,
            "api_url = {:?}\nmerchant_serial = {:?}\nmerchant_private_key_file = {file:?}\n",
            platforms.wxpay_url(),
            own.id
        );
    }
    for key in &account.keys {
        toml.push_str("\n[[wxpay.platform_keys]]\n");
        match key.certificate_pem {
            Some(pem) => {
                let file = key_file(dir, &format!("{}.cert.pem", key.name), pem);
                let _ = writeln!(toml, "certificate_file = {file:?}");
            }
            None => {
                let file = key_file(dir, &format!("{}.pub.pem", key.name), key.public_pem);
                let _ = writeln!(toml, "public_key_id = {:?}\npublic_key_file = {file:?}", key.id);
            }
        }
    }
}

fn write_alipay(toml: &mut String, dir: &Path, account: &AlipayAccount, platforms: Option<&PlatformStub>) {
    let _ = write!(toml, "\n[[alipay]]\nseller_id = {:?}\n", account.seller_id);
    if let Some(platforms) = platforms {
        let _ = writeln!(toml, "api_url = {:?}", platforms.alipay_url());
    }
    for app_id in &account.app_ids {
        let key = keys::bare_base64(keys::key("alipay_platform").public_pem);
        let file = key_file(dir, "alipay_public_key.txt", &key);
        let _ = write!(toml, "\n[[alipay.apps]]\napp_id = {app_id:?}\nalipay_public_key_file = {file:?}\n");
        if platforms.is_some() {
            let file = key_file(dir, "alipay_app.key.pem", keys::key("alipay_app").private_pem);
            let _ = writeln!(toml, "app_private_key_file = {file:?}");
        }
    }
}

fn key_file(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).expect("write a key file");
    path
}
