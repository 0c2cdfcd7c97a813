//! Claiming and completing effects, in short txs on the one write connection. The rules are those of
//! [`crate::postgres`]'s `effects`: only lane heads, a DEAD head blocks, what stands behind is put off, whoever finishes a head
//! makes the next one due.
//!
//! | step | statements | reads |
//! |---|---|---|
//! | claim | ready subscribers, and kinds of calls; for each its due rows with their heads; per row a lease or a later look | t_subscriber, t_effect_due_idx, t_effect_call_due_idx, t_effect_lane_idx |
//! | complete | state of the row while the token holds; next of the lane made due | t_effect_pkey, t_effect_lane_idx |

use paidonce_order::timestamp::Timestamp;
use sqlx::{Connection, SqliteConnection};
use uuid::Uuid;

use crate::columns::Columns;
use crate::effect_rules::{
    CLAIM_LIMIT_MAX, CLAIM_ROUNDS_MAX, DELIVER, discarded_note, fair_turns, look_again_at, requeued_note, wait_ms,
};
use crate::rows::{self, EFFECT, EVENT, all, read_error};
use crate::search;
use crate::sqlite::SqliteStore;
use crate::sqlite::now::now;
use crate::store::{ClaimedEffect, EffectRow, StoreError, TryResult};

/// Whose deliveries may be claimed.
const READY: &str = "SELECT name AS subscriber FROM t_subscriber WHERE paused = 0 AND backfilling = 0";

/// One after the other, so that the backlog of one never stands before the others.
enum Queue {
    /// Deliveries to one subscriber. Reads t_effect_due_idx.
    Deliveries(String),
    /// Channel calls of one kind, whatever their lanes. Reads t_effect_call_due_idx.
    Calls(String),
}

impl Queue {
    fn name(&self) -> &str {
        match self {
            Self::Deliveries(subscriber) => subscriber,
            Self::Calls(kind) => kind,
        }
    }

    /// What a row of it has; `$1` is its name.
    const fn condition(&self) -> &'static str {
        match self {
            Self::Deliveries(_) => "t.subscriber = $1 AND t.kind = 'deliver'",
            Self::Calls(_) => "t.kind = $1 AND t.kind <> 'deliver'",
        }
    }
}

async fn queues(connection: &mut SqliteConnection, kinds: &[&str]) -> Result<Vec<Queue>, StoreError> {
    let calls = kinds.iter().filter(|kind| **kind != DELIVER).map(|kind| Queue::Calls((*kind).to_owned()));
    let mut queues: Vec<Queue> = calls.collect();
    if kinds.contains(&DELIVER) {
        let ready = sqlx::query(READY).fetch_all(connection).await.map_err(read_error)?;
        queues.extend(all(&ready, |row| row.text("subscriber"))?.into_iter().map(Queue::Deliveries));
    }
    Ok(queues)
}

/// Due rows of one queue and the heads of their lanes. Places: name of the queue, now, limit.
fn due_sql(queue: &Queue) -> String {
    let condition = queue.condition();
    format!(
        "SELECT d.effect_id, d.due_at, h.state AS head_state, h.due_at AS head_due_at
    FROM (SELECT t.effect_id, t.order_no, t.subscriber, t.position, t.due_at FROM t_effect t
          WHERE {condition} AND t.state IN ('pending', 'leased') AND t.due_at <= $2
          ORDER BY t.due_at LIMIT $3) d
    LEFT JOIN t_effect h ON h.effect_id = (
        SELECT t.effect_id FROM t_effect t
        WHERE t.order_no = d.order_no AND t.subscriber = d.subscriber
          AND (t.position, t.effect_id) < (d.position, d.effect_id) AND t.state IN ('pending', 'leased', 'dead')
        ORDER BY t.position, t.effect_id LIMIT 1)
    ORDER BY d.due_at"
    )
}

/// A due row: free, or behind the head of its lane.
struct Due {
    effect_id: Uuid,
    due_at: Timestamp,
    head: Option<(String, Timestamp)>,
}

/// What a claim asks for.
struct Claim<'a> {
    kinds: &'a [&'a str],
    lease_ms: i64,
    limit: i64,
    now: Timestamp,
}

/// Claims due lane heads.
pub(crate) async fn claim_effects(
    store: &SqliteStore,
    kinds: &[&str],
    lease_ms: i64,
    limit: u32,
) -> Result<Vec<ClaimedEffect>, StoreError> {
    for _ in 0..CLAIM_ROUNDS_MAX {
        let mut connection = store.write.lock().await;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
        let now = now(&mut tx, &store.clock).await?;
        let limit = i64::from(limit.min(CLAIM_LIMIT_MAX));
        let claim = Claim { kinds, lease_ms, limit, now };
        let (claimed, put_off) = claim_in_tx(&mut tx, &claim).await?;
        tx.commit().await.map_err(read_error)?;
        if !claimed.is_empty() || put_off == 0 {
            return Ok(claimed);
        }
    }
    Ok(Vec::new())
}

