//! The whole program with the movable clock and fault points of feature `testing`.

use std::process::ExitCode;

fn main() -> ExitCode {
    paidonce::run()
}
