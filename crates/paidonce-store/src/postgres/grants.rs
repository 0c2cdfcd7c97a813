//! Who may do what to which table: the decision about every table, as data.
//!
//! `migrate` grants exactly this and takes back what is more ([`super::roles`]); opening a ledger compares it with the server's
//! catalog ([`super::rights`]). A test compares both with each other, so that a new table without a decision fails it.

/// The service. NOLOGIN: logins are made members of it.
pub const WRITER: &str = "paidonce_writer";
/// People and reports (finance). NOLOGIN.
pub const READER: &str = "paidonce_reader";

/// The rights on one table. The owner (whoever migrated) has all; nobody else has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableGrants {
    /// Name.
    pub table: &'static str,
    /// What the service's statements use, and no more.
    pub writer: &'static [&'static str],
    /// SELECT or nothing. No table holds a secret: subscribers name theirs, and keys and tokens stand in files.
    pub reader: &'static [&'static str],
}

/// Promise P8: rows are added and never changed. The writer has no other right there than to add and to read.
pub const APPEND_ONLY: &[&str] = &["events", "t_order_flow", "t_evidence", "t_seal"];

const READ: &[&str] = &["SELECT"];
const ADD: &[&str] = &["SELECT", "INSERT"];
const ADD_AND_MOVE: &[&str] = &["SELECT", "INSERT", "UPDATE"];

/// Every table of the ledger.
pub const GRANTS: &[TableGrants] = &[
    TableGrants { table: "events", writer: ADD, reader: READ },
    // The 64 rows are there from the first migration on. UPDATE is also what FOR UPDATE asks for.
    TableGrants { table: "t_log_head", writer: &["SELECT", "UPDATE"], reader: READ },
    TableGrants { table: "t_event_version", writer: ADD, reader: READ },
    TableGrants { table: "t_idempotent", writer: ADD, reader: READ },
    TableGrants { table: "t_order", writer: ADD_AND_MOVE, reader: READ },
    TableGrants { table: "t_order_flow", writer: ADD, reader: READ },
    // Removing expired months is the owner's.
    TableGrants { table: "t_evidence", writer: ADD, reader: READ },
    TableGrants { table: "t_item", writer: ADD_AND_MOVE, reader: READ },
    // A subscriber can be removed.
    TableGrants { table: "t_subscriber", writer: &["SELECT", "INSERT", "UPDATE", "DELETE"], reader: READ },
    // Delivered effects are pruned.
    TableGrants { table: "t_effect", writer: &["SELECT", "INSERT", "UPDATE", "DELETE"], reader: READ },
    TableGrants { table: "t_seal", writer: ADD, reader: READ },
    // Old attempts are pruned.
    TableGrants { table: "t_attempt", writer: &["SELECT", "INSERT", "DELETE"], reader: READ },
    // Only read when a ledger is opened; `migrate` writes it as the owner.
    TableGrants { table: "t_migration", writer: READ, reader: READ },
];
