//! Why a use case gave no result: a variant for each thing a caller can do about it.

use paidonce_order::error::OrderError;
use paidonce_store::store::{StoreError, SubmitError};

/// The one error of this crate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppError {
    /// The request itself is wrong: correct the field and send again.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which field, in the words of the API.
        field: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// No such thing in this ledger.
    #[error("{what} is not in this ledger")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// The rules say no; nothing was written.
    #[error(transparent)]
    Rejected(#[from] OrderError),
    /// The action does not fit the thing it was asked for.
    #[error("{problem}")]
    NotAllowed {
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The `Idempotency-Key` was used before with another request.
    #[error("this Idempotency-Key was used before with another request: use a new key for a new request")]
    ApiKeyReused,
    /// More strays than allowed from one account in this hour: something is misconfigured.
    #[error("account {account} has sent more than {strays_max} unreadable messages in this hour")]
    TooManyStrays {
        /// Which account.
        account: String,
        /// The cap.
        strays_max: u32,
    },
    /// None of the order's accounts can ask its platform: configure one.
    #[error("{problem}")]
    ChannelNotConfigured {
        /// What to add.
        problem: String,
    },
    /// A platform's answer did not come, or is no answer: nothing was decided, the same again is right.
    #[error("{problem}")]
    ChannelUnknown {
        /// Which account, and what came instead.
        problem: String,
    },
    /// A platform refuses, and only a person can change that.
    #[error("{problem}")]
    ChannelRefused {
        /// Which account, and its words.
        problem: String,
    },
    /// The writer gave no outcome: try again, the same request is safe.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A read failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AppError {
    /// A wrong field.
    pub(crate) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }
}
