//! WeChat Pay and Alipay, played on this machine: real signatures with test keys, the platforms' own answers, callbacks on
//! the platforms' schedules, and trouble on demand.
//!
//! Promises: written from the platforms' documents alone, shares no code with the ledger that it checks (a test holds that
//! edge); the same seed decides the same; state is in memory and ends with the process.
//!
//! Must never: hold a key of a real platform, or be told of real money.
//!
//! | read in this order | what |
//! |---|---|
//! | [`options`] | what a sandbox is told |
//! | [`sandbox`] | starting and stopping it |
//! | [`platforms`] | both platforms as plain state, without IO and clock |
//! | [`control`], [`state`], [`failures`] | what a person does there, sees there, and makes go wrong |
//! | [`wxpay`], [`alipay`] | each platform's calls, answers and callbacks |
//! | [`notice`] | the queue of callbacks |
//! | [`server`], [`deliver`] | HTTP around it |

pub mod accounts;
pub mod alipay;
pub mod bill;
pub mod certificate;
pub mod config_file;
pub mod control;
pub mod deliver;
pub mod failures;
pub mod fate;
pub mod keys;
pub mod moment;
pub mod money;
pub mod notice;
pub mod options;
pub mod order;
pub mod platforms;
pub mod ring;
pub mod sandbox;
pub mod saved_keys;
pub mod seal;
pub mod server;
pub mod state;
pub mod wire;
pub mod wxpay;

#[cfg(test)]
mod tests;

pub use accounts::Channel;
pub use control::{
    ConsoleRefund, ControlError, OrderName, Part, Pay, PayCombined, SettleRefund, SharePart, StartShare,
};
pub use deliver::Delivered;
pub use failures::{Api, FailKind, FailNext};
pub use notice::Wish;
pub use options::{AlipayKeyMode, Behaviour, Delivery, KeyMode, Merchant, SandboxOptions, Seller};
pub use order::{Charset, Product, RefundStatus, ShareResult, Status};
pub use sandbox::{Advance, Sandbox, SandboxError};
pub use state::{OrderState, State};
