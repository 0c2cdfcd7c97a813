//! Strict JSON: one reader for every platform message.
//!
//! Promises: a key that is there twice, at any depth, is an error (parsers that differ on which one wins would let a check
//! and a booking see different amounts); nesting is limited, so that no input overflows the stack; nothing may follow the
//! value; numbers keep their text, no float is ever made. A lone surrogate escape is legal here and becomes U+FFFD: it can
//! only stand in texts for people, and must not block a payment.
//!
//! `serde_json` does the scanning; this module only walks its raw values.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Deepest nesting that is read. Platform messages have five levels.
const DEPTH_MAX: usize = 32;

/// A JSON value with borrowed texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool,
    /// As it is written.
    Number(&'a str),
    /// Decoded.
    Text(Cow<'a, str>),
    /// In order.
    Array(Vec<Json<'a>>),
    /// Keys are unique.
    Object(Object<'a>),
}

/// Members of an object.
pub(crate) type Object<'a> = BTreeMap<Cow<'a, str>, Json<'a>>;

/// Reads an object and nothing after it. Errors: one sentence about what is wrong, without content.
pub(crate) fn parse_object(bytes: &[u8]) -> Result<Object<'_>, String> {
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    match walk(raw.get(), DEPTH_MAX)? {
        Json::Object(object) => Ok(object),
        Json::Null | Json::Bool | Json::Number(_) | Json::Text(_) | Json::Array(_) => {
            Err("the JSON is not an object".to_owned())
        }
    }
}

/// The members of the outermost object with the raw text of their values, byte for byte. Errors: as [`parse_object`], but
/// nothing inside the values is looked at.
pub(crate) fn raw_members(bytes: &[u8]) -> Result<Vec<(Cow<'_, str>, &str)>, String> {
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    if !raw.get().starts_with('{') {
        return Err("the JSON is not an object".to_owned());
    }
    let members: Vec<(Cow<'_, str>, &str)> =
        pairs(raw.get())?.into_iter().map(|(key, value)| (key, value.get())).collect();
    let keys: BTreeSet<&str> = members.iter().map(|(key, _)| key.as_ref()).collect();
    if keys.len() == members.len() { Ok(members) } else { Err("a key is there twice".to_owned()) }
}

/// A raw value as text, when it is one.
pub(crate) fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    if raw.starts_with('"') { decode_text(raw).ok() } else { None }
}

/// The member, when it is there and not null.
pub(crate) fn member<'j, 'a>(object: &'j Object<'a>, key: &str) -> Option<&'j Json<'a>> {
    object.get(key).filter(|value| **value != Json::Null)
}

/// The text member, when it is there and a text.
pub(crate) fn text<'j>(object: &'j Object<'_>, key: &str) -> Option<&'j str> {
    match object.get(key)? {
        Json::Text(text) => Some(text),
        Json::Null | Json::Bool | Json::Number(_) | Json::Array(_) | Json::Object(_) => None,
    }
}

/// `raw` was scanned as one valid value before: its first byte tells the kind.
fn walk(raw: &str, depth_left: usize) -> Result<Json<'_>, String> {
    let nested = || depth_left.checked_sub(1).ok_or_else(|| format!("nested deeper than {DEPTH_MAX} levels"));
    match raw.bytes().next() {
        Some(b'{') => {
            let depth_left = nested()?;
            let mut object = Object::new();
            for (key, value) in pairs(raw)? {
                let value = walk(value.get(), depth_left)?;
                if let Some(entry) = object.insert(key.clone(), value) {
                    drop(entry);
                    return Err(format!("the key {:?} is there twice", key.chars().take(64).collect::<String>()));
                }
            }
            Ok(Json::Object(object))
        }
        Some(b'[') => {
            let depth_left = nested()?;
            let items = items(raw)?;
            Ok(Json::Array(items.into_iter().map(|item| walk(item.get(), depth_left)).collect::<Result<_, _>>()?))
        }
        Some(b'"') => decode_text(raw).map(Json::Text),
        Some(b't' | b'f') => Ok(Json::Bool),
        Some(b'n') => Ok(Json::Null),
        _ => Ok(Json::Number(raw)),
    }
}

fn pairs(raw: &str) -> Result<Vec<(Cow<'_, str>, &RawValue)>, String> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(key) = access.next_key_seed(TextBytes)? {
                pairs.push((key, access.next_value()?));
            }
            Ok(pairs)
        }
    }
    serde_json::Deserializer::from_str(raw).deserialize_map(Pairs).map_err(|error| format!("not JSON: {error}"))
}

fn items(raw: &str) -> Result<Vec<&RawValue>, String> {
    struct Items;
    impl<'de> Visitor<'de> for Items {
        type Value = Vec<&'de RawValue>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = access.next_element()? {
                items.push(item);
            }
            Ok(items)
        }
    }
    serde_json::Deserializer::from_str(raw).deserialize_seq(Items).map_err(|error| format!("not JSON: {error}"))
}

fn decode_text(raw: &str) -> Result<Cow<'_, str>, String> {
    let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|text| !text.contains('\\'));
    if let Some(text) = plain {
        return Ok(Cow::Borrowed(text));
    }
    TextBytes.deserialize(&mut serde_json::Deserializer::from_str(raw)).map_err(|error| format!("not JSON: {error}"))
}

/// Decodes a JSON string as bytes: `serde_json` then lets lone surrogates through, where its text door refuses them.
struct TextBytes;

impl<'de> DeserializeSeed<'de> for TextBytes {
    type Value = Cow<'de, str>;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for TextBytes {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_bytes<E: serde::de::Error>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes))
    }
    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(String::from_utf8_lossy(bytes).into_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "test module")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_twice_is_refused_at_any_depth_and_in_any_spelling() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"x":{"a":1,"b":2,"a":3}}"#,
            r#"{"x":[{"y":[{"a":1,"a":1}]}]}"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            assert!(parse_object(text.as_bytes()).unwrap_err().contains("twice"), "{text}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        let deep = "[".repeat(10_000);
        let deep_object = r#"{"a":"#.repeat(10_000);
        let deep_closed = format!("{}{}", r#"{"a":"#.repeat(40), "1".to_owned() + &"}".repeat(40));
        for text in [
            "",
            " ",
            "null",
            "[]",
            "\"x\"",
            "1",
            "{",
            "}",
            "{}x",
            "{\"id\":\"1\"} trailing",
            "{} {}",
            "{'a':1}",
            "{a:1}",
            "{\"a\":01}",
            "{\"a\":NaN}",
            "{\"a\":1,}",
            "\u{feff}{}",
            "{\"a\":\"\u{1}\"}",
            &deep,
            &deep_object,
            &deep_closed,
        ] {
            assert!(parse_object(text.as_bytes()).is_err(), "{}", text.chars().take(30).collect::<String>());
        }
        assert!(parse_object(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_nul_and_a_lone_surrogate_do_not_block_a_message() {
        let object = parse_object(br#"{"attach":"a\u0000b","d":"\ud800","ok":"\ud83d\ude00","n":100}"#).unwrap();
        assert_eq!(text(&object, "attach"), Some("a\0b"));
        assert!(text(&object, "d").unwrap().contains('\u{fffd}'));
        assert_eq!(text(&object, "ok"), Some("😀"));
        assert_eq!(member(&object, "n"), Some(&Json::Number("100")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_object(&bytes);
        }

        #[test]
        fn no_json_like_text_makes_it_panic(text in r#"[\[\]{}":,0-9a-z\\u\. -]{0,120}"#) {
            let _ = parse_object(text.as_bytes());
        }
    }
}
