//! The platforms' side of the conversation, for ledgers whose keys we hold: demo, sandbox, staging.
//!
//! A [`News`] is what a platform has to tell; every [`Callback`] made of it is sealed and signed anew, as the platforms do
//! on each resend: same content, other time, nonce, ciphertext and signature.
//!
//! Must never: be reachable with keys of a real platform (nobody but the platform has those).

use std::path::Path;
use std::{fmt, fs};

use anyhow::Context as _;
use paidonce_order::ids::Channel;
use paidonce_order::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::exit::Stop;

pub mod alipay;
pub mod signer;
pub mod wxpay;

pub use alipay::AlipayPlatform;
pub use signer::Signer;
pub use wxpay::WxpayPlatform;

/// One payment as its platform knows it.
#[derive(Debug, Clone)]
pub struct Trade {
    /// out_trade_no.
    pub order_no: String,
    /// transaction_id / trade_no.
    pub trade_no: String,
    /// What was paid.
    pub amount_minor: i64,
}

/// What happened at the platform.
#[derive(Debug, Clone)]
pub enum Happening {
    /// One order was paid.
    Payment(Trade),
    /// All of a payment went back under this refund number.
    Refund {
        /// The payment.
        trade: Trade,
        /// out_refund_no / out_request_no.
        refund_no: String,
    },
    /// Several orders were paid in one go (WeChat Pay only).
    Combine(Vec<Trade>),
}

/// What a platform has to tell, once; it is sent as often as the platform likes.
#[derive(Debug, Clone)]
pub struct News {
    /// Who tells.
    pub channel: Channel,
    /// What.
    pub happening: Happening,
    /// The platform's id of this news: the same on every resend.
    pub push_id: String,
    /// When it happened, by the platform's clock.
    pub occurred_at: Timestamp,
    /// How it is signed.
    pub signing: Signing,
}

/// How a copy is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// As the platform does.
    Genuine,
    /// By somebody with another key who claims to be the platform.
    Forged,
    /// With a deliberately wrong signature: WeChat Pay tests now and then whether we look.
    Probe,
}

/// One HTTP request, ready to send.
#[derive(Debug, Clone)]
pub struct Callback {
    /// Path at the ledger.
    pub path: String,
    /// Media type and signature headers.
    pub headers: Vec<(&'static str, String)>,
    /// Exact body.
    pub body: Vec<u8>,
}

/// Both platforms, each with one account of the ledger.
pub struct Platforms {
    /// WeChat Pay.
    pub wxpay: WxpayPlatform,
    /// Alipay.
    pub alipay: AlipayPlatform,
    /// The key of somebody else.
    pub forger: Signer,
}

impl fmt::Debug for Platforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Platforms(..)")
    }
}

impl Platforms {
    /// A fresh copy of the news, sealed and signed now.
    pub fn write(&self, news: &News) -> anyhow::Result<Callback> {
        match news.channel {
            Channel::Wxpay => self.wxpay.write(news, &self.forger),
            Channel::Alipay => self.alipay.write(news, &self.forger),
        }
    }

    /// Writes both sides' keys for [`Platforms::load`]. Only ever test keys: nobody but a platform has its real ones.
    pub fn save(&self, folder: &Path) -> anyhow::Result<()> {
        let Self { wxpay, alipay, .. } = self;
        let document = SavedPlatforms {
            about: "Test keys of one run of `paidonce demo`. They protect nothing.".to_owned(),
            wxpay: SavedWxpay {
                mchid: wxpay.mchid.clone(),
                appid: wxpay.appid.clone(),
                key_id: wxpay.key_id.clone(),
                apiv3_key: wxpay.apiv3_key.clone(),
                private_key: wxpay.signer.private_pem()?,
            },
            alipay: SavedAlipay {
                seller_id: alipay.seller_id.clone(),
                app_id: alipay.app_id.clone(),
                private_key: alipay.signer.private_pem()?,
            },
        };
        fs::write(folder.join(SAVED_FILE), serde_json::to_string_pretty(&document)?)?;
        Ok(())
    }

    /// Reads what [`Platforms::save`] wrote.
    pub fn load(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join(SAVED_FILE);
        let usage = |error: &dyn fmt::Display| Stop::usage(format!("{}: {error}", file.display()));
        let text = fs::read_to_string(&file).map_err(|error| usage(&error))?;
        let SavedPlatforms { wxpay, alipay, .. } = serde_json::from_str(&text).map_err(|error| usage(&error))?;
        Ok(Self {
            wxpay: WxpayPlatform {
                signer: Signer::parse(&wxpay.private_key)?,
                mchid: wxpay.mchid,
                appid: wxpay.appid,
                key_id: wxpay.key_id,
                apiv3_key: wxpay.apiv3_key,
            },
            alipay: AlipayPlatform {
                signer: Signer::parse(&alipay.private_key)?,
                seller_id: alipay.seller_id,
                app_id: alipay.app_id,
            },
            forger: Signer::generate()?,
        })
    }

    /// `wxpay:1900000001`, as the API names the account.
    #[must_use]
    pub fn account(&self, channel: Channel) -> String {
        match channel {
            Channel::Wxpay => format!("{channel}:{}", self.wxpay.mchid),
            Channel::Alipay => format!("{channel}:{}", self.alipay.seller_id),
        }
    }
}

/// Name of the file in the folder that `--platform-keys` names.
const SAVED_FILE: &str = "platforms.json";

#[derive(Serialize, Deserialize)]
struct SavedPlatforms {
    about: String,
    wxpay: SavedWxpay,
    alipay: SavedAlipay,
}

#[derive(Serialize, Deserialize)]
struct SavedWxpay {
    mchid: String,
    appid: String,
    key_id: String,
    apiv3_key: String,
    private_key: String,
}

#[derive(Serialize, Deserialize)]
struct SavedAlipay {
    seller_id: String,
    app_id: String,
    private_key: String,
}

/// The platforms' clock. It is the real one: a ledger refuses messages that are older than five minutes.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the platforms live outside the ledger and have a clock of their own")]
pub fn now() -> Timestamp {
    Timestamp::from_datetime(OffsetDateTime::now_utc())
}

/// Lower-case hex digits of fresh random bytes.
pub fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0_u8; bytes];
    aws_lc_rs::rand::fill(&mut random).ok().context("the system gives no random numbers")?;
    Ok(hex::encode(random))
}
