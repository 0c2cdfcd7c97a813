//! The `paidonce` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    paidonce::run()
}
