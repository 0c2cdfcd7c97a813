//! Logs: `tracing` to standard error, so that standard output stays for results.
//!
//! `PAIDONCE_LOG` filters (`info`, `paidonce_worker=debug,warn`); `PAIDONCE_LOG_FORMAT` is `json` or `text`. JSON is what
//! production wants, so it is the default when standard error is not a terminal.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::Environment;

/// What a service logs when `PAIDONCE_LOG` says nothing: `error` means that a person must act.
pub const SERVICE_FILTER: &str = "info,actix_server=warn,sqlx=warn";
/// What the demo and the storm log when `PAIDONCE_LOG` says nothing: they refuse forgeries by the hundred, and say so in
/// their table.
pub const TABLE_FILTER: &str = "error";

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl LogFormat {
    /// From `PAIDONCE_LOG_FORMAT`, else by where standard error goes. `Err` says what is allowed.
    pub fn choose(env: &Environment) -> Result<Self, String> {
        match env.get("PAIDONCE_LOG_FORMAT") {
            Some("json") => Ok(Self::Json),
            Some("text") => Ok(Self::Text),
            Some(other) => Err(format!("PAIDONCE_LOG_FORMAT must be json or text, not {other:?}")),
            None if std::io::stderr().is_terminal() => Ok(Self::Text),
            None => Ok(Self::Json),
        }
    }
}

/// Starts logging for the process, with this filter when `PAIDONCE_LOG` says nothing; a second start changes nothing.
/// `Err` says which variable is wrong.
pub fn start(env: &Environment, default_filter: &str) -> Result<(), String> {
    let format = LogFormat::choose(env)?;
    let filter = env.get("PAIDONCE_LOG").unwrap_or(default_filter);
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("PAIDONCE_LOG {filter:?}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_log_format_is_an_error_and_not_a_default() {
        assert_eq!(LogFormat::choose(&Environment::of(&[("PAIDONCE_LOG_FORMAT", "json")])), Ok(LogFormat::Json));
        assert!(LogFormat::choose(&Environment::of(&[("PAIDONCE_LOG_FORMAT", "jsno")])).is_err());
    }
}
