//! paidonce
fn main(){}
