//! The envelope and its sealed resource (facts A1.3, A1.6). Read only after the signature is good.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::timestamp::Timestamp;

use super::account::WxpayAccount;
use crate::channel::VerifyError;
use crate::json::Json;
use crate::json::{Object, member, parse_object, text};
use crate::observation::VerifyErrorAfterRecording;

/// The only resource algorithm that we open.
const AES_256_GCM: &str = "AEAD_AES_256_GCM";

/// Length of the nonce in bytes; anything else is refused before a cipher sees it.
const NONCE_BYTES: usize = 12;

/// Length of the tag at the end of the ciphertext, in bytes.
const TAG_BYTES: usize = 16;

/// The envelope; every member may be missing.
#[derive(Debug)]
pub(super) struct Envelope<'a>(Object<'a>);

/// No plaintext can be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) why: VerifyErrorAfterRecording,
    pub(super) detail: String,
}

impl<'a> Envelope<'a> {
    /// Errors: not one JSON object, or a key twice (400, nothing is written).
    pub(super) fn read(body: &'a [u8]) -> Result<Self, VerifyError> {
        parse_object(body).map(Self).map_err(|problem| VerifyError::Unreadable { problem })
    }

    /// The id of this push; empty when it has none.
    pub(super) fn push_id(&self) -> &str {
        text(&self.0, "id").unwrap_or_default()
    }

    /// A hint, never the decision.
    pub(super) fn event_type(&self) -> Option<&str> {
        text(&self.0, "event_type")
    }

    /// For people; also tells a share from its return.
    pub(super) fn summary(&self) -> &str {
        text(&self.0, "summary").unwrap_or_default()
    }

    /// When the event arose; equal for every resend.
    pub(super) fn create_time(&self) -> Option<Timestamp> {
        Timestamp::parse(text(&self.0, "create_time")?).ok()
    }

    /// What kind of object is sealed.
    pub(super) fn original_type(&self) -> Option<&str> {
        text(self.resource()?, "original_type").filter(|kind| !kind.is_empty())
    }

    fn resource(&self) -> Option<&Object<'a>> {
        match member(&self.0, "resource")? {
            Json::Object(resource) => Some(resource),
            Json::Null | Json::Bool | Json::Number(_) | Json::Text(_) | Json::Array(_) => None,
        }
    }

    /// Opens the resource with the current APIv3 key or the one before.
    pub(super) fn open(&self, account: &WxpayAccount) -> Result<Vec<u8>, Sealed> {
        open_sealed(self.resource().ok_or_else(|| broken("resource is missing".to_owned()))?, account)
    }
}

fn broken(detail: String) -> Sealed {
    Sealed { why: VerifyErrorAfterRecording::BrokenResource, detail }
}

/// Opens what was sealed with the APIv3 key: the resource of a notification, a certificate of the list.
pub(super) fn open_sealed(resource: &Object<'_>, account: &WxpayAccount) -> Result<Vec<u8>, Sealed> {
    let needed = |key: &str| text(resource, key).ok_or_else(|| broken(format!("resource.{key} is missing")));
    if needed("algorithm")? != AES_256_GCM {
        return Err(broken(format!("resource.algorithm is not {AES_256_GCM}")));
    }
    let nonce_text = needed("nonce")?;
    let nonce: [u8; NONCE_BYTES] = nonce_text
        .as_bytes()
        .try_into()
        .map_err(|_| broken(format!("resource.nonce has {} bytes, not {NONCE_BYTES}", nonce_text.len())))?;
    let associated_data = match member(resource, "associated_data") {
        None => "",
        Some(Json::Text(text)) => text,
        Some(_) => return Err(broken("resource.associated_data is not a text".to_owned())),
    };
    let ciphertext =
        BASE64.decode(needed("ciphertext")?).map_err(|_| broken("resource.ciphertext is not base64".to_owned()))?;
    if ciphertext.len() < TAG_BYTES {
        return Err(broken("resource.ciphertext is shorter than its tag".to_owned()));
    }
    let open = |key: &crate::keys::Apiv3Key| key.open(nonce, associated_data.as_bytes(), &ciphertext);
    account.apiv3_keys.iter().find_map(open).ok_or_else(|| Sealed {
        why: VerifyErrorAfterRecording::Undecryptable,
        detail: "the configured APIv3 key does not open the resource: was it changed at the platform?".to_owned(),
    })
}
