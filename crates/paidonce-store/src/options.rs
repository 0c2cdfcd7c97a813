//! How a store is opened.

use crate::clock::ClockOffset;
use crate::fault::Faults;

/// Jobs that may wait per writer before [`crate::SubmitError::QueueFull`]: about a second of work.
pub const QUEUE_JOBS_MAX: usize = 8192;

/// Settings of a store. `Default` fits a production ledger.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Writer tasks, 1 to 64; each serves the shards with `shard % writers` equal to its number. SQLite always has 1.
    pub writers: usize,
    /// Jobs that may wait per writer.
    pub queue_jobs_max: usize,
    /// Connections for reads and effects.
    pub read_connections_max: u32,
    /// Aggregates that each writer keeps in memory.
    pub cached_aggregates_max: usize,
    /// What to do about migrations.
    pub migrations: Migrations,
    /// Whether commits are waited for until they are on disk.
    pub durability: Durability,
    /// When a channel call is tried first.
    pub first_due: FirstDue,
    /// Pushes "now" in test builds.
    pub clock: ClockOffset,
    /// Fault points of the writer.
    pub faults: Faults,
    /// Guards left out, to prove that the others hold. Test builds only.
    #[cfg(feature = "testing")]
    pub without: WithoutGuards,
}

/// When channel calls are tried first; kinds that are not named here at once, refunds after their spacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstDue {
    /// `poll`, after the order was opened: most orders are paid, and their callback is here, before that.
    pub poll_ms: i64,
    /// `surplus`, after the money came in: time for a person to accept it or to stop the automatic refund.
    pub surplus_ms: i64,
}

impl Default for FirstDue {
    fn default() -> Self {
        Self { poll_ms: 15_000, surplus_ms: 600_000 }
    }
}

/// What opening does about migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Bring the schema up to date.
    Apply,
    /// Refuse to open when the schema is not up to date.
    Require,
}

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every answer is on disk (promise P2). PostgreSQL: opening refuses `fsync = off` and `full_page_writes = off`.
    Full,
    /// For scratch ledgers and tests: faster, may lose the last commits when the machine dies.
    Scratch,
}

/// Guards that a test leaves out.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WithoutGuards {
    /// Heads are read without a lock. PostgreSQL only: SQLite has one writer, and its BEGIN IMMEDIATE can't be left out.
    pub head_lock: bool,
    /// Heads are written without comparing the position that was read.
    pub head_compare: bool,
    /// `t_order` is written without comparing status and version.
    pub conditional_update: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            writers: 2,
            queue_jobs_max: QUEUE_JOBS_MAX,
            read_connections_max: 8,
            cached_aggregates_max: 50_000,
            migrations: Migrations::Require,
            durability: Durability::Full,
            first_due: FirstDue::default(),
            clock: ClockOffset::default(),
            faults: Faults::default(),
            #[cfg(feature = "testing")]
            without: WithoutGuards::default(),
        }
    }
}
