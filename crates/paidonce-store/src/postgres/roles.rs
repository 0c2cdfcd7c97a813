//! Makes the roles and gives them their rights, as a part of `migrate`.
//!
//! | step | needs | if it may not |
//! |---|---|---|
//! | roles that do not exist | CREATEROLE | told: a superuser must run it |
//! | rights of [`GRANTS`]; all others of both roles and of PUBLIC taken back | owning the tables | told |
//! | USAGE of the schema; CREATE taken back | owning the schema | told |
//! | this login becomes a member of the writer, so that one login is enough | ADMIN of the role (who made it has it) | told |
//!
//! Roles belong to the whole cluster, and our advisory lock to one database: another ledger's `migrate` may make the same role at
//! the same moment. So each of these steps has a savepoint, and who comes second looks again, for a moment if need be: the
//! server tells other sessions of a new role a little after its COMMIT.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection, Row};

use super::grants::{GRANTS, READER, TableGrants, WRITER};
use super::rights::{MAY_BECOME, missing, too_much};
use crate::rights::RolesReport;
use crate::rows::read_error;
use crate::store::StoreError;

/// SQLSTATE insufficient_privilege.
const DENIED: &str = "42501";

/// How often who comes second looks again, and the pause between: two seconds, where microseconds are normal.
const LOOKS_MAX: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// `to_regrole` asks the session's cache, as GRANT will; the table may know the role before.
const EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1) AND to_regrole($1) IS NOT NULL";

/// What is there, seen by the login that migrates.
const LOOK: &str = "
SELECT quote_ident(session_user) AS login, pg_get_userbyid(c.relowner)::text AS owner, quote_ident(n.nspname) AS schema,
       pg_has_role(current_user, c.relowner, 'USAGE') AS owns_tables,
       pg_has_role(current_user, n.nspowner, 'USAGE') AS owns_schema
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('events')";

/// What makes the writer stronger than its grants.
const STRONGER: &str = "
SELECT 'ALTER ROLE ' || quote_ident(rolname) || ' NOSUPERUSER;' FROM pg_roles WHERE rolname = $1 AND rolsuper
UNION ALL
SELECT 'REVOKE ' || m.roleid::regrole || ' FROM ' || m.member::regrole || ';' FROM pg_auth_members m
  JOIN pg_roles r ON r.oid = m.member WHERE r.rolname = $1";

struct Look {
    login: String,
    owner: String,
    schema: String,
    owns_tables: bool,
    owns_schema: bool,
}

/// After the migrations, in their tx.
pub(super) async fn ensure_in_tx(tx: &mut PgConnection) -> Result<RolesReport, StoreError> {
    let look = look(tx).await?;
    let mut by_hand = Vec::new();
    for role in [WRITER, READER] {
        let make = format!("CREATE ROLE {role} NOLOGIN");
        if !ensure(tx, (EXISTS, role), &make).await? {
            by_hand.push(format!("{make};"));
        }
    }
    let exist = by_hand.is_empty();
    if exist && look.owns_tables {
        for grants in GRANTS {
            tx.execute(table_sql(&look.schema, grants).as_str()).await.map_err(read_error)?;
        }
    }
    match (look.owns_schema, exist) {
        (true, true) => tx.execute(schema_sql(&look.schema).as_str()).await.map(|_| ()).map_err(read_error)?,
        (true, false) => {}
        (false, true) => by_hand.extend(schema_by_hand(tx, &look.schema, &[WRITER, READER]).await?),
        // A role that does not exist yet will have what everybody has.
        (false, false) => by_hand.extend(schema_by_hand(tx, &look.schema, &["public"]).await?),
    }
    let join = format!("GRANT {WRITER} TO SESSION_USER");
    let member = exist && ensure(tx, (MAY_BECOME, WRITER), &join).await?;
    if !member {
        by_hand.push(format!("GRANT {WRITER} TO {};", look.login));
    }
    let mut granted = exist && missing(tx, WRITER, &look.schema).await?.is_empty();
    if exist && !too_much(tx, WRITER, &look.schema).await?.is_empty() {
        granted = false;
        by_hand.extend(sqlx::query_scalar::<_, String>(STRONGER).bind(WRITER).fetch_all(tx).await.map_err(read_error)?);
    }
    Ok(RolesReport { login: look.login, owner: look.owner, granted, member, by_hand })
}

