//! The second small aggregate: something verified that names no order (promise P6).

use serde::{Deserialize, Serialize};

use crate::command::{Operator, StrayCommand, StrayFact};
use crate::error::OrderError;
use crate::event::StrayEvent;
use crate::ids::{AccountRef, Digest};

/// aggregate_type `Stray`; aggregate_id = [`stray_id`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// What was kept.
    pub fact: Option<StrayFact>,
    /// Open until a person resolves it.
    pub open: bool,
    /// Number of events applied.
    pub version: i64,
}

impl Stray {
    /// `events.aggregate_type`.
    pub const TYPE_NAME: &'static str = "Stray";
}

/// `wxpay:1900000001:<content digest>`: the same content at the same account is the same stray.
#[must_use]
pub fn stray_id(account: &AccountRef, content: &Digest) -> String {
    format!("{account}:{content}")
}

/// Decides a stray command. Recording the same content again, or resolving again, gives no event.
///
/// Errors: [`OrderError::NotAllowed`] when there is nothing to resolve, or a person without name or reason.
pub fn decide_stray(stray: &Stray, command: StrayCommand) -> Result<Vec<StrayEvent>, OrderError> {
    match command {
        StrayCommand::RecordStray(_) if stray.fact.is_some() => Ok(Vec::new()),
        StrayCommand::RecordStray(fact) => Ok(vec![StrayEvent::StrayRecorded(fact)]),
        StrayCommand::ResolveStray { by } => resolve(stray, by),
    }
}

fn resolve(stray: &Stray, by: Operator) -> Result<Vec<StrayEvent>, OrderError> {
    by.check()?;
    if stray.fact.is_none() {
        return Err(OrderError::NotAllowed { problem: "there is no such stray: GET /v1/items?kind=stray".to_owned() });
    }
    Ok(if stray.open { vec![StrayEvent::StrayResolved { by }] } else { Vec::new() })
}
