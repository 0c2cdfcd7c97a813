//! The form of WeChat Pay's bills: names of columns, rows of values with a backtick before each, names of totals, one row of
//! totals.
//!
//! A border between two values is a comma and a backtick: a comma alone belongs to a text. A text that holds both can't be
//! told from a border, so a row with another number of cells than the header is an error and never a guess.

use std::io::Read;

use crate::bill::BillError;
use crate::bill::cell::{Cell, e5_text};
use crate::bill::lines::{Encoding, Lines};

/// A column under its name of today, then its old names.
pub(super) type Names = &'static [&'static str];

/// What the first total counts.
const COUNTS: [&str; 2] = ["总交易单数", "资金流水总笔数"];

/// A bill, open after its header.
pub(super) struct Table<R> {
    lines: Lines<R>,
    columns: Vec<String>,
    text: String,
}

/// Where the cells of a row end in the text of its line.
pub(super) struct Row<'a> {
    pub(super) line: u64,
    columns: &'a [String],
    cells: Vec<&'a str>,
}

/// The platform's own totals.
pub(super) struct Footer {
    line: u64,
    totals: Vec<(String, String)>,
}

/// What a line after the header is.
enum Kind {
    Row,
    Footer,
    End,
}

impl<R: Read> Table<R> {
    /// Reads the header.
    pub(super) fn open(source: R) -> Result<Self, BillError> {
        let mut lines = Lines::new(source, Encoding::Utf8);
        let mut text = String::new();
        let header = |problem: &str| BillError::Header { line: 1, problem: problem.to_owned() };
        if !lines.next_line(&mut text)? {
            return Err(header("but the file is empty"));
        }
        if text.contains('`') {
            return Err(lines.judge(header("but there are values in it: the line breaks were lost")));
        }
        let columns = text.split(',').map(|name| name.trim().to_owned()).collect();
        Ok(Self { lines, columns, text })
    }

    /// Errors: there is no such column.
    pub(super) fn require(&mut self, needed: &[Names]) -> Result<(), BillError> {
        for names in needed {
            if !self.columns.iter().any(|column| names.contains(&column.as_str())) {
                let column = names.first().copied().unwrap_or_default();
                return Err(self.lines.judge(BillError::NoColumn { line: 1, column }));
            }
        }
        Ok(())
    }

    /// Every row through `row`, then the footer, then the end of the file and with it the hash.
    pub(super) fn read(
        mut self,
        what: &'static str,
        mut row: impl FnMut(&Row<'_>) -> Result<(), BillError>,
    ) -> Result<Footer, BillError> {
        let mut rows = 0_u64;
        loop {
            match self.next_kind() {
                Ok(Kind::Row) => {
                    rows = rows.saturating_add(1);
                    let read = cells(&self.text, &self.columns, self.lines.number()).and_then(|cells| row(&cells));
                    read.map_err(|error| self.lines.judge(error))?;
                }
                Ok(Kind::Footer) => break,
                Ok(Kind::End) => return Err(self.lines.judge(BillError::NoFooter { what, rows })),
                Err(error) => return Err(self.lines.judge(error)),
            }
        }
        let footer = self.footer(what, rows).map_err(|error| self.lines.judge(error))?;
        Ok(footer)
    }

    fn next_kind(&mut self) -> Result<Kind, BillError> {
        if !self.lines.next_line(&mut self.text)? {
            return Ok(Kind::End);
        }
        if self.text.starts_with('`') {
            return Ok(Kind::Row);
        }
        if COUNTS.iter().any(|count| self.text.starts_with(count)) {
            return Ok(Kind::Footer);
        }
        let problem = "is neither a row (each value has a backtick before it) nor the names of the totals";
        Err(BillError::Line { line: self.lines.number(), problem })
    }

    fn footer(&mut self, what: &'static str, rows: u64) -> Result<Footer, BillError> {
        let names: Vec<String> = self.text.split(',').map(|name| name.trim().to_owned()).collect();
        if !self.lines.next_line(&mut self.text)? {
            return Err(BillError::NoFooter { what, rows });
        }
        let line = self.lines.number();
        let totals = cells(&self.text, &names, line)?;
        let totals = names.iter().cloned().zip(totals.cells.iter().map(|&cell| cell.to_owned())).collect();
        while self.lines.next_line(&mut self.text)? {
            if !self.text.trim().is_empty() {
                return Err(BillError::Line { line: self.lines.number(), problem: "stands after the totals" });
            }
        }
        Ok(Footer { line, totals })
    }
}

fn cells<'a>(text: &'a str, columns: &'a [String], line: u64) -> Result<Row<'a>, BillError> {
    // Strip exactly one: a value may begin with a backtick of its own (gotcha 27).
    let values = text.strip_prefix('`');
    let values = values.ok_or(BillError::Line { line, problem: "does not begin with a backtick" })?;
    let cells: Vec<&str> = values.split(",`").collect();
    if cells.len() == columns.len() {
        Ok(Row { line, columns, cells })
    } else {
        Err(BillError::Cells { line, found: cells.len(), expected: columns.len() })
    }
}

impl<'a> Row<'a> {
    /// The value of a column; `None` when the bill has no such column.
    pub(super) fn find(&self, names: Names) -> Option<Cell<'a>> {
        let found = names.iter().find_map(|name| self.columns.iter().position(|column| column == name))?;
        let (column, text) = (self.columns.get(found)?, self.cells.get(found)?);
        Some(Cell { line: self.line, column, text })
    }

    /// The value of a column that [`Table::require`] has seen.
    pub(super) fn get(&self, names: Names) -> Result<Cell<'a>, BillError> {
        let column = names.first().copied().unwrap_or_default();
        self.find(names).ok_or(BillError::NoColumn { line: 1, column })
    }

    /// Hundred-thousandths; nothing where the bill has no such column.
    pub(super) fn e5_or_zero(&self, names: Names) -> Result<i128, BillError> {
        self.find(names).map_or(Ok(0), |cell| cell.e5())
    }
}

impl Footer {
    fn find(&self, names: Names) -> Option<Cell<'_>> {
        let found = self.totals.iter().find(|(column, _)| names.contains(&column.as_str()))?;
        Some(Cell { line: self.line, column: &found.0, text: &found.1 })
    }

    /// Compares a number of rows, which must be there.
    pub(super) fn foot_count(&self, names: Names, counted: u64, rows: u64) -> Result<(), BillError> {
        let what = names.first().copied().unwrap_or_default();
        let cell = self.find(names).ok_or(BillError::NoFooter { what, rows })?;
        if cell.count()? == counted {
            return Ok(());
        }
        Err(BillError::Footer {
            what: cell.column.to_owned(),
            said: cell.text.to_owned(),
            counted: counted.to_string(),
        })
    }

    /// Compares a sum where the footer has it.
    pub(super) fn foot_sum(&self, names: Names, counted_e5: i128) -> Result<(), BillError> {
        let Some(cell) = self.find(names) else { return Ok(()) };
        if cell.e5()? == counted_e5 {
            return Ok(());
        }
        let counted = e5_text(counted_e5);
        Err(BillError::Footer { what: cell.column.to_owned(), said: cell.text.to_owned(), counted })
    }

    /// Errors: none of these totals is there.
    pub(super) fn require(&self, needed: &[Names], rows: u64) -> Result<(), BillError> {
        let missing = needed.iter().find(|names| self.find(names).is_none());
        let what = missing.and_then(|names| names.first().copied());
        what.map_or(Ok(()), |what| Err(BillError::NoFooter { what, rows }))
    }
}
