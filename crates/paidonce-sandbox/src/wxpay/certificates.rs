//! `GET /v3/certificates`: every platform certificate, sealed with the caller's APIv3 key.

use serde_json::{Value, json};

use super::{Content, Outcome, Refusal};
use crate::accounts::KnownMerchant;
use crate::certificate::Certificate;
use crate::platforms::Platforms;
use crate::seal::seal;

impl Platforms {
    pub(super) fn wxpay_certificates(&self, caller: &KnownMerchant) -> Outcome {
        let sealed: Option<Vec<Value>> =
            self.ring.wxpay_certificates.iter().map(|one| entry(one, &caller.apiv3_key)).collect();
        match sealed {
            Some(data) => Ok(Content::Json(json!({ "data": data }))),
            None => Err(Refusal::new(500, "SYSTEM_ERROR", "the certificates can't be sealed")),
        }
    }
}

fn entry(certificate: &Certificate, apiv3_key: &str) -> Option<Value> {
    let sealed = seal(apiv3_key, "certificate", &certificate.pem).ok()?;
    Some(json!({
        "serial_no": certificate.serial,
        "effective_time": certificate.from.rfc3339(),
        "expire_time": certificate.to.rfc3339(),
        "encrypt_certificate": {
            "algorithm": "AEAD_AES_256_GCM",
            "nonce": sealed.nonce,
            "associated_data": "certificate",
            "ciphertext": sealed.ciphertext,
        },
    }))
}
