//! `paidonce demo` and `paidonce storm`, started as a person starts them. Few copies: `.ci/run` plays the demo with all.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use paidonce_tests::postgres;
use serde_json::Value;
use sqlx::Row as _;

const PROGRAM: &str = env!("CARGO_BIN_EXE_paidonce-under-test");

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_remove("DATABASE_URL").env_remove("PAIDONCE_TOKEN").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("the program starts")
}

/// The JSON document of a run that must have succeeded, and must say that everything holds.
fn holds(args: &[&str]) -> Value {
    let output = run(args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {}\n{out}\n{err}", output.status);
    let report: Value = serde_json::from_str(&out).expect("standard output is one JSON document");
    assert_eq!(report["holds"], true, "{report:#}");
    report
}

/// A program in the background, ended with the test.
struct Background {
    child: Child,
    said: Vec<String>,
}

impl Background {
    /// Starts it and reads the stream until a line has this text.
    fn until(mut command: Command, text: &str, stream: fn(&mut Child) -> Box<dyn std::io::Read + Send>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(stream(&mut child)).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let found = lines.by_ref().any(|line| {
            said.push(line);
            said.last().is_some_and(|line| line.contains(text))
        });
        // Read on, so that the program never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let background = Self { child, said };
        assert!(found, "the program ended without saying {text:?}: {:?}", background.said);
        background
    }

    /// What stands behind this text in the last line, up to `end`.
    fn behind(&self, text: &str, end: char) -> String {
        let line = self.said.last().expect("a line");
        let rest = line.split_once(text).unwrap_or_else(|| panic!("{text:?} is not in {line:?}")).1;
        rest.split(end).next().unwrap_or_default().to_owned()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr(child: &mut Child) -> Box<dyn std::io::Read + Send> {
    Box::new(child.stderr.take().expect("piped"))
}

fn stdout(child: &mut Child) -> Box<dyn std::io::Read + Send> {
    Box::new(child.stdout.take().expect("piped"))
}

/// P1, P2, P5, P6, P7 in one picture.
#[test]
fn the_demo_holds_on_sqlite() {
    let report = holds(&["demo", "--json", "--copies", "20"]);
    assert_eq!(report["database"], "SQLite");
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(16));
}

/// P1, P2, P5, P6, P7 in one picture.
#[test]
fn the_demo_holds_on_postgres() {
    let url = postgres::fresh_database();
    let report = holds(&["demo", "--json", "--copies", "20", "--database-url", &url]);
    assert_eq!(report["database"], "PostgreSQL");
}

/// P1 over two processes; then what was saved is played again, each message at its own time.
#[test]
fn a_storm_over_two_servers_holds_and_its_evidence_can_be_replayed() {
    let url = postgres::fresh_database();
    let demo = command(&["demo", "--keep", "--json", "--copies", "2", "--concurrency", "2", "--database-url", &url]);
    let first = Background::until(demo, "The ledger still runs at ", stderr);
    let server = first.behind("still runs at ", ' ');
    let folder = first.behind("Everything about it is in ", ':');
    let file = |name: &str| format!("{folder}/{name}");
    let (config, token, keys) = (file("paidonce.toml"), file("operator.token"), file("platform-keys"));

    let serve = command(&["serve", "--config", &config, "--port", "0"]);
    let second = Background::until(serve, "listening on ", stdout);
    let other = second.behind("listening on ", ' ');
    let storm = [
        &["storm", "--json", "--config", &config, "--token-file", &token, "--platform-keys", &keys][..],
        &["--server", &server, "--server", &other, "--database-url", &url],
        &["--orders", "10", "--copies", "20", "--concurrency", "20"],
    ];
    let report = holds(&storm.concat());
    assert_eq!(report["verdicts"][0]["found"], 200, "{report:#}");

    let rows = postgres::query(&url, "SELECT to_json(e)::text FROM t_evidence e");
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let evidence = file("evidence.jsonl");
    std::fs::write(&evidence, rows.join("\n")).expect("the folder can be written");
    let replay = ["storm", "--json", "--config", &config, "--replay", &evidence, "--copies", "5"];
    holds(&replay);
    let onto_a_server = run(&[&replay[..], &["--server", &server]].concat());
    assert_eq!(onto_a_server.status.code(), Some(2), "a replay takes no ledger but its own");
    drop((first, second));
    std::fs::remove_dir_all(&folder).expect("the demo's folder");
}