/// One round; gives also how many blocked rows were put off.
async fn claim_in_tx(tx: &mut SqliteConnection, claim: &Claim<'_>) -> Result<(Vec<ClaimedEffect>, u64), StoreError> {
    let queues = queues(tx, claim.kinds).await?;
    let (mut free, mut put_off) = (Vec::new(), 0_u64);
    for queue in queues {
        let mut own = Vec::new();
        for due in due_in_tx(tx, &queue, claim).await? {
            match due.head {
                None => own.push((due.due_at, due.effect_id)),
                Some((state, head_due_at)) => {
                    put_off_in_tx(tx, due.effect_id, look_again_at(&state, head_due_at, claim.now)).await?;
                    put_off = put_off.saturating_add(1);
                }
            }
        }
        free.push(own);
    }
    let mut claimed = Vec::new();
    for effect_id in fair_turns(free, usize::try_from(claim.limit).unwrap_or(0)) {
        claimed.push(lease_in_tx(tx, effect_id, claim).await?);
    }
    claimed.sort_by_key(|claimed| (claimed.event.shard, claimed.event.position));
    Ok((claimed, put_off))
}

async fn due_in_tx(tx: &mut SqliteConnection, queue: &Queue, claim: &Claim<'_>) -> Result<Vec<Due>, StoreError> {
    let rows = sqlx::query(&due_sql(queue))
        .bind(queue.name())
        .bind(claim.now.as_micros())
        .bind(claim.limit)
        .fetch_all(tx)
        .await
        .map_err(read_error)?;
    all(&rows, |row| {
        let head = match row.maybe_text("head_state")? {
            Some(state) => Some((state, row.time("head_due_at")?)),
            None => None,
        };
        Ok(Due { effect_id: row.uuid("effect_id")?, due_at: row.time("due_at")?, head })
    })
}

async fn put_off_in_tx(tx: &mut SqliteConnection, effect_id: Uuid, until: Timestamp) -> Result<(), StoreError> {
    sqlx::query("UPDATE t_effect SET due_at = $2 WHERE effect_id = $1 AND state = 'pending'")
        .bind(effect_id)
        .bind(until.as_micros())
        .execute(tx)
        .await
        .map(|_| ())
        .map_err(read_error)
}

async fn lease_in_tx(
    tx: &mut SqliteConnection,
    effect_id: Uuid,
    claim: &Claim<'_>,
) -> Result<ClaimedEffect, StoreError> {
    let until = claim.now.plus_micros(claim.lease_ms.saturating_mul(1_000));
    sqlx::query(
        "UPDATE t_effect SET state = 'leased', attempts = attempts + 1, lease_token = $2, lease_until = $3, due_at = $3
         WHERE effect_id = $1",
    )
    .bind(effect_id)
    .bind(Uuid::now_v7())
    .bind(until.as_micros())
    .execute(&mut *tx)
    .await
    .map_err(read_error)?;
    let sql = format!("SELECT {EFFECT} FROM t_effect t WHERE t.effect_id = $1");
    let row = sqlx::query(&sql).bind(effect_id).fetch_one(&mut *tx).await.map_err(read_error)?;
    let effect = rows::effect(&row)?;
    let sql = format!("SELECT {EVENT} FROM events e WHERE e.shard = $1 AND e.position = $2");
    let event = sqlx::query(&sql)
        .bind(i64::from(effect.shard))
        .bind(effect.position)
        .fetch_optional(tx)
        .await
        .map_err(read_error)?;
    match event {
        Some(event) => Ok(ClaimedEffect { effect, event: rows::event(&event)? }),
        None => Err(StoreError::Corrupt(format!("effect {effect_id} tells of an event that is not in the log"))),
    }
}

/// Makes the next row of the lane of `effect_id` due.
async fn wake_next_in_tx(tx: &mut SqliteConnection, effect_id: Uuid, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE t_effect SET due_at = $2 WHERE state = 'pending' AND effect_id = (
             SELECT n.effect_id FROM t_effect d JOIN t_effect n ON n.order_no = d.order_no AND n.subscriber = d.subscriber
             WHERE d.effect_id = $1 AND (n.position, n.effect_id) > (d.position, d.effect_id) AND n.state = 'pending'
             ORDER BY n.position, n.effect_id LIMIT 1)",
    )
    .bind(effect_id)
    .bind(now.as_micros())
    .execute(tx)
    .await
    .map(|_| ())
    .map_err(read_error)
}

