//! How commands print what the server answered.

use serde_json::Value;

use crate::client::Remote;
use crate::exit::Exit;
use crate::table::{self, Column};

/// The answer itself.
pub fn json(answer: &Value) -> anyhow::Result<Exit> {
    println!("{}", serde_json::to_string_pretty(answer)?);
    Ok(Exit::Ok)
}

/// The list `name` of an answer as a table, and how to get the next page.
pub fn page(remote: &Remote, answer: &Value, name: &str, columns: &[Column]) -> anyhow::Result<Exit> {
    if remote.json {
        return json(answer);
    }
    let rows = answer.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    println!("{}", table::rows(rows, columns));
    if let Some(after) = answer.get("next_after").and_then(Value::as_str) {
        println!("more: --after {after}");
    }
    Ok(Exit::Ok)
}

/// One object as a small table.
pub fn one(remote: &Remote, answer: &Value, columns: &[Column]) -> anyhow::Result<Exit> {
    if remote.json {
        return json(answer);
    }
    println!("{}", table::fields(answer, columns));
    Ok(Exit::Ok)
}
