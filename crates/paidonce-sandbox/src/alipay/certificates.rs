//! Alipay's certificate mode: a test root, an authority under it, Alipay's certificates and the apps', the numbers by which
//! they are named, and `alipay.open.app.alipaycert.download`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use serde_json::json;

use super::request::Caller;
use super::{Outcome, Refusal};
use crate::certificate::{Certificate, Wording};
use crate::keys::{Key, KeyError};
use crate::moment::Moment;
use crate::platforms::Platforms;

/// The root's name.
pub const ROOT: &str = "CN=Sandbox Certification Authority R1,OU=Certification Authority,O=paidonce sandbox,C=CN";
/// The authority's name.
pub const AUTHORITY: &str =
    "CN=Sandbox Certification Authority Class 2 R1,OU=Certification Authority,O=paidonce sandbox,C=CN";
const ALIPAY: &str = "CN=Alipay test platform-2088000000000000,OU=Alipay,O=Alipay test platform,C=CN";

/// Everything that certificate mode needs. The keys of Alipay and of the apps are those of the other mode.
#[derive(Debug, Clone)]
pub struct AlipayCertificates {
    /// What a caller keeps as alipayRootCert.crt.
    pub root: Certificate,
    /// Between the root and everybody else.
    pub authority: Certificate,
    /// Alipay's own, the newest last.
    pub platform: Vec<Certificate>,
}

impl AlipayCertificates {
    /// A chain of new keys around Alipay's key.
    pub fn of(authority: Key, alipay: Key, from: Moment) -> Result<Self, KeyError> {
        // One key for both: what tells them apart is their names.
        let is_authority = |subject| Wording { subject, authority: true };
        let root = Certificate::issue_under(is_authority(ROOT), authority.clone(), None, from)?;
        let authority = Certificate::issue_under(is_authority(AUTHORITY), authority, Some((&root, ROOT)), from)?;
        let mut certificates = Self { root, authority, platform: Vec::new() };
        certificates.add(alipay, from)?;
        Ok(certificates)
    }

    /// Issues a new one of Alipay; from now on it signs. Its number.
    pub fn add(&mut self, key: Key, from: Moment) -> Result<String, KeyError> {
        let made = self.issue(ALIPAY, key, from)?;
        let number = cert_sn(&made, AUTHORITY);
        self.platform.push(made);
        Ok(number)
    }

    /// The certificate of a caller's app.
    pub fn of_app(&self, app_id: &str, key: Key, from: Moment) -> Result<Certificate, KeyError> {
        self.issue(&format!("CN=Test shop-{app_id},OU=Alipay,O=Test shop,C=CN"), key, from)
    }

    fn issue(&self, subject: &str, key: Key, from: Moment) -> Result<Certificate, KeyError> {
        let wording = Wording { subject, authority: false };
        Certificate::issue_under(wording, key, Some((&self.authority, AUTHORITY)), from)
    }

    /// What signs now, and its `alipay_cert_sn`.
    #[must_use]
    pub fn newest(&self) -> Option<(&Certificate, String)> {
        self.platform.last().map(|newest| (newest, cert_sn(newest, AUTHORITY)))
    }

    /// `alipay_root_cert_sn`.
    #[must_use]
    pub fn root_sn(&self) -> String {
        cert_sn(&self.root, ROOT)
    }

    /// `app_cert_sn`.
    #[must_use]
    pub fn app_sn(certificate: &Certificate) -> String {
        cert_sn(certificate, AUTHORITY)
    }

    /// alipayCertPublicKey_RSA2.crt: the certificate and the authority behind it.
    #[must_use]
    pub fn file_of(&self, certificate: &Certificate) -> String {
        format!("{}{}", certificate.pem, self.authority.pem)
    }

    fn find(&self, number: &str) -> Option<&Certificate> {
        self.platform.iter().find(|one| cert_sn(one, AUTHORITY) == number)
    }
}

/// MD5 of the issuer's name and the serial number in decimal digits.
fn cert_sn(certificate: &Certificate, issuer: &str) -> String {
    let serial = u128::from_str_radix(&certificate.serial, 16).unwrap_or_default();
    hex::encode(Md5::digest(format!("{issuer}{serial}").as_bytes()))
}

impl Platforms {
    pub(super) fn alipay_certificate(&self, caller: &Caller) -> Outcome {
        let certificates = &self.ring.alipay_certificates;
        let number = caller.text("alipay_cert_sn").ok_or_else(|| Refusal::missing("isv.missing-alipay-cert-sn"))?;
        let found = certificates.find(number);
        let found = found.ok_or_else(|| Refusal::business("isv.cert-not-exist", "证书不存在"))?;
        Ok(json!({ "alipay_cert_content": STANDARD.encode(certificates.file_of(found)) }))
    }
}
