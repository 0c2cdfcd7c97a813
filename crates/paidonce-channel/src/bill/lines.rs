//! Lines of a bill, one at a time, each of at most so many bytes.

use std::io::{self, BufRead, BufReader, Read};

use super::BillError;

/// Real rows have some 500 bytes; the longest cells are the goods' name and the merchant's own data.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Read after an error to learn whether the file is the announced one: that says more than the error itself.
const REST_BYTES_MAX: u64 = 256 << 20;

const BUFFER_BYTES: usize = 64 * 1024;

/// How the bytes of a line become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// WeChat Pay. A byte order mark before the first line is taken off.
    Utf8,
    /// Alipay: GBK and what GB18030 has beyond it.
    Gb18030,
}

/// The lines of a text.
pub(crate) struct Lines<R> {
    source: BufReader<R>,
    encoding: Encoding,
    bytes: Vec<u8>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R, encoding: Encoding) -> Self {
        Self { source: BufReader::with_capacity(BUFFER_BYTES, source), encoding, bytes: Vec::new(), number: 0 }
    }

    /// The number of the line that was read last, 1-based.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The next line into `text`, without its line break. `false` at the end of the file.
    pub(crate) fn next_line(&mut self, text: &mut String) -> Result<bool, BillError> {
        text.clear();
        self.bytes.clear();
        self.number = self.number.saturating_add(1);
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        (&mut self.source).take(limit).read_until(b'\n', &mut self.bytes)?;
        if self.bytes.is_empty() {
            return Ok(false);
        }
        if self.bytes.len() > LINE_BYTES_MAX {
            return Err(BillError::LineTooLong { line: self.number, bytes_max: LINE_BYTES_MAX });
        }
        let bytes = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        text.push_str(&decode(bytes, self.encoding, self.number)?);
        Ok(true)
    }

    /// What an error in the middle of the file is worth: when the file is not the announced one, that is said instead.
    pub(crate) fn judge(&mut self, error: BillError) -> BillError {
        if matches!(error, BillError::LineTooLong { .. } | BillError::Truncated { .. } | BillError::TooLong { .. }) {
            return error;
        }
        match io::copy(&mut (&mut self.source).take(REST_BYTES_MAX), &mut io::sink()).map_err(BillError::from) {
            Err(rest @ BillError::WrongHash { .. }) => rest,
            Ok(_) | Err(_) => error,
        }
    }
}

fn decode(bytes: &[u8], encoding: Encoding, line: u64) -> Result<String, BillError> {
    match encoding {
        Encoding::Utf8 => {
            let bytes = if line == 1 { bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes) } else { bytes };
            let wrong = |_| BillError::Encoding { line, encoding: "UTF-8" };
            std::str::from_utf8(bytes).map(str::to_owned).map_err(wrong)
        }
        Encoding::Gb18030 => {
            let wrong = || BillError::Encoding { line, encoding: "GB18030" };
            // What is UTF-8 would often decode, but into other characters. The platform's own words are never valid UTF-8 in
            // GBK, so no true line is refused here.
            if !bytes.is_ascii() && std::str::from_utf8(bytes).is_ok() {
                return Err(wrong());
            }
            let text = encoding_rs::GB18030.decode_without_bom_handling_and_without_replacement(bytes);
            text.map(std::borrow::Cow::into_owned).ok_or_else(wrong)
        }
    }
}
