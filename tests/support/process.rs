//! The program under test as a real process: started, signalled, killed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take: migrations on a fresh database on a loaded machine.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long an orderly end may take.
const STOP_WAIT: Duration = Duration::from_secs(30);
/// Between two looks at a condition that nothing signals to us.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Lines of the log shown with a failure.
const LOG_LINES_SHOWN: usize = 25;
/// Lines about requests that were answered: they hide what matters.
const ANSWERED: &str = "\"message\":\"answered\"";

/// Path of the program with feature `testing`: beside the running test binary (`target/<profile>`).
#[must_use]
pub fn program() -> PathBuf {
    let test_binary = std::env::current_exe().expect("the path of the test binary");
    let profile = test_binary.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    profile.join(format!("paidonce-under-test{}", std::env::consts::EXE_SUFFIX))
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    addr: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts `serve` and waits for its "listening on" line.
    ///
    /// Errors: the program ended before it listened; the text is its log.
    pub async fn start(config: &Path, log: PathBuf, env: &[(String, Option<String>)]) -> Result<Self, String> {
        let child = command(config, &log, env).spawn().expect("start the program under test");
        let mut server = Self { child, addr: SocketAddr::from(([127, 0, 0, 1], 0)), log };
        let deadline = Instant::now() + START_WAIT;
        loop {
            if let Some(addr) = listening_on(&server.log_text()) {
                server.addr = addr;
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("the server ended before it listened ({status}):\n{}", server.log_text()));
            }
            if Instant::now() > deadline {
                return Err(format!("the server does not listen after {START_WAIT:?}:\n{}", server.log_text()));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Everything it has written.
    #[must_use]
    pub fn log_text(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The end of its log, for failure messages.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains(ANSWERED)).collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends a signal by name: `TERM`, `HUP`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "send SIG{name}");
    }

    /// Waits for its end and gives the exit status.
    pub async fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + STOP_WAIT;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end within {STOP_WAIT:?}:\n{}", self.log_tail());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(config: &Path, log: &Path, env: &[(String, Option<String>)]) -> Command {
    let out = File::options().create(true).append(true).open(log).expect("a log file");
    let err = out.try_clone().expect("the log file twice");
    let mut command = Command::new(program());
    command.arg("serve").arg("--migrate").arg("--config").arg(config);
    command.current_dir(config.parent().expect("the configuration has a directory"));
    command.env_remove("DATABASE_URL").env("NO_COLOR", "1");
    for (name, value) in env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    command
}

/// The address in the last complete line that says `listening on`.
fn listening_on(log: &str) -> Option<SocketAddr> {
    let complete = &log[..log.rfind('\n')?];
    let line = complete.lines().rev().find(|line| line.contains("listening on"))?;
    let start = line.find("127.0.0.1:")?;
    let text: String = line[start..].chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect();
    text.trim_end_matches([':', '.']).parse().ok()
}
