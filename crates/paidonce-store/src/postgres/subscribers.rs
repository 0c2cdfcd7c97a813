//! Who gets effects.
//!
//! **The writer's view of subscribers.** Writers keep the subscribers in memory and compare `t_log_head.subscribers_version`,
//! read with the head lock, in every batch. So whoever changes `t_subscriber` must, in the same tx, first lock all heads in
//! shard order (`SELECT position FROM t_log_head ORDER BY shard FOR UPDATE`) and add one to `subscribers_version` of all of
//! them. An event is then either at or below the head positions read under that lock (a backfill covers exactly those), or
//! its writer sees the change.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::columns::Columns;
use crate::effect_rules::{STEP_ROWS, check_subscriber, discarded_note};
use crate::postgres::PostgresStore;
use crate::rows::{self, SUBSCRIBER, all, read_error};
use crate::store::{Backfill, Head, StoreError, Subscriber};

/// All subscribers.
pub(crate) async fn list_subscribers(store: &PostgresStore) -> Result<Vec<Subscriber>, StoreError> {
    let sql = format!("SELECT {SUBSCRIBER} FROM t_subscriber ORDER BY name");
    let rows = sqlx::query(&sql).fetch_all(&store.pool).await.map_err(read_error)?;
    all(&rows, rows::subscriber)
}

/// What is known of a subscriber under the head locks.
struct Put {
    heads: Vec<Head>,
    backfill: Backfill,
}

/// Adds or changes one; how many effects the backfill made.
///
/// While the backfill runs nothing is sent to it, so that it hears of the past first. A backfill that was cut short is finished
/// by the next put, whatever that asks for.
pub(crate) async fn put_subscriber(
    store: &PostgresStore,
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
    sqlx::query("UPDATE t_subscriber SET backfilling = false WHERE name = $1")
        .bind(&subscriber.name)
        .execute(&store.pool)
        .await
        .map_err(read_error)?;
    Ok(made)
}

/// There already, unchanged and whole: a node that puts its configured subscribers at every start must not stop the writers.
async fn is_as_wanted(store: &PostgresStore, subscriber: &Subscriber) -> Result<bool, StoreError> {
    let sql = format!("SELECT {SUBSCRIBER} FROM t_subscriber WHERE name = $1 AND NOT backfilling");
    let row = sqlx::query(&sql).bind(&subscriber.name).fetch_optional(&store.pool).await.map_err(read_error)?;
    Ok(row.as_ref().map(rows::subscriber).transpose()?.as_ref() == Some(subscriber))
}

async fn write_row(store: &PostgresStore, subscriber: &Subscriber, backfill: Backfill) -> Result<Put, StoreError> {
    let events = serde_json::to_string(&subscriber.events).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let mut tx = store.pool.begin().await.map_err(read_error)?;
    let heads = lock_heads_in_tx(&mut tx).await?;
    let row = sqlx::query(
        "INSERT INTO t_subscriber AS s (name, events, url, secret_ref, paused, backfilling, created_at)
         VALUES ($1, $2::json, $3, $4, $5, $6, now() + $7 * interval '1 microsecond')
         ON CONFLICT (name) DO UPDATE
         SET events = excluded.events, url = excluded.url, secret_ref = excluded.secret_ref, paused = excluded.paused,
             backfilling = s.backfilling OR excluded.backfilling
         RETURNING backfilling",
    )
    .bind(&subscriber.name)
    .bind(events)
    .bind(&subscriber.url)
    .bind(&subscriber.secret_ref)
    .bind(subscriber.paused)
    .bind(backfill == Backfill::All)
    .bind(store.clock.micros())
    .fetch_one(&mut *tx)
    .await
    .map_err(read_error)?;
    tell_writers_in_tx(&mut tx).await?;
    tx.commit().await.map_err(read_error)?;
    let backfill = if row.flag("backfilling")? { Backfill::All } else { Backfill::No };
    Ok(Put { heads, backfill })
}

/// The heads, locked in shard order like the writers do: no batch is in flight while we hold them.
async fn lock_heads_in_tx(tx: &mut PgConnection) -> Result<Vec<Head>, StoreError> {
    let rows = sqlx::query("SELECT shard, position, hash FROM t_log_head ORDER BY shard FOR UPDATE")
        .fetch_all(tx)
        .await
        .map_err(read_error)?;
    all(&rows, rows::head)
}

