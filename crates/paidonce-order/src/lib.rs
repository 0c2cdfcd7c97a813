//! The rules of an order, and nothing else: commands and events, the state they make, the decision between them.
//!
//! Promise: pure and synchronous. No IO, no clock, no randomness; time, digests and look-ups arrive inside the command,
//! so that the same commands in the same order always give the same events.
//!
//! Reading order: [`money`] and [`ids`] (the words), [`command`] (what may be asked), [`event`] (what happened),
//! [`order`] (state), [`apply`] (event to state), [`decide`] (the rules), [`project`] (event to row changes), [`aggregate`] (cqrs-es).

pub mod aggregate;
pub mod apply;
pub mod command;
pub mod decide;
pub mod error;
pub mod event;
pub mod fact_key;
pub mod idem_key;
pub mod ids;
pub mod money;
pub mod order;
pub mod policy;
pub mod project;
pub mod stray;
pub mod timestamp;
pub mod upcast;

pub use command::{OrderCommand, StrayCommand};
pub use error::OrderError;
pub use event::{LedgerEvent, OrderEvent, StrayEvent};
pub use fact_key::FactKey;
pub use idem_key::IdemKey;
pub use ids::{AccountId, AccountRef, Channel, ChannelTradeNo, Digest, OrderNo, RefundNo};
pub use money::{Currency, Decimal, Money};
pub use order::Order;
pub use stray::Stray;
pub use timestamp::Timestamp;
