//! Exported evidence: rows of `t_evidence`, one JSON object a line (or one JSON array).
//!
//! | member | shape |
//! |---|---|
//! | `channel`, `account` | `wxpay`, `1900000001` |
//! | `source` | only `callback` is played |
//! | `headers` | `[["wechatpay-timestamp", ".."], ..]`, or that as a text |
//! | `body` | hex digits, with or without `\x` in front |
//! | `received_at` | RFC 3339, or microseconds since 1970 |
//!
//! These come out of both databases without any tool of ours:
//! `psql -At -c "SELECT to_json(e) FROM t_evidence e"`, and
//! `sqlite3 -json ledger.db "SELECT channel, account, source, headers, hex(body) AS body, received_at FROM t_evidence"`.
//! Other members are ignored.

use std::path::Path;

use anyhow::Context as _;
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::exit::Stop;

/// The source of rows that arrived as callbacks.
const CALLBACK: &str = "callback";
/// WeChat Pay's signature is only valid near this time.
const TIMESTAMP_HEADER: &str = "wechatpay-timestamp";

/// One saved message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Where it came in.
    pub account: AccountRef,
    /// Signature headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Exact bytes.
    pub body: Vec<u8>,
    /// The clock to verify it at: its own `Wechatpay-Timestamp`, else when it was received.
    pub at: Timestamp,
}

#[derive(Deserialize)]
struct Row {
    channel: String,
    account: String,
    source: String,
    headers: Value,
    body: String,
    received_at: Value,
}

/// Reads a file; what was no callback is left out and counted. Errors: [`Stop`] with the number of the bad row.
pub fn read(file: &Path) -> anyhow::Result<(Vec<Saved>, usize)> {
    let text = std::fs::read_to_string(file).map_err(|error| Stop::usage(format!("{}: {error}", file.display())))?;
    parse(&text).map_err(|error| Stop::usage(format!("{}: {error:#}", file.display())).into())
}

fn parse(text: &str) -> anyhow::Result<(Vec<Saved>, usize)> {
    let rows: Vec<Value> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).context("this is no JSON array")?
    } else {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.enumerate().map(|(index, line)| numbered(index, serde_json::from_str(line))).collect::<Result<_, _>>()?
    };
    let (mut saved, mut others) = (Vec::new(), 0_usize);
    for (index, row) in rows.into_iter().enumerate() {
        let row: Row = numbered(index, serde_json::from_value(row))?;
        if row.source == CALLBACK {
            saved.push(numbered(index, understand(&row))?);
        } else {
            others = others.saturating_add(1);
        }
    }
    Ok((saved, others))
}

fn numbered<T, E: Into<anyhow::Error>>(index: usize, result: Result<T, E>) -> anyhow::Result<T> {
    result.map_err(Into::into).with_context(|| format!("row {}", index.saturating_add(1)))
}

fn understand(row: &Row) -> anyhow::Result<Saved> {
    let account = AccountRef::parse(&format!("{}:{}", row.channel, row.account))?;
    let headers = match &row.headers {
        Value::String(text) => serde_json::from_str(text).context("headers")?,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.clone(),
    };
    let headers: Vec<(String, String)> = serde_json::from_value(headers).context("headers")?;
    let body = row.body.strip_prefix("\\x").unwrap_or(&row.body);
    let signed_at = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TIMESTAMP_HEADER));
    let at = match signed_at {
        Some((_, seconds)) => {
            let seconds: i64 = seconds.parse().context("Wechatpay-Timestamp")?;
            Timestamp::from_micros(seconds.checked_mul(1_000_000).context("Wechatpay-Timestamp")?)
        }
        None => received_at(&row.received_at)?,
    };
    let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    Ok(Saved { account, headers, body: hex::decode(body).context("body is not hex")?, at })
}

fn received_at(value: &Value) -> anyhow::Result<Timestamp> {
    match value {
        Value::String(text) => Ok(Timestamp::parse(text)?),
        Value::Number(micros) => micros.as_i64().map(Timestamp::from_micros).context("received_at"),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => anyhow::bail!("received_at is no time"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    const OF_POSTGRES: &str = r#"{"shard":3,"digest":"\\x00","channel":"wxpay","account":"1900000001","source":"callback","headers":[["wechatpay-timestamp","1736312096"]],"body":"\\x7b7d","key_id":"k","received_at":"2025-01-08T04:54:57.5+00:00"}"#;
    const OF_SQLITE: &str = r#"[{"channel":"alipay","account":"2088000000000001","source":"callback","headers":"[]","body":"613D31","received_at":1736312097500000},
        {"channel":"alipay","account":"2088000000000001","source":"query","headers":"[]","body":"","received_at":1}]"#;

    #[test]
    fn rows_of_postgresql_are_verified_at_their_own_timestamp() {
        let (saved, others) = parse(OF_POSTGRES).unwrap();
        assert_eq!((saved.len(), others), (1, 0));
        assert_eq!((saved[0].at.as_seconds(), saved[0].body.as_slice()), (1_736_312_096, b"{}".as_slice()));
    }

    #[test]
    fn rows_of_sqlite_are_read_and_answers_to_queries_are_left_out() {
        let (saved, others) = parse(OF_SQLITE).unwrap();
        assert_eq!((saved.len(), others), (1, 1));
        assert_eq!((saved[0].at.as_micros(), saved[0].body.as_slice()), (1_736_312_097_500_000, b"a=1".as_slice()));
    }

    #[test]
    fn a_bad_row_is_named_by_its_number() {
        let text = format!("{OF_POSTGRES}\n{}", OF_POSTGRES.replace("7b7d", "zz"));
        assert!(format!("{:#}", parse(&text).unwrap_err()).starts_with("row 2"));
    }
}
