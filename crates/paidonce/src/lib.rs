//! The whole program: configuration, wiring, subcommands. No business rules, no SQL.

use std::process::ExitCode;

/// Runs the command line of this process and gives its exit code.
#[must_use]
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}
