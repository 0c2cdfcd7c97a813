//! WeChat Pay's bills (protocol facts A7, gotchas 24 to 27): UTF-8 with a byte order mark, a backtick before every value, a
//! second header and one row of totals at the end.
//!
//! | file | columns | totals |
//! |---|---|---|
//! | trade bill ALL | 27 | 7 |
//! | SUCCESS | 20: no refunds | 4 |
//! | REFUND | 29: with the times of the refund | 7 |
//! | old merchants | 24, other names | 5 |
//! | fund flow | 11 | 5 |
//!
//! Columns are found by name, in the names of today and in the old ones; a new column does no harm.

mod cash;
mod table;
mod trade;

use std::io::{Read, Seek};

pub(crate) use cash::read_cash;
pub(crate) use trade::read_trades;

use crate::bill::hashing::Hashing;
use crate::bill::unpack::unpack;
use crate::bill::{BillError, BillOf};

/// The uncompressed bytes, with the announced hash checked at their end.
fn open<'s>(source: impl Read + Seek + 's, of: &BillOf) -> Result<Box<dyn Read + 's>, BillError> {
    let plain = unpack(source)?;
    Ok(match &of.hash {
        Some(hash) => Box::new(Hashing::new(plain, hash.clone())),
        None => plain,
    })
}
