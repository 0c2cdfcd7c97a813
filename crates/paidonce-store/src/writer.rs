//! The shard writers: bounded queues in front, one batch at a time behind. Backend-free.
//!
//! A node runs W writers; each serves the shards with `shard % W` equal to its number, so a job's way is fixed and the jobs
//! of one order keep their order. [`Writer`] is the handle; `batch` is what a writer does with what queued, `plan` decides
//! a batch, `cache` is what it remembers.

mod batch;
mod cache;
mod plan;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::FutureExt;
use paidonce_order::ids::shard_of;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::batch::{Shard, Stopping};
use self::cache::Cache;
use crate::backend::Backend;
use crate::options::StoreOptions;
use crate::store::{Outcome, StoreError, SubmitError, Target, Work};

/// What the callers of all writers share.
#[derive(Debug)]
struct Shared {
    queues: Vec<mpsc::Sender<Job>>,
    depth: Arc<AtomicI64>,
    stop_reason: Arc<StopReason>,
    stopping: watch::Sender<Stopping>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A job and who waits for it.
#[derive(Debug)]
struct Job {
    work: Work,
    reply: oneshot::Sender<Result<Outcome, SubmitError>>,
    depth: Arc<AtomicI64>,
}

impl Job {
    fn answer(self, outcome: Result<Outcome, SubmitError>) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
        // The caller may have gone; what was committed stays committed.
        let _ = self.reply.send(outcome);
    }
}

/// Why no writer of this node may write any more.
#[derive(Debug, Default)]
struct StopReason(OnceLock<String>);

impl StopReason {
    fn set(&self, reason: &str) {
        let _ = self.0.set(reason.to_owned());
    }

    fn get(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

/// Handle of all writers of a store.
#[derive(Debug, Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

impl Writer {
    /// Starts `options.writers` writers, at least one and at most one per shard.
    pub(crate) fn start(backend: &Arc<dyn Backend>, options: &StoreOptions) -> Self {
        let count = options.writers.clamp(1, usize::from(paidonce_order::ids::SHARD_COUNT));
        let stop_reason = Arc::<StopReason>::default();
        let (stopping, stop) = watch::channel(Stopping::No);
        let (mut queues, mut tasks) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let (sender, receiver) = mpsc::channel(options.queue_jobs_max.max(1));
            let shard = Shard {
                backend: Arc::clone(backend),
                cache: Cache::new(options.cached_aggregates_max),
                clock: options.clock.clone(),
                faults: options.faults.clone(),
                first_due: options.first_due,
                stop_reason: Arc::clone(&stop_reason),
                session: None,
            };
            queues.push(sender);
            tasks.push(tokio::spawn(end_process_on_panic(shard.run(receiver, stop.clone()))));
        }
        let shared = Shared { queues, depth: Arc::default(), stop_reason, stopping, tasks: Mutex::new(tasks) };
        Self { shared: Arc::new(shared) }
    }

    /// Queues a job and waits for its outcome. Dropping the future does not stop the job.
    pub async fn submit(&self, work: Work) -> Result<Outcome, SubmitError> {
        let shard = match &work.target {
            Target::Order { order_no, .. } => order_no.shard(),
            Target::Stray { stray_id, .. } => shard_of(stray_id),
        };
        let queues = &self.shared.queues;
        let queue = queues.get(usize::from(shard) % queues.len().max(1)).ok_or(SubmitError::Stopping)?;
        if *self.shared.stopping.borrow() == Stopping::Yes {
            return Err(SubmitError::Stopping);
        }
        let (reply, answer) = oneshot::channel();
        let place = queue.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => SubmitError::QueueFull,
            mpsc::error::TrySendError::Closed(()) => SubmitError::Stopping,
        })?;
        self.shared.depth.fetch_add(1, Ordering::Relaxed);
        place.send(Job { work, reply, depth: Arc::clone(&self.shared.depth) });
        answer.await.unwrap_or(Err(SubmitError::Unknown))
    }

    /// Jobs that wait or are being written.
    #[must_use]
    pub fn queue_depth(&self) -> i64 {
        self.shared.depth.load(Ordering::Relaxed)
    }

    /// Errors: why no writer may write now.
    pub fn check_ready(&self) -> Result<(), StoreError> {
        if *self.shared.stopping.borrow() == Stopping::Yes {
            return Err(StoreError::Unavailable("the service is stopping".to_owned()));
        }
        match self.shared.stop_reason.get() {
            Some(reason) => Err(StoreError::Corrupt(format!("{reason}: upgrade this node"))),
            None => Ok(()),
        }
    }

    /// Takes no more jobs and returns when everything that was accepted is answered.
    pub async fn shutdown(&self) {
        self.shared.stopping.send_replace(Stopping::Yes);
        let tasks = std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a writer did not end well");
            }
        }
    }
}

/// A writer that panicked may have left anything behind in its memory: the process ends, and the supervisor starts a clean one.
async fn end_process_on_panic(writer: impl Future<Output = ()>) {
    if AssertUnwindSafe(writer).catch_unwind().await.is_err() {
        tracing::error!("a writer panicked: ending the process");
        std::process::abort();
    }
}
