//! X.509 certificates around test keys: WeChat Pay's platform certificates, and Alipay's chain.

use std::str::FromStr as _;
use std::time::Duration;

use x509_cert::certificate::{Certificate as X509, TbsCertificate, Version};
use x509_cert::der::asn1::{BitString, GeneralizedTime, UtcTime};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Any, Decode as _, Encode as _};
use x509_cert::ext::AsExtension as _;
use x509_cert::ext::pkix::BasicConstraints;
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};

use crate::keys::{Key, KeyError, pem, random_hex};
use crate::moment::Moment;

/// sha256WithRSAEncryption.
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
/// Platform certificates live five years.
pub const VALID_FOR: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
/// Seconds up to which X.509 writes a two-digit year (the end of 2049).
const UTC_TIME_MAX: i64 = 2_524_607_999;

/// A key with the certificate around it.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The pair.
    pub key: Key,
    /// 40 hex digits, upper-case.
    pub serial: String,
    /// X.509 in PEM.
    pub pem: String,
    /// effective_time.
    pub from: Moment,
    /// expire_time.
    pub to: Moment,
}

/// What stands in a certificate beside its key.
#[derive(Debug, Clone, Copy)]
pub struct Wording<'a> {
    /// RFC 4514, the common name first.
    pub subject: &'a str,
    /// Whether it may sign others.
    pub authority: bool,
}

/// Names nobody mistakes for a real one.
const WXPAY_SUBJECT: &str = "CN=Tenpay.com test platform,O=paidonce sandbox,C=CN";

impl Certificate {
    /// A platform certificate of WeChat Pay, valid from `from` for five years, signed by itself.
    pub fn issue(key: Key, from: Moment) -> Result<Self, KeyError> {
        // A first digit from 1 to 7 keeps the number positive and 20 bytes long.
        let serial = format!("5{}", random_hex(20)?.get(1..40).unwrap_or_default()).to_ascii_uppercase();
        let wording = Wording { subject: WXPAY_SUBJECT, authority: false };
        Self::write(wording, key, serial, None, from)
    }

    /// One that `issuer` signs, or that signs itself; the serial number is one of 16 bytes.
    pub fn issue_under(
        wording: Wording<'_>,
        key: Key,
        issuer: Option<(&Self, &str)>,
        from: Moment,
    ) -> Result<Self, KeyError> {
        let serial = format!("5{}", random_hex(16)?.get(1..32).unwrap_or_default()).to_ascii_uppercase();
        Self::write(wording, key, serial, issuer, from)
    }

    fn write(
        wording: Wording<'_>,
        key: Key,
        serial: String,
        issuer: Option<(&Self, &str)>,
        from: Moment,
    ) -> Result<Self, KeyError> {
        let to = from.plus(VALID_FOR);
        let der = signed(wording, &key, &serial, issuer, (from, to));
        let der = der.map_err(|()| KeyError("its certificate can't be written"))?;
        Ok(Self { key, serial, pem: pem("CERTIFICATE", &der), from, to })
    }
}

fn signed(
    wording: Wording<'_>,
    key: &Key,
    serial: &str,
    issuer: Option<(&Certificate, &str)>,
    (from, to): (Moment, Moment),
) -> Result<Vec<u8>, ()> {
    let algorithm = AlgorithmIdentifierOwned { oid: SHA256_WITH_RSA, parameters: Some(Any::null()) };
    let (signer, issuer_name) = issuer.map_or((key, wording.subject), |(issuer, name)| (&issuer.key, name));
    let serial = hex::decode(serial).map_err(drop)?;
    let constraints = BasicConstraints { ca: wording.authority, path_len_constraint: None };
    let subject = Name::from_str(wording.subject).map_err(drop)?;
    let tbs = TbsCertificate {
        version: Version::V3,
        serial_number: SerialNumber::new(&serial).map_err(drop)?,
        signature: algorithm.clone(),
        issuer: Name::from_str(issuer_name).map_err(drop)?,
        validity: Validity { not_before: x509_time(from)?, not_after: x509_time(to)? },
        extensions: Some(vec![constraints.to_extension(&subject, &[]).map_err(drop)?]),
        subject,
        subject_public_key_info: SubjectPublicKeyInfoOwned::from_der(key.spki()).map_err(drop)?,
        issuer_unique_id: None,
        subject_unique_id: None,
    };
    let signature = signer.sign_raw(&tbs.to_der().map_err(drop)?).map_err(drop)?;
    let certificate = X509 {
        tbs_certificate: tbs,
        signature_algorithm: algorithm,
        signature: BitString::from_bytes(&signature).map_err(drop)?,
    };
    certificate.to_der().map_err(drop)
}

fn x509_time(at: Moment) -> Result<Time, ()> {
    let seconds = Duration::from_secs(u64::try_from(at.seconds()).map_err(drop)?);
    if at.seconds() <= UTC_TIME_MAX {
        UtcTime::from_unix_duration(seconds).map(Time::UtcTime).map_err(drop)
    } else {
        GeneralizedTime::from_unix_duration(seconds).map(Time::GeneralTime).map_err(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use x509_cert::der::DecodePem as _;

    use super::*;

    #[test]
    fn a_certificate_says_its_serial_its_key_and_its_time() {
        let from = Moment::from_seconds(1_767_240_000);
        let made = Certificate::issue(Key::generate().unwrap(), from).unwrap();
        let read = X509::from_pem(&made.pem).unwrap().tbs_certificate;
        assert_eq!(hex::encode_upper(read.serial_number.as_bytes()), made.serial);
        assert_eq!(read.subject_public_key_info.to_der().unwrap(), made.key.spki());
        assert_eq!(read.validity.not_before.to_unix_duration().as_secs(), 1_767_240_000);
        assert_eq!(made.serial.len(), 40);
    }
}
