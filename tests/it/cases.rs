//! The case suite: public bug reports of this field, each played against a real server and compared with the right answer.
//!
//! `PAIDONCE_CASES=DIR` plays another folder of scripts instead and prints each case as one line of JSON;
//! `PAIDONCE_CASE=ID[,ID]` plays only these. Neither compares anything that has no `expect` beside it.

mod asking;
mod given;
mod judge;
mod load;
mod platform;
mod play;
mod report;
mod script;
mod sessions;
mod swarm;

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use paidonce_tests::database::Engine;
use report::Report;
use script::Script;
use serde_json::Value;

/// Cases played at the same time: a case mostly waits (for a disk, a timeout, a retry), and the machine has two cores.
const AT_ONCE: usize = 6;

/// P1 to P7 against public bug reports of this field, on the embedded database.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_right_answer_to_every_case_on_sqlite() {
    compare_all(Engine::Sqlite).await;
}

/// P1 to P7 against public bug reports of this field, on PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_right_answer_to_every_case_on_postgres() {
    compare_all(Engine::Postgres).await;
}

/// A blind folder of scripts, judged elsewhere. Without `PAIDONCE_CASES` it plays one case of ours, so that the printing
/// is exercised too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_folder_of_cases_is_played_and_printed() {
    let blind = std::env::var_os("PAIDONCE_CASES").map(PathBuf::from);
    let scripts = match &blind {
        Some(folder) => selected(script::read_folder(folder)),
        None => ours().into_iter().filter(|script| script.id == "SIG-11").collect(),
    };
    let engines = match blind {
        Some(_) => vec![Engine::Sqlite, Engine::Postgres],
        None => vec![Engine::Sqlite],
    };
    for engine in engines {
        for report in play_all(scripts.clone(), engine).await {
            println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
        }
    }
}

fn cases_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

fn ours() -> Vec<Script> {
    script::read_folder(&cases_folder().join("inputs"))
}

/// Those named by `PAIDONCE_CASE`, or all.
fn selected(scripts: Vec<Script>) -> Vec<Script> {
    let Ok(ids) = std::env::var("PAIDONCE_CASE") else { return scripts };
    scripts.into_iter().filter(|script| ids.split(',').any(|id| id == script.id)).collect()
}

fn expectation(id: &str) -> Value {
    let path = cases_folder().join("expect").join(format!("{id}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

async fn play_all(scripts: Vec<Script>, engine: Engine) -> Vec<Report> {
    let plays = scripts.into_iter().flat_map(|script| {
        play::variants(&script).into_iter().map(move |variant| (script.clone(), variant)).collect::<Vec<_>>()
    });
    let tasks = plays.map(|(script, variant)| async move {
        // A task of its own: one case that panics does not take the others with it.
        let id = script.id.clone();
        let name = variant.name.clone();
        match tokio::spawn(async move { play::play(&script, engine, variant).await }).await {
            Ok(report) => report,
            Err(panic) => Report::not_run(id, engine.as_str(), name, format!("the runner panicked: {panic}")),
        }
    });
    let mut reports: Vec<Report> = futures_util::stream::iter(tasks).buffer_unordered(AT_ONCE).collect().await;
    reports.sort_by(|a, b| (&a.case, &a.variant).cmp(&(&b.case, &b.variant)));
    reports
}

async fn compare_all(engine: Engine) {
    let mut wrong = Vec::new();
    for report in play_all(selected(ours()), engine).await {
        let differences = judge::differences(&report, &expectation(&report.case));
        if !differences.is_empty() {
            wrong.push(format!("{} {}\n  - {}", report.case, report.variant, differences.join("\n  - ")));
        }
    }
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n"));
}
