//! Duplicates and refusals for `explain`: best effort, batched off the answer's path, bounded.
//!
//! Never waits, never fails a caller: what does not fit in the queue, or can't be written, is counted and dropped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_order::timestamp::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::store::{Attempt, StoreError};

/// Attempts that may wait, and the most that one tx writes: a storm's second of duplicates; the rest is dropped.
pub(crate) const QUEUE_MAX: usize = 4_096;

/// Pause between two writes. The write shares the disk (on SQLite also the connection) with the ledger's commits, which matter more.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest `detail` that is kept, in bytes.
const DETAIL_BYTES_MAX: usize = 500;

/// Days that attempts are kept for `explain`.
const KEEP_DAYS: i64 = 30;

/// When the latest of them was.
pub(crate) fn newest(attempts: &[Attempt]) -> Option<Timestamp> {
    attempts.iter().map(|attempt| attempt.at).max()
}

/// Attempts with a smaller id are too old to be kept. Ids are UUIDv7, so they sort by time.
pub(crate) fn oldest_kept(now: Timestamp) -> Uuid {
    let oldest = now.plus_micros(KEEP_DAYS.saturating_mul(-86_400_000_000));
    let millis = u128::try_from(oldest.as_micros().div_euclid(1_000)).unwrap_or(0);
    Uuid::from_u128(millis << 80)
}

/// Where attempts are written to.
#[async_trait]
pub(crate) trait AttemptSink: Send + Sync + 'static {
    /// Writes all of them, then deletes as many that are too old ([`oldest_kept`]).
    async fn write(&self, attempts: &[Attempt]) -> Result<(), StoreError>;
}

/// The queue of attempts and the task that writes them.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// `None` once shut down.
    queue: Mutex<Option<mpsc::Sender<Attempt>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<tokio::sync::Notify>,
    dropped: Arc<AtomicI64>,
}

impl Attempts {
    /// Starts the task.
    pub(crate) fn start(to: impl AttemptSink) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let (dropped, stop) = (Arc::<AtomicI64>::default(), Arc::<tokio::sync::Notify>::default());
        let task = tokio::spawn(write_all(to, waiting, Arc::clone(&stop), Arc::clone(&dropped)));
        Self { queue: Mutex::new(Some(queue)), task: Mutex::new(Some(task)), stop, dropped }
    }

    /// Queues one; drops it when the queue is full.
    pub(crate) fn note(&self, attempt: Attempt) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(attempt).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped since the start.
    pub(crate) fn dropped(&self) -> i64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is queued and ends the task.
    pub(crate) async fn shutdown(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.stop.notify_one();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::warn!("the task that writes attempts had died");
        }
    }
}

async fn write_all(
    to: impl AttemptSink,
    mut waiting: mpsc::Receiver<Attempt>,
    stop: Arc<tokio::sync::Notify>,
    dropped: Arc<AtomicI64>,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, QUEUE_MAX).await > 0 {
        for attempt in &mut batch {
            attempt.detail.truncate(attempt.detail.floor_char_boundary(DETAIL_BYTES_MAX));
        }
        if let Err(error) = to.write(&batch).await {
            dropped.fetch_add(i64::try_from(batch.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
            tracing::warn!(%error, attempts = batch.len(), "attempts could not be written; only `explain` misses them");
        }
        batch.clear();
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

    use paidonce_order::ids::AccountRef;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Attempt>>>);

    #[async_trait]
    impl AttemptSink for Kept {
        async fn write(&self, attempts: &[Attempt]) -> Result<(), StoreError> {
            self.0.lock().unwrap().extend_from_slice(attempts);
            Ok(())
        }
    }

    fn attempt(detail: &str) -> Attempt {
        Attempt {
            at: Timestamp::from_micros(0),
            account: AccountRef::parse("wxpay:1900000001").unwrap(),
            order_no: None,
            result: "duplicate".to_owned(),
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn what_is_older_than_a_month_has_a_smaller_id() {
        let at = |text| Timestamp::parse(text).unwrap();
        let oldest = oldest_kept(at("2025-01-31T00:00:00Z"));
        let id = |text| Uuid::from_u128(u128::try_from(at(text).as_micros() / 1_000).unwrap() << 80 | 0x7000 << 64);
        assert!(id("2024-12-31T23:59:59Z") < oldest && oldest < id("2025-01-01T00:00:00Z"));
    }

    #[tokio::test]
    async fn what_is_queued_at_the_end_is_written_and_what_comes_later_is_counted() {
        let kept = Kept::default();
        let attempts = Attempts::start(kept.clone());
        attempts.note(attempt(&"é".repeat(400)));
        attempts.shutdown().await;
        attempts.note(attempt("late"));
        let written = kept.0.lock().unwrap().clone();
        assert_eq!(written.len(), 1);
        assert_eq!(written.first().unwrap().detail.len(), DETAIL_BYTES_MAX);
        assert_eq!(attempts.dropped(), 1);
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_and_never_waits() {
        let kept = Kept::default();
        let attempts = Attempts::start(kept.clone());
        // The task has not run yet: this runtime has one thread, and `note` does not yield.
        for _ in 0..QUEUE_MAX + 3 {
            attempts.note(attempt("x"));
        }
        assert_eq!(attempts.dropped(), 3);
        attempts.shutdown().await;
        assert_eq!(kept.0.lock().unwrap().len(), QUEUE_MAX);
    }
}
