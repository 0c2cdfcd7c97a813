//! Rules as programs: what STYLE and ARCHITECTURE say about the shape of the tree holds, or a test here fails.
//!
//! Crate edges, forbidden crates, licences and duplicate versions come from `cargo metadata`; budgets and words from the
//! source files. A rule that nothing here (or clippy) checks does not belong in the documents.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    missing_docs,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crate, what it may use of ours, what it must never use. One row per crate of the workspace.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    ("paidonce-order", &[], &["sqlx", "actix-web", "reqwest", "tokio", "rand", "aws-lc-rs", "tracing", "futures-util"]),
    ("paidonce-channel", &["paidonce-order"], &["sqlx", "actix-web", "reqwest", "tokio", "cqrs-es"]),
    ("paidonce-store", &["paidonce-order"], &["actix-web", "reqwest", "clap"]),
    ("paidonce-app", &["paidonce-channel", "paidonce-order", "paidonce-store"], &["sqlx", "actix-web", "reqwest"]),
    (
        "paidonce-http",
        &["paidonce-app", "paidonce-channel", "paidonce-order", "paidonce-store"],
        &["sqlx", "reqwest", "cqrs-es"],
    ),
    (
        "paidonce-worker",
        &["paidonce-app", "paidonce-channel", "paidonce-order", "paidonce-store"],
        &["sqlx", "actix-web", "cqrs-es"],
    ),
    // It is what the ledger is checked with: not one line of ours may be on both sides.
    ("paidonce-sandbox", &[], &["sqlx", "cqrs-es", "clap"]),
    (
        "paidonce",
        &[
            "paidonce-app",
            "paidonce-channel",
            "paidonce-http",
            "paidonce-order",
            "paidonce-sandbox",
            "paidonce-store",
            "paidonce-worker",
        ],
        &["sqlx", "cqrs-es"],
    ),
    // The outside tests see the program as a whole, and the store for its conformance suite and stock readers.
    (
        "paidonce-tests",
        &["paidonce", "paidonce-app", "paidonce-channel", "paidonce-order", "paidonce-sandbox", "paidonce-store"],
        &[],
    ),
];

/// Longest source file, in lines. Tests of a file may stand beside it (`x/tests.rs`) and count on their own.
const FILE_LINES_MAX: usize = 900;

/// File names that say nothing about the one job of a file.
const EMPTY_FILE_NAMES: &[&str] = &["utils.rs", "util.rs", "helpers.rs", "misc.rs", "common.rs", "stuff.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests package stands in the workspace").to_owned()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output().expect("the program starts");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("its output is text")
}

/// Only what is compiled for this machine: other platforms' crates are not downloaded by a build.
fn metadata() -> Value {
    let version = run("rustc", &["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let args = ["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host];
    serde_json::from_str(&run(env!("CARGO"), &args)).expect("cargo metadata is JSON")
}

fn array<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("{member} is missing in {value}"))
}

/// Direct dependencies by crate of ours, without those for tests.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let ours = |package: &&Value| package["source"].is_null();
    array(metadata, "packages")
        .iter()
        .filter(ours)
        .map(|package| {
            let names = array(package, "dependencies")
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| text(dependency, "name").to_owned())
                .collect();
            (text(package, "name").to_owned(), names)
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_only_as_the_table_says() {
    let found = dependencies(&metadata());
    let known: BTreeSet<&str> = EDGES.iter().map(|row| row.0).collect();
    let actual: BTreeSet<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(actual, known, "a crate without a row in EDGES, or a row without a crate");
    for (name, may_use, never) in EDGES {
        for dependency in &found[*name] {
            let internal = known.contains(dependency.as_str());
            assert!(!internal || may_use.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
            assert!(!never.contains(&dependency.as_str()), "{name} must never use {dependency}");
        }
    }
}

#[test]
fn sqlite_es_and_its_second_crypto_library_stay_out_of_the_program() {
    let found = dependencies(&metadata());
    for (name, used) in &found {
        assert!(!used.contains("sqlite-es"), "{name}: sqlite-es is for tests only (it forces ring)");
        assert!(!used.contains("ring"), "{name}: aws-lc-rs is the crypto library");
    }
}

fn deny() -> toml::Table {
    fs::read_to_string(root().join("deny.toml")).expect("deny.toml").parse().expect("deny.toml is TOML")
}

/// Names of `[bans] skip` or `deny`: `crate = "name@version-prefix"`.
fn banned(list: &str) -> Vec<String> {
    let deny = deny();
    let entries = deny["bans"][list].as_array().expect("a list");
    entries
        .iter()
        .map(|entry| {
            assert!(entry.get("reason").is_some(), "deny.toml: {entry} has no reason");
            entry["crate"].as_str().expect("crate = \"..\"").to_owned()
        })
        .collect()
}

/// `2` and `0.10` match `2.0.119` and `0.10.9`, not `0.100.0`.
fn version_matches(version: &str, prefix: &str) -> bool {
    version == prefix || version.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}

#[test]
fn no_crate_has_a_second_version_but_those_that_deny_toml_explains() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in array(&metadata, "packages") {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    let skip = banned("skip");
    let mut unused: BTreeSet<&String> = skip.iter().collect();
    for (name, versions) in versions {
        let explains = |entry: &&String, version: &str| {
            entry.split_once('@').is_some_and(|(n, prefix)| n == name && version_matches(version, prefix))
        };
        let mut unexplained = Vec::new();
        for version in versions {
            match skip.iter().find(|entry| explains(entry, version)) {
                Some(entry) => {
                    unused.remove(entry);
                }
                None => unexplained.push(version),
            }
        }
        assert!(unexplained.len() <= 1, "{name} has versions {unexplained:?}: merge them or explain one in deny.toml");
    }
    assert!(unused.is_empty(), "deny.toml explains what is no longer there: {unused:?}");
}

#[test]
fn banned_crates_are_not_in_the_tree() {
    let metadata = metadata();
    let deny = banned("deny");
    for package in array(&metadata, "packages") {
        assert!(!deny.iter().any(|name| name == text(package, "name")), "{} is banned", text(package, "name"));
    }
}

/// Whether an SPDX expression can be met with the allowed licences. `/` is the old spelling of OR.
fn licence_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ").replace(" WITH ", "+WITH+");
    let mut tokens = spaced.split_whitespace().collect::<Vec<_>>().into_iter().peekable();
    any_of(&mut tokens, allowed)
}

type Tokens<'a> = std::iter::Peekable<std::vec::IntoIter<&'a str>>;

fn any_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        met |= all_of(tokens, allowed);
    }
    met
}