async fn tell_writers_in_tx(tx: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("UPDATE t_log_head SET subscribers_version = subscribers_version + 1")
        .execute(tx)
        .await
        .map(|_| ())
        .map_err(read_error)
}

/// Effects for the matching events of a piece of a shard, behind `after` up to `upto`. Reads events_position_key. One that is
/// there already (t_effect_once_key) stays as it is.
async fn backfill_step(
    store: &PostgresStore,
    subscriber: &Subscriber,
    (shard, after, upto): (u16, i64, i64),
) -> Result<u64, StoreError> {
    let rows = sqlx::query(
        "SELECT event_id, event_type FROM events WHERE shard = $1 AND position > $2 AND position <= $3 ORDER BY position",
    )
    .bind(i16::try_from(shard).unwrap_or(i16::MAX))
    .bind(after)
    .bind(upto)
    .fetch_all(&store.pool)
    .await
    .map_err(read_error)?;
    let mut events: Vec<Uuid> = Vec::new();
    for row in &rows {
        if subscriber.wants(&row.text("event_type")?) {
            events.push(row.uuid("event_id")?);
        }
    }
    if events.is_empty() {
        return Ok(0);
    }
    let ids: Vec<Uuid> = events.iter().map(|_| Uuid::now_v7()).collect();
    let done = sqlx::query(
        "INSERT INTO t_effect (effect_id, shard, position, order_no, subscriber, kind, event_id, due_at, created_at)
         SELECT n.effect_id, e.shard, e.position, e.aggregate_id, $6, 'deliver', e.event_id,
                now() + $7 * interval '1 microsecond', now() + $7 * interval '1 microsecond'
         FROM events e JOIN unnest($4::uuid[], $5::uuid[]) AS n (effect_id, event_id) ON n.event_id = e.event_id
         WHERE e.shard = $1 AND e.position > $2 AND e.position <= $3
         ON CONFLICT ON CONSTRAINT t_effect_once_key DO NOTHING",
    )
    .bind(i16::try_from(shard).unwrap_or(i16::MAX))
    .bind(after)
    .bind(upto)
    .bind(ids)
    .bind(events)
    .bind(&subscriber.name)
    .bind(store.clock.micros())
    .execute(&store.pool)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}

/// Removes one and discards its unsent effects, in bounded steps. The row goes first, under the head locks, so that no writer
/// makes another effect; called again, it discards what a crash left.
pub(crate) async fn delete_subscriber(store: &PostgresStore, name: &str) -> Result<(), StoreError> {
    let mut tx = store.pool.begin().await.map_err(read_error)?;
    lock_heads_in_tx(&mut tx).await?;
    let row = sqlx::query("DELETE FROM t_subscriber WHERE name = $1")
        .bind(name)
        .execute(&mut *tx)
        .await
        .map_err(read_error)?;
    tell_writers_in_tx(&mut tx).await?;
    tx.commit().await.map_err(read_error)?;
    let mut discarded = 0_u64;
    loop {
        let step = discard_step(store, name).await?;
        discarded = discarded.saturating_add(step);
        if step == 0 {
            break;
        }
    }
    if row.rows_affected() == 0 && discarded == 0 {
        return Err(StoreError::Invalid(format!("there is no subscriber {name}")));
    }
    Ok(())
}

/// Reads t_effect_due_idx and t_effect_dead_idx.
async fn discard_step(store: &PostgresStore, name: &str) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE t_effect SET state = 'discarded', done_at = now() + $3 * interval '1 microsecond', lease_token = NULL,
                lease_until = NULL, last_error = $4 || coalesce(last_error, '')
         WHERE effect_id IN (
             (SELECT effect_id FROM t_effect WHERE subscriber = $1 AND state IN ('pending', 'leased') LIMIT $2)
             UNION ALL
             (SELECT effect_id FROM t_effect WHERE subscriber = $1 AND state = 'dead' LIMIT $2))",
    )
    .bind(name)
    .bind(STEP_ROWS)
    .bind(store.clock.micros())
    .bind(discarded_note("the removal of the subscriber"))
    .execute(&store.pool)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}
