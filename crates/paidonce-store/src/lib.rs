//! The log, its writer and its projections: the only crate with SQL.
//!
//! Promise: what is answered as committed is durable; what agrees commits in one tx; an unknown outcome is never called
//! a rejection.
//!
//! Reading order: [`store`] (what callers use), [`options`], [`writer`] (the batch), [`backend`] (what the writer needs of a
//! database), [`hash_chain`], [`postgres`], [`sqlite`], [`memory`].

pub(crate) mod attempts;
pub mod audit;
pub mod backend;
pub mod clock;
pub mod codec;
pub(crate) mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod copy;
pub(crate) mod cursor;
pub(crate) mod effect_rules;
pub mod fault;
pub(crate) mod feed;
pub(crate) mod fold;
pub mod hash_chain;
pub mod memory;
pub(crate) mod migrations;
pub mod options;
pub mod postgres;
pub mod rebuild;
pub mod rights;
pub(crate) mod rows;
pub(crate) mod search;
pub mod sqlite;
pub mod store;
pub mod writer;

pub use memory::MemoryStore;
pub use options::{Migrations, StoreOptions};
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
pub use store::{CommandContext, EffectRow, EventRow, Outcome, Receipt, Store, StoreError, SubmitError, Target, Work};
