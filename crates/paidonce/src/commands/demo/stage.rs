//! A folder with everything a scratch ledger needs: test keys of both platforms, tokens, a configuration file.
//!
//! Every key and secret is made for this run and protects nothing. The private keys of the platforms are written beside the
//! configuration, so that `storm` can play the platforms too; a real ledger never has them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paidonce_sandbox::Sandbox;
use paidonce_worker::sign::SigningSecret;
use tempfile::TempDir;

use crate::config::Secret;

use super::lost;
use super::platform::{AlipayPlatform, Platforms, Signer, WxpayPlatform, now, random_hex};

const MCHID: &str = "1900000001";
const APPID: &str = "wx0000000000000001";
const KEY_ID: &str = "PUB_KEY_ID_0110000000012025010800000000000001";
const SELLER_ID: &str = "2088000000000001";
const APP_ID: &str = "2021000000000001";
/// Name of the warehouse's secret in the configuration.
pub const SECRET_NAME: &str = "warehouse";
/// The operator token, for `--token-file`.
const TOKEN_FILE: &str = "operator.token";
/// Folder of the platforms' private keys inside the stage.
const PLATFORM_KEYS: &str = "platform-keys";

/// A scratch ledger on disk, not started.
pub struct Stage {
    folder: TempDir,
    /// Both platforms, for questions; the callbacks of the other acts are the demo's own.
    pub sandbox: Arc<Sandbox>,
    listen: SocketAddr,
    warehouse_secret: String,
    /// The configuration, as `serve --config` reads it.
    pub config_file: PathBuf,
    /// The platforms that this ledger believes.
    pub platforms: Arc<Platforms>,
    /// A token that may do everything.
    pub token: Secret,
    /// Word that all order numbers of this run begin with.
    pub run: String,
    /// Name of the warehouse's row in `t_subscriber`.
    pub subscriber: String,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("config_file", &self.config_file).finish_non_exhaustive()
    }
}

impl Stage {
    /// Makes it, for a temporary SQLite file or for this PostgreSQL.
    pub async fn build(database_url: Option<&str>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("paidonce-demo-").tempdir()?;
        let platforms = Arc::new(test_platforms().await?);
        let run = run_word();
        let listen = free_address()?;
        let sandbox = lost::start(folder.path(), &format!("http://{listen}")).await?;
        let stage = Self {
            listen,
            sandbox: Arc::new(sandbox),
            warehouse_secret: format!("whsec_{}", STANDARD.encode(random_hex(32)?)),
            config_file: folder.path().join("paidonce.toml"),
            platforms,
            token: Secret::new(random_hex(32)?),
            subscriber: format!("warehouse-{run}"),
            run,
            folder,
        };
        stage.write_keys()?;
        fs::write(&stage.config_file, stage.config(database_url)?)?;
        Ok(stage)
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn server(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Any free port.
    #[must_use]
    pub fn warehouse_listen(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    /// What the warehouse checks deliveries with.
    pub fn warehouse_secrets(&self) -> anyhow::Result<Vec<SigningSecret>> {
        Ok(vec![SigningSecret::parse(&self.warehouse_secret)?])
    }

    /// What somebody at the keyboard can do with a demo that was kept.
    #[must_use]
    pub fn directions(&self) -> String {
        let (server, folder) = (self.server(), self.folder.path().display());
        format!(
            "\nThe ledger still runs at {server} (Ctrl-C stops it). Everything about it is in {folder}:\n\n  \
             paidonce order list --server {server} --token-file {folder}/{TOKEN_FILE}\n  \
             paidonce storm --config {folder}/paidonce.toml --token-file {folder}/{TOKEN_FILE} \
             --platform-keys {folder}/{PLATFORM_KEYS}\n"
        )
    }

    /// Leaves the folder where it is.
    pub fn forget(self) {
        let _ = self.folder.keep();
    }

    fn write_keys(&self) -> anyhow::Result<()> {
        let keys = self.folder.path().join(PLATFORM_KEYS);
        fs::create_dir(&keys)?;
        fs::write(self.folder.path().join(TOKEN_FILE), self.token.reveal())?;
        self.platforms.save(&keys)?;
        let Platforms { wxpay, alipay, .. } = self.platforms.as_ref();
        fs::write(self.folder.path().join("wxpay_public.pem"), wxpay.signer.public_pem()?)?;
        fs::write(self.folder.path().join("alipay_public.pem"), alipay.signer.public_pem()?)?;
        Ok(())
    }

    fn config(&self, database_url: Option<&str>) -> anyhow::Result<String> {
        let data_dir = self.folder.path().join("data");
        let path = |path: &Path| path.to_str().map(str::to_owned).context("the temporary folder's name is not UTF-8");
        let quoted = |text: &str| toml::Value::from(text).to_string();
        Ok(format!(
            r#"# Written by `paidonce demo`. All keys and secrets are test values of one run.
[server]
listen = "{listen}"
[database]
url = {url}
data_dir = {data_dir}
[[wxpay]]
mchid = "{MCHID}"
appids = ["{APPID}"]
apiv3_key = "{apiv3_key}"
[[wxpay.platform_keys]]
public_key_id = "{KEY_ID}"
public_key_file = "wxpay_public.pem"
[[alipay]]
seller_id = "{SELLER_ID}"
[[alipay.apps]]
app_id = "{APP_ID}"
alipay_public_key_file = "alipay_public.pem"
[[tokens]]
name = "demo"
scopes = ["service", "operator"]
secret = "{token}"
[secrets]
{SECRET_NAME} = {{ value = "{secret}" }}
{sandbox}"#,
            listen = self.listen,
            url = quoted(database_url.unwrap_or("sqlite")),
            data_dir = quoted(&path(&data_dir)?),
            apiv3_key = self.platforms.wxpay.apiv3_key,
            token = self.token.reveal(),
            secret = self.warehouse_secret,
            sandbox = self.sandbox.accounts_toml()?,
        ))
    }
}

/// Making RSA keys takes a moment; the three are made beside each other.
async fn test_platforms() -> anyhow::Result<Platforms> {
    let generate = || tokio::task::spawn_blocking(Signer::generate);
    let (wxpay, alipay, forger) = (generate(), generate(), generate());
    Ok(Platforms {
        wxpay: WxpayPlatform {
            mchid: MCHID.to_owned(),
            appid: APPID.to_owned(),
            key_id: KEY_ID.to_owned(),
            apiv3_key: random_hex(16)?,
            signer: wxpay.await??,
        },
        alipay: AlipayPlatform { seller_id: SELLER_ID.to_owned(), app_id: APP_ID.to_owned(), signer: alipay.await?? },
        forger: forger.await??,
    })
}

/// Unlike any earlier run's, so that a run on a database that was used before begins with orders of its own.
#[must_use]
pub fn run_word() -> String {
    format!("D{}", now().as_micros())
}

/// The port is free now, and the server takes it in a moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
