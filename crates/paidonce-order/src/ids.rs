//! Identifiers as types, so that an order number can't stand where a channel trade number belongs.
//!
//! Every `parse` refuses with the reason; every identifier is compared byte for byte.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logical shards of the log, on every database. Part of the stored format: never changes for an existing ledger.
pub const SHARD_COUNT: u16 = 64;

/// Longest order and refund number, in bytes. Source: WeChat Pay v3 out_refund_no and Alipay out_trade_no (64).
pub const ORDER_NO_BYTES_MAX: usize = 64;

/// Longest number a channel gives (transaction_id, trade_no, refund_id, order_id), in bytes.
pub const CHANNEL_NO_BYTES_MAX: usize = 64;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("{field} is empty")]
    Empty {
        /// Name of the field, in the platform's or our own words.
        field: &'static str,
    },
    /// More bytes than the field may have.
    #[error("{field} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// A character outside of the allowed set.
    #[error("{field} may only have {allowed}, not {found:?}")]
    Character {
        /// Name of the field.
        field: &'static str,
        /// The allowed set, for a person.
        allowed: &'static str,
        /// The first offending character.
        found: char,
    },
    /// Not one of the known words.
    #[error("{field} must be {allowed}, not {found:?}")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// The allowed words.
        allowed: &'static str,
        /// What was given.
        found: String,
    },
}

fn check(
    field: &'static str,
    text: &str,
    bytes_max: usize,
    allowed: &'static str,
    permitted: fn(char) -> bool,
) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { field });
    }
    // Counted as the text stands in an idempotency key, where `:` and `%` take three bytes: so no key is ever too long.
    let escapes = text.bytes().filter(|byte| matches!(byte, b':' | b'%')).count();
    let bytes = text.len() + 2 * escapes;
    if bytes > bytes_max {
        return Err(IdError::TooLong { field, bytes, bytes_max });
    }
    match text.chars().find(|c| !permitted(*c)) {
        Some(found) => Err(IdError::Character { field, allowed, found }),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr, $allowed:literal, $permitted:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks length and characters. Errors: [`IdError`], naming the field.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check($field, text, $max, $allowed, $permitted)?;
                Ok(Self(text.to_owned()))
            }

            /// The text as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

fn order_no_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '|' | '*' | '@')
}

fn visible_ascii(c: char) -> bool {
    c.is_ascii_graphic()
}

text_id! {
    /// The merchant's order number (out_trade_no) and the aggregate id. Unique in one ledger, case-sensitive.
    OrderNo, "order_no", ORDER_NO_BYTES_MAX, "letters, digits and _-|*@", order_no_char
}
text_id! {
    /// The merchant's number (combine_out_trade_no) of a whole WeChat Pay combine payment; each of its parts has an order number of its own.
    CombineNo, "combine_out_trade_no", ORDER_NO_BYTES_MAX, "letters, digits and _-|*@", order_no_char
}
text_id! {
    /// Our refund number (WeChat out_refund_no, Alipay out_request_no / out_biz_no).
    RefundNo, "refund_no", ORDER_NO_BYTES_MAX, "letters, digits and _-|*@", order_no_char
}
text_id! {
    /// The channel's number of a payment (WeChat transaction_id, Alipay trade_no).
    ChannelTradeNo, "channel_trade_no", CHANNEL_NO_BYTES_MAX, "visible ASCII characters", visible_ascii
}
text_id! {
    /// Our merchant account at a channel: WeChat mchid (or sp_mchid), Alipay seller_id.
    AccountId, "account", 32, "letters, digits and _-", |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

impl RefundNo {
    /// For numbers that this crate makes out of an order number, letters, digits and `-`, cut to length.
    pub(crate) const fn of_allowed(text: String) -> Self {
        Self(text)
    }
}

impl OrderNo {
    /// The shard that holds this order. Format: see [`shard_of`].
    #[must_use]
    pub fn shard(&self) -> u16 {
        shard_of(self.as_str())
    }
}

/// The platform a fact came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// WeChat Pay API v3.
    Wxpay,
    /// Alipay (domestic OpenAPI).
    Alipay,
}

impl Channel {
    /// Lower-case word used in paths, JSON and tables: `wxpay`, `alipay`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wxpay => "wxpay",
            Self::Alipay => "alipay",
        }
    }

    /// Upper-case word used in idempotency keys: `WXPAY`, `ALIPAY`.
    #[must_use]
    pub const fn key_word(self) -> &'static str {
        match self {
            Self::Wxpay => "WXPAY",
            Self::Alipay => "ALIPAY",
        }
    }

    /// Reads the lower-case word.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        match text {
            "wxpay" => Ok(Self::Wxpay),
            "alipay" => Ok(Self::Alipay),
            other => Err(IdError::Unknown { field: "channel", allowed: "wxpay or alipay", found: other.to_owned() }),
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One of our accounts at one channel. Text form `wxpay:1900000001`, in JSON and on the command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct AccountRef {
    /// The platform.
    pub channel: Channel,
    /// The account there.
    pub account: AccountId,
}

impl AccountRef {
    /// Reads `channel:account`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let Some((channel, account)) = text.split_once(':') else {
            return Err(IdError::Unknown {
                field: "account",
                allowed: "written as channel:account, for example wxpay:1900000001",
                found: text.to_owned(),
            });
        };
        Ok(Self { channel: Channel::parse(channel)?, account: AccountId::parse(account)? })
    }
}

impl fmt::Display for AccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.channel, self.account)
    }
}

impl TryFrom<String> for AccountRef {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl From<AccountRef> for String {
    fn from(account: AccountRef) -> Self {
        account.to_string()
    }
}

/// A SHA-256 digest, computed outside of this crate. Text form: 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Reads 64 hex digits.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::Unknown { field: "digest", allowed: "64 hex digits", found: text.to_owned() };
        let nibble = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(bad());
        }
        let mut digest = [0_u8; 32];
        for (out, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            let [high, low] = pair else { return Err(bad()) };
            *out = nibble(*high).ok_or_else(bad)? << 4 | nibble(*low).ok_or_else(bad)?;
        }
        Ok(Self(digest))
    }

    /// The first eight bytes as 16 hex digits: enough to name a content inside one order.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(16).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl TryFrom<String> for Digest {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// FNV-1a, 64 bit (offset 0xcbf29ce484222325, prime 0x100000001b3). For spreading and naming, never for proof.
#[must_use]
pub fn fnv1a_64(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The shard of an aggregate id: [`fnv1a_64`], the high half folded onto the low half by xor, modulo [`SHARD_COUNT`].
/// Stored format: the golden values in the tests hold it.
#[must_use]
pub fn shard_of(aggregate_id: &str) -> u16 {
    let hash = fnv1a_64(aggregate_id);
    let folded = (hash >> 32) ^ (hash & 0xffff_ffff);
    u16::try_from(folded % u64::from(SHARD_COUNT)).unwrap_or(0)
}
