//! All outside tests in one binary.