fn all_of(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut Tokens<'_>, allowed: &BTreeSet<String>) -> bool {
    match tokens.next() {
        Some("(") => {
            let met = any_of(tokens, allowed);
            assert_eq!(tokens.next(), Some(")"), "a licence expression has an open parenthesis");
            met
        }
        Some(licence) => allowed.contains(&licence.replace("+WITH+", " WITH ")),
        None => panic!("a licence expression ends too early"),
    }
}

#[test]
fn every_crate_has_a_licence_that_we_may_link() {
    let deny = deny();
    let allowed: BTreeSet<String> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|licence| licence.as_str().expect("a name").to_owned())
        .collect();
    let metadata = metadata();
    for package in array(&metadata, "packages") {
        let expression = text(package, "license");
        assert!(licence_allowed(expression, &allowed), "{}: {expression} is not allowed", text(package, "name"));
    }
}

#[test]
fn licence_expressions_are_read_with_their_precedence() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()]);
    for yes in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "ISC AND (GPL-3.0 OR MIT)", "Apache-2.0 WITH LLVM-exception"] {
        assert!(licence_allowed(yes, &allowed), "{yes}");
    }
    for no in ["GPL-3.0", "MIT AND GPL-3.0", "ISC AND GPL-3.0 OR GPL-2.0", "(MIT OR ISC) AND GPL-3.0", "Apache-2.0"] {
        assert!(!licence_allowed(no, &allowed), "{no}");
    }
}

