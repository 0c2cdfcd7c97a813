//! What a sandbox is told at its start, and what of it may change while it runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The direct merchant of a default sandbox.
pub const MCHID: &str = "1900000001";
/// Its app.
pub const APPID: &str = "wx0000000000000001";
/// The service provider of a default sandbox, and its one sub-merchant.
pub const SP_MCHID: &str = "1900000100";
/// See above.
pub const SUB_MCHID: &str = "1900000109";
/// The Alipay seller of a default sandbox.
pub const SELLER_ID: &str = "2088000000000001";
/// Its app.
pub const APP_ID: &str = "2021000000000001";
/// The id of WeChat Pay's public key in the sandbox.
pub const PUBLIC_KEY_ID: &str = "PUB_KEY_ID_0119000000012026010100000000000001";

/// How to start.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// Folder for keys and configuration; made when it is not there. The keys in it are used again.
    pub dir: PathBuf,
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The ledger: callbacks go to `<notify_base>/callbacks/{channel}/{account}`.
    pub notify_base: String,
    /// Merchants at WeChat Pay.
    pub merchants: Vec<Merchant>,
    /// Sellers at Alipay.
    pub sellers: Vec<Seller>,
    /// Who pushes callbacks.
    pub delivery: Delivery,
    /// How the platforms behave.
    pub behaviour: Behaviour,
}

impl SandboxOptions {
    /// One direct merchant, one service provider, one Alipay seller; everything on time and nothing lost.
    #[must_use]
    pub fn new(dir: PathBuf, notify_base: String) -> Self {
        Self {
            dir,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            notify_base,
            merchants: vec![
                Merchant::direct(MCHID, APPID),
                Merchant::partner(SP_MCHID, "wx0000000000000100", SUB_MCHID),
            ],
            sellers: vec![Seller::new(SELLER_ID, APP_ID)],
            delivery: Delivery::InBackground,
            behaviour: Behaviour::default(),
        }
    }
}

/// Who pushes callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The sandbox, when they fall due.
    InBackground,
    /// Nobody until `deliver-now`: for tests that decide the order of things.
    ByHand,
}

/// An account at WeChat Pay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merchant {
    /// mchid, or sp_mchid of a service provider.
    pub mchid: String,
    /// appid, or sp_appid.
    pub appid: String,
    /// Its sub-merchants; `Some` makes it a service provider.
    pub sub_mchids: Option<Vec<String>>,
}

impl Merchant {
    /// A merchant for itself.
    #[must_use]
    pub fn direct(mchid: &str, appid: &str) -> Self {
        Self { mchid: mchid.to_owned(), appid: appid.to_owned(), sub_mchids: None }
    }

    /// A service provider with one sub-merchant.
    #[must_use]
    pub fn partner(sp_mchid: &str, sp_appid: &str, sub_mchid: &str) -> Self {
        Self { mchid: sp_mchid.to_owned(), appid: sp_appid.to_owned(), sub_mchids: Some(vec![sub_mchid.to_owned()]) }
    }
}

/// An account at Alipay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seller {
    /// seller_id (pid).
    pub seller_id: String,
    /// Its app.
    pub app_id: String,
    /// The seller authorised somebody else's app: each call must carry this `app_auth_token`.
    pub app_auth_token: Option<String>,
}

impl Seller {
    /// A seller with an app of its own.
    #[must_use]
    pub fn new(seller_id: &str, app_id: &str) -> Self {
        Self { seller_id: seller_id.to_owned(), app_id: app_id.to_owned(), app_auth_token: None }
    }
}

/// How a caller and Alipay know each other's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlipayKeyMode {
    /// By plain public keys.
    PublicKey,
    /// By certificates: requests and answers name them; the newest one of Alipay signs.
    Certificate,
}

/// What signs WeChat Pay's callbacks. API answers follow the `Wechatpay-Serial` of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMode {
    /// The platform's public key, known by its id.
    PublicKey,
    /// The newest platform certificate.
    Certificate,
    /// The days of a switch: either, at random.
    Switching,
}

/// How the platforms behave; all percentages are whole numbers from 0 to 100.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Decides everything that has a probability: the same seed, the same fates.
    pub seed: u64,
    /// Waiting times are divided by this.
    pub time_scale: u32,
    /// Callbacks that are never sent at all.
    pub lose_percent: u8,
    /// Callbacks that are sent once more although they were taken.
    pub duplicate_percent: u8,
    /// Callbacks held back up to half a minute, so that later ones overtake them.
    pub reorder_percent: u8,
    /// Callbacks that come one to thirty minutes late.
    pub delay_percent: u8,
    /// WeChat Pay callbacks whose first try carries a deliberately wrong signature.
    pub probe_percent: u8,
    /// API calls answered 502 without anything done.
    pub server_error_percent: u8,
    /// What signs WeChat Pay's callbacks.
    pub wxpay_keys: KeyMode,
    /// How Alipay and its callers know each other's keys.
    pub alipay_keys: AlipayKeyMode,
    /// API calls of one account in one second before the rest of them are refused.
    pub calls_per_second_max: u32,
    /// WeChat Pay wants this between two refunds of one payment.
    pub refund_spacing_seconds: u32,
    /// How long a WeChat Pay refund stays PROCESSING.
    pub refund_seconds: u32,
    /// How long after an Alipay refund its query knows nothing of it.
    pub refund_query_lag_seconds: u32,
    /// How long a profit share stays PROCESSING.
    pub share_seconds: u32,
    /// How long an answer that never comes keeps its caller waiting, in real time.
    pub timeout_seconds: u32,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            seed: 1,
            time_scale: 1,
            lose_percent: 0,
            duplicate_percent: 0,
            reorder_percent: 0,
            delay_percent: 0,
            probe_percent: 0,
            server_error_percent: 0,
            wxpay_keys: KeyMode::PublicKey,
            alipay_keys: AlipayKeyMode::PublicKey,
            calls_per_second_max: 300,
            refund_spacing_seconds: 60,
            refund_seconds: 3,
            refund_query_lag_seconds: 3,
            share_seconds: 3,
            // Longer than any caller waits.
            timeout_seconds: 30,
        }
    }
}

impl Behaviour {
    /// A waiting time at the speed of this sandbox.
    #[must_use]
    pub fn scaled(&self, duration: Duration) -> Duration {
        duration.checked_div(self.time_scale.max(1)).unwrap_or(duration)
    }

    /// The same for whole seconds.
    #[must_use]
    pub fn scaled_seconds(&self, seconds: u32) -> Duration {
        self.scaled(Duration::from_secs(u64::from(seconds)))
    }

    /// Errors: the first value that makes no sense, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let percentages = [
            ("lose_percent", self.lose_percent),
            ("duplicate_percent", self.duplicate_percent),
            ("reorder_percent", self.reorder_percent),
            ("delay_percent", self.delay_percent),
            ("probe_percent", self.probe_percent),
            ("server_error_percent", self.server_error_percent),
        ];
        match percentages.iter().find(|(_, percent)| *percent > 100) {
            Some((name, percent)) => Err(format!("{name} is {percent}; a percentage is 0 to 100")),
            None if self.time_scale == 0 => {
                Err("time_scale is 0; 1 is real time, 60 makes a minute a second".to_owned())
            }
            None => Ok(()),
        }
    }
}
