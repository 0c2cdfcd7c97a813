//! The writer on both databases: the conformance suite, and what only one of them can show.

use std::sync::Arc;

use paidonce_store::Store;
use paidonce_store::conformance::WRITER_CHECKS;

use crate::store_writer_kit::{Place, fast, memory};

async fn run_writer_checks(store: Arc<dyn Store>) {
    for (name, check) in WRITER_CHECKS {
        println!("{name}");
        check(Arc::clone(&store)).await;
    }
    store.shutdown().await;
}

/// P1, P2, P6, P8.
#[tokio::test(flavor = "multi_thread")]
async fn the_writer_keeps_its_promises_on_postgres() {
    run_writer_checks(Place::postgres().open(fast()).await.store).await;
}

/// P1, P2, P6, P8.
#[tokio::test(flavor = "multi_thread")]
async fn the_writer_keeps_its_promises_on_sqlite() {
    run_writer_checks(Place::sqlite().open(fast()).await.store).await;
}

/// P1, P2, P6, P8.
#[tokio::test(flavor = "multi_thread")]
async fn the_writer_keeps_its_promises_in_memory() {
    run_writer_checks(memory()).await;
}
