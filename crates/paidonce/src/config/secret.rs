//! Secrets: read from a value, a file or a variable; never printed.

use std::fmt;
use std::path::Path;

use super::section::{Located, Section};

/// A secret text. `Debug` shows nothing of it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Part of a variable's name: upper case, everything but letters and digits as `_`.
pub(super) fn variable_part(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

impl Section<'_> {
    /// A secret: variable `variable`, then variable `variable_FILE`, then key `inline`, then key `file` (a path). One line end
    /// is cut from files. `None` when it is given nowhere, or was reported as unreadable.
    pub(super) fn secret(&self, [inline, file]: [&str; 2], variable: &str) -> Option<Located<Secret>> {
        let (text, path) = (self.string(inline), self.string(file));
        if let (Some(_), Some(path)) = (&text, &path) {
            let (inline, file) = (self.name(inline), self.name(file));
            self.problem(path.line, format!("{inline} and {file} are both given: keep one"));
        }
        if let Some(text) = self.document.variable(variable) {
            return Some(Located { value: Secret::new(text.to_owned()), line: self.line });
        }
        let file_variable = format!("{variable}_FILE");
        if let Some(path) = self.document.variable(&file_variable) {
            let text = self.read(&file_variable, Path::new(path), None)?;
            return Some(Located { value: Secret::new(text), line: self.line });
        }
        if let Some(Located { value, line }) = text {
            return Some(Located { value: Secret::new(value), line });
        }
        let path = path?;
        let text = self.read(&self.name(file), &self.document.resolve(&path.value), path.line)?;
        Some(Located { value: Secret::new(text), line: path.line })
    }

    /// The text of the file that `key` names (keys and certificates).
    pub(super) fn file(&self, key: &str) -> Option<Located<String>> {
        let path = self.string(key)?;
        let text = self.read(&self.name(key), &self.document.resolve(&path.value), path.line)?;
        Some(Located { value: text, line: path.line })
    }

    fn read(&self, name: &str, path: &Path, line: Option<usize>) -> Option<String> {
        let problem = match std::fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => "the file is empty".to_owned(),
            Ok(text) => return Some(text.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) => error.to_string(),
        };
        self.document.problem(line, format!("{name}: can't use {}: {problem}", path.display()));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_in_debug() {
        assert_eq!(format!("{:?}", Secret::new("whsec_c2VjcmV0".to_owned())), "Secret(..)");
    }
}
