//! The configuration of a ledger for this sandbox, and the key files that it names.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::accounts::{Accounts, KnownMerchant, KnownSeller};
use crate::keys::random_hex;
use crate::options::{AlipayKeyMode, KeyMode, PUBLIC_KEY_ID};
use crate::ring::Ring;
use crate::sandbox::SandboxError;
use crate::saved_keys::write_secret;

/// Name of the configuration in the folder.
pub const FILE: &str = "paidonce.toml";
/// Name of the token file in the folder: for `--token-file`.
pub const TOKEN_FILE: &str = "operator.token";

/// What the configuration is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// Accounts with their keys.
    pub accounts: &'a Accounts,
    /// The platforms' keys.
    pub ring: &'a Ring,
    /// Which of those a ledger needs to know.
    pub mode: KeyMode,
    /// The same at Alipay.
    pub alipay_mode: AlipayKeyMode,
    /// Where the sandbox listens.
    pub url: &'a str,
}

impl Parts<'_> {
    /// `[[wxpay]]`, `[[alipay]]` and `[sandbox]`; writes the key files that they name, by their full paths.
    pub fn accounts_toml(&self) -> Result<String, SandboxError> {
        self.write_file("wxpay-public.pem", &self.ring.wxpay_public.public_pem())?;
        if let Some(newest) = self.ring.wxpay_certificates.last() {
            self.write_file("wxpay-certificate.pem", &newest.pem)?;
        }
        let mut text = String::new();
        for known in &self.accounts.merchants {
            text.push_str(&self.merchant(known)?);
        }
        for known in &self.accounts.sellers {
            text.push_str(&self.seller(known)?);
        }
        text.push_str("[sandbox]\nenabled = true\n");
        Ok(text)
    }

    /// A whole configuration for a ledger that `notify_base` reaches.
    pub fn config_toml(&self, notify_base: &str) -> Result<String, SandboxError> {
        let token = self.token()?;
        let listen = notify_base.trim_start_matches("http://").trim_end_matches('/');
        let server = match listen.parse::<SocketAddr>() {
            Ok(listen) => format!("[server]\nlisten = \"{listen}\"\n"),
            // Behind a proxy: the ledger's own address is not known here.
            Err(_) => String::new(),
        };
        let data_dir = quoted(&self.dir.join("data"))?;
        let token_file = quoted(&token)?;
        Ok(format!(
            "# Written by `paidonce sandbox` at each start. All keys are test keys and protect nothing.\n\
             {server}[database]\nurl = \"sqlite\"\ndata_dir = {data_dir}\n\
             [[tokens]]\nname = \"sandbox\"\nscopes = [\"service\", \"operator\"]\nsecret_file = {token_file}\n{}",
            self.accounts_toml()?
        ))
    }

    fn merchant(&self, known: &KnownMerchant) -> Result<String, SandboxError> {
        let KnownMerchant { merchant, apiv3_key, key, serial } = known;
        let key_file = self.write_file(&format!("merchant-{}.pem", merchant.mchid), &key.private_pem()?)?;
        let partner = match &merchant.sub_mchids {
            Some(sub_mchids) => format!("partner = true\nsub_mchids = {sub_mchids:?}\n"),
            None => String::new(),
        };
        let public = format!(
            "[[wxpay.platform_keys]]\npublic_key_id = \"{PUBLIC_KEY_ID}\"\npublic_key_file = {}\n",
            quoted(&self.dir.join("wxpay-public.pem"))?
        );
        let certificate = format!(
            "[[wxpay.platform_keys]]\ncertificate_file = {}\n",
            quoted(&self.dir.join("wxpay-certificate.pem"))?
        );
        let platform_keys = match self.mode {
            KeyMode::Certificate => certificate,
            KeyMode::PublicKey | KeyMode::Switching => format!("{public}{certificate}"),
        };
        Ok(format!(
            "[[wxpay]]\nmchid = \"{}\"\nappids = [\"{}\"]\n{partner}apiv3_key = \"{apiv3_key}\"\napi_url = \"{}\"\n\
             merchant_serial = \"{serial}\"\nmerchant_private_key_file = {}\n{platform_keys}",
            merchant.mchid,
            merchant.appid,
            self.url,
            quoted(&key_file)?,
        ))
    }

    fn seller(&self, known: &KnownSeller) -> Result<String, SandboxError> {
        let KnownSeller { seller, key, .. } = known;
        let key_file = self.write_file(&format!("app-{}.pem", seller.app_id), &key.private_pem()?)?;
        let token = match &seller.app_auth_token {
            Some(token) => format!("app_auth_token = \"{token}\"\n"),
            None => String::new(),
        };
        Ok(format!(
            "[[alipay]]\nseller_id = \"{}\"\napi_url = \"{}/gateway.do\"\n[[alipay.apps]]\napp_id = \"{}\"\n{}\
             app_private_key_file = {}\n{token}",
            seller.seller_id,
            self.url,
            seller.app_id,
            self.alipay_keys(known)?,
            quoted(&key_file)?,
        ))
    }

    /// How the ledger knows Alipay's key, and Alipay the ledger's.
    fn alipay_keys(&self, known: &KnownSeller) -> Result<String, SandboxError> {
        let certificates = &self.ring.alipay_certificates;
        match (self.alipay_mode, certificates.newest()) {
            (AlipayKeyMode::Certificate, Some((newest, _))) => {
                let app = format!("app-cert-{}.pem", known.seller.app_id);
                let app_cert = self.write_file(&app, &certificates.file_of(&known.certificate))?;
                let root_cert = self.write_file("alipay-root-cert.pem", &certificates.root.pem)?;
                let alipay_cert = self.write_file("alipay-cert.pem", &certificates.file_of(newest))?;
                let (alipay_cert, app_cert, root_cert) =
                    (quoted(&alipay_cert)?, quoted(&app_cert)?, quoted(&root_cert)?);
                Ok(format!(
                    "alipay_cert_file = {alipay_cert}\napp_cert_file = {app_cert}\nalipay_root_cert_file = {root_cert}\n"
                ))
            }
            (AlipayKeyMode::PublicKey, _) | (AlipayKeyMode::Certificate, None) => {
                let public_key = self.write_file("alipay-public.pem", &self.ring.alipay.public_pem())?;
                Ok(format!("alipay_public_key_file = {}\n", quoted(&public_key)?))
            }
        }
    }

    /// The operator token of the folder, made once.
    fn token(&self) -> Result<PathBuf, SandboxError> {
        let path = self.dir.join(TOKEN_FILE);
        if !path.exists() {
            write_secret(&path, &random_hex(32)?)?;
        }
        Ok(path)
    }

    fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, SandboxError> {
        let path = self.dir.join(name);
        // A file that is the same stays untouched: a ledger may be reading it.
        if fs::read_to_string(&path).is_ok_and(|known| known == text) {
            return Ok(path);
        }
        write_secret(&path, text)?;
        Ok(path)
    }
}

/// A path as a TOML string.
fn quoted(path: &Path) -> Result<String, SandboxError> {
    let text = path.to_str().ok_or_else(|| SandboxError::Saved(format!("{} is not UTF-8", path.display())))?;
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}
