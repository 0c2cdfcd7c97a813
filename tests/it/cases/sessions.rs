//! The server's sessions at its database, slowed down and watched from outside of the product.
//!
//! On PostgreSQL a slow commit is a COMMIT that is slow: a deferred trigger sleeps in it. A pause of the server itself, before
//! it sends COMMIT, could not be that long: writer sessions let nobody idle in a tx for 3 s.

use std::time::{Duration, Instant};

use paidonce_tests::app::TestApp;
use paidonce_tests::database::Database;
use paidonce_tests::postgres;
use paidonce_tests::signer::fresh_text;

/// Longest wait until a session is seen where it must come.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait until no session idles in a tx. Below the 3 s after which PostgreSQL ends such a session, and so would hide it.
const TX_ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

const IDLE_IN_TX: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
const HELD_IN_COMMIT: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'PgSleep'";
const ENDED_BY_AN_ERROR: &str = "SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()";

/// Holds the commit of the next event of this order, on that server (on PostgreSQL: on whichever writes it).
pub async fn hold_next_commit(app: &TestApp, server: usize, order_no: &str, held: Duration) {
    match &app.database {
        Database::Sqlite(_) => {
            let seconds = u64::try_from(held.as_millis().div_ceil(1000)).unwrap_or(1);
            app.fault_delay(server, "db_commit", seconds, 1).await;
        }
        Database::Postgres(url) => {
            let events = format!("SELECT count(*) FROM events WHERE aggregate_id = '{order_no}'");
            let (name, next) = (format!("hold_{}", fresh_text(12)), app.database.count(&events) + 1);
            postgres::execute(
                url,
                &format!(
                    "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
                         $$ BEGIN PERFORM pg_sleep({} / 1000.0); RETURN NULL; END $$;
                     CREATE CONSTRAINT TRIGGER {name} AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                         WHEN (NEW.aggregate_id = '{order_no}' AND NEW.sequence = {next}) EXECUTE FUNCTION {name}()",
                    held.as_millis()
                ),
            );
        }
    }
}

/// Waits until a commit is held. Errors: none is seen.
pub async fn wait_until_held(app: &TestApp) -> Result<(), String> {
    let is_held = || match &app.database {
        Database::Sqlite(_) => app.database.is_write_locked(),
        Database::Postgres(_) => app.database.count(HELD_IN_COMMIT) > 0,
    };
    let deadline = Instant::now() + SEEN_WITHIN;
    while !is_held() {
        if Instant::now() > deadline {
            return Err("no commit is held".to_owned());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Waits until no session idles in a tx (PostgreSQL). Errors: one still does.
pub async fn wait_until_no_tx_is_left(database: &Database) -> Result<(), String> {
    let Database::Postgres(_) = database else { return Ok(()) };
    let deadline = Instant::now() + TX_ENDS_WITHIN;
    loop {
        match database.count(IDLE_IN_TX) {
            0 => return Ok(()),
            _ if Instant::now() < deadline => tokio::time::sleep(LOOK_AGAIN).await,
            left => return Err(format!("{left} sessions are left idle in a tx")),
        }
    }
}

/// Sessions that PostgreSQL has ended with an error, as it does when a tx idles for too long; `None` if there was none.
pub fn ended_sessions(database: &Database) -> Option<String> {
    let Database::Postgres(_) = database else { return None };
    let ended = database.count(ENDED_BY_AN_ERROR);
    (ended > 0).then(|| format!("{ended} sessions were ended by PostgreSQL, which also ends a tx that idles"))
}

/// The looks see what they look for: a session that idles in a tx, and one that was ended because it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_left_in_a_tx_is_seen() {
    use sqlx::Connection as _;

    let url = postgres::fresh_database();
    let database = Database::Postgres(url.clone());
    assert_eq!(wait_until_no_tx_is_left(&database).await, Ok(()));
    let mut session = sqlx::PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1").execute(&mut session).await.unwrap();
    assert!(wait_until_no_tx_is_left(&database).await.is_err());
    assert_eq!(ended_sessions(&database), None);
    sqlx::raw_sql("SET LOCAL idle_in_transaction_session_timeout = '10ms'").execute(&mut session).await.unwrap();
    let deadline = Instant::now() + SEEN_WITHIN;
    while ended_sessions(&database).is_none() {
        assert!(Instant::now() < deadline, "the end of the session is not counted");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    assert_eq!(wait_until_no_tx_is_left(&database).await, Ok(()));
}
