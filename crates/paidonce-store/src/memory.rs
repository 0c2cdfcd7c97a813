//! The ledger in memory: a model that the conformance suite holds equal to the databases. For tests and demos only.

/// A ledger in memory.
#[derive(Debug)]
pub struct MemoryStore {}
