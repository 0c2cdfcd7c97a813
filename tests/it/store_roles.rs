//! Least privilege on PostgreSQL (promise P8): the log can't be changed with the service's rights, triggers or not; and every
//! right is one that somebody decided on.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use paidonce_store::postgres::{APPEND_ONLY, GRANTS, READER, WRITER, migrate};
use paidonce_store::rights::{AppendOnly, SessionRights};
use paidonce_store::store::Store;
use paidonce_store::{Migrations, Outcome, PostgresStore, StoreError, StoreOptions};
use paidonce_tests::ledger::{Ledger, Place, open_work};
use paidonce_tests::postgres::{self, Cluster};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection, Row};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// SQLSTATE insufficient_privilege: the role is what refuses. A trigger of ours would say 23000.
const DENIED: &str = "42501";

/// A connection with the rights of a role, made as the service makes its own.
async fn session(url: &str, role: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).unwrap().options([("role", role)]);
    options.disable_statement_logging().connect().await.expect("connect")
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), String> {
    match sqlx::raw_sql(sql).execute(connection).await {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) => Err(error.code().unwrap_or_default().into_owned()),
        Err(other) => panic!("{sql}: {other}"),
    }
}

async fn migrated() -> String {
    tokio::task::spawn_blocking(postgres::migrated_database).await.unwrap()
}

/// Every way to change rows of an append-only table.
fn changes() -> Vec<String> {
    let column = |table: &str| if table == "t_seal" { "body" } else { "shard" };
    let of = |table: &&str| {
        let column = column(table);
        [
            format!("UPDATE {table} SET {column} = {column}"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("INSERT INTO {table} SELECT * FROM {table} ON CONFLICT DO UPDATE SET {column} = excluded.{column}"),
        ]
    };
    let all = APPEND_ONLY.iter().flat_map(of);
    // ON CONFLICT DO UPDATE wants to know which conflict.
    let keys = [
        ("events", "(shard, position)"),
        ("t_order_flow", "(idem_key)"),
        ("t_evidence", "(shard, digest)"),
        ("t_seal", "(seal_no)"),
    ];
    all.map(|sql| {
        let key = keys.iter().find(|(table, _)| sql.contains(&format!("INTO {table} "))).map_or("", |(_, key)| key);
        sql.replace("ON CONFLICT", &format!("ON CONFLICT {key}"))
    })
    .collect()
}

/// P8: with all triggers gone, the role still refuses what the owner now may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_trigger_the_writers_role_still_refuses_every_change_of_the_log() {
    let ledger = Ledger::postgres().await;
    ledger.pay("A").await;
    let Place::Postgres(url) = &ledger.place else { unreachable!("it is PostgreSQL") };
    for table in APPEND_ONLY {
        ledger.try_execute(&format!("DROP TRIGGER {table}_append_only ON {table}")).await.expect("as the owner");
    }
    let (mut writer, mut reader) = (session(url, WRITER).await, session(url, READER).await);
    for sql in changes() {
        assert_eq!(run(&mut writer, &sql).await, Err(DENIED.to_owned()), "{sql}");
        assert_eq!(run(&mut reader, &sql).await, Err(DENIED.to_owned()), "{sql}");
        let by_owner = postgres::try_execute(url, &format!("BEGIN; {sql}; ROLLBACK"));
        by_owner.unwrap_or_else(|error| panic!("the control: only the role refused {sql}, but {error}"));
    }
    ledger.pay("B").await;
}

