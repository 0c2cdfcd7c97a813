//! paidonce
fn main() {}
