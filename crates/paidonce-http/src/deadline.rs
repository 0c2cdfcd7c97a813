//! No caller waits longer than the deadline once its body is read: a slow ledger becomes a 503 that says what is known.
//! Callbacks keep their own deadline, since they are answered in the platform's words.

use actix_web::HttpResponse;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::call::Call;
use crate::problem::{self, Problem};

/// What a route of our API answers.
pub(crate) type Answered = LocalBoxFuture<'static, Result<HttpResponse, Problem>>;

/// A route that must answer within the deadline.
pub(crate) fn in_time<F, Fut>(handler: F) -> impl Fn(Call) -> Answered + Clone + 'static
where
    F: Fn(Call) -> Fut + Clone + 'static,
    Fut: Future<Output = Result<HttpResponse, Problem>> + 'static,
{
    move |call| {
        let limit = call.state().answer_deadline;
        let too_late = if call.is_read() { too_late_to_read } else { too_late_to_write };
        let answering = handler(call);
        async move { tokio::time::timeout(limit, answering).await.unwrap_or_else(|_| Err(too_late())) }.boxed_local()
    }
}

/// A route that asks platforms: it waits for them, and what it has begun goes on without it.
pub(crate) fn in_platform_time<F, Fut>(handler: F) -> impl Fn(Call) -> Answered + Clone + 'static
where
    F: Fn(Call) -> Fut + Clone + 'static,
    Fut: Future<Output = Result<HttpResponse, Problem>> + 'static,
{
    move |call| {
        let limit = call.state().platform_deadline;
        let answering = handler(call);
        async move { tokio::time::timeout(limit, answering).await.unwrap_or_else(|_| Err(platform_too_slow())) }
            .boxed_local()
    }
}

fn platform_too_slow() -> Problem {
    Problem::new(&problem::CHANNEL_UNKNOWN, "the platforms did not answer in time; what they say is still recorded")
}

fn too_late_to_read() -> Problem {
    Problem::new(&problem::DATABASE_AWAY, "the ledger did not answer in time")
}

/// Dropping the wait does not stop the job.
fn too_late_to_write() -> Problem {
    Problem::new(&problem::OUTCOME_UNKNOWN, "the ledger did not answer in time; it may still commit")
}
