//! Query parameters: known names only, each once, every wrong value named.

use std::collections::BTreeMap;

use actix_web::web;

use crate::problem::{self, Problem};

pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads `text`. Errors: an unknown or repeated name.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, Problem> {
        let unreadable = |error| Problem::new(&problem::INVALID_REQUEST, format!("the query string: {error}"));
        let pairs = web::Query::<Vec<(String, String)>>::from_query(text).map_err(unreadable)?.into_inner();
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                let detail = format!("unknown query parameter {name:?}: known are {}", known.join(", "));
                return Err(Problem::field(name, detail));
            }
            if values.insert(name.clone(), value).is_some() {
                return Err(Problem::field(name.clone(), format!("query parameter {name} is repeated")));
            }
        }
        Ok(Self(values))
    }

    /// The value, when given and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// The value read by `read`.
    pub(crate) fn value<T, E: std::fmt::Display>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        let wrong = |error: E| Problem::field(name, format!("{name}: {error}"));
        self.text(name).map(|text| read(text).map_err(wrong)).transpose()
    }

    /// `limit`, or the default.
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        let limit = self.value("limit", str::parse::<u32>)?;
        Ok(paidonce_app::orders::page_rows(limit)?)
    }
}
