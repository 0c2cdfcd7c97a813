//! A workbook. Text is written as text: no cell is ever a formula.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use paidonce_app::audit::postings::Entry;
use rust_xlsxwriter::{Format, Worksheet};

use super::Sink;
use super::rows::{HEADINGS, Row};

/// Rows of a sheet at most, the headings with them: the format allows no more.
const ROWS_MAX: u32 = 1_048_576;
/// Integers up to this are exact in a cell, which holds a 64-bit float.
const EXACT_MAX: u64 = 1 << 53;

/// Sheets that are full are followed by more.
pub(super) struct Workbook {
    book: rust_xlsxwriter::Workbook,
    path: PathBuf,
    money: Format,
    bold: Format,
    sheets: usize,
    rows: u32,
}

impl Workbook {
    /// The file is made at once, so that nobody waits for an export that can't be written.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        drop(super::create(path)?);
        Ok(Self {
            book: rust_xlsxwriter::Workbook::new(),
            path: path.to_owned(),
            money: Format::new().set_num_format("#,##0.00"),
            bold: Format::new().set_bold(),
            sheets: 0,
            rows: ROWS_MAX,
        })
    }

    fn sheet(&mut self) -> anyhow::Result<&mut Worksheet> {
        if self.rows >= ROWS_MAX {
            let sheet = self.book.add_worksheet_with_constant_memory()?;
            for (column, heading) in (0..).zip(HEADINGS) {
                sheet.write_string_with_format(0, column, heading, &self.bold)?;
            }
            self.sheets = self.sheets.saturating_add(1);
            self.rows = 1;
        }
        self.book.worksheet_from_index(self.sheets.saturating_sub(1)).context("the sheet")
    }
}

impl Sink for Workbook {
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let row = Row::of(entry);
        let money = self.money.clone();
        self.sheet()?;
        let line = self.rows;
        let sheet = self.sheet()?;
        let number = row.number.unwrap_or_default();
        let texts = [
            &row.date,
            &row.recorded_at,
            &row.order_no,
            &row.event_type,
            &row.channel,
            &row.account,
            &row.channel_trade_no,
            &number,
            &row.debit,
            &row.credit,
            &row.currency,
        ];
        for (column, text) in (0..).zip(texts) {
            sheet.write_string(line, column, text)?;
        }
        // An amount that a cell can't hold exactly stays a text, in both columns.
        if row.amount_minor.unsigned_abs() <= EXACT_MAX {
            sheet.write_number_with_format(line, 11, row.amount.parse::<f64>().context("an amount")?, &money)?;
            sheet.write_number(line, 12, row.amount_minor.to_string().parse::<f64>().context("an amount")?)?;
        } else {
            sheet.write_string(line, 11, &row.amount)?;
            sheet.write_string(line, 12, row.amount_minor.to_string())?;
        }
        sheet.write_number(line, 13, row.shard)?;
        sheet.write_string(line, 14, row.position.to_string())?;
        sheet.write_string(line, 15, &row.event_id)?;
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<()> {
        self.sheet()?;
        self.book.save(&self.path).with_context(|| format!("write {}", self.path.display()))
    }
}
