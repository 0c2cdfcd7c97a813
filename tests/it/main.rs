//! All outside tests in one binary.

mod architecture;
