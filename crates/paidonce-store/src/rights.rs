//! With which rights the sessions of a store work, for whoever has to tell a person.

/// Whose rights the sessions on PostgreSQL have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRights {
    /// The login of the database URL.
    pub login: String,
    /// `current_user` of every session.
    pub role: String,
    /// What keeps the append-only tables as they are.
    pub append_only: AppendOnly,
}

/// What stands between a mistake of this program and the append-only tables (promise P8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOnly {
    /// The role has no right to change them, and the triggers would refuse it too.
    RoleAndTriggers,
    /// Only the triggers: the role could remove them. Why, and what to do.
    TriggersAlone(String),
}

impl SessionRights {
    /// The triggers are all there is.
    #[must_use]
    pub const fn is_too_much(&self) -> bool {
        matches!(self.append_only, AppendOnly::TriggersAlone(_))
    }
}

/// What `migrate` did about the roles of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolesReport {
    /// Who migrated.
    pub login: String,
    /// Who owns the tables.
    pub owner: String,
    /// Both roles exist and have what they need, and the writer has no right to change an append-only table.
    pub granted: bool,
    /// Sessions of this login can run as the writer.
    pub member: bool,
    /// SQL for somebody with more rights, in order. Empty: nothing is left to do.
    pub by_hand: Vec<String>,
}