/// Reports a try.
pub(crate) async fn complete_effect(
    store: &SqliteStore,
    effect_id: Uuid,
    lease_token: Uuid,
    result: &TryResult,
) -> Result<bool, StoreError> {
    let mut connection = store.write.lock().await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
    let now = now(&mut tx, &store.clock).await?;
    let (state, delay_ms, error) = match result {
        TryResult::Delivered => ("delivered", 0, None),
        TryResult::RetryAfter { delay_ms, error } => ("pending", *delay_ms, Some(error.as_str())),
        TryResult::Dead { error } => ("dead", 0, Some(error.as_str())),
    };
    let done_at = (state == "delivered").then_some(now.as_micros());
    let done = sqlx::query(
        "UPDATE t_effect SET state = $3, due_at = $4, last_error = $5, done_at = $6, lease_token = NULL, lease_until = NULL
         WHERE effect_id = $1 AND lease_token = $2",
    )
    .bind(effect_id)
    .bind(lease_token)
    .bind(state)
    .bind(now.plus_micros(delay_ms.saturating_mul(1_000)).as_micros())
    .bind(error)
    .bind(done_at)
    .execute(&mut *tx)
    .await
    .map_err(read_error)?;
    let held = done.rows_affected() == 1;
    if held && done_at.is_some() {
        wake_next_in_tx(&mut tx, effect_id, now).await?;
    }
    tx.commit().await.map_err(read_error)?;
    Ok(held)
}

/// Effects, oldest first.
pub(crate) async fn list_effects(
    store: &SqliteStore,
    state: Option<&str>,
    order_no: Option<&str>,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<EffectRow>, StoreError> {
    let sql = search::effects(state, order_no, after);
    let mut query = sqlx::query(&sql);
    for text in [state, order_no].into_iter().flatten() {
        query = query.bind(text);
    }
    if let Some(after) = after {
        query = query.bind(after);
    }
    let rows = query.bind(i64::from(limit)).fetch_all(&store.read).await.map_err(read_error)?;
    all(&rows, rows::effect)
}

/// DEAD to pending. The rest of its lane follows when it is delivered.
pub(crate) async fn requeue_effect(store: &SqliteStore, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
    let mut connection = store.write.lock().await;
    let now = now(&mut connection, &store.clock).await?;
    let done = sqlx::query(
        "UPDATE t_effect SET state = 'pending', attempts = 0, due_at = $2, last_error = $3 || coalesce(last_error, '')
         WHERE effect_id = $1 AND state = 'dead'",
    )
    .bind(effect_id)
    .bind(now.as_micros())
    .bind(requeued_note(by))
    .execute(&mut *connection)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected() == 1)
}

/// DEAD or pending to discarded; the next of its lane becomes due.
pub(crate) async fn discard_effect(store: &SqliteStore, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
    let mut connection = store.write.lock().await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(read_error)?;
    let now = now(&mut tx, &store.clock).await?;
    let done = sqlx::query(
        "UPDATE t_effect SET state = 'discarded', done_at = $2, last_error = $3 || coalesce(last_error, '')
         WHERE effect_id = $1 AND state IN ('dead', 'pending')",
    )
    .bind(effect_id)
    .bind(now.as_micros())
    .bind(discarded_note(by))
    .execute(&mut *tx)
    .await
    .map_err(read_error)?;
    let discarded = done.rows_affected() == 1;
    if discarded {
        wake_next_in_tx(&mut tx, effect_id, now).await?;
    }
    tx.commit().await.map_err(read_error)?;
    Ok(discarded)
}

/// Time until the next one is due. Reads the first entry of each queue in t_effect_due_idx and t_effect_call_due_idx.
pub(crate) async fn next_effect_due_ms(store: &SqliteStore, kinds: &[&str]) -> Result<Option<i64>, StoreError> {
    let mut connection = store.read.acquire().await.map_err(read_error)?;
    let now = now(&mut connection, &store.clock).await?;
    let mut next: Option<Timestamp> = None;
    for queue in queues(&mut connection, kinds).await? {
        let sql = format!(
            "SELECT t.due_at FROM t_effect t WHERE {} AND t.state IN ('pending', 'leased') ORDER BY t.due_at LIMIT 1",
            queue.condition()
        );
        let due_at: Option<i64> =
            sqlx::query_scalar(&sql).bind(queue.name()).fetch_optional(&mut *connection).await.map_err(read_error)?;
        next = [next, due_at.map(Timestamp::from_micros)].into_iter().flatten().min();
    }
    Ok(next.map(|due_at| wait_ms(due_at, now)))
}

/// Deletes old finished effects. Reads t_effect_done_idx.
pub(crate) async fn prune_effects(store: &SqliteStore, older_than_ms: i64, limit: u32) -> Result<u64, StoreError> {
    let mut connection = store.write.lock().await;
    let now = now(&mut connection, &store.clock).await?;
    let done = sqlx::query(
        "DELETE FROM t_effect WHERE effect_id IN (
             SELECT effect_id FROM t_effect WHERE state IN ('delivered', 'discarded') AND done_at < $1 ORDER BY done_at LIMIT $2)",
    )
    .bind(now.plus_micros(older_than_ms.saturating_mul(-1_000)).as_micros())
    .bind(i64::from(limit))
    .execute(&mut *connection)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}
