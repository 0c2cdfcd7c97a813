//! The platforms' own keys: which of them signs what, and how they change while the sandbox runs.

use std::time::Duration;

use crate::alipay::certificates::AlipayCertificates;
use crate::certificate::Certificate;
use crate::fate::Fate;
use crate::keys::{Key, KeyError};
use crate::moment::Moment;
use crate::options::{AlipayKeyMode, KeyMode, PUBLIC_KEY_ID};

/// The platforms' keys.
#[derive(Debug, Clone)]
pub struct Ring {
    /// WeChat Pay's public-key mode.
    pub wxpay_public: Key,
    /// WeChat Pay's certificates, the newest last.
    pub wxpay_certificates: Vec<Certificate>,
    /// Alipay.
    pub alipay: Key,
    /// Of Alipay's other mode.
    pub alipay_certificates: AlipayCertificates,
}

/// A key to sign with and the name by which the receiver finds it.
#[derive(Debug, Clone)]
pub struct Signer {
    /// `Wechatpay-Serial`: a certificate's serial or `PUB_KEY_ID_..`.
    pub id: String,
    /// The key.
    pub key: Key,
}

impl Ring {
    /// With these keys; the certificate was valid an hour before `now`, whatever clock the reader has.
    pub fn of([wxpay_public, of_certificate, alipay]: [Key; 3], now: Moment) -> Result<Self, KeyError> {
        let from = now.minus(Duration::from_secs(3600));
        let certificate = Certificate::issue(of_certificate.clone(), from)?;
        // The authority's key may be any: there is no need for another one.
        let alipay_certificates = AlipayCertificates::of(of_certificate, alipay.clone(), from)?;
        Ok(Self { wxpay_public, wxpay_certificates: vec![certificate], alipay, alipay_certificates })
    }

    /// Issues a new certificate beside the old ones; from now on it signs.
    pub fn rotate(&mut self, now: Moment) -> Result<String, KeyError> {
        let from = now.minus(Duration::from_secs(3600));
        let certificate = Certificate::issue(Key::generate()?, from)?;
        let serial = certificate.serial.clone();
        self.wxpay_certificates.push(certificate);
        Ok(serial)
    }

    /// Issues a new certificate of Alipay; in certificate mode it signs from now on.
    pub fn rotate_alipay(&mut self, now: Moment) -> Result<String, KeyError> {
        self.alipay_certificates.add(Key::generate()?, now.minus(Duration::from_secs(3600)))
    }

    /// What signs Alipay's answers and notices: the id is the certificate's number, empty without one.
    #[must_use]
    pub fn for_alipay(&self, mode: AlipayKeyMode) -> Signer {
        match (mode, self.alipay_certificates.newest()) {
            (AlipayKeyMode::Certificate, Some((newest, id))) => Signer { id, key: newest.key.clone() },
            (AlipayKeyMode::PublicKey, _) | (AlipayKeyMode::Certificate, None) => {
                Signer { id: String::new(), key: self.alipay.clone() }
            }
        }
    }

    /// What signs a callback.
    #[must_use]
    pub fn for_callback(&self, mode: KeyMode, fate: &Fate, what: &str) -> Signer {
        match mode {
            KeyMode::PublicKey => self.public(),
            KeyMode::Certificate => self.newest(),
            KeyMode::Switching if fate.happens(50, "public key", what) => self.public(),
            KeyMode::Switching => self.newest(),
        }
    }

    /// What signs an API answer: what the caller asked for, else what the mode says.
    #[must_use]
    pub fn for_answer(&self, mode: KeyMode, asked: Option<&str>) -> Signer {
        if let Some(asked) = asked {
            if asked.eq_ignore_ascii_case(PUBLIC_KEY_ID) {
                return self.public();
            }
            let wanted = self.wxpay_certificates.iter().find(|one| one.serial.eq_ignore_ascii_case(asked));
            if let Some(certificate) = wanted {
                return Signer { id: certificate.serial.clone(), key: certificate.key.clone() };
            }
        }
        match mode {
            KeyMode::PublicKey => self.public(),
            KeyMode::Certificate | KeyMode::Switching => self.newest(),
        }
    }

    fn public(&self) -> Signer {
        Signer { id: PUBLIC_KEY_ID.to_owned(), key: self.wxpay_public.clone() }
    }

    fn newest(&self) -> Signer {
        match self.wxpay_certificates.last() {
            Some(certificate) => Signer { id: certificate.serial.clone(), key: certificate.key.clone() },
            None => self.public(),
        }
    }
}
