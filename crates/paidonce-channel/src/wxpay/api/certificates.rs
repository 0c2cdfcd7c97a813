//! The certificate list (fact A1.4): each certificate is sealed with the APIv3 key, and that is why it is trusted.

use paidonce_order::timestamp::Timestamp;

use crate::answer::object;
use crate::api::LearnedKey;
use crate::json::{Json, Object, member, text};
use crate::keys::{RsaHash, RsaPublicKey, certificate_from_pem, normal_serial};
use crate::wxpay::account::WxpayAccount;
use crate::wxpay::envelope::open_sealed;

/// Most certificates of one list: real ones have one or two.
const CERTIFICATES_MAX: usize = 50;

/// Opens every certificate of the list. What has expired is left out, what is not yet valid is kept for later: its dates are
/// looked at again when it is used.
///
/// Errors: not such a list, or none of it can be opened and used; one sentence.
pub(super) fn open(body: &[u8], account: &WxpayAccount, now: Timestamp) -> Result<Vec<LearnedKey>, String> {
    let list = object(body).map_err(|doubt| doubt.detail)?;
    let Some(Json::Array(items)) = member(&list, "data") else { return Err("data is missing".to_owned()) };
    if items.is_empty() || items.len() > CERTIFICATES_MAX {
        return Err(format!("data has {} members, not 1 to {CERTIFICATES_MAX}", items.len()));
    }
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    for item in items {
        match open_one(item, account) {
            Ok(key) => keys.push(key),
            Err(problem) => problems.push(problem),
        }
    }
    match problems.into_iter().next() {
        Some(problem) if keys.is_empty() => Err(problem),
        Some(_) | None => Ok(keys.into_iter().filter(|key| now <= key.valid_to).collect()),
    }
}

fn open_one(item: &Json<'_>, account: &WxpayAccount) -> Result<LearnedKey, String> {
    let Json::Object(item) = item else { return Err("data[] is not an object".to_owned()) };
    let needed = |key: &str| text(item, key).ok_or_else(|| format!("data[].{key} is missing"));
    let time = |key: &str| Timestamp::parse(needed(key)?).map_err(|error| format!("data[].{key}: {error}"));
    let (valid_from, valid_to) = (time("effective_time")?, time("expire_time")?);
    let announced = normal_serial(needed("serial_no")?).ok_or("data[].serial_no is not a serial number")?;
    let opened = open_sealed(sealed(item)?, account).map_err(|sealed| sealed.detail)?;
    let pem = String::from_utf8(opened).map_err(|_| "the opened certificate is not text".to_owned())?;
    let certificate = certificate_from_pem(&pem)?;
    RsaPublicKey::from_spki_der(&certificate.spki, RsaHash::Sha256)?;
    if certificate.serial != announced {
        return Err(format!("serial_no {announced} announces a certificate with the serial {}", certificate.serial));
    }
    // The certificate's own dates are the hard ones; the list may only narrow them.
    let (from, to) = (valid_from.max(certificate.validity.from), valid_to.min(certificate.validity.to));
    Ok(LearnedKey { serial: certificate.serial, pem, valid_from: from, valid_to: to })
}

fn sealed<'j, 'a>(item: &'j Object<'a>) -> Result<&'j Object<'a>, String> {
    match member(item, "encrypt_certificate") {
        Some(Json::Object(sealed)) => Ok(sealed),
        Some(Json::Null | Json::Bool | Json::Number(_) | Json::Text(_) | Json::Array(_)) | None => {
            Err("data[].encrypt_certificate is missing".to_owned())
        }
    }
}
