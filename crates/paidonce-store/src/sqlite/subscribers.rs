//! Who gets effects.
//!
//! **The writer's view of subscribers.** Writers keep the subscribers in memory and compare `t_log_head.subscribers_version`,
//! read with the head lock, in every batch. So whoever changes `t_subscriber` must, in the same tx, first lock all heads in
//! shard order (`SELECT position FROM t_log_head ORDER BY shard FOR UPDATE`) and add one to `subscribers_version` of all of
//! them. An event is then either at or below the head positions read under that lock (a backfill covers exactly those), or
//! its writer sees the change.

use sqlx::{Connection, SqliteConnection};
use uuid::Uuid;

use crate::columns::Columns;
use crate::effect_rules::{STEP_ROWS, check_subscriber, discarded_note};
use crate::rows::{self, SUBSCRIBER, all, read_error};
use crate::sqlite::SqliteStore;
use crate::sqlite::now::now;
use crate::store::{Backfill, Head, StoreError, Subscriber};

/// All subscribers.
pub(crate) async fn list_subscribers(store: &SqliteStore) -> Result<Vec<Subscriber>, StoreError> {
    let sql = format!("SELECT {SUBSCRIBER} FROM t_subscriber ORDER BY name");
    let rows = sqlx::query(&sql).fetch_all(&store.read).await.map_err(read_error)?;
    all(&rows, rows::subscriber)
}

/// What is known of a subscriber when its row is written.
struct Put {
    heads: Vec<Head>,
    backfill: Backfill,
}

/// Adds or changes one; how many effects the backfill made.
///
/// While the backfill runs nothing is sent to it, so that it hears of the past first. A backfill that was cut short is finished
/// by the next put, whatever that asks for.
pub(crate) async fn put_subscriber(
    store: &SqliteStore,
    subscriber: &Subscriber,
    backfill: Backfill,
) -> Result<u64, StoreError> {
    check_subscriber(subscriber)?;
    if backfill == Backfill::No && is_as_wanted(store, subscriber).await? {
        return Ok(0);
    }
    let put = write_row(store, subscriber, backfill).await?;
    if put.backfill == Backfill::No {
        return Ok(0);
    }
    let mut made = 0_u64;
    for head in &put.heads {
        let mut after = 0;
        while after < head.position {
            let upto = after.saturating_add(STEP_ROWS).min(head.position);
            made = made.saturating_add(backfill_step(store, subscriber, (head.shard, after, upto)).await?);
            after = upto;
        }
    }
    let mut connection = store.write.lock().await;
    sqlx::query("UPDATE t_subscriber SET backfilling = 0 WHERE name = $1")
        .bind(&subscriber.name)
        .execute(&mut *connection)
        .await
        .map_err(read_error)?;
    Ok(made)
}

/// There already, unchanged and whole.
async fn is_as_wanted(store: &SqliteStore, subscriber: &Subscriber) -> Result<bool, StoreError> {
    let sql = format!("SELECT {SUBSCRIBER} FROM t_subscriber WHERE name = $1 AND backfilling = 0");
    let row = sqlx::query(&sql).bind(&subscriber.name).fetch_optional(&store.read).await.map_err(read_error)?;
    Ok(row.as_ref().map(rows::subscriber).transpose()?.as_ref() == Some(subscriber))
}

async fn write_row(store: &SqliteStore, subscriber: &Subscriber, backfill: Backfill) -> Result<Put, StoreError> {
    let events = serde_json::to_string(&subscriber.events).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut connection = store.write.lock().await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
    let now = now(&mut tx, &store.clock).await?;
    let row = sqlx::query(
        "INSERT INTO t_subscriber (name, events, url, secret_ref, paused, backfilling, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (name) DO UPDATE
         SET events = excluded.events, url = excluded.url, secret_ref = excluded.secret_ref, paused = excluded.paused,
             backfilling = max(backfilling, excluded.backfilling)
         RETURNING backfilling",
    )
    .bind(&subscriber.name)
    .bind(events)
    .bind(&subscriber.url)
    .bind(&subscriber.secret_ref)
    .bind(subscriber.paused)
    .bind(backfill == Backfill::All)
    .bind(now.as_micros())
    .fetch_one(&mut *tx)
    .await
    .map_err(read_error)?;
    let heads = tell_writer_in_tx(&mut tx).await?;
    tx.commit().await.map_err(read_error)?;
    let backfill = if row.flag("backfilling")? { Backfill::All } else { Backfill::No };
    Ok(Put { heads, backfill })
}

