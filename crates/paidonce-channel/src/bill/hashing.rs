//! The hash that WeChat Pay announces, over the uncompressed bytes, as they pass: the download itself is not signed, so this
//! is its only check (gotcha 25).

use std::io::{self, Read};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use super::{BillError, BillHash};

/// Passes bytes on, and ends with [`BillError::WrongHash`] instead of the end of the file when they are not the announced
/// ones.
pub(crate) struct Hashing<R> {
    inner: R,
    context: Option<Context>,
    expected: BillHash,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R, expected: BillHash) -> Self {
        Self { inner, context: Some(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)), expected }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if count > 0 {
            if let (Some(context), Some(bytes)) = (&mut self.context, buffer.get(..count)) {
                context.update(bytes);
            }
            return Ok(count);
        }
        let at_end = !buffer.is_empty();
        if let (true, Some(context)) = (at_end, self.context.take()) {
            let found = context.finish();
            if found.as_ref() != self.expected.0 {
                let (expected, found) = (hex::encode(self.expected.0), hex::encode(found.as_ref()));
                return Err(io::Error::other(BillError::WrongHash { expected, found }));
            }
        }
        Ok(0)
    }
}
