//! A script as it was written: `{case, given, steps}`. Read tolerantly, because a blind folder may hold words that this
//! runner does not know: what it can't play, it says.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// One case.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its id, for example `SIG-01`.
    pub id: String,
    /// Where its raw files lie.
    pub folder: PathBuf,
    /// What is there before the first step.
    pub given: Value,
    /// What is done.
    pub steps: Vec<Value>,
}

/// Reads every script of a folder, sorted by id.
pub fn read_folder(folder: &Path) -> Vec<Script> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut scripts: Vec<Script> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| read(&path))
        .collect();
    scripts.sort_by(|a, b| a.id.cmp(&b.id));
    scripts
}

fn read(path: &Path) -> Script {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let script: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Script {
        id: script["case"].as_str().map(str::to_owned).or(stem).expect("a case has an id"),
        folder: path.parent().expect("a file lies in a folder").to_owned(),
        given: script["given"].clone(),
        steps: list(&script["steps"]),
    }
}

/// The members of a list, or nothing.
pub fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A text member, or the empty text.
pub fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// An RFC 3339 instant.
pub fn instant(value: &Value) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok()
}

/// `value` with every text changed by `change`.
pub fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), map_texts(member, change))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Every step, also those inside of others.
pub fn all_steps(steps: &[Value]) -> Vec<&Value> {
    let mut all = Vec::new();
    for step in steps {
        all.push(step);
        for member in ["step", "template", "a", "b"] {
            if step[member].is_object() {
                all.extend(all_steps(std::slice::from_ref(&step[member])));
            }
        }
        if let Some(inner) = step["steps"].as_array() {
            all.extend(all_steps(inner));
        }
    }
    all
}

/// Copy number `number` of a template: `{i}` everywhere, and numbers of the platform made unique with it.
pub fn numbered(template: &Value, number: u64) -> Value {
    let running = number.to_string();
    let mut copy = map_texts(template, &|text| text.replace("{i}", &running));
    make_unique(&mut copy, number);
    copy
}

/// Members whose last six characters become the running number.
const UNIQUE_MEMBERS: &[&str] = &["transaction_id", "trade_no", "notify_id", "refund_id"];

fn make_unique(value: &mut Value, number: u64) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if UNIQUE_MEMBERS.contains(&name.as_str()) {
                    number_at_end(member, number);
                } else {
                    make_unique(member, number);
                }
            }
        }
        Value::Array(items) => {
            if let [Value::String(name), second] = items.as_mut_slice()
                && UNIQUE_MEMBERS.contains(&name.as_str())
            {
                number_at_end(second, number);
                return;
            }
            items.iter_mut().for_each(|item| make_unique(item, number));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn number_at_end(member: &mut Value, number: u64) {
    if let Some(text) = member.as_str() {
        let kept: String = text.chars().take(text.chars().count().saturating_sub(6)).collect();
        *member = Value::String(format!("{kept}{number:06}"));
    }
}
