//! The numbers by which Alipay names certificates (fact B3): MD5 of the issuer's text and the decimal serial number.
//!
//! MD5 is Alipay's choice of a name, it protects nothing here: what is trusted is the configured certificate's key.

use md5::{Digest as _, Md5};
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{DecodePem, Tag, Tagged};

const HEADER: &str = "-----BEGIN CERTIFICATE-----";
const FOOTER: &str = "-----END CERTIFICATE-----";

/// Signature algorithms of RSA: Alipay counts only these among the roots (its file also has SM2 ones).
const RSA_SIGNATURES: &str = "1.2.840.113549.1.1.";

/// `app_cert_sn`, `alipay_cert_sn`: of the first certificate. Errors: one sentence.
pub(super) fn cert_sn(pem: &str) -> Result<String, String> {
    let certificates = certificates(pem)?;
    certificates.first().ok_or_else(not_a_certificate).and_then(sn)
}

/// `alipay_root_cert_sn`: of every RSA certificate in the file, joined with `_`. Errors: one sentence.
pub(super) fn root_cert_sn(pem: &str) -> Result<String, String> {
    let certificates = certificates(pem)?;
    let is_rsa = |one: &&Certificate| is_rsa_signed(one);
    let numbers: Vec<String> = certificates.iter().filter(is_rsa).map(sn).collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        return Err("has no certificate with an RSA signature: take alipayRootCert.crt as it is".to_owned());
    }
    Ok(numbers.join("_"))
}

/// Whether its issuer signed it with RSA.
pub(super) fn is_rsa_signed(certificate: &Certificate) -> bool {
    certificate.signature_algorithm.oid.to_string().starts_with(RSA_SIGNATURES)
}

fn not_a_certificate() -> String {
    format!("is not a PEM certificate ({HEADER})")
}

/// Every certificate of the text, at least one. Errors: one sentence.
pub(super) fn certificates(pem: &str) -> Result<Vec<Certificate>, String> {
    let mut certificates = Vec::new();
    for block in pem.split(HEADER).skip(1) {
        let (inside, _) = block.split_once(FOOTER).ok_or_else(not_a_certificate)?;
        let one = format!("{HEADER}{inside}{FOOTER}\n");
        certificates.push(Certificate::from_pem(one.as_bytes()).map_err(|_| not_a_certificate())?);
    }
    if certificates.is_empty() { Err(not_a_certificate()) } else { Ok(certificates) }
}

/// The number of one. Errors: one sentence.
pub(super) fn sn(certificate: &Certificate) -> Result<String, String> {
    let body = &certificate.tbs_certificate;
    let mut parts = Vec::new();
    // The other way round than it is written in the certificate: CN first, C last.
    for rdn in body.issuer.0.iter().rev() {
        for attribute in rdn.0.iter() {
            parts.push(format!("{}={}", name(attribute), value(attribute)?));
        }
    }
    let named = format!("{}{}", parts.join(","), decimal(body.serial_number.as_bytes()));
    Ok(hex::encode(Md5::digest(named.as_bytes())))
}

fn name(attribute: &AttributeTypeAndValue) -> String {
    let oid = attribute.oid.to_string();
    let known = match oid.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.1" => "UID",
        _ => return oid,
    };
    known.to_owned()
}

fn value(attribute: &AttributeTypeAndValue) -> Result<String, String> {
    let unreadable = |_| "has an issuer name that can't be read as text".to_owned();
    let (any, tag) = (&attribute.value, attribute.value.tag());
    let text = if tag == Tag::Utf8String {
        any.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned())
    } else if tag == Tag::PrintableString {
        any.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned())
    } else if tag == Tag::Ia5String {
        any.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned())
    } else {
        any.decode_as::<TeletexStringRef<'_>>().map(|text| text.as_str().to_owned())
    };
    text.map_err(unreadable)
}

/// A big-endian number in decimal digits. Twenty bytes: more than any integer type holds.
fn decimal(bytes: &[u8]) -> String {
    // Least significant first.
    let mut digits: Vec<u16> = vec![0];
    for byte in bytes {
        let mut carry = u16::from(*byte);
        for digit in &mut digits {
            // At most 9 * 256 + 256, far from the end of u16.
            let sum = digit.saturating_mul(256).saturating_add(carry);
            *digit = sum % 10;
            carry = sum / 10;
        }
        while carry > 0 {
            digits.push(carry % 10);
            carry /= 10;
        }
    }
    digits.iter().rev().filter_map(|digit| char::from_digit(u32::from(*digit), 10)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;

    #[test]
    fn a_serial_of_twenty_bytes_becomes_decimal() {
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[0, 0]), "0");
        assert_eq!(decimal(&[1, 0]), "256");
        assert_eq!(decimal(&[0xff; 8]), u64::MAX.to_string());
        assert_eq!(decimal(&[0xff; 16]), u128::MAX.to_string());
        let serial = hex::decode("0A5DFF7711C0FFEE00112233445566778899AABB").unwrap();
        assert_eq!(decimal(&serial), "59186131161814993445020881373302330871414106811");
    }
}
