//! JSON rows as tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use paidonce_order::money::{Currency, Money};
use serde_json::Value;

/// One column: its heading and where its text comes from.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// A field as it is.
    Text(&'static str),
    /// A field of minor units, with the row's `currency`.
    Money(&'static str),
}

impl Column {
    fn heading(self) -> String {
        match self {
            Self::Text(field) => field.replace('_', " "),
            Self::Money(field) => field.trim_end_matches("_minor").replace('_', " "),
        }
    }

    fn cell(self, row: &Value) -> String {
        match self {
            Self::Text(field) => plain(row.get(field)),
            Self::Money(field) => money(row, field),
        }
    }
}

fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(values)) => values.iter().map(|value| plain(Some(value))).collect::<Vec<_>>().join(" "),
        Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => value.to_string(),
    }
}

/// `88.88 CNY`; empty when the row has no such amount.
fn money(row: &Value, field: &str) -> String {
    let minor = row.get(field).and_then(Value::as_i64);
    let currency = row.get("currency").and_then(Value::as_str).and_then(|code| Currency::parse(code).ok());
    match (minor, currency) {
        (Some(minor), Some(currency)) => Money::new(minor, currency).to_string(),
        (Some(minor), None) => minor.to_string(),
        (None, _) => String::new(),
    }
}

/// Rows as a table; a line saying so when there are none.
#[must_use]
pub fn rows(rows: &[Value], columns: &[Column]) -> String {
    if rows.is_empty() {
        return "none".to_owned();
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(columns.iter().map(|column| column.heading()));
    for row in rows {
        table.add_row(columns.iter().map(|column| column.cell(row)));
    }
    for (index, column) in columns.iter().enumerate() {
        if let (Column::Money(_), Some(column)) = (column, table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// One object as two columns, name and value; fields without a value are left out.
#[must_use]
pub fn fields(row: &Value, columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    for column in columns {
        let cell = column.cell(row);
        if !cell.is_empty() {
            table.add_row([column.heading(), cell]);
        }
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_is_shown_in_its_currency_and_nothing_is_shown_as_nothing() {
        let row = json!({ "order_no": "A-1", "amount_minor": 8888, "currency": "CNY", "account": null });
        let shown = rows(&[row], &[Column::Text("order_no"), Column::Money("amount_minor"), Column::Text("account")]);
        assert!(shown.contains("A-1") && shown.contains("88.88 CNY"), "{shown}");
        assert!(!shown.contains("null"), "{shown}");
        assert_eq!(rows(&[], &[Column::Text("order_no")]), "none");
    }
}
