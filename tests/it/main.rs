//! All outside tests in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests: a failure here is a failed test, with its reason"
)]

/// Runs each `async fn name(ledger: Ledger)` on both databases: `name::postgres`, `name::sqlite`.
macro_rules! on_both_databases {
    ($($name:ident;)*) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name(paidonce_tests::ledger::Ledger::postgres().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(paidonce_tests::ledger::Ledger::sqlite().await).await;
            }
        }
    )* };
}

/// Runs each `async fn name(ledger: Ledger)` on every store: `name::postgres`, `name::sqlite`, `name::memory`.
macro_rules! on_every_store {
    ($($name:ident;)*) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name(paidonce_tests::ledger::Ledger::postgres().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(paidonce_tests::ledger::Ledger::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                super::$name(paidonce_tests::ledger::Ledger::memory()).await;
            }
        }
    )* };
}

mod architecture;
mod cases;
mod channel_meets_sandbox;
mod demo;
mod postgres_starter;
mod sandbox;
mod sandbox_program;
mod serve_roles;
mod store_effects;
mod store_reads;
mod store_roles;
mod store_schema;
mod store_writer;
mod store_writer_faults;
mod store_writer_guards;
mod store_writer_kit;
mod store_writer_log;
mod stories;
