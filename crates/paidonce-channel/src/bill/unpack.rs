//! Plain or gzip, by the first bytes; never more than a bill may have, whatever a small file unpacks to.

use std::io::{self, Read, Seek, SeekFrom};

use flate2::read::MultiGzDecoder;

use super::BillError;

/// A bill of 5 million rows has some 2 GB.
pub(crate) const BILL_BYTES_MAX: u64 = 16 << 30;

const GZIP: [u8; 2] = [0x1F, 0x8B];

/// The first bytes, and back to the beginning.
pub(crate) fn starts_with(source: &mut (impl Read + Seek), magic: &[u8]) -> Result<bool, BillError> {
    source.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    source.by_ref().take(u64::try_from(magic.len()).unwrap_or(0)).read_to_end(&mut first)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(first == magic)
}

/// The uncompressed bytes of a plain or a gzip file.
pub(crate) fn unpack<'s>(mut source: impl Read + Seek + 's) -> Result<Box<dyn Read + 's>, BillError> {
    if starts_with(&mut source, &GZIP)? {
        Ok(Box::new(Limited::new(MultiGzDecoder::new(io::BufReader::new(source)))))
    } else {
        Ok(Box::new(Limited::new(source)))
    }
}

/// Refuses what is longer than any bill.
pub(crate) struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Limited<R> {
    pub(crate) const fn new(inner: R) -> Self {
        Self { inner, left: BILL_BYTES_MAX }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let too_long = || io::Error::other(BillError::TooLong { bytes_max: BILL_BYTES_MAX });
        self.left = self.left.checked_sub(u64::try_from(count).unwrap_or(u64::MAX)).ok_or_else(too_long)?;
        Ok(count)
    }
}