/// P8: the writer can't switch the triggers off, nor take anything away, nor make something of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writers_role_may_not_touch_the_schema() {
    let url = migrated().await;
    let mut writer = session(&url, WRITER).await;
    let mut forbidden = vec![
        "DROP FUNCTION paidonce_append_only() CASCADE".to_owned(),
        "CREATE OR REPLACE FUNCTION paidonce_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
            .to_owned(),
        "SET session_replication_role = replica".to_owned(),
        "CREATE TABLE mine (n bigint)".to_owned(),
        "UPDATE t_migration SET checksum = checksum".to_owned(),
        "DELETE FROM t_log_head".to_owned(),
        "DELETE FROM t_order".to_owned(),
        "DELETE FROM t_item".to_owned(),
        "UPDATE t_idempotent SET order_no = order_no".to_owned(),
        "DELETE FROM t_idempotent".to_owned(),
    ];
    for table in APPEND_ONLY {
        forbidden.push(format!("ALTER TABLE {table} DISABLE TRIGGER {table}_append_only"));
        forbidden.push(format!("ALTER TABLE {table} DISABLE TRIGGER ALL"));
        forbidden.push(format!("DROP TRIGGER {table}_append_only ON {table}"));
        forbidden.push(format!("CREATE TRIGGER mine BEFORE INSERT ON {table} EXECUTE FUNCTION paidonce_append_only()"));
        forbidden.push(format!("ALTER TABLE {table} ADD COLUMN mine bigint"));
        forbidden.push(format!("ALTER TABLE {table} OWNER TO {WRITER}"));
        forbidden.push(format!("DROP TABLE {table}"));
    }
    for sql in forbidden {
        assert_eq!(run(&mut writer, &sql).await, Err(DENIED.to_owned()), "{sql}");
    }
}

/// P8 for finance: everything can be read, nothing written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readers_role_reads_every_table_and_writes_none() {
    let url = migrated().await;
    let mut reader = session(&url, READER).await;
    for table in tables(&url) {
        assert_eq!(run(&mut reader, &format!("SELECT * FROM {table}")).await, Ok(()), "{table}");
        for sql in
            [format!("INSERT INTO {table} DEFAULT VALUES"), format!("DELETE FROM {table}"), format!("TRUNCATE {table}")]
        {
            assert_eq!(run(&mut reader, &sql).await, Err(DENIED.to_owned()), "{sql}");
        }
    }
    assert_eq!(run(&mut reader, "UPDATE t_order SET status = status").await, Err(DENIED.to_owned()));
    assert_eq!(run(&mut reader, "SELECT shard FROM t_log_head FOR UPDATE").await, Err(DENIED.to_owned()));
    assert_eq!(run(&mut reader, "CREATE TABLE mine (n bigint)").await, Err(DENIED.to_owned()));
}

/// What the catalog says: `table role RIGHT` for everybody but the owner, of tables, single columns and sequences.
fn granted(url: &str) -> BTreeSet<String> {
    let sql = "
        SELECT concat_ws(' ', c.relname, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, a.privilege_type)
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND a.grantee <> c.relowner
        UNION ALL
        SELECT concat_ws(' ', c.relname || '.' || t.attname, a.grantee, a.privilege_type)
          FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
         WHERE c.relnamespace = 'public'::regnamespace";
    postgres::query(url, sql).iter().map(|row| row.get(0)).collect()
}

fn tables(url: &str) -> BTreeSet<String> {
    let sql = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')";
    postgres::query(url, sql).iter().map(|row| row.get(0)).collect()
}

fn decided() -> BTreeSet<String> {
    let of = |table: &str, role: &str, rights: &[&str]| -> Vec<String> {
        rights.iter().map(|right| format!("{table} {role} {right}")).collect()
    };
    let both = |g: &paidonce_store::postgres::TableGrants| {
        [of(g.table, WRITER, g.writer), of(g.table, READER, g.reader)].concat()
    };
    GRANTS.iter().flat_map(both).collect()
}

/// A new table fails this until somebody has decided who may do what with it.
#[test]
fn every_table_has_a_decision_and_the_catalog_says_exactly_that() {
    let url = postgres::migrated_database();
    assert_eq!(
        tables(&url),
        GRANTS.iter().map(|grants| grants.table.to_owned()).collect(),
        "tables without a decision"
    );
    assert_eq!(granted(&url), decided());
    let sql = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgfoid = 'paidonce_append_only'::regproc";
    let triggers: BTreeSet<String> = postgres::query(&url, sql).iter().map(|row| row.get(0)).collect();
    assert_eq!(triggers, APPEND_ONLY.iter().map(|table| (*table).to_owned()).collect(), "triggers and roles agree");
}

