//! The form of Alipay's bills: comment lines that begin with `#`, names of columns, rows, comment lines with the totals.

use std::io::Read;

use csv_core::{ReadRecordResult, Reader};

use crate::bill::cell::Cell;
use crate::bill::lines::{Encoding, Lines};
use crate::bill::{BillError, BillOf};

/// A name in the form in which names are compared: Alipay has written full-width and narrow brackets.
pub(super) type Name = &'static str;

/// What the comments of one file say.
#[derive(Debug, Default)]
pub(super) struct Comments {
    /// Line, and the number in `#账号：[..]`.
    account: Option<(u64, String)>,
    /// Line, and the digits of the first date in `#起始日期：[..]`.
    begin: Option<(u64, String)>,
    /// Line and text of every `合计` (total).
    totals: Vec<(u64, String)>,
}

/// A file whose columns are known.
pub(super) struct Table<'r> {
    lines: Lines<&'r mut dyn Read>,
    columns: Vec<String>,
    header_line: u64,
    text: String,
    splitter: Splitter,
    comments: Comments,
}

/// One row.
pub(super) struct Row<'a> {
    pub(super) line: u64,
    header_line: u64,
    columns: &'a [String],
    splitter: &'a Splitter,
}

/// A total as a footer says it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Total<'a> {
    what: Name,
    rows: Cell<'a>,
    sum: Cell<'a>,
}

impl<'r> Table<'r> {
    /// Reads up to the names of the columns. `None` when the file has no other lines than comments.
    pub(super) fn open(source: &'r mut dyn Read) -> Result<Option<Self>, BillError> {
        let mut table = Self {
            lines: Lines::new(source, Encoding::Gb18030),
            columns: Vec::new(),
            header_line: 0,
            text: String::new(),
            splitter: Splitter::new(),
            comments: Comments::default(),
        };
        if !table.next_row()? {
            return Ok(None);
        }
        table.header_line = table.lines.number();
        table.columns = table.splitter.cells().map(|cell| plain(cell.trim())).collect();
        Ok(Some(table))
    }

    pub(super) fn has(&self, column: Name) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// Errors: there is no such column.
    pub(super) fn require(&self, needed: &[Name]) -> Result<(), BillError> {
        let missing = needed.iter().find(|column| !self.has(column));
        missing.map_or(Ok(()), |column| Err(BillError::NoColumn { line: self.header_line, column }))
    }

