//! The form: decoded once, byte for byte, before anybody thinks about characters (fact B1.2).
//!
//! The signature covers the decoded bytes in the notification's own charset, so verification never converts anything;
//! texts are decoded afterwards. Only the body counts: parameters of the URL are not ours to read.

use std::borrow::Cow;

use encoding_rs::{Encoding, GB18030, GBK, UTF_8};

use super::value::Fields;
use crate::channel::VerifyError;
use crate::digest::PartsDigest;
use crate::reading::{Unbookable, cut};
use paidonce_order::ids::Digest;

/// Parameters that differ between two sendings of the same statement.
const OF_THE_SENDING: [&[u8]; 5] = [b"sign", b"sign_type", b"notify_id", b"notify_time", b"utc_timestamp"];

/// Which parameters the signature leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignRule {
    /// A notification: `sign` and `sign_type`.
    Notification,
    /// An application-gateway message: `sign` alone.
    Gateway,
}

impl SignRule {
    fn leaves_out(self, key: &[u8]) -> bool {
        match self {
            Self::Notification => key == b"sign" || key == b"sign_type",
            Self::Gateway => key == b"sign",
        }
    }
}

/// Decoded pairs, sorted by key bytes, keys unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Form {
    /// Errors: a broken percent escape, a key twice (also when it is spelled differently).
    pub(super) fn parse(body: &[u8]) -> Result<Self, VerifyError> {
        let mut pairs = Vec::new();
        for segment in body.split(|byte| *byte == b'&').filter(|segment| !segment.is_empty()) {
            let mut halves = segment.splitn(2, |byte| *byte == b'=');
            let key = decode(halves.next().unwrap_or_default())?;
            let value = decode(halves.next().unwrap_or_default())?;
            pairs.push((key, value));
        }
        pairs.sort_by(|left, right| left.0.cmp(&right.0));
        let mut neighbours = pairs.iter().zip(pairs.iter().skip(1));
        if neighbours.any(|(left, right)| left.0 == right.0) {
            return Err(VerifyError::Malformed { field: "form", hint: "each key once" });
        }
        Ok(Self { pairs })
    }

    /// The decoded bytes of a value; `None` when it is absent or blank.
    fn raw(&self, key: &str) -> Option<&[u8]> {
        let found = self.pairs.binary_search_by(|(candidate, _)| candidate.as_slice().cmp(key.as_bytes())).ok()?;
        let (_, value) = self.pairs.get(found)?;
        Some(value.as_slice()).filter(|value| !value.is_empty())
    }

    /// A value that is ASCII in every charset, for use before the signature is checked.
    pub(super) fn ascii(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(self.raw(key)?).ok().filter(|text| text.is_ascii())
    }

    /// `true` when the parameter is there with a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// The string that Alipay signed: blank values dropped, keys in byte order, values as decoded, in their own charset.
    pub(super) fn signed_bytes(&self, rule: SignRule) -> Vec<u8> {
        let mut signed = Vec::new();
        let pairs = self.pairs.iter().filter(|(key, value)| !value.is_empty() && !rule.leaves_out(key));
        for (key, value) in pairs {
            if !signed.is_empty() {
                signed.push(b'&');
            }
            signed.extend_from_slice(key);
            signed.push(b'=');
            signed.extend_from_slice(value);
        }
        signed
    }

    /// Digest of what it says: equal for every resend.
    pub(super) fn content(&self) -> Digest {
        self.pairs
            .iter()
            .filter(|(key, value)| !value.is_empty() && !OF_THE_SENDING.contains(&key.as_slice()))
            .fold(PartsDigest::new("alipay"), |digest, (key, value)| digest.with(key).with(value))
            .finish()
    }

    /// The values as text, in the charset that the form names. Errors: a charset that we don't know.
    pub(super) fn texts(&self) -> Result<Texts<'_>, Unbookable> {
        let name = self.ascii("charset").unwrap_or("utf-8");
        let encoding = match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" => UTF_8,
            "gbk" | "gb2312" => GBK,
            "gb18030" => GB18030,
            _ => return Err(Unbookable::new("unknown_charset", format!("charset {:?} is unknown", cut(name)))),
        };
        Ok(Texts { form: self, encoding })
    }
}

/// The values as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts<'f> {
    form: &'f Form,
    encoding: &'static Encoding,
}

impl Fields for Texts<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        Texts::get(self, key)
    }
}

impl<'f> Texts<'f> {
    /// `None` when absent or blank. Bytes that the charset does not have become U+FFFD: no number or amount survives that,
    /// and a text for people must not block a payment.
    pub(super) fn get(&self, key: &str) -> Option<Cow<'f, str>> {
        Some(self.encoding.decode_without_bom_handling(self.form.raw(key)?).0)
    }
}

/// `+` is a space, `%` needs two hex digits. Once: a value may itself hold percent signs.
fn decode(text: &[u8]) -> Result<Vec<u8>, VerifyError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        match rest {
            [] => return Ok(decoded),
            [b'+', tail @ ..] => {
                decoded.push(b' ');
                rest = tail;
            }
            [b'%', high, low, tail @ ..] => {
                decoded.push(byte(*high, *low).ok_or(BROKEN_ESCAPE)?);
                rest = tail;
            }
            [b'%', ..] => return Err(BROKEN_ESCAPE),
            [plain, tail @ ..] => {
                decoded.push(*plain);
                rest = tail;
            }
        }
    }
}

const BROKEN_ESCAPE: VerifyError = VerifyError::Malformed { field: "form", hint: "% and two hex digits" };

fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_decoded_once() {
        let form = Form::parse(b"a=1%2B1+%253D%26&passback_params=k%3Dv%2526x&empty=&bare").unwrap();
        let texts = form.texts().unwrap();
        assert_eq!(texts.get("a").unwrap(), "1+1 %3D&");
        assert_eq!(texts.get("passback_params").unwrap(), "k=v%26x");
        assert_eq!(texts.get("empty"), None);
        assert_eq!(form.signed_bytes(SignRule::Notification), b"a=1+1 %3D&&passback_params=k=v%26x");
    }

    #[test]
    fn broken_escapes_and_repeated_keys_are_refused() {
        for body in [&b"a=%"[..], b"a=%4", b"a=%zz", b"%=1", b"a=1&a=2", b"a=1&%61=2", b"a=1&b=2&a="] {
            assert!(Form::parse(body).is_err(), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn keys_are_sorted_as_bytes_and_not_as_pairs() {
        let form = Form::parse(b"refund%21=y&refund=x&B=1&a=2").unwrap();
        assert_eq!(form.signed_bytes(SignRule::Notification), b"B=1&a=2&refund=x&refund!=y");
    }

    #[test]
    fn bytes_outside_the_charset_do_not_stop_the_reading() {
        let form = Form::parse(b"charset=utf-8&subject=%ff%fe&out_trade_no=N1").unwrap();
        let texts = form.texts().unwrap();
        assert!(texts.get("subject").unwrap().contains('\u{fffd}'));
        assert_eq!(texts.get("out_trade_no").unwrap(), "N1");
        assert!(Form::parse(b"charset=big5").unwrap().texts().is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(form) = Form::parse(&body) {
                let _ = (form.signed_bytes(SignRule::Gateway), form.content(), form.texts());
            }
        }
    }
}