/// Whatever was granted in between, a migration brings back what was decided; and until then the ledger says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_somebody_added_are_noticed_and_taken_back() {
    let url = migrated().await;
    for added in [
        "GRANT UPDATE (payload) ON events TO paidonce_writer",
        "GRANT DELETE ON t_evidence TO PUBLIC",
        "GRANT TRUNCATE ON t_order_flow TO paidonce_writer WITH GRANT OPTION",
    ] {
        assert_eq!(rights(&url).await.append_only, AppendOnly::RoleAndTriggers);
        postgres::execute(&url, added);
        assert!(rights(&url).await.is_too_much(), "{added}");
        postgres::execute(&url, "GRANT INSERT ON t_order TO paidonce_reader; GRANT CREATE ON SCHEMA public TO PUBLIC");
        assert!(migrate(&url).await.expect("migrate").roles.granted);
        assert_eq!(granted(&url), decided(), "{added}");
        assert_eq!(run(&mut session(&url, READER).await, "CREATE TABLE mine ()").await, Err(DENIED.to_owned()));
    }
}

async fn rights(url: &str) -> SessionRights {
    let store = open(url, Migrations::Require).await.expect("open");
    let rights = store.session_rights().expect("PostgreSQL has roles").clone();
    store.shutdown().await;
    rights
}

async fn open(url: &str, migrations: Migrations) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(url, StoreOptions { migrations, ..StoreOptions::default() }).await
}

/// No silent fallback: a right that is missing is named, with what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writers_role_without_its_rights_is_refused_with_the_reason() {
    let url = migrated().await;
    postgres::execute(&url, "REVOKE INSERT ON t_effect FROM paidonce_writer");
    let Err(StoreError::Invalid(reason)) = open(&url, Migrations::Require).await else { panic!("it must be refused") };
    assert!(reason.contains("INSERT on t_effect") && reason.contains("paidonce migrate"), "{reason}");
    open(&url, Migrations::Apply).await.expect("applying gives the rights again").shutdown().await;
}

/// Something that stands between and drops the start-up options of connections: the role would be lost with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_drops_the_role_is_noticed_and_refused() {
    let url = migrated().await;
    let target = PgConnectOptions::from_str(&url).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pooler = listener.local_addr().unwrap();
    let server = format!("{}:{}", target.get_host(), target.get_port());
    let task = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut upstream = tokio::net::TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move {
                let start = without_options(&mut client).await;
                upstream.write_all(&start).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
            });
        }
    });
    let database = target.get_database().unwrap();
    let through = format!("postgres://{}@{pooler}/{database}?sslmode=disable", target.get_username());
    let Err(StoreError::Invalid(reason)) = open(&through, Migrations::Require).await else {
        panic!("it must be refused")
    };
    assert!(reason.contains("start-up options") && reason.contains(WRITER), "{reason}");
    task.abort();
}

/// Reads the start-up message (length, version, then names and values, each ended by a zero) and leaves one parameter out.
async fn without_options(client: &mut tokio::net::TcpStream) -> Vec<u8> {
    let length = client.read_u32().await.unwrap();
    let mut message = vec![0; usize::try_from(length).unwrap() - 4];
    client.read_exact(&mut message).await.unwrap();
    let (version, parameters) = message.split_at(4);
    let words: Vec<&[u8]> = parameters.split(|byte| *byte == 0).collect();
    let mut kept = version.to_vec();
    for pair in words.chunks(2).filter(|pair| pair.len() == 2 && !pair[0].is_empty() && pair[0] != b"options") {
        kept.extend([pair[0], b"\0", pair[1], b"\0"].concat());
    }
    kept.push(0);
    let length = u32::try_from(kept.len() + 4).unwrap();
    [length.to_be_bytes().to_vec(), kept].concat()
}

/// The URL of the same database for another login of a cluster that trusts everybody.
fn as_login(url: &str, login: &str) -> String {
    url.replacen("://postgres@", &format!("://{login}@"), 1)
}

async fn own_cluster() -> Arc<Cluster> {
    Arc::new(tokio::task::spawn_blocking(Cluster::start).await.unwrap())
}

