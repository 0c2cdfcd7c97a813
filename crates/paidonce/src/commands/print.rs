//! How commands print what the server answered.

use std::io::{ErrorKind, Write as _};

use serde_json::Value;

use crate::client::Remote;
use crate::exit::Exit;
use crate::table::{self, Column};

/// Prints a line to standard output, formatted like `println!`. Errors: it can't be written; a reader that has seen enough
/// (`| head`) is none.
macro_rules! say {
    ($($text:tt)*) => { $crate::commands::print::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// See [`say`].
pub fn line(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The answer itself.
pub fn json(answer: &Value) -> anyhow::Result<Exit> {
    say!("{}", serde_json::to_string_pretty(answer)?)?;
    Ok(Exit::Ok)
}

/// The list `name` of an answer as a table, and how to get the next page.
pub fn page(remote: &Remote, answer: &Value, name: &str, columns: &[Column]) -> anyhow::Result<Exit> {
    if remote.json {
        return json(answer);
    }
    let rows = answer.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    say!("{}", table::rows(rows, columns))?;
    if let Some(after) = answer.get("next_after").and_then(Value::as_str) {
        say!("more: --after {after}")?;
    }
    Ok(Exit::Ok)
}

/// One object as a small table.
pub fn one(remote: &Remote, answer: &Value, columns: &[Column]) -> anyhow::Result<Exit> {
    if remote.json {
        return json(answer);
    }
    say!("{}", table::fields(answer, columns))?;
    Ok(Exit::Ok)
}