/// All tracked and new files of the tree that git does not ignore.
fn files() -> Vec<String> {
    let listed = run("git", &["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<String> = listed.lines().filter(|file| root().join(file).is_file()).map(str::to_owned).collect();
    files.sort();
    files
}

fn rust_files() -> Vec<(String, String)> {
    files()
        .into_iter()
        .filter(|file| file.ends_with(".rs"))
        .map(|file| {
            let content = fs::read_to_string(root().join(&file)).expect("source is UTF-8");
            (file, content)
        })
        .collect()
}

/// Rust code without comments and texts: what is left are our own names.
fn names_only(source: &str) -> String {
    let mut code = String::new();
    for line in source.lines() {
        let line = line.split("//").next().unwrap_or_default();
        for (index, piece) in line.split('"').enumerate() {
            if index % 2 == 0 {
                code.push_str(piece);
            }
        }
        code.push('\n');
    }
    code
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

#[test]
fn our_own_names_avoid_the_banned_words() {
    for (file, source) in rust_files().into_iter().filter(|(file, _)| file.starts_with("crates/")) {
        for word in words(&names_only(&source)) {
            // Wire names such as transaction_id keep theirs; a database transaction is a `tx`.
            let banned = matches!(word, "transaction" | "transactions" | "tenant" | "psp" | "Psp");
            assert!(!banned, "{file}: the word {word:?} is not ours (STYLE, section 3)");
        }
    }
}

#[test]
fn files_have_one_job_and_a_name_that_says_it() {
    for (file, source) in rust_files() {
        let name = file.rsplit('/').next().unwrap_or_default();
        assert!(!EMPTY_FILE_NAMES.contains(&name), "{file}: name the file after its job");
        let lines = source.lines().count();
        assert!(
            lines <= FILE_LINES_MAX,
            "{file} has {lines} lines, at most {FILE_LINES_MAX}: it has more than one job"
        );
    }
}

#[test]
fn every_source_file_begins_by_saying_what_it_is_for() {
    // A file of unit tests is for what stands beside it.
    for (file, source) in rust_files().into_iter().filter(|(file, _)| !file.ends_with("/tests.rs")) {
        // Attributes of a test module may stand before it.
        let header = source.lines().take(12).any(|line| line.starts_with("//!"));
        assert!(header, "{file} has no module header");
    }
}

#[test]
fn no_test_is_ignored_and_no_lint_is_silenced_without_a_reason() {
    for (file, source) in rust_files() {
        let code = names_only(&source);
        assert!(!code.contains("#[ignore"), "{file}: an ignored test guards nothing");
        for attribute in attributes(&source, "allow(") {
            assert!(attribute.contains("reason"), "{file}: {attribute} needs a reason");
        }
    }
}

/// Whole attributes (they may span lines) that begin with this word.
fn attributes<'a>(source: &'a str, word: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut offset = 0;
    for line in source.split_inclusive('\n') {
        let start = line.trim_start().trim_start_matches('#').trim_start_matches('!');
        if line.trim_start().starts_with('#') && start.starts_with(&format!("[{word}")) {
            let rest = &source[offset..];
            found.push(rest.split_once(")]").map_or(rest, |(attribute, _)| attribute));
        }
        offset += line.len();
    }
    found
}

#[test]
fn only_the_store_speaks_sql() {
    let outside = |file: &str| file.starts_with("crates/") && !file.starts_with("crates/paidonce-store/");
    let statements = ["SELECT ", "INSERT INTO ", "UPDATE t_", "DELETE FROM "];
    for (file, source) in rust_files().into_iter().filter(|(file, _)| outside(file)) {
        for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(
                !statements.iter().any(|statement| line.contains(statement)),
                "{file}: SQL outside the store: {line}"
            );
        }
    }
}

#[test]
fn the_domain_has_no_floating_point() {
    let crates = ["crates/paidonce-order/src/", "crates/paidonce-channel/src/", "crates/paidonce-app/src/"];
    let money = |file: &str| crates.iter().any(|folder| file.starts_with(folder));
    for (file, source) in rust_files().into_iter().filter(|(file, _)| money(file)) {
        for word in words(&names_only(&source)) {
            assert!(!matches!(word, "f32" | "f64"), "{file}: money is checked integer minor units");
        }
    }
}

#[test]
fn the_tree_names_no_machine() {
    // Written in two halves, so that this file does not name one itself.
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    for file in files() {
        let Ok(content) = fs::read_to_string(root().join(&file)) else { continue };
        for path in paths {
            assert!(!content.contains(path), "{file} names a path of somebody's machine: {path}");
        }
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Every `name_of_a_test` (or of a constraint, a metric, a configuration key) between backticks in a document.
fn named_tests(document: &str) -> BTreeSet<String> {
    document
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| quoted.matches('_').count() >= 3)
        .filter(|quoted| quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_name_in_the_documents_exists() {
    let mut sources: String = rust_files().into_iter().map(|(_, source)| source).collect();
    sources.extend(files().iter().filter(|file| file.ends_with(".sql")).map(|file| read(file)));
    for document in ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "docs/runbook.md"] {
        for name in named_tests(&read(document)) {
            let forms =
                [format!("fn {name}("), format!("CONSTRAINT {name} "), format!("\"{name}\""), format!("`{name}`")];
            let exists = forms.iter().any(|form| sources.contains(form));
            assert!(exists, "{document} names {name}, which is no test, constraint, metric or configuration key");
        }
    }
}

/// Levels of the headings outside code blocks.
fn heading_levels(document: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut levels = Vec::new();
    for line in document.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && line.starts_with('#') {
            levels.push(line.chars().take_while(|c| *c == '#').count());
        }
    }
    levels
}

fn code_blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    document
        .split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(c, _)| c.to_owned())
        .collect()
}

#[test]
fn both_readmes_say_the_same_in_the_same_order() {
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    assert_eq!(heading_levels(&english), heading_levels(&chinese), "the headings are out of step");
    for language in ["sh", "toml"] {
        let without_comments = |document: &str| -> Vec<Vec<String>> {
            let strip = |line: &str| line.split('#').next().unwrap_or_default().trim_end().to_owned();
            let blocks = code_blocks(document, language);
            blocks.iter().map(|b| b.lines().map(strip).filter(|line| !line.is_empty()).collect()).collect()
        };
        assert_eq!(without_comments(&english), without_comments(&chinese), "the {language} examples are out of step");
    }
    assert_eq!(named_tests(&english), named_tests(&chinese), "they name different tests");
}
