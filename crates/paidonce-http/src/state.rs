//! What every route shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paidonce_app::App;
use paidonce_app::fault::Faults;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Tokens;
use crate::metrics::Metrics;
use crate::refusal_log::RefusalLog;
use crate::server::{Money, ServerOptions};

/// Callbacks being recorded at once, at most; above it the answer is 503. More than the store's queues can hold is of no
/// use, and each holds at most one body of 64 KiB.
const JOBS_MAX: u32 = 16_384;

/// Callbacks that wait for the platform's list of certificates at once; others are refused, and sent again by the platform.
/// Nobody has proven anything at that point: a flood must not keep more connections waiting than this.
const KEY_WAITS_MAX: usize = 64;

pub(crate) struct State {
    pub(crate) app: Arc<App>,
    pub(crate) tokens: Tokens,
    pub(crate) metrics: Metrics,
    pub(crate) money: Money,
    /// Callbacks with an unknown serial that wait for a refresh of keys.
    pub(crate) key_waits: Semaphore,
    pub(crate) refusals: RefusalLog,
    pub(crate) body_timeout: Duration,
    pub(crate) answer_deadline: Duration,
    pub(crate) platform_deadline: Duration,
    /// Where accepted callbacks run: a connection that goes away must not take them along.
    pub(crate) runtime: Handle,
    pub(crate) faults: Faults,
    jobs: Arc<Semaphore>,
    stopping: AtomicBool,
    #[cfg(feature = "testing")]
    pub(crate) testing: crate::server::TestingDoors,
}

impl State {
    /// Must be called on the runtime that accepted callbacks shall finish on.
    pub(crate) fn new(app: Arc<App>, options: &ServerOptions) -> Self {
        Self {
            app,
            tokens: Tokens::new(options.tokens.clone()),
            metrics: Metrics::new(options.calls.clone(), options.money),
            money: options.money,
            key_waits: Semaphore::new(KEY_WAITS_MAX),
            refusals: RefusalLog::default(),
            body_timeout: options.body_timeout,
            answer_deadline: options.answer_deadline,
            platform_deadline: options.platform_deadline,
            runtime: Handle::current(),
            jobs: Arc::new(Semaphore::new(usize::try_from(JOBS_MAX).unwrap_or(usize::MAX))),
            stopping: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            faults: options.testing.faults.clone(),
            #[cfg(not(feature = "testing"))]
            faults: Faults::default(),
            #[cfg(feature = "testing")]
            testing: options.testing.clone(),
        }
    }

    /// Room for one more callback; held until it has its outcome.
    pub(crate) fn begin_job(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.jobs).try_acquire_owned().ok()
    }

    pub(crate) async fn wait_for_jobs(&self) {
        // Closed is never: nobody closes it.
        let _all = self.jobs.acquire_many(JOBS_MAX).await;
    }

    pub(crate) fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
