//! Moves a whole ledger from a SQLite file to PostgreSQL, as it is: shards, positions, hashes, ids and times stay.
//!
//! | step | what | guard |
//! |---|---|---|
//! | source | the file's lock, one read tx | no `serve` writes while we read |
//! | target | migrations; then as the writer's role one tx, all heads locked | refused unless it is empty; nobody writes while we do |
//! | `events` | by shard and position; every link of the hash chain is computed again | a broken chain stops the copy |
//! | other tables | by primary key | rows are counted on both sides |
//! | heads | written last; COMMIT | all or nothing: a copy that was cut short leaves the target empty |
//!
//! Memory: one batch of rows, whatever the size of the ledger.

mod batch;
mod tables;

use std::path::Path;

use futures_util::TryStreamExt;
use sqlx::{Connection, PgConnection, SqliteConnection};

use self::batch::Batch;
use self::tables::{EVENTS, OTHERS, Table};
use crate::backend::LockedHead;
use crate::codec::{evidence_of, metadata_of};
use crate::hash_chain::{GENESIS, link};
use crate::postgres::{migrate as postgres_migrate, service_connection};
use crate::rows::{self, read_error};
use crate::sqlite::source;
use crate::store::{EventRow, Head, StoreError};

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// The table that is being copied.
    pub table: &'static str,
    /// Rows of it that are written.
    pub rows: u64,
    /// Rows that it has.
    pub rows_total: u64,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// Rows by table.
    pub tables: Vec<(&'static str, u64)>,
}

/// Copies the ledger in the SQLite file `source` to the empty PostgreSQL database at `target`; `progress` is called after every
/// batch.
///
/// Guarantees: all or nothing, and the source is only read. Errors: [`StoreError::Unavailable`] when one side can't be used (a
/// server still has the file open), [`StoreError::Invalid`] when there is no ledger or the target is not empty,
/// [`StoreError::Corrupt`] when the source's hash chain is broken.
pub async fn copy_to_postgres(
    source: &Path,
    target: &str,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<CopyReport, StoreError> {
    let (_lock, mut from) = source::open(source).await?;
    postgres_migrate(target).await?;
    let mut to = service_connection(target).await?;
    let mut tx = to.begin().await.map_err(read_error)?;
    require_empty_in_tx(&mut tx).await?;
    let mut report = CopyReport { tables: Vec::new() };
    let mut chain = Chain::default();
    for table in std::iter::once(&EVENTS).chain(OTHERS) {
        let mut check = |row: &sqlx::sqlite::SqliteRow| match table.name {
            "events" => chain.follow(rows::event(row)?),
            _ => Ok(()),
        };
        let rows = copy_table_in_tx(&mut from, &mut tx, table, (&mut check, progress)).await?;
        report.tables.push((table.name, rows));
    }
    let heads = source::heads(&mut from).await?;
    chain.check_heads(&heads)?;
    write_heads_in_tx(&mut tx, &heads).await?;
    tx.commit().await.map_err(read_error)?;
    to.close().await.map_err(read_error)?;
    Ok(report)
}

/// Called for every row, and after every batch.
type Watch<'a> = (
    &'a mut (dyn FnMut(&sqlx::sqlite::SqliteRow) -> Result<(), StoreError> + Send),
    &'a (dyn Fn(CopyProgress) + Send + Sync),
);

async fn copy_table_in_tx(
    from: &mut SqliteConnection,
    tx: &mut PgConnection,
    table: &'static Table,
    (check, progress): Watch<'_>,
) -> Result<u64, StoreError> {
    let rows_total = source::count(from, table.name).await?;
    let select = table.select();
    let mut stream = sqlx::query(&select).fetch(from);
    let (mut batch, mut rows) = (Batch::new(table), 0_u64);
    let mut is_over = false;
    while !is_over {
        match stream.try_next().await.map_err(read_error)? {
            Some(row) => {
                check(&row)?;
                batch.push(&row)?;
            }
            None => is_over = true,
        }
        if batch.is_full() || (is_over && !batch.is_empty()) {
            rows = rows.saturating_add(batch.write_in_tx(tx).await?);
            progress(CopyProgress { table: table.name, rows, rows_total });
            batch = Batch::new(table);
        }
    }
    if rows != rows_total {
        return Err(StoreError::Corrupt(format!("{}: {rows_total} rows were to be copied, {rows} were", table.name)));
    }
    Ok(rows)
}

/// Locks all heads, so that no writer comes between, and looks for anything in the way.
async fn require_empty_in_tx(tx: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT shard FROM t_log_head ORDER BY shard FOR UPDATE")
        .fetch_all(&mut *tx)
        .await
        .map_err(read_error)?;
    for table in std::iter::once(&EVENTS).chain(OTHERS) {
        let sql = format!("SELECT EXISTS (SELECT FROM {})", table.name);
        let is_used: bool = sqlx::query_scalar(&sql).fetch_one(&mut *tx).await.map_err(read_error)?;
        if is_used {
            return Err(StoreError::Invalid(format!(
                "the target is not empty ({} has rows): a ledger is copied into a new database only",
                table.name
            )));
        }
    }
    Ok(())
}

async fn write_heads_in_tx(tx: &mut PgConnection, heads: &[LockedHead]) -> Result<(), StoreError> {
    for head in heads {
        sqlx::query(
            "UPDATE t_log_head SET position = $2, hash = $3, recorded_at = $4, subscribers_version = $5 WHERE shard = $1",
        )
        .bind(i16::try_from(head.shard).unwrap_or(i16::MAX))
        .bind(head.position)
        .bind(head.hash.0.to_vec())
        .bind(head.recorded_at.to_datetime())
        .bind(head.subscribers_version)
        .execute(&mut *tx)
        .await
        .map_err(read_error)?;
    }
    Ok(())
}

/// Follows the hash chains of all shards, event by event.
#[derive(Default)]
struct Chain {
    /// The last event of each shard so far, by shard.
    ends: Vec<Head>,
}

impl Chain {
    /// The next event of its shard. Errors: [`StoreError::Corrupt`].
    fn follow(&mut self, event: EventRow) -> Result<(), StoreError> {
        let (position, hash) = match self.ends.last() {
            Some(end) if end.shard == event.shard => (end.position.saturating_add(1), end.hash),
            Some(_) | None => (1, GENESIS),
        };
        let broken =
            |why: &str| Err(StoreError::Corrupt(format!("event {} of shard {}: {why}", event.position, event.shard)));
        if event.position != position {
            return broken(&format!("event {position} is missing before it"));
        }
        let Ok(metadata) = metadata_of(&event) else { return broken("its metadata is unreadable") };
        if link(&hash, &event, evidence_of(&metadata).as_ref()) != event.hash {
            return broken("its hash does not follow from its content and the event before");
        }
        let end = Head { shard: event.shard, position: event.position, hash: event.hash };
        match self.ends.last_mut() {
            Some(last) if last.shard == end.shard => *last = end,
            Some(_) | None => self.ends.push(end),
        }
        Ok(())
    }

    /// Every head is where its chain ends. Errors: [`StoreError::Corrupt`].
    fn check_heads(&self, heads: &[LockedHead]) -> Result<(), StoreError> {
        for head in heads {
            let end = self.ends.iter().find(|end| end.shard == head.shard);
            let (position, hash) = end.map_or((0, GENESIS), |end| (end.position, end.hash));
            if (position, hash) != (head.position, head.hash) {
                return Err(StoreError::Corrupt(format!(
                    "shard {} ends at event {}, but its head says {}",
                    head.shard, position, head.position
                )));
            }
        }
        Ok(())
    }
}
