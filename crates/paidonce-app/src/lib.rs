//! The use cases of the ledger: what the HTTP API, the command line and the worker ask for, each one straight line.
//!
//! Promise: every change goes through `Store::submit` (one door, P3); no SQL, no HTTP, no clock but [`clock::Clock`].
//!
//! Reading order: [`app`] (what is wired together), [`record`] (a verified notice becomes commands), [`open`],
//! [`close`], [`refund`], [`profit_share`], [`items`] (what people and services ask for), [`asking`] (one question to a platform),
//! [`query_payment`], [`query_refund`], [`channel_effects`] (the calls that events want), [`orders`] and [`view`] (what they
//! see), [`audit`], [`subscribers`], [`accounts`] (keys that reload), [`error`].

pub mod accounts;
pub mod api_key;
pub mod app;
pub mod asking;
pub mod audit;
pub mod channel_effects;
pub mod channel_settings;
pub mod clock;
pub mod close;
mod combine;
pub mod error;
pub mod items;
pub mod open;
pub mod orders;
pub mod ports;
pub mod profit_share;
pub mod query_payment;
pub mod query_refund;
pub mod reconcile;
pub mod record;
pub mod refund;
mod stray_budget;
pub mod subscribers;
pub mod view;

pub use accounts::Accounts;
pub use app::{App, AppOptions, Caller};
pub use clock::Clock;
pub use error::AppError;
/// Fault points, so that doors need not name the store.
pub use paidonce_store::fault;
/// What the ledger answers, so that doors need not name the store.
pub use paidonce_store::store as ledger;

/// The movable clock of test builds.
#[cfg(feature = "testing")]
pub mod testing {
    pub use paidonce_store::clock::ClockOffset;
}
