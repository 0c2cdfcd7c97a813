//! A configuration text under inspection: where it came from, and everything found wrong with it so far.
//!
//! Must never: stop at the first problem, or put a secret's value into a problem's text.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Variables of the process, passed in so that a test can give others.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables of this process; names or values that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    /// Exactly these variables.
    #[must_use]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    /// The value; an empty one counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// One thing that is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// 1-based line of the file; `None` for variables and for what is missing as a whole.
    pub line: Option<usize>,
    /// What is wrong and what would be right, in one sentence.
    pub text: String,
}

/// Everything that is wrong, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    /// Name of the file, for people.
    pub file: String,
    /// At least one.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.list.len();
        write!(f, "the configuration has {count} problem{}:", if count == 1 { "" } else { "s" })?;
        for problem in &self.list {
            match problem.line {
                Some(line) => write!(f, "\n  {}:{line}: {}", self.file, problem.text)?,
                None => write!(f, "\n  {}", problem.text)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The text, its folder, the variables, and what was found.
pub(super) struct Document<'a> {
    pub(super) name: String,
    pub(super) text: &'a str,
    base: PathBuf,
    pub(super) env: &'a Environment,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
    variables: RefCell<Vec<String>>,
}

impl<'a> Document<'a> {
    pub(super) fn new(path: Option<&Path>, text: &'a str, env: &'a Environment) -> Self {
        let base = path.and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default();
        Self {
            name: path.map_or_else(|| "(no file)".to_owned(), |path| path.display().to_string()),
            text,
            base,
            env,
            problems: RefCell::default(),
            warnings: RefCell::default(),
            variables: RefCell::default(),
        }
    }

    pub(super) fn line_of(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    pub(super) fn problem(&self, line: Option<usize>, text: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { line, text: text.into() });
    }

    pub(super) fn warning(&self, line: Option<usize>, text: impl Into<String>) {
        self.warnings.borrow_mut().push(Problem { line, text: text.into() });
    }

    /// Relative paths of the file start at the file's folder.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    /// A variable that this program understands: remembered, so that others can be called unknown.
    pub(super) fn variable(&self, name: &str) -> Option<&'a str> {
        self.variables.borrow_mut().push(name.to_owned());
        self.env.get(name)
    }

    pub(super) fn understands(&self, name: &str) -> bool {
        self.variables.borrow().iter().any(|known| known == name)
    }

    /// Problems and warnings in the order of the file. On a line that is no TOML, what was read of it means nothing: only
    /// the syntax error is told.
    pub(super) fn into_findings(self, syntax: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
        let unreadable: Vec<Option<usize>> = syntax.iter().map(|problem| problem.line).collect();
        let mut problems = self.problems.into_inner();
        problems.retain(|problem| problem.line.is_none() || !unreadable.contains(&problem.line));
        problems.extend(syntax);
        (in_order(problems), in_order(self.warnings.into_inner()))
    }
}

fn in_order(mut list: Vec<Problem>) -> Vec<Problem> {
    list.sort();
    list.dedup();
    list
}
