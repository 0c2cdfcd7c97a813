//! The HTTP doors: thin routes over the use cases of `paidonce-app`.
//!
//! Promise: bytes are bounded before they are read, callbacks are answered exactly as the platforms demand and only after
//! the commit, every refusal of our own API is one problem document, every route has a row in one policy table.
//!
//! Reading order: [`server`] (how it is started), [`policy`] (every route and who may use it), `trace` and
//! `auth` (what surrounds a route), `call` and `deadline` (what a route is given), `routes/` (a door a file), [`problem`] (the one error), [`openapi`].

pub mod auth;
mod body;
mod call;
mod deadline;
mod docs_page;
mod metrics;
pub mod openapi;
pub mod policy;
pub mod problem;
mod query;
mod refusal_log;
mod routes;
pub mod server;
mod state;
mod trace;

pub use auth::{Scope, Token, TokenError};
pub use metrics::CallMetrics;
pub use problem::Problem;
pub use server::{Money, ServeError, Server, ServerOptions, serve};