/// Tells the writer that subscribers changed; gives the heads, which can't move before this tx ends.
async fn tell_writer_in_tx(tx: &mut SqliteConnection) -> Result<Vec<Head>, StoreError> {
    sqlx::query("UPDATE t_log_head SET subscribers_version = subscribers_version + 1")
        .execute(&mut *tx)
        .await
        .map_err(read_error)?;
    let rows = sqlx::query("SELECT shard, position, hash FROM t_log_head ORDER BY shard")
        .fetch_all(tx)
        .await
        .map_err(read_error)?;
    all(&rows, rows::head)
}

/// Effects for the matching events of a piece of a shard, behind `after` up to `upto`. Reads events_position_key. One that is
/// there already (t_effect_once_key) stays as it is. The writer gets its turn between two steps.
async fn backfill_step(
    store: &SqliteStore,
    subscriber: &Subscriber,
    (shard, after, upto): (u16, i64, i64),
) -> Result<u64, StoreError> {
    let rows = sqlx::query(
        "SELECT position, event_type FROM events WHERE shard = $1 AND position > $2 AND position <= $3 ORDER BY position",
    )
    .bind(i64::from(shard))
    .bind(after)
    .bind(upto)
    .fetch_all(&store.read)
    .await
    .map_err(read_error)?;
    let mut wanted = Vec::new();
    for row in &rows {
        if subscriber.wants(&row.text("event_type")?) {
            wanted.push(serde_json::json!([row.integer("position")?, Uuid::now_v7().simple().to_string()]));
        }
    }
    if wanted.is_empty() {
        return Ok(0);
    }
    let mut connection = store.write.lock().await;
    let now = now(&mut connection, &store.clock).await?;
    let done = sqlx::query(
        "INSERT INTO t_effect (effect_id, shard, position, order_no, subscriber, kind, event_id, due_at, created_at)
         SELECT unhex(n.value ->> 1), e.shard, e.position, e.aggregate_id, $3, 'deliver', e.event_id, $4, $4
         FROM json_each($2) n JOIN events e ON e.shard = $1 AND e.position = n.value ->> 0
         WHERE TRUE
         ON CONFLICT (event_id, subscriber, kind) DO NOTHING",
    )
    .bind(i64::from(shard))
    .bind(serde_json::Value::Array(wanted).to_string())
    .bind(&subscriber.name)
    .bind(now.as_micros())
    .execute(&mut *connection)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}

/// Removes one and discards its unsent effects, in bounded steps. The row goes first, so that the writer makes no other effect;
/// called again, it discards what a crash left.
pub(crate) async fn delete_subscriber(store: &SqliteStore, name: &str) -> Result<(), StoreError> {
    let removed = {
        let mut connection = store.write.lock().await;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
        let done = sqlx::query("DELETE FROM t_subscriber WHERE name = $1")
            .bind(name)
            .execute(&mut *tx)
            .await
            .map_err(read_error)?;
        tell_writer_in_tx(&mut tx).await?;
        tx.commit().await.map_err(read_error)?;
        done.rows_affected()
    };
    let mut discarded = 0_u64;
    loop {
        let step = discard_step(store, name).await?;
        discarded = discarded.saturating_add(step);
        if step == 0 {
            break;
        }
    }
    if removed == 0 && discarded == 0 {
        return Err(StoreError::Invalid(format!("there is no subscriber {name}")));
    }
    Ok(())
}

/// Reads t_effect_due_idx and t_effect_dead_idx.
async fn discard_step(store: &SqliteStore, name: &str) -> Result<u64, StoreError> {
    let mut connection = store.write.lock().await;
    let now = now(&mut connection, &store.clock).await?;
    let done = sqlx::query(
        "UPDATE t_effect SET state = 'discarded', done_at = $3, lease_token = NULL, lease_until = NULL,
                last_error = $4 || coalesce(last_error, '')
         WHERE effect_id IN (
             SELECT * FROM (SELECT effect_id FROM t_effect WHERE subscriber = $1 AND state IN ('pending', 'leased') LIMIT $2)
             UNION ALL
             SELECT * FROM (SELECT effect_id FROM t_effect WHERE subscriber = $1 AND state = 'dead' LIMIT $2))",
    )
    .bind(name)
    .bind(STEP_ROWS)
    .bind(now.as_micros())
    .bind(discarded_note("the removal of the subscriber"))
    .execute(&mut *connection)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}
