//! Fetching the platform's certificates: one fetch for everybody who asks meanwhile, and then none for a while, so that a
//! flood of messages with made-up serials costs one call an interval.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use paidonce_app::ports::KeyRefresh;
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;
use tokio::task::{AbortHandle, JoinHandle};

pub(super) struct Refreshes {
    interval_min_micros: i64,
    last: Mutex<BTreeMap<AccountRef, Fetch>>,
}

/// The last fetch of an account, running or over.
struct Fetch {
    started: Timestamp,
    task: AbortHandle,
    outcome: Shared<BoxFuture<'static, KeyRefresh>>,
}

impl Refreshes {
    pub(super) fn new(interval_min: Duration) -> Self {
        let interval_min_micros = i64::try_from(interval_min.as_micros()).unwrap_or(i64::MAX);
        Self { interval_min_micros, last: Mutex::default() }
    }

    /// Joins the fetch that runs, or starts one when the last is long enough ago. A caller that goes away leaves it running.
    pub(super) async fn run(
        &self,
        account: &AccountRef,
        now: Timestamp,
        fetch: impl FnOnce() -> JoinHandle<KeyRefresh>,
    ) -> KeyRefresh {
        match self.join_or_start(account, now, fetch) {
            Some(outcome) => outcome.await,
            None => KeyRefresh::Nothing,
        }
    }

    fn join_or_start(
        &self,
        account: &AccountRef,
        now: Timestamp,
        fetch: impl FnOnce() -> JoinHandle<KeyRefresh>,
    ) -> Option<Shared<BoxFuture<'static, KeyRefresh>>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = last.get(account) {
            // Asked of the task: an outcome that nobody waited for looks as if it were still to come.
            if !found.task.is_finished() {
                return Some(found.outcome.clone());
            }
            let over = now.as_micros().saturating_sub(found.started.as_micros());
            // A clock that was set back must not stop refreshes for as long.
            if (0..self.interval_min_micros).contains(&over) {
                return None;
            }
        }
        let running = fetch();
        let task = running.abort_handle();
        let outcome = async move {
            let failed = |error: tokio::task::JoinError| KeyRefresh::Failed(format!("the fetch ended inside: {error}"));
            running.await.unwrap_or_else(failed)
        };
        let outcome = outcome.boxed().shared();
        last.insert(account.clone(), Fetch { started: now, task, outcome: outcome.clone() });
        Some(outcome)
    }
}
