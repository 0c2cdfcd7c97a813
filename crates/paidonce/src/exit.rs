//! Exit codes: what a script may rely on.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and everything that was checked holds.
    Ok,
    /// 1: the command ran, but a check did not hold or something unexpected failed.
    Failed,
    /// 2: the command line, the configuration or a given file is wrong; nothing was done.
    Usage,
    /// 3: the ledger (server or database) can't be reached; try again.
    Unreachable,
    /// 4: the ledger refused the request by its rules; nothing was written.
    Refused,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that knows its exit code; put it anywhere into the chain of an `anyhow::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Stop {
    /// Which code.
    pub exit: Exit,
    /// What is wrong and what to do.
    pub text: String,
}

impl Stop {
    /// Command line, configuration or input file.
    #[must_use]
    pub fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, text: text.into() }
    }

    /// Server or database away.
    #[must_use]
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self { exit: Exit::Unreachable, text: text.into() }
    }

    /// The rules say no.
    #[must_use]
    pub fn refused(text: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, text: text.into() }
    }
}

/// The code of an error: that of the first [`Stop`] in its chain, or [`Exit::Failed`].
#[must_use]
pub fn of_error(error: &anyhow::Error) -> Exit {
    if error.chain().any(|cause| cause.is::<crate::config::Problems>()) {
        return Exit::Usage;
    }
    error.chain().find_map(|cause| cause.downcast_ref::<Stop>()).map_or(Exit::Failed, |stop| stop.exit)
}
