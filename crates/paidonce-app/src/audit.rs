//! What proves the ledger to a person: so far the timeline of one order.
//!
//! Promise: reads only. What is shown was read, and what could not be read or is not kept any more is said.

pub mod explain;