async fn look(tx: &mut PgConnection) -> Result<Look, StoreError> {
    let row = tx.fetch_one(LOOK).await.map_err(read_error)?;
    let text = |name: &str| row.try_get(name).map_err(read_error);
    let flag = |name: &str| row.try_get(name).map_err(read_error);
    Ok(Look {
        login: text("login")?,
        owner: text("owner")?,
        schema: text("schema")?,
        owns_tables: flag("owns_tables")?,
        owns_schema: flag("owns_schema")?,
    })
}

/// CASCADE: what somebody passed on goes too. ALL of a table takes the rights of single columns with it.
fn table_sql(schema: &str, grants: &TableGrants) -> String {
    let table = format!("{schema}.{}", grants.table);
    let mut sql = format!("REVOKE ALL ON TABLE {table} FROM PUBLIC, {WRITER}, {READER} CASCADE;");
    for (role, rights) in [(WRITER, grants.writer), (READER, grants.reader)] {
        if !rights.is_empty() {
            sql.push_str(&format!("GRANT {} ON TABLE {table} TO {role};", rights.join(", ")));
        }
    }
    sql
}

fn schema_sql(schema: &str) -> String {
    format!(
        "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {WRITER}, {READER}; GRANT USAGE ON SCHEMA {schema} TO {WRITER}, {READER};"
    )
}

/// Of [`schema_sql`], what is not so already for these roles.
async fn schema_by_hand(tx: &mut PgConnection, schema: &str, roles: &[&str]) -> Result<Vec<String>, StoreError> {
    let row = sqlx::query(
        "SELECT bool_or(has_schema_privilege(r, n.oid, 'CREATE')) AS may_create,
                bool_and(has_schema_privilege(r, n.oid, 'USAGE')) AS may_use
           FROM pg_namespace n, unnest($1::text[]) AS r WHERE quote_ident(n.nspname) = $2",
    );
    let row = row.bind(roles).bind(schema).fetch_one(tx).await.map_err(read_error)?;
    let mut by_hand = Vec::new();
    if row.try_get("may_create").map_err(read_error)? {
        by_hand.push(format!("REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {WRITER}, {READER};"));
    }
    if !row.try_get::<bool, _>("may_use").map_err(read_error)? {
        by_hand.push(format!("GRANT USAGE ON SCHEMA {schema} TO {WRITER}, {READER};"));
    }
    Ok(by_hand)
}

/// Makes it so, unless `holds` says of the role that it is. `false`: this login may not.
async fn ensure(tx: &mut PgConnection, (holds, role): (&str, &str), make: &str) -> Result<bool, StoreError> {
    for _ in 0..LOOKS_MAX {
        if sqlx::query_scalar(holds).bind(role).fetch_one(&mut *tx).await.map_err(read_error)? {
            return Ok(true);
        }
        match try_in_tx(tx, make).await? {
            Tried::Done => return sqlx::query_scalar(holds).bind(role).fetch_one(tx).await.map_err(read_error),
            Tried::Denied => return Ok(false),
            Tried::Raced => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
    Err(StoreError::Unavailable(format!("another session is making {role}, and does not finish: try again")))
}

enum Tried {
    Done,
    /// The login may not.
    Denied,
    /// Another session was there a moment before.
    Raced,
}

/// Inside a savepoint, so that the tx goes on.
async fn try_in_tx(tx: &mut PgConnection, sql: &str) -> Result<Tried, StoreError> {
    let mut savepoint = tx.begin().await.map_err(read_error)?;
    let error = match savepoint.execute(sql).await {
        Ok(_) => return savepoint.commit().await.map(|()| Tried::Done).map_err(read_error),
        Err(error) => error,
    };
    savepoint.rollback().await.map_err(read_error)?;
    match error {
        error if is_denied(&error) => Ok(Tried::Denied),
        error if is_raced(&error) => Ok(Tried::Raced),
        error => Err(read_error(error)),
    }
}

/// The login has no right to do it.
pub(super) fn is_denied(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == DENIED)
}

/// Somebody made the same role, or the same membership, a moment before.
fn is_raced(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    let duplicate = error.code().is_some_and(|code| code == "42710");
    duplicate || matches!(error.constraint(), Some("pg_authid_rolname_index" | "pg_auth_members_role_member_index"))
}