    /// Every row through `row`; then what the comments say.
    pub(super) fn read(
        mut self,
        mut row: impl FnMut(&Row<'_>) -> Result<(), BillError>,
    ) -> Result<Comments, BillError> {
        while self.next_row()? {
            let (line, found, expected) = (self.lines.number(), self.splitter.count(), self.columns.len());
            if found != expected {
                return Err(BillError::Cells { line, found, expected });
            }
            let (columns, splitter) = (self.columns.as_slice(), &self.splitter);
            row(&Row { line, header_line: self.header_line, columns, splitter })?;
        }
        Ok(self.comments)
    }

    /// Reads a file to its end, so that its encoding and its checksum are checked too.
    pub(super) fn skip(mut self) -> Result<(), BillError> {
        while self.next_row()? {}
        Ok(())
    }

    /// The account and the day, as far as the comments before the first row say them.
    pub(super) fn check(&self, of: &BillOf) -> Result<(), BillError> {
        self.comments.check(of)
    }

    /// The next line that is no comment, split. `false` at the end.
    fn next_row(&mut self) -> Result<bool, BillError> {
        while self.lines.next_line(&mut self.text)? {
            if let Some(comment) = self.text.strip_prefix('#') {
                self.comments.take(self.lines.number(), comment);
            } else if !self.text.trim().is_empty() {
                self.splitter.split(&self.text, self.lines.number())?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'a> Row<'a> {
    /// The value of a column, without the tabs that keep numbers from being rounded by a spreadsheet.
    pub(super) fn get(&self, column: Name) -> Result<Cell<'a>, BillError> {
        let found = self.columns.iter().position(|name| name == column);
        let text = found.and_then(|found| self.splitter.cell(found));
        let text = text.ok_or(BillError::NoColumn { line: self.header_line, column })?;
        Ok(Cell { line: self.line, column, text: text.trim() })
    }
}

impl Comments {
    fn take(&mut self, line: u64, comment: &str) {
        let comment = plain(comment);
        if let Some(account) = bracketed(&comment, "账号") {
            self.account.get_or_insert_with(|| (line, account.to_owned()));
        } else if let Some(begin) = bracketed(&comment, "起始日期") {
            self.begin.get_or_insert_with(|| (line, begin.chars().filter(char::is_ascii_digit).collect()));
        } else if comment.contains("合计") {
            self.totals.push((line, comment));
        }
    }

    fn check(&self, of: &BillOf) -> Result<(), BillError> {
        let ours = of.account.account.as_str();
        let none =
            || BillError::Header { line: 1, problem: "but no line before them names the account (#账号)".to_owned() };
        let (line, found) = self.account.as_ref().ok_or_else(none)?;
        // The account number is the seller's with 0156 behind it.
        if found.strip_suffix("0156").unwrap_or(found) != ours && found != ours {
            let (line, found, expected) = (*line, found.clone(), ours.to_owned());
            return Err(BillError::WrongAccount { line, found, expected });
        }
        let none = || BillError::Header {
            line: 1,
            problem: "but no line before them names the day (#起始日期)".to_owned(),
        };
        let (line, begin) = self.begin.as_ref().ok_or_else(none)?;
        let day = of.day.to_string().replace('-', "");
        if begin.get(..8) != Some(day.as_str()) {
            return Err(BillError::WrongDay { line: *line, found: begin.clone(), expected: of.day });
        }
        Ok(())
    }

    /// The footer's total that begins with these words: the number before `笔`, the amount before the `元` that follows.
    pub(super) fn total(&self, what: Name, rows: u64) -> Result<Total<'_>, BillError> {
        let none = || BillError::NoFooter { what, rows };
        let (line, text) = self.totals.iter().find(|(_, text)| text.starts_with(what)).ok_or_else(none)?;
        let numbers = text.split_once(':').map_or("", |(_, rest)| rest);
        let (count, rest) = numbers.split_once('笔').ok_or_else(none)?;
        let sum = rest.split_once('元').map_or(rest, |(sum, _)| sum);
        let start = sum.rfind(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-')));
        let sum = start.and_then(|at| sum.get(at..)).map_or(sum, |sum| sum.trim_start_matches(|c: char| !c.is_ascii()));
        let cell = |text| Cell { line: *line, column: what, text };
        Ok(Total { what, rows: cell(count.trim()), sum: cell(sum.trim()) })
    }
}

impl Total<'_> {
    /// Compares. The sign of a sum of refunds has not always been the same.
    pub(super) fn foot(&self, counted: crate::bill::Side) -> Result<(), BillError> {
        let what = |unit| format!("{} ({unit})", self.what);
        if self.rows.count()? != counted.rows {
            let (said, counted) = (self.rows.text.to_owned(), counted.rows.to_string());
            return Err(BillError::Footer { what: what("笔"), said, counted });
        }
        let said = i128::from(self.sum.size(paidonce_order::Currency::CNY)?.amount_minor);
        if said == counted.amount_minor.saturating_abs() {
            return Ok(());
        }
        let counted = crate::bill::cell::e5_text(counted.amount_minor.saturating_mul(1_000));
        Err(BillError::Footer { what: what("元"), said: self.sum.text.to_owned(), counted })
    }
}

/// What stands between the brackets behind a word.
fn bracketed<'a>(comment: &'a str, word: &str) -> Option<&'a str> {
    let rest = comment.trim_start().strip_prefix(word)?;
    Some(rest.split_once('[')?.1.split_once(']')?.0.trim())
}

/// Full-width brackets and colons as narrow ones.
fn plain(text: &str) -> String {
    let narrow = |c| match c {
        '（' => '(',
        '）' => ')',
        '：' => ':',
        '【' | '［' => '[',
        '】' | '］' => ']',
        other => other,
    };
    text.chars().map(narrow).collect()
}

/// Splits one line by commas; a cell may stand in quotes.
struct Splitter {
    reader: Reader,
    line: Vec<u8>,
    output: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
    text: String,
}

/// A bill has 25 columns; a row with more than this is none.
const CELLS_MAX: usize = 256;

impl Splitter {
    fn new() -> Self {
        Self {
            reader: Reader::new(),
            line: Vec::new(),
            output: Vec::new(),
            ends: vec![0; CELLS_MAX],
            count: 0,
            text: String::new(),
        }
    }

    /// Errors: a quote is left open, or there are far too many cells.
    fn split(&mut self, text: &str, line: u64) -> Result<(), BillError> {
        let unusable = |problem| BillError::Line { line, problem };
        self.reader.reset();
        self.line.clear();
        self.line.extend_from_slice(text.as_bytes());
        self.line.push(b'\n');
        self.output.resize(self.line.len(), 0);
        let (read, consumed, _, count) = self.reader.read_record(&self.line, &mut self.output, &mut self.ends);
        match read {
            ReadRecordResult::Record if consumed == self.line.len() => {}
            ReadRecordResult::InputEmpty => return Err(unusable("opens a quote that it does not close")),
            ReadRecordResult::Record
            | ReadRecordResult::OutputFull
            | ReadRecordResult::OutputEndsFull
            | ReadRecordResult::End => return Err(unusable("can't be split into cells")),
        }
        let end = self.ends.get(..count).and_then(<[usize]>::last).copied().unwrap_or(0);
        let cells = self.output.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok());
        self.text.clear();
        self.text.push_str(cells.ok_or_else(|| unusable("can't be split into cells"))?);
        self.count = count;
        Ok(())
    }

    fn cells(&self) -> impl Iterator<Item = &str> {
        (0..self.count).filter_map(|index| self.cell(index))
    }

    const fn count(&self) -> usize {
        self.count
    }

    fn cell(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(..self.count)?.get(index)?;
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.text.get(start..end)
    }
}
