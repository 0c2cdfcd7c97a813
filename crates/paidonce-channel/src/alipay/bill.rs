//! Alipay's bills (protocol facts B7, gotchas 57 to 60): a zip of GBK files, comment lines before and after the rows, values
//! that end in a tab, refunds and fees with a sign.
//!
//! What a file is, its columns say, never its name (which is GBK, too) nor its place in the zip. Footer sentences are read for
//! their numbers only: their words have changed before.

mod archive;
mod cash;
mod table;
mod trade;

pub(crate) use cash::read_cash;
pub(crate) use trade::read_trades;
