//! `paidonce sandbox` as a person starts it: the README's five minutes, command by command.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_paidonce-under-test");
/// How the README starts the program.
const CARGO: &str = "cargo run --release -- ";

/// A program in the background, ended with the test.
struct Background(Child);

impl Background {
    /// Starts it and waits for its first line, which says where it listens.
    fn start(args: &[String], folder: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(folder).env_remove("DATABASE_URL").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let said = lines.next().unwrap_or_default();
        // Read on, so that the program never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let background = Self(child);
        assert!(said.contains("listening on http://"), "{args:?} said {said:?}");
        background
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The commands of the README's section, block by block.
fn blocks() -> Vec<Vec<String>> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("README.md");
    let readme = std::fs::read_to_string(readme).expect("README.md");
    let section = readme.split("## Develop against the sandbox in five minutes").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.map(|block| block.lines().map(str::to_owned).collect()).collect()
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("an address").port()
}

/// One reader's folder, ports of its own instead of the README's.
struct Reader {
    folder: PathBuf,
    sandbox: u16,
    ledger: u16,
}

impl Reader {
    /// The arguments of a line that starts the program.
    fn arguments(&self, line: &str) -> Vec<String> {
        let line = line.strip_prefix(CARGO).unwrap_or_else(|| panic!("{line:?} does not start the program"));
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let more = match words[0].as_str() {
            "sandbox" if words[1].starts_with("--") => vec![
                format!("--listen=127.0.0.1:{}", self.sandbox),
                format!("--notify-base=http://127.0.0.1:{}", self.ledger),
            ],
            "sandbox" => vec![format!("--url=http://127.0.0.1:{}", self.sandbox)],
            "order" => vec![format!("--server=http://127.0.0.1:{}", self.ledger)],
            _ => Vec::new(),
        };
        words.extend(more);
        words
    }

    fn run(&self, line: &str) -> Output {
        let mut command = if line.starts_with(CARGO) {
            let mut command = Command::new(PROGRAM);
            command.args(self.arguments(line));
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &line.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", self.ledger))]);
            command
        };
        command.current_dir(&self.folder).env("PAIDONCE_TOKEN_FILE", "sandbox/operator.token").stdin(Stdio::null());
        let output = command.output().expect("the command starts");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {}\n{out}\n{err}", output.status);
        output
    }

    fn order(&self, order_no: &str) -> Value {
        let shown = self.run(&format!("{CARGO}order get {order_no} --json"));
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    /// Callbacks take a moment.
    fn wait_until(&self, order_no: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let order = self.order(order_no);
            if holds(&order) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{order:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// P3: what the README promises to somebody who sees the sandbox for the first time.
#[test]
fn the_five_minutes_of_the_readme_go_as_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let reader = Reader { folder: folder.path().to_owned(), sandbox: free_port(), ledger: free_port() };
    let blocks = blocks();
    let [sandbox, ledger, paid, lost, rest] = blocks.as_slice() else { panic!("five blocks: {blocks:#?}") };
    let _sandbox = Background::start(&reader.arguments(&sandbox[0]), folder.path());
    let _ledger = Background::start(&reader.arguments(&ledger[0]), folder.path());
    assert!(paid[0].starts_with("export PAIDONCE_TOKEN_FILE="));
    paid[1..].iter().for_each(|line| drop(reader.run(line)));
    reader.wait_until("A-1001", |order| order["status"] == "PAID");
    let (asked, before) = lost.split_last().expect("commands");
    before.iter().for_each(|line| drop(reader.run(line)));
    assert_eq!(reader.order("A-1002")["status"], "PENDING", "its callback was lost");
    let answer: Value = serde_json::from_slice(&reader.run(asked).stdout).expect("JSON");
    assert_eq!((&answer["changed"], &answer["status"]), (&Value::Bool(true), &Value::from("PAID")), "{answer:#}");
    rest.iter().for_each(|line| drop(reader.run(line)));
    reader.wait_until("A-1001", |order| order["surplus_minor"] == 8_888);
    reader.wait_until("A-1002", |order| order["refunded_minor"] == 800);
}
