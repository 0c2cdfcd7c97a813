//! The log, its writer and its projections: the only crate with SQL.
//!
//! Promise: what is answered as committed is durable; what agrees commits in one tx; an unknown outcome is never called
//! a rejection.
//!
//! Reading order: [`store`] (what callers use), `writer` (the batch), `hash_chain`, `postgres/`, `sqlite/`, `memory`.

pub mod store;

pub use store::{CommandContext, EffectRow, EventRow, Outcome, Receipt, Store, StoreError, SubmitError, Target, Work};
