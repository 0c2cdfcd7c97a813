//! Why a bill is refused as a whole.

use std::io;

use super::BillDay;

/// Why a bill can't be believed. Nothing of it may be used; the text says line, column and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BillError {
    /// The file can't be read, or the sink refused a row.
    #[error("the bill can't be read: {0}")]
    Io(io::Error),
    /// Compressed data ends too early or is damaged.
    #[error("the compressed bill ends too early or is damaged ({problem}): download it again")]
    Truncated {
        /// The unpacker's words.
        problem: String,
    },
    /// Not the bytes that the platform announced.
    #[error(
        "hash_value is {expected}, the uncompressed file has SHA1 {found}: download it again, import nothing of it"
    )]
    WrongHash {
        /// As announced.
        expected: String,
        /// Of the file.
        found: String,
    },
    /// The announced hash itself is unusable.
    #[error("hash_type and hash_value {found:?} are not SHA1 and 40 hex digits: query the bill again")]
    UnusableHash {
        /// As received, cut.
        found: String,
    },
    /// Bytes that are not text in the bill's encoding.
    #[error(
        "line {line} is not {encoding}: the file was converted, or put together from several; use the file as downloaded"
    )]
    Encoding {
        /// 1-based.
        line: u64,
        /// What the platform writes.
        encoding: &'static str,
    },
    /// A line beyond any real one.
    #[error("line {line} has more than {bytes_max} bytes: its line breaks were lost, or it is no bill")]
    LineTooLong {
        /// 1-based.
        line: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// More data than any real bill has.
    #[error("the bill unpacks to more than {bytes_max} bytes: it is no bill")]
    TooLong {
        /// The limit.
        bytes_max: u64,
    },
    /// The line with the names of the columns is not there, or not usable.
    #[error("line {line} should name the columns, {problem}: use the file as downloaded")]
    Header {
        /// 1-based.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// A needed column is not there.
    #[error("line {line}: there is no column {column}: this is another kind of bill, or the platform has changed it")]
    NoColumn {
        /// Of the header, 1-based.
        line: u64,
        /// In the platform's words.
        column: &'static str,
    },
    /// A row with too many or too few cells: reading it would shift its columns.
    #[error(
        "line {line} has {found} cells, the header has {expected}: look at the line (a text may hold a separator); import nothing of it"
    )]
    Cells {
        /// 1-based.
        line: u64,
        /// Cells.
        found: usize,
        /// Columns.
        expected: usize,
    },
    /// A line that is neither row nor footer.
    #[error("line {line} {problem}: use the file as downloaded")]
    Line {
        /// 1-based.
        line: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// A value that can't be read.
    #[error("line {line}, column {column}: {problem}")]
    Cell {
        /// 1-based.
        line: u64,
        /// In the platform's words.
        column: String,
        /// What is wrong.
        problem: String,
    },
    /// Another account's bill.
    #[error("line {line} is about account {found:?}, expected {expected:?}: this is another account's bill")]
    WrongAccount {
        /// 1-based.
        line: u64,
        /// As in the file.
        found: String,
        /// Ours.
        expected: String,
    },
    /// Another day's bill.
    #[error("line {line} is of {found}, expected {expected}: this is another day's bill")]
    WrongDay {
        /// 1-based.
        line: u64,
        /// As in the file.
        found: String,
        /// As asked.
        expected: BillDay,
    },
    /// The platform's totals are not there: the file was cut.
    #[error("the footer with {what} is missing after {rows} rows: the file was cut; download it again")]
    NoFooter {
        /// In the platform's words.
        what: &'static str,
        /// Rows read.
        rows: u64,
    },
    /// The platform's totals say something else than its rows.
    #[error("the footer says {what} {said}, the rows have {counted}: rows are missing or changed; download it again")]
    Footer {
        /// In the platform's words.
        what: String,
        /// The footer's figure.
        said: String,
        /// Ours.
        counted: String,
    },
    /// The zip can't be used.
    #[error("the zip {problem}: download it again")]
    Archive {
        /// What is wrong.
        problem: String,
    },
}

impl BillError {
    /// Stable word for programs and tests.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Io(_) => "unreadable",
            Self::Truncated { .. } => "truncated",
            Self::WrongHash { .. } => "wrong_hash",
            Self::UnusableHash { .. } => "unusable_hash",
            Self::Encoding { .. } => "wrong_encoding",
            Self::LineTooLong { .. } => "line_too_long",
            Self::TooLong { .. } => "too_long",
            Self::Header { .. } => "no_header",
            Self::NoColumn { .. } => "no_column",
            Self::Cells { .. } => "shifted_columns",
            Self::Line { .. } => "unexpected_line",
            Self::Cell { .. } => "unusable_value",
            Self::WrongAccount { .. } => "wrong_account",
            Self::WrongDay { .. } => "wrong_day",
            Self::NoFooter { .. } => "no_footer",
            Self::Footer { .. } => "footer_does_not_foot",
            Self::Archive { .. } => "unusable_zip",
        }
    }
}

/// What our own readers say travels through `std::io` as its source.
impl From<io::Error> for BillError {
    fn from(error: io::Error) -> Self {
        let damaged = |kind| {
            matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
        };
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) if damaged(error.kind()) => Self::Truncated { problem: error.to_string() },
            Err(error) => Self::Io(error),
        }
    }
}
