//! All outside tests in one binary.

mod architecture;
mod postgres_starter;
