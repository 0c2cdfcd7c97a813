//! The keys of a sandbox, kept in its folder so that a ledger that was configured for it goes on working after a restart.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounts::{Accounts, KnownMerchant, KnownSeller};
use crate::alipay::certificates::AlipayCertificates;
use crate::certificate::Certificate;
use crate::keys::{Key, KeyError, random_hex};
use crate::moment::Moment;
use crate::options::{Merchant, SandboxOptions};
use crate::ring::Ring;
use crate::sandbox::SandboxError;

/// Name of the file.
const FILE: &str = "sandbox-keys.json";

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    about: String,
    wxpay_public: String,
    wxpay_certificates: Vec<SavedCertificate>,
    alipay: String,
    merchants: BTreeMap<String, SavedMerchant>,
    apps: BTreeMap<String, String>,
    alipay_certificates: SavedChain,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedChain {
    root: SavedCertificate,
    authority: SavedCertificate,
    platform: Vec<SavedCertificate>,
    apps: BTreeMap<String, SavedCertificate>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedCertificate {
    key: String,
    serial: String,
    pem: String,
    from_seconds: i64,
    to_seconds: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedMerchant {
    key: String,
    serial: String,
    apiv3_key: String,
}

/// The keys that this process made, in the order in which a sandbox needs them. Making an RSA key takes a good part of a
/// second, and many sandboxes are started by one test run: in one process all new folders get the same keys.
static MADE: Mutex<Vec<Key>> = Mutex::new(Vec::new());

/// Keys before those of the accounts: WeChat Pay's public key, its certificate's, Alipay's.
const PLATFORM_KEYS: usize = 3;

fn nth_key(n: usize) -> Result<Key, KeyError> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    while made.len() <= n {
        made.push(Key::generate()?);
    }
    made.get(n).cloned().ok_or(KeyError("none could be made"))
}

/// The keys of both sides: those of the folder, and new ones for what has none there.
pub fn load_or_make(options: &SandboxOptions, now: Moment) -> Result<(Accounts, Ring), SandboxError> {
    let file = options.dir.join(FILE);
    let saved = read(&file)?;
    let ring = match &saved {
        Some(saved) => saved.ring()?,
        None => Ring::of([nth_key(0)?, nth_key(1)?, nth_key(2)?], now)?,
    };
    let mut next = PLATFORM_KEYS..;
    let mut new_key = || nth_key(next.next().unwrap_or_default());
    let merchants = options.merchants.iter().map(|merchant| known_merchant(merchant, saved.as_ref(), &mut new_key));
    let merchants = merchants.collect::<Result<_, KeyError>>()?;
    let sellers = options.sellers.iter().map(|seller| {
        let known = saved.as_ref().and_then(|saved| saved.find_app(&seller.app_id)).transpose()?;
        let (key, certificate) = match known {
            Some(known) => known,
            None => {
                let key = new_key()?;
                let from = now.minus(Duration::from_secs(3600));
                let certificate = ring.alipay_certificates.of_app(&seller.app_id, key.clone(), from)?;
                (key, certificate)
            }
        };
        Ok(Arc::new(KnownSeller { seller: seller.clone(), key, certificate }))
    });
    let accounts = Accounts { merchants, sellers: sellers.collect::<Result<_, KeyError>>()? };
    write(&options.dir, &accounts, &ring)?;
    Ok((accounts, ring))
}

/// Writes them (again, after a new certificate).
pub fn write(dir: &Path, accounts: &Accounts, ring: &Ring) -> Result<(), SandboxError> {
    let saved = Saved::of(accounts, ring)?;
    let text = serde_json::to_string_pretty(&saved).map_err(|error| SandboxError::Saved(error.to_string()))?;
    write_secret(&dir.join(FILE), &text)
}

/// Writes a file that only its owner reads.
pub fn write_secret(path: &Path, text: &str) -> Result<(), SandboxError> {
    let failed = |source| SandboxError::Folder { path: path.to_owned(), source };
    fs::write(path, text).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Option<Saved>, SandboxError> {
    match fs::read_to_string(file) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(saved) => Ok(Some(saved)),
            Err(error) => Err(SandboxError::Saved(format!("{}: {error}", file.display()))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SandboxError::Folder { path: file.to_owned(), source }),
    }
}

fn known_merchant(
    merchant: &Merchant,
    saved: Option<&Saved>,
    new_key: impl FnOnce() -> Result<Key, KeyError>,
) -> Result<Arc<KnownMerchant>, KeyError> {
    let merchant = merchant.clone();
    let known = saved.and_then(|saved| saved.merchants.get(&merchant.mchid));
    Ok(Arc::new(match known {
        Some(known) => KnownMerchant {
            merchant,
            apiv3_key: known.apiv3_key.clone(),
            key: Key::parse(&known.key)?,
            serial: known.serial.clone(),
        },
        None => KnownMerchant {
            merchant,
            apiv3_key: random_hex(16)?,
            key: new_key()?,
            serial: random_hex(20)?.to_ascii_uppercase(),
        },
    }))
}

impl SavedCertificate {
    fn of(one: &Certificate) -> Result<Self, KeyError> {
        Ok(Self {
            key: one.key.private_pem()?,
            serial: one.serial.clone(),
            pem: one.pem.clone(),
            from_seconds: one.from.seconds(),
            to_seconds: one.to.seconds(),
        })
    }

    fn certificate(&self) -> Result<Certificate, KeyError> {
        Ok(Certificate {
            key: Key::parse(&self.key)?,
            serial: self.serial.clone(),
            pem: self.pem.clone(),
            from: Moment::from_seconds(self.from_seconds),
            to: Moment::from_seconds(self.to_seconds),
        })
    }
}

impl Saved {
    /// Key and certificate of an app.
    fn find_app(&self, app_id: &str) -> Option<Result<(Key, Certificate), KeyError>> {
        let (key, certificate) = (self.apps.get(app_id)?, self.alipay_certificates.apps.get(app_id)?);
        let both = || Ok((Key::parse(key)?, certificate.certificate()?));
        Some(both())
    }

    fn of(accounts: &Accounts, ring: &Ring) -> Result<Self, KeyError> {
        let merchant = |known: &Arc<KnownMerchant>| -> Result<(String, SavedMerchant), KeyError> {
            let KnownMerchant { merchant, apiv3_key, key, serial } = known.as_ref();
            let saved = SavedMerchant { key: key.private_pem()?, serial: serial.clone(), apiv3_key: apiv3_key.clone() };
            Ok((merchant.mchid.clone(), saved))
        };
        let app = |known: &Arc<KnownSeller>| Ok((known.seller.app_id.clone(), known.key.private_pem()?));
        let app_certificate =
            |known: &Arc<KnownSeller>| Ok((known.seller.app_id.clone(), SavedCertificate::of(&known.certificate)?));
        let chain = &ring.alipay_certificates;
        Ok(Self {
            about: "Test keys of `paidonce sandbox`. They protect nothing.".to_owned(),
            wxpay_public: ring.wxpay_public.private_pem()?,
            wxpay_certificates: ring.wxpay_certificates.iter().map(SavedCertificate::of).collect::<Result<_, _>>()?,
            alipay: ring.alipay.private_pem()?,
            merchants: accounts.merchants.iter().map(merchant).collect::<Result<_, _>>()?,
            apps: accounts.sellers.iter().map(app).collect::<Result<_, KeyError>>()?,
            alipay_certificates: SavedChain {
                root: SavedCertificate::of(&chain.root)?,
                authority: SavedCertificate::of(&chain.authority)?,
                platform: chain.platform.iter().map(SavedCertificate::of).collect::<Result<_, _>>()?,
                apps: accounts.sellers.iter().map(app_certificate).collect::<Result<_, KeyError>>()?,
            },
        })
    }

    fn ring(&self) -> Result<Ring, KeyError> {
        let all =
            |saved: &[SavedCertificate]| saved.iter().map(SavedCertificate::certificate).collect::<Result<Vec<_>, _>>();
        let chain = &self.alipay_certificates;
        Ok(Ring {
            wxpay_public: Key::parse(&self.wxpay_public)?,
            wxpay_certificates: all(&self.wxpay_certificates)?,
            alipay: Key::parse(&self.alipay)?,
            alipay_certificates: AlipayCertificates {
                root: chain.root.certificate()?,
                authority: chain.authority.certificate()?,
                platform: all(&chain.platform)?,
            },
        })
    }
}
