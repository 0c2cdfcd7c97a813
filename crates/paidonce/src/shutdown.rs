//! Signals of the process: end politely, or read the keys again.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the outside asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM or SIGINT: finish what was accepted, then end.
    Stop,
    /// SIGHUP: read keys, tokens and secrets again.
    Reload,
}

/// The signals, caught from the moment this exists.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches SIGTERM, SIGINT and SIGHUP. Errors: the system refuses a handler.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("can't catch signals");
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Reload,
        }
    }
}
