//! Reads one TOML table key by key; every wrong key or type becomes a problem with its line, and reading goes on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::Document;

/// A value and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// What was given.
    pub value: T,
    /// 1-based; `None` when it came from a variable or a default.
    pub line: Option<usize>,
}

/// A table of the file with its path for messages (`wxpay[2].platform_keys[1]`).
pub(super) struct Section<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) path: String,
    pub(super) line: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: RefCell<Vec<String>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(document: &'a Document<'a>, table: &'a DeTable<'a>) -> Self {
        Self::new(document, String::new(), None, Some(table))
    }

    fn new(
        document: &'a Document<'a>,
        path: String,
        line: Option<usize>,
        table: Option<&'a DeTable<'a>>,
    ) -> Section<'a> {
        Section { document, path, line, table, known: RefCell::default() }
    }

    /// `path.key`, for messages.
    pub(super) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key.to_owned());
        self.table.and_then(|table| table.get(key))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Where a key stands; `None` when it is absent.
    pub(super) fn line_of_key(&self, key: &str) -> Option<usize> {
        self.get(key).map(|value| self.document.line_of(&value.span()))
    }

    pub(super) fn problem(&self, line: Option<usize>, text: impl Into<String>) {
        self.document.problem(line.or(self.line), text);
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let line = self.document.line_of(&value.span());
        let found = value.get_ref().type_str();
        self.problem(Some(line), format!("{} must be {wanted}, not a {found}", self.name(key)));
    }

    /// Absent is `None`; a wrong type or an empty text is a problem and `None`.
    pub(super) fn string(&self, key: &str) -> Option<Located<String>> {
        let value = self.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(key, value, "a text in quotes");
            return None;
        };
        let line = self.document.line_of(&value.span());
        if text.trim().is_empty() {
            self.problem(Some(line), format!("{} is empty: give a value or remove the key", self.name(key)));
            return None;
        }
        Some(Located { value: text.to_owned(), line: Some(line) })
    }

    /// Absent is a problem too.
    pub(super) fn required(&self, key: &str, example: &str) -> Option<Located<String>> {
        if !self.has(key) {
            self.problem(None, format!("{} is missing: write {key} = {example}", self.name(key)));
        }
        self.string(key)
    }

    pub(super) fn integer(&self, key: &str, allowed: RangeInclusive<i64>) -> Option<i64> {
        let value = self.get(key)?;
        self.integer_of(key, value, &allowed)
    }

    fn integer_of(&self, key: &str, value: &Spanned<DeValue<'_>>, allowed: &RangeInclusive<i64>) -> Option<i64> {
        let (low, high) = (allowed.start(), allowed.end());
        let wanted = format!("a whole number from {low} to {high}");
        let Some(number) = value.get_ref().as_integer() else {
            self.wrong_type(key, value, &wanted);
            return None;
        };
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if allowed.contains(&number) => Some(number),
            _ => {
                let line = self.document.line_of(&value.span());
                self.problem(Some(line), format!("{} must be {wanted}, not {}", self.name(key), number.as_str()));
                None
            }
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.wrong_type(key, value, "true or false");
        }
        found
    }

    fn array(&self, key: &str, wanted: &str) -> Option<&'a [Spanned<DeValue<'a>>]> {
        let value = self.get(key)?;
        let found = value.get_ref().as_array();
        if found.is_none() {
            self.wrong_type(key, value, wanted);
        }
        found.map(|array| &**array)
    }

    pub(super) fn strings(&self, key: &str) -> Option<Vec<Located<String>>> {
        let array = self.array(key, "a list of texts, such as [\"a\", \"b\"]")?;
        let read = |value: &'a Spanned<DeValue<'a>>| {
            let found = value.get_ref().as_str();
            if found.is_none() {
                self.wrong_type(key, value, "a list of texts");
            }
            found.map(|text| Located { value: text.to_owned(), line: Some(self.document.line_of(&value.span())) })
        };
        Some(array.iter().filter_map(read).collect())
    }

    pub(super) fn integers(&self, key: &str, allowed: &RangeInclusive<i64>) -> Option<Vec<i64>> {
        let array = self.array(key, "a list of whole numbers, such as [60, 300]")?;
        Some(array.iter().filter_map(|value| self.integer_of(key, value, allowed)).collect())
    }

    fn child(&self, path: String, value: &'a Spanned<DeValue<'a>>, wanted: &str) -> Option<Section<'a>> {
        let line = self.document.line_of(&value.span());
        let Some(table) = value.get_ref().as_table() else {
            let found = value.get_ref().type_str();
            self.problem(Some(line), format!("{path} must be {wanted}, not a {found}"));
            return None;
        };
        Some(Self::new(self.document, path, Some(line), Some(table)))
    }

    /// A table; absent gives an empty one, so that defaults and variables are read the same way.
    pub(super) fn section(&self, key: &str) -> Section<'a> {
        let path = self.name(key);
        let found = self.get(key).and_then(|value| self.child(path.clone(), value, &format!("a table: [{path}]")));
        found.unwrap_or_else(|| Self::new(self.document, path, None, None))
    }

    /// An array of tables (`[[key]]`), numbered from 1 as people count them.
    pub(super) fn sections(&self, key: &str) -> Vec<Section<'a>> {
        let path = self.name(key);
        let wanted = format!("a list of tables: [[{path}]]");
        let values = self.array(key, &wanted).unwrap_or_default();
        let child = |(index, value)| self.child(format!("{path}[{}]", index + 1), value, &wanted);
        values.iter().enumerate().filter_map(child).collect()
    }

    /// Every key of this table as a table of its own (`[secrets]`).
    pub(super) fn named_sections(&self, wanted: &str) -> Vec<(String, Section<'a>)> {
        let entries = self.table.into_iter().flat_map(DeTable::iter);
        let read = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let key: &std::borrow::Cow<'a, str> = key.get_ref();
            self.known.borrow_mut().push(key.to_string());
            Some((key.to_string(), self.child(self.name(key), value, wanted)?))
        };
        entries.filter_map(read).collect()
    }

    /// Reports the keys that nobody asked for. Call it last.
    pub(super) fn finish(&self) {
        let known = self.known.borrow();
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let name: &str = key.get_ref();
            if known.iter().any(|known| known == name) {
                continue;
            }
            let mut allowed: Vec<&str> = known.iter().map(String::as_str).collect();
            allowed.sort_unstable();
            allowed.dedup();
            let line = self.document.line_of(&key.span());
            let path = self.name(name);
            self.problem(Some(line), format!("{path} is not a known key: known here are {}", allowed.join(", ")));
        }
    }
}

/// Two tables for one name would make one of them dead.
pub(super) fn report_repeats<'a>(
    sections: &[Section<'_>],
    key: &str,
    names: impl Iterator<Item = (&'a str, Option<usize>)>,
) {
    let Some(section) = sections.first() else { return };
    let mut seen = BTreeSet::new();
    for (name, line) in names {
        if !seen.insert(name) {
            section.problem(line, format!("{key} {name:?} is given twice: keep one table"));
        }
    }
}
