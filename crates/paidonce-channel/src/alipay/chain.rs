//! Whether a certificate that Alipay's gateway hands out may be trusted (fact B3): it leads to a root that a person
//! configured, and it is Alipay's.
//!
//! The gateway's answer is no proof by itself, since nobody knows yet the key that signed it. The same authority also issues
//! certificates to merchants, so that the chain alone is not enough either: the holder must be the one of the configured
//! certificate.

use paidonce_order::timestamp::Timestamp;
use x509_cert::Certificate;
use x509_cert::der::Encode;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::BasicConstraints;
use x509_cert::name::Name;

use super::cert_sn::{certificates, is_rsa_signed, sn};
use crate::keys::{RsaHash, RsaPublicKey, Validity, validity};

/// sha256WithRSAEncryption: nothing weaker is believed.
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Certificates between the one in question and a root.
const STEPS_MAX: usize = 4;
/// Certificates of one download.
const CERTIFICATES_MAX: usize = 10;

/// What a person configured, and what a new certificate is held against.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    roots: Vec<Certificate>,
    holder: Vec<Vec<u8>>,
}

/// A certificate of Alipay that may be trusted within its dates.
#[derive(Debug)]
pub(super) struct TrustedCertificate {
    pub(super) cert_sn: String,
    pub(super) spki: Vec<u8>,
    pub(super) validity: Validity,
}

impl Trust {
    /// From `alipay_root_cert` and `alipay_cert`. Errors: one sentence.
    pub(super) fn try_new(root_pem: &str, alipay_pem: &str) -> Result<Self, String> {
        let roots: Vec<Certificate> = certificates(root_pem)?.into_iter().filter(is_rsa_signed).collect();
        let configured = certificates(alipay_pem)?;
        let first = configured.first().ok_or("has no certificate")?;
        Ok(Self { roots, holder: holder(first)? })
    }

    /// The first certificate of the text, the others being the way to a root. Errors: why it is not trusted, one sentence.
    pub(super) fn check(&self, pem: &str, now: Timestamp) -> Result<TrustedCertificate, String> {
        let chain = certificates(pem)?;
        if chain.len() > CERTIFICATES_MAX {
            return Err(format!("has {} certificates, not 1 to {CERTIFICATES_MAX}", chain.len()));
        }
        let leaf = chain.first().ok_or("has no certificate")?;
        if holder(leaf)? != self.holder {
            return Err(format!("was issued to {}, not to the holder of alipay_cert", leaf.tbs_certificate.subject));
        }
        self.lead_to_root(leaf, &chain, now)?;
        let spki = leaf.tbs_certificate.subject_public_key_info.to_der().map_err(unreadable)?;
        Ok(TrustedCertificate { cert_sn: sn(leaf)?, spki, validity: validity(leaf) })
    }

    fn lead_to_root(&self, leaf: &Certificate, chain: &[Certificate], now: Timestamp) -> Result<(), String> {
        let mut current = leaf;
        for _ in 0..=STEPS_MAX {
            if !validity(current).contains(now) {
                let Validity { from, to } = validity(current);
                return Err(format!("{} is valid from {from} to {to} only", current.tbs_certificate.subject));
            }
            if self.roots.iter().any(|root| validity(root).contains(now) && is_issued_by(current, root)) {
                return Ok(());
            }
            let issuer =
                chain.iter().find(|other| *other != current && may_issue(other) && is_issued_by(current, other));
            let Some(issuer) = issuer else {
                let issuer = &current.tbs_certificate.issuer;
                return Err(format!("does not lead to alipay_root_cert: {issuer} is missing or did not sign it"));
            };
            current = issuer;
        }
        Err(format!("does not lead to alipay_root_cert within {STEPS_MAX} certificates"))
    }
}

fn unreadable(_: x509_cert::der::Error) -> String {
    "can't be read".to_owned()
}

/// Who a certificate is for, apart from its common name, which may carry a number that changes; all of it when there is
/// nothing else.
fn holder(certificate: &Certificate) -> Result<Vec<Vec<u8>>, String> {
    let subject: &Name = &certificate.tbs_certificate.subject;
    let attributes: Vec<_> = subject.0.iter().flat_map(|rdn| rdn.0.iter()).collect();
    let of = |with_name: bool| {
        let kept = attributes.iter().filter(|attribute| with_name || attribute.oid != COMMON_NAME);
        kept.map(|attribute| attribute.to_der().map_err(unreadable)).collect::<Result<Vec<_>, _>>()
    };
    let without_name = of(false)?;
    if without_name.is_empty() { of(true) } else { Ok(without_name) }
}

/// An authority, and no merchant's certificate that poses as one.
fn may_issue(certificate: &Certificate) -> bool {
    let constraints = certificate.tbs_certificate.get::<BasicConstraints>();
    constraints.is_ok_and(|found| found.is_some_and(|(_, constraints)| constraints.ca))
}

fn is_issued_by(certificate: &Certificate, issuer: &Certificate) -> bool {
    let body = &certificate.tbs_certificate;
    let is_named = body.issuer == issuer.tbs_certificate.subject;
    let is_strong = certificate.signature_algorithm.oid == SHA256_WITH_RSA && body.signature.oid == SHA256_WITH_RSA;
    let verifies = || {
        let spki = issuer.tbs_certificate.subject_public_key_info.to_der().ok()?;
        let key = RsaPublicKey::from_spki_der(&spki, RsaHash::Sha256).ok()?;
        Some(key.verifies(&body.to_der().ok()?, certificate.signature.as_bytes()?))
    };
    is_named && is_strong && verifies() == Some(true)
}
