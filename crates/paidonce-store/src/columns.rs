//! Values of a row by column name, the same words for both databases (how SQLite stores them: `migrations/README.md`).

use paidonce_order::ids::Digest;
use paidonce_order::timestamp::Timestamp;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgRow, PgValueFormat};
use sqlx::sqlite::SqliteRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{ColumnIndex, Database, Decode, Row, Type, ValueRef};
use uuid::Uuid;

use crate::store::StoreError;

/// A row of either database. Errors of all: [`StoreError::Corrupt`], naming the column.
pub(crate) trait Columns {
    /// text, also of JSON selected as text.
    fn maybe_text(&self, name: &str) -> Result<Option<String>, StoreError>;
    /// bigint.
    fn maybe_integer(&self, name: &str) -> Result<Option<i64>, StoreError>;
    /// smallint: a shard.
    fn shard(&self, name: &str) -> Result<u16, StoreError>;
    /// integer: tries.
    fn tries(&self, name: &str) -> Result<i32, StoreError>;
    /// timestamptz.
    fn maybe_time(&self, name: &str) -> Result<Option<Timestamp>, StoreError>;
    /// uuid.
    fn maybe_uuid(&self, name: &str) -> Result<Option<Uuid>, StoreError>;
    /// bytea.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, StoreError>;
    /// boolean.
    fn flag(&self, name: &str) -> Result<bool, StoreError>;

    /// text that must be there.
    fn text(&self, name: &str) -> Result<String, StoreError> {
        present(name, self.maybe_text(name)?)
    }
    /// bigint that must be there.
    fn integer(&self, name: &str) -> Result<i64, StoreError> {
        present(name, self.maybe_integer(name)?)
    }
    /// timestamptz that must be there.
    fn time(&self, name: &str) -> Result<Timestamp, StoreError> {
        present(name, self.maybe_time(name)?)
    }
    /// uuid that must be there.
    fn uuid(&self, name: &str) -> Result<Uuid, StoreError> {
        present(name, self.maybe_uuid(name)?)
    }
    /// bytea of 32 bytes.
    fn digest(&self, name: &str) -> Result<Digest, StoreError> {
        let bytes = self.bytes(name)?;
        bytes.try_into().map(Digest).map_err(|_| StoreError::Corrupt(format!("column {name} is not a digest")))
    }
}

fn present<T>(name: &str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::Corrupt(format!("column {name} is NULL")))
}

/// The value of a type of ours that has a stable word (`PAID`, `surplus`, ...).
pub(crate) fn word<T: DeserializeOwned>(name: &str, text: String) -> Result<T, StoreError> {
    let shown = format!("column {name} has the unknown word {text:?}");
    serde_json::from_value(serde_json::Value::String(text)).map_err(|_| StoreError::Corrupt(shown))
}

/// A text that an identifier of ours refuses is not from us.
pub(crate) fn parsed<T, E: std::fmt::Display>(name: &str, result: Result<T, E>) -> Result<T, StoreError> {
    result.map_err(|error| StoreError::Corrupt(format!("column {name}: {error}")))
}

fn get<'r, T, R>(row: &'r R, name: &str) -> Result<T, StoreError>
where
    R: Row,
    for<'a> &'a str: ColumnIndex<R>,
    T: Decode<'r, R::Database> + Type<R::Database>,
    R::Database: Database,
{
    row.try_get(name).map_err(|error| StoreError::Corrupt(format!("column {name}: {error}")))
}

fn to_shard(name: &str, value: impl TryInto<u16>) -> Result<u16, StoreError> {
    value.try_into().map_err(|_| StoreError::Corrupt(format!("column {name} is not a shard")))
}

/// PostgreSQL's text form `2025-01-08 12:34:56.789+00` as RFC 3339. Only simple queries (several statements in one round trip)
/// give text, and the driver reads no text with an offset.
fn rfc3339(text: &str) -> String {
    let minutes = if text.rfind(['+', '-']).is_some_and(|at| text.len().saturating_sub(at) == 3) { ":00" } else { "" };
    format!("{}{minutes}", text.replacen(' ', "T", 1))
}

impl Columns for PgRow {
    fn maybe_text(&self, name: &str) -> Result<Option<String>, StoreError> {
        get(self, name)
    }
    fn maybe_integer(&self, name: &str) -> Result<Option<i64>, StoreError> {
        get(self, name)
    }
    fn shard(&self, name: &str) -> Result<u16, StoreError> {
        to_shard(name, get::<i16, _>(self, name)?)
    }
    fn tries(&self, name: &str) -> Result<i32, StoreError> {
        get(self, name)
    }
    fn maybe_time(&self, name: &str) -> Result<Option<Timestamp>, StoreError> {
        let raw = self.try_get_raw(name).map_err(|error| StoreError::Corrupt(format!("column {name}: {error}")))?;
        if raw.is_null() || raw.format() == PgValueFormat::Binary {
            return Ok(get::<Option<OffsetDateTime>, _>(self, name)?.map(Timestamp::from_datetime));
        }
        let text = parsed(name, raw.as_str())?;
        parsed(name, Timestamp::parse(&rfc3339(text))).map(Some)
    }
    fn maybe_uuid(&self, name: &str) -> Result<Option<Uuid>, StoreError> {
        get(self, name)
    }
    fn bytes(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        get(self, name)
    }
    fn flag(&self, name: &str) -> Result<bool, StoreError> {
        get(self, name)
    }
}

impl Columns for SqliteRow {
    fn maybe_text(&self, name: &str) -> Result<Option<String>, StoreError> {
        get(self, name)
    }
    fn maybe_integer(&self, name: &str) -> Result<Option<i64>, StoreError> {
        get(self, name)
    }
    fn shard(&self, name: &str) -> Result<u16, StoreError> {
        to_shard(name, get::<i64, _>(self, name)?)
    }
    fn tries(&self, name: &str) -> Result<i32, StoreError> {
        get(self, name)
    }
    fn maybe_time(&self, name: &str) -> Result<Option<Timestamp>, StoreError> {
        Ok(get::<Option<i64>, _>(self, name)?.map(Timestamp::from_micros))
    }
    fn maybe_uuid(&self, name: &str) -> Result<Option<Uuid>, StoreError> {
        get(self, name)
    }
    fn bytes(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        get(self, name)
    }
    fn flag(&self, name: &str) -> Result<bool, StoreError> {
        get(self, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_text_reads_like_one_in_binary() {
        for (text, expected) in [
            ("1970-01-01 00:00:00+00", "1970-01-01T00:00:00Z"),
            ("2025-01-08 20:34:56.789012+08", "2025-01-08T12:34:56.789012Z"),
            ("2025-01-08 18:04:56.5+05:30", "2025-01-08T12:34:56.5Z"),
            ("2025-01-08 09:34:56-03", "2025-01-08T12:34:56Z"),
        ] {
            assert_eq!(Timestamp::parse(&rfc3339(text)).ok(), Timestamp::parse(expected).ok(), "{text}");
        }
    }
}
