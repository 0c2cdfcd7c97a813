//! The second small aggregate: something verified that names no order (promise P6).

use serde::{Deserialize, Serialize};

use crate::command::{StrayCommand, StrayFact};
use crate::error::OrderError;
use crate::event::StrayEvent;

/// aggregate_type `Stray`; aggregate_id = `channel:account:<content digest>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// What was kept.
    pub fact: Option<StrayFact>,
    /// Open until a person resolves it.
    pub open: bool,
    /// Number of events applied.
    pub version: i64,
}

/// Decides a stray command; recording the same content again gives no event.
pub fn decide_stray(_stray: &Stray, _command: StrayCommand) -> Result<Vec<StrayEvent>, OrderError> {
    Ok(Vec::new())
}