/// Roles are of the cluster, locks are of a database: who comes second finds the role there, and both ledgers are whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledgers_of_one_cluster_may_make_the_roles_at_the_same_moment() {
    let cluster = own_cluster().await;
    postgres::execute(&cluster.url("postgres"), "CREATE ROLE keeper LOGIN CREATEROLE");
    let urls: Vec<String> = (0..6)
        .map(|_| {
            let url = cluster.fresh_database();
            let name = url.rsplit('/').next().unwrap().to_owned();
            postgres::execute(&cluster.url("postgres"), &format!("ALTER DATABASE {name} OWNER TO keeper"));
            as_login(&url, "keeper")
        })
        .collect();
    let runs = urls.iter().flat_map(|url| [migrate(url), migrate(url)]);
    for run in futures_util::future::join_all(runs).await {
        let roles = run.expect("migrate").roles;
        assert!(roles.granted && roles.member && roles.by_hand.is_empty(), "{roles:?}");
        assert_eq!((roles.login.as_str(), roles.owner.as_str()), ("keeper", "keeper"));
    }
    for url in &urls {
        assert_eq!(granted(url), decided());
        let rights = rights(url).await;
        assert_eq!((rights.role.as_str(), &rights.append_only), (WRITER, &AppendOnly::RoleAndTriggers));
    }
}

/// The owner migrates, a login of the service serves: it needs the membership and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_of_its_own_serves_as_the_writer_and_a_stranger_is_refused() {
    let cluster = own_cluster().await;
    let url = cluster.migrated_database();
    let sql = format!(
        "CREATE ROLE shop LOGIN IN ROLE {WRITER}; CREATE ROLE plain LOGIN NOINHERIT IN ROLE {WRITER}; CREATE ROLE stranger LOGIN;
         CREATE ROLE by_hand LOGIN; CREATE ROLE clerk LOGIN IN ROLE {READER};"
    );
    postgres::execute(&url, &sql);
    for grants in GRANTS {
        postgres::execute(&url, &format!("GRANT {} ON {} TO by_hand", grants.writer.join(", "), grants.table));
    }
    for (login, role) in [("shop", WRITER), ("plain", WRITER), ("by_hand", "by_hand")] {
        // Also when told to migrate, as `serve --migrate` does on every node: nothing is missing.
        let migrations = if login == "shop" { Migrations::Apply } else { Migrations::Require };
        let store = open(&as_login(&url, login), migrations).await.unwrap_or_else(|error| panic!("{login}: {error}"));
        let rights = store.session_rights().unwrap().clone();
        let expected =
            SessionRights { login: login.to_owned(), role: role.to_owned(), append_only: AppendOnly::RoleAndTriggers };
        assert_eq!(rights, expected);
        let outcome = store.submit(open_work(&login.to_uppercase())).await.expect("submit");
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        store.shutdown().await;
    }
    for login in ["stranger", "clerk"] {
        let refused = open(&as_login(&url, login), Migrations::Require).await;
        let Err(StoreError::Invalid(reason)) = refused else { panic!("{login} must be refused") };
        assert!(reason.contains(&format!("GRANT {WRITER} TO {login}")), "{reason}");
    }
    let fresh = cluster.fresh_database();
    let Err(StoreError::Invalid(reason)) = migrate(&as_login(&fresh, "stranger")).await else { panic!("no right") };
    assert!(reason.contains("owner of the tables"), "{reason}");
}

/// With the writer's role "$user" names another schema: the tables are found where the login has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_in_a_schema_of_its_own_is_found_with_the_writers_role() {
    let cluster = own_cluster().await;
    let sql = r#"CREATE ROLE keeper LOGIN CREATEROLE; ALTER ROLE keeper SET search_path = "$user", "the ledger's \ tables", public;"#;
    let url = cluster.fresh_database();
    postgres::execute(&url, sql);
    for schema in ["keeper", r"the ledger's \ tables"] {
        let url = cluster.fresh_database();
        postgres::execute(&url, &format!(r#"CREATE SCHEMA "{schema}" AUTHORIZATION keeper"#));
        let url = as_login(&url, "keeper");
        let store = open(&url, Migrations::Apply).await.expect("open");
        assert_eq!(store.session_rights().unwrap().role, WRITER);
        let outcome = store.submit(open_work("A")).await.expect("submit");
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        store.shutdown().await;
        assert_eq!(postgres::count(&url, &format!(r#"SELECT count(*) FROM "{schema}".events"#)), 1);
    }
}
