//! A crowd of slow senders: thousands of connections that each send one byte of a callback a second, from its first byte on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use paidonce::open_files;
use paidonce_tests::wire;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};

use super::report::StepAnswer;

/// Longer than anybody waits, at a byte a second.
const HEAD: &[u8] =
    b"POST /callbacks/wxpay/1900000001 HTTP/1.1\r\nHost: ledger.example.test\r\nContent-Length: 1000\r\n\r\n";
/// Handshakes at the same time: fewer than the kernel keeps for a server that is busy.
const CONNECTS_AT_ONCE: usize = 256;
/// Open files of this process that are not the crowd's: the other cases that are played meanwhile.
const OTHER_FILES: u64 = 2_000;
const A_SECOND: Duration = Duration::from_secs(1);

/// One crowd at a time: each takes half of the open files that a process is commonly allowed.
static ONE: Mutex<()> = Mutex::const_new(());

/// Connections that are open.
pub struct Swarm {
    senders: Vec<Sender>,
    asked: usize,
    seconds: u64,
    opened_within: Duration,
    _one: MutexGuard<'static, ()>,
}

struct Sender {
    socket: TcpStream,
    /// Bytes of [`HEAD`].
    sent: usize,
}

/// What a look at a connection shows.
enum Look {
    Open,
    Cut,
    Acknowledged,
}

impl Swarm {
    /// Opens all connections of a step. Errors: why they can't be, and what to do.
    pub async fn open(to: SocketAddr, step: &Value) -> Result<Self, String> {
        let one = ONE.lock().await;
        let count = step["connections"].as_u64().unwrap_or(1);
        let needed = count + OTHER_FILES;
        if let Some(files) = open_files::raise_limit().filter(|files| *files < needed) {
            return Err(format!(
                "{count} connections need {needed} open files, of which {files} are allowed: raise the hard limit for the \
                 tests (ulimit -Hn {needed} as root, docker run --ulimit nofile={needed}:{needed})"
            ));
        }
        let started = Instant::now();
        let asked = usize::try_from(count).map_err(|e| e.to_string())?;
        let opening = (0..asked).map(|_| Sender::open(to));
        let opened: Vec<_> = futures_util::stream::iter(opening).buffer_unordered(CONNECTS_AT_ONCE).collect().await;
        let senders: Result<Vec<Sender>, std::io::Error> = opened.into_iter().collect();
        Ok(Self {
            senders: senders.map_err(|e| format!("not all of {asked} connections could be opened: {e}"))?,
            asked,
            seconds: step["seconds"].as_u64().unwrap_or(1),
            opened_within: started.elapsed(),
            _one: one,
        })
    }

    /// Sends a byte a second on every connection until the server has cut them all, or the time of the step is over. `done`:
    /// all were cut, and none got an acknowledgement.
    pub async fn dribble(mut self) -> StepAnswer {
        let started = Instant::now();
        let mut acknowledged = 0;
        while !self.senders.is_empty() && started.elapsed() < Duration::from_secs(self.seconds) {
            tokio::time::sleep(A_SECOND).await;
            self.senders.retain_mut(|sender| match sender.look() {
                Look::Open => sender.send_one(),
                Look::Cut => false,
                Look::Acknowledged => {
                    acknowledged += 1;
                    false
                }
            });
            // A crowd is many: let the answers to the others through between two rounds.
            tokio::task::yield_now().await;
        }
        let (asked, left, within) = (self.asked, self.senders.len(), self.opened_within.as_millis());
        let words = format!(
            "{asked} connections opened within {within} ms; after {} ms {left} were left and {acknowledged} acknowledged",
            started.elapsed().as_millis()
        );
        let verdict = if left == 0 && acknowledged == 0 { "done" } else { "not_cut" };
        StepAnswer::words("slow_senders", verdict, &words)
    }
}

impl Sender {
    async fn open(to: SocketAddr) -> std::io::Result<Self> {
        let mut socket = TcpStream::connect(to).await?;
        socket.write_all(&HEAD[..1]).await?;
        Ok(Self { socket, sent: 1 })
    }

    fn look(&self) -> Look {
        let mut answer = [0_u8; 512];
        match self.socket.try_read(&mut answer) {
            Ok(read) if wire::starts_with_success(&answer[..read]) => Look::Acknowledged,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Look::Open,
            Ok(_) | Err(_) => Look::Cut,
        }
    }

    /// `false` when the server takes no more.
    fn send_one(&mut self) -> bool {
        let byte = HEAD.get(self.sent).copied().unwrap_or(b'0');
        self.sent += 1;
        self.socket.try_write(&[byte]).is_ok_and(|written| written == 1)
    }
}
