//! The service's sessions have the writer's rights, or somebody is told.
//!
//! | login | sessions run as | append-only rests on |
//! |---|---|---|
//! | member of `paidonce_writer` (an owner too) | `paidonce_writer` | role and triggers |
//! | no member, but without the right to change the log | the login | role and triggers |
//! | any other: it owns the tables, say | the login, with a warning | the triggers alone |
//! | lacks a right that the service needs | refused to open | |
//!
//! The role is a start-up option of the connection (`-c role=`), not a statement after it: so it is there after every reconnect,
//! and `RESET ROLE` and `DISCARD ALL` come back to it. A pooler in between may drop start-up options, and then every session
//! would quietly have the login's rights; [`confirm`] refuses such a session.

use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, Row};

use super::grants::{APPEND_ONLY, GRANTS, WRITER};
use crate::rights::{AppendOnly, SessionRights};
use crate::rows::read_error;
use crate::store::StoreError;

/// PostgreSQL 16 split membership: there, becoming a role is the right SET.
pub(super) const MAY_BECOME: &str = "
SELECT pg_has_role(session_user, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
  FROM pg_roles r WHERE r.rolname = $1";

/// Tables of the ledger are those in the schema where the login finds `events`.
const LOGIN: &str = "
SELECT session_user::text, current_user::text, quote_ident(n.nspname), quote_ident(session_user)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('events')";

const MISSING: &str = "
SELECT 'USAGE on schema ' || n.nspname FROM pg_namespace n
 WHERE quote_ident(n.nspname) = $2 AND NOT has_schema_privilege($1::name, n.oid, 'USAGE')
UNION ALL
SELECT w.privilege || ' on ' || w.relation
  FROM unnest($3::text[], $4::text[]) AS w (relation, privilege)
  JOIN pg_namespace n ON quote_ident(n.nspname) = $2
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.relation AND c.relkind IN ('r', 'p')
 WHERE NOT has_table_privilege($1::name, c.oid, w.privilege)";

/// Also who could make himself the owner can drop a trigger.
const TOO_MUCH: &str = "
SELECT c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE quote_ident(n.nspname) = $2 AND c.relname = ANY ($3::text[]) AND c.relkind IN ('r', 'p')
   AND (has_any_column_privilege($1::name, c.oid, 'UPDATE') OR has_table_privilege($1::name, c.oid, 'DELETE')
        OR has_table_privilege($1::name, c.oid, 'TRUNCATE') OR pg_has_role($1::name, c.relowner, 'MEMBER'))
 ORDER BY c.relname";

/// How sessions are opened.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    pub(crate) target: PgConnectOptions,
    pub(crate) rights: SessionRights,
}

/// Decides for the login of `target`, asking on a connection of that login.
///
/// `None`: there is no ledger yet. Errors: [`StoreError::Invalid`] when a right is missing.
pub(super) async fn sessions(
    connection: &mut PgConnection,
    target: &PgConnectOptions,
) -> Result<Option<Sessions>, StoreError> {
    let row = sqlx::query(LOGIN).fetch_optional(&mut *connection).await.map_err(read_error)?;
    let Some(row) = row else { return Ok(None) };
    let (login, current, schema): (String, String, String) = (text(&row, 0)?, text(&row, 1)?, text(&row, 2)?);
    let may_become: Option<bool> =
        sqlx::query_scalar(MAY_BECOME).bind(WRITER).fetch_optional(&mut *connection).await.map_err(read_error)?;
    let role = if may_become == Some(true) { WRITER.to_owned() } else { current };
    let missing = missing(connection, &role, &schema).await?;
    if let Some(first) = missing.first() {
        return Err(StoreError::Invalid(format!(
            "{role} lacks {first} (and {} more): {}",
            missing.len().saturating_sub(1),
            if role == WRITER {
                "run `paidonce migrate` as the owner of the tables".to_owned()
            } else {
                format!("GRANT {WRITER} TO {}, or migrate and serve as a login that is a member", text(&row, 3)?)
            }
        )));
    }
    let append_only = match too_much(connection, &role, &schema).await?.first() {
        None => AppendOnly::RoleAndTriggers,
        Some(table) if role == WRITER => AppendOnly::TriggersAlone(format!(
            "{WRITER} has a right to change {table}: `paidonce migrate` takes it back, but not what it has as a member of another role"
        )),
        Some(_) if may_become.is_none() => AppendOnly::TriggersAlone(format!(
            "the role {WRITER} does not exist: `paidonce migrate` makes it, or prints what a superuser must run"
        )),
        Some(_) => AppendOnly::TriggersAlone(format!(
            "login {login} is no member of {WRITER}: `paidonce migrate` prints what a superuser must run"
        )),
    };
    let mut target = target.clone();
    if role == WRITER {
        // With another role, the "$user" of a search_path would mean another schema.
        target = target.options([("role", WRITER), ("search_path", &escaped(&schema))]);
    }
    Ok(Some(Sessions { target, rights: SessionRights { login, role, append_only } }))
}

/// Rights that the service needs and `role` has not, in words.
pub(super) async fn missing(
    connection: &mut PgConnection,
    role: &str,
    schema: &str,
) -> Result<Vec<String>, StoreError> {
    let wanted = || GRANTS.iter().flat_map(|grants| grants.writer.iter().map(|right| (grants.table, *right)));
    let (tables, rights): (Vec<&str>, Vec<&str>) = wanted().unzip();
    let found = sqlx::query_scalar(MISSING).bind(role).bind(schema).bind(tables).bind(rights);
    found.fetch_all(connection).await.map_err(read_error)
}

/// Append-only tables that `role` could change.
pub(super) async fn too_much(
    connection: &mut PgConnection,
    role: &str,
    schema: &str,
) -> Result<Vec<String>, StoreError> {
    let found = sqlx::query_scalar(TOO_MUCH).bind(role).bind(schema).bind(APPEND_ONLY);
    found.fetch_all(connection).await.map_err(read_error)
}

/// Refuses a session that has other rights than it should. Errors: [`sqlx::Error::Configuration`].
pub(super) async fn confirm(connection: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    let current: String = sqlx::query_scalar("SELECT current_user::text").fetch_one(connection).await?;
    if current == role {
        return Ok(());
    }
    let text = format!(
        "a database session runs as {current} and not as {role}: something between us and PostgreSQL drops the start-up \
         options of connections; connect directly, or through a pooler that keeps them"
    );
    Err(sqlx::Error::Configuration(text.into()))
}

/// A value inside of start-up options: there, spaces end it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

fn text(row: &sqlx::postgres::PgRow, index: usize) -> Result<String, StoreError> {
    row.try_get(index).map_err(read_error)
}
