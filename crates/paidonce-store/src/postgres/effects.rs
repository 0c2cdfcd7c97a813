//! Claiming and completing effects. Every step is one statement, so one round trip and one short tx.
//!
//! A lane is (order_no, subscriber). Only its head, the oldest row that is neither delivered nor discarded, may be claimed; a
//! DEAD head blocks it. A due row behind an unfinished one is *put off*: its `due_at` moves to when the head can have changed,
//! so that blocked lanes are not looked at again with every claim. Whoever finishes a head makes the next one due.
//!
//! | step | statement | reads |
//! |---|---|---|
//! | claim | due rows by queue, their heads, lease of the heads, putting off of the rest | t_subscriber, t_effect_due_idx, t_effect_call_due_idx, t_effect_lane_idx, events_position_key |
//! | complete | state of the row while the token holds, next of the lane made due | t_effect_pkey, t_effect_lane_idx |
//!
//! EXPLAIN on PostgreSQL 15, 200,000 effects of 100,000 events, 30,000 of them due behind 10,000 dead heads, generic plan: a claim
//! that looks at 200 rows, leases 50 and puts off 100 takes index scans only, 10 to 35 ms on a busy two-core machine. Rows to
//! change are named as `= ANY (ARRAY (..))`, and locked one by one in a LATERAL: written as joins, the planner read the whole
//! table (580 ms).
//!
//! No statement waits for a row that another one holds but `complete`, `requeue` and `discard`, for the next of their lane.

use paidonce_order::timestamp::Timestamp;
use uuid::Uuid;

use crate::columns::Columns;
use crate::effect_rules::{
    CLAIM_LIMIT_MAX, CLAIM_ROUNDS_MAX, LOOK_AGAIN_DEAD_MICROS, LOOK_AGAIN_MICROS, discarded_note, requeued_note,
};
use crate::postgres::PostgresStore;
use crate::rows::{self, EFFECT, EVENT, all, read_error};
use crate::search;
use crate::store::{ClaimedEffect, EffectRow, StoreError, TryResult};

/// Queues that take turns: one of each subscriber that is not paused, and one of each kind of channel calls, whatever their
/// lanes. Place: kinds.
const QUEUES: &str = "
    queue (name, subscriber, kind) AS (
        SELECT name, name, NULL FROM t_subscriber WHERE NOT paused AND NOT backfilling AND 'deliver' = ANY ($1)
        UNION ALL
        SELECT kind, NULL, kind FROM unnest($1::text[]) AS wanted (kind) WHERE kind <> 'deliver'
    )";

/// Places: kinds, limit, clock offset, lease (microseconds both), look again (live, dead). Turns give every queue its share.
fn claim_sql() -> String {
    format!(
        "WITH {QUEUES},
        candidate AS MATERIALIZED (
            SELECT due.effect_id, due.due_at, head.state AS head_state, head.due_at AS head_due_at,
                   row_number() OVER (PARTITION BY queue.name, head.state IS NULL ORDER BY due.due_at) AS turn
            FROM queue
            CROSS JOIN LATERAL (
                (SELECT t.effect_id, t.order_no, t.subscriber, t.position, t.due_at FROM t_effect t
                 WHERE t.subscriber = queue.subscriber AND t.kind = 'deliver' AND t.state IN ('pending', 'leased')
                   AND t.due_at <= now() + $3 * interval '1 microsecond'
                 ORDER BY t.due_at LIMIT $2)
                UNION ALL
                (SELECT t.effect_id, t.order_no, t.subscriber, t.position, t.due_at FROM t_effect t
                 WHERE t.kind = queue.kind AND t.kind <> 'deliver' AND t.state IN ('pending', 'leased')
                   AND t.due_at <= now() + $3 * interval '1 microsecond'
                 ORDER BY t.due_at LIMIT $2)
            ) due
            LEFT JOIN LATERAL (
                SELECT t.state, t.due_at FROM t_effect t
                WHERE t.order_no = due.order_no AND t.subscriber = due.subscriber
                  AND (t.position, t.effect_id) < (due.position, due.effect_id)
                  AND t.state IN ('pending', 'leased', 'dead')
                ORDER BY t.position, t.effect_id LIMIT 1
            ) head ON true
        ),
        free AS (
            SELECT t.effect_id
            FROM (SELECT effect_id FROM candidate WHERE head_state IS NULL ORDER BY turn, due_at LIMIT $2) c
            CROSS JOIN LATERAL (
                SELECT t.effect_id FROM t_effect t
                WHERE t.effect_id = c.effect_id AND t.state IN ('pending', 'leased')
                  AND t.due_at <= now() + $3 * interval '1 microsecond'
                FOR UPDATE SKIP LOCKED
            ) t
        ),
        claimed AS (
            UPDATE t_effect t
            SET state = 'leased', attempts = t.attempts + 1, lease_token = gen_random_uuid(),
                lease_until = now() + ($3 + $4) * interval '1 microsecond', due_at = now() + ($3 + $4) * interval '1 microsecond'
            WHERE t.effect_id = ANY (ARRAY (SELECT effect_id FROM free))
            RETURNING t.*
        ),
        blocked AS (
            SELECT t.effect_id,
                   CASE c.head_state
                       WHEN 'dead' THEN now() + ($3 + $6) * interval '1 microsecond'
                       WHEN 'leased' THEN now() + ($3 + $5) * interval '1 microsecond'
                       ELSE greatest(c.head_due_at, now() + ($3 + $5) * interval '1 microsecond')
                   END AS look_again_at
            FROM candidate c
            CROSS JOIN LATERAL (
                SELECT t.effect_id FROM t_effect t WHERE t.effect_id = c.effect_id AND t.due_at = c.due_at
                FOR UPDATE SKIP LOCKED
            ) t
            WHERE c.head_state IS NOT NULL LIMIT $2
        ),
        put_off AS (
            UPDATE t_effect t SET due_at = (SELECT b.look_again_at FROM blocked b WHERE b.effect_id = t.effect_id)
            WHERE t.effect_id = ANY (ARRAY (SELECT effect_id FROM blocked)) AND t.state = 'pending'
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM put_off) AS put_off, t.effect_id IS NOT NULL AS claimed, e.event_id IS NOT NULL AS told,
               {EFFECT}, {EVENT}
        FROM (SELECT 1) one
        LEFT JOIN claimed t ON true
        LEFT JOIN events e ON e.shard = t.shard AND e.position = t.position"
    )
}

/// Claims due lane heads.
pub(crate) async fn claim_effects(
    store: &PostgresStore,
    kinds: &[&str],
    lease_ms: i64,
    limit: u32,
) -> Result<Vec<ClaimedEffect>, StoreError> {
    for _ in 0..CLAIM_ROUNDS_MAX {
        let (claimed, put_off) = claim_once(store, kinds, lease_ms, limit).await?;
        if !claimed.is_empty() || put_off == 0 {
            return Ok(claimed);
        }
    }
    Ok(Vec::new())
}

/// One round; gives also how many blocked rows were put off.
async fn claim_once(
    store: &PostgresStore,
    kinds: &[&str],
    lease_ms: i64,
    limit: u32,
) -> Result<(Vec<ClaimedEffect>, i64), StoreError> {
    let rows = sqlx::query(&claim_sql())
        .bind(kinds)
        .bind(i64::from(limit.min(CLAIM_LIMIT_MAX)))
        .bind(store.clock.micros())
        .bind(lease_ms.saturating_mul(1_000))
        .bind(LOOK_AGAIN_MICROS)
        .bind(LOOK_AGAIN_DEAD_MICROS)
        .fetch_all(&store.pool)
        .await
        .map_err(read_error)?;
    let put_off = rows.first().map_or(Ok(0), |row| row.integer("put_off"))?;
    let mut claimed = Vec::new();
    for row in &rows {
        if row.flag("claimed")? {
            claimed.push(claimed_effect(row)?);
        }
    }
    claimed.sort_by_key(|claimed| (claimed.event.shard, claimed.event.position));
    Ok((claimed, put_off))
}

fn claimed_effect(row: &sqlx::postgres::PgRow) -> Result<ClaimedEffect, StoreError> {
    let effect = rows::effect(row)?;
    if !row.flag("told")? {
        return Err(StoreError::Corrupt(format!(
            "effect {} tells of an event that is not in the log",
            effect.effect_id
        )));
    }
    Ok(ClaimedEffect { effect, event: rows::event(row)? })
}

/// The next row of the lane of `changed` becomes due.
const WAKE_NEXT: &str = "
    woken AS (
        UPDATE t_effect t SET due_at = now() + $1 * interval '1 microsecond'
        FROM changed CROSS JOIN LATERAL (
            SELECT n.effect_id FROM t_effect n
            WHERE n.order_no = changed.order_no AND n.subscriber = changed.subscriber
              AND (n.position, n.effect_id) > (changed.position, changed.effect_id) AND n.state = 'pending'
            ORDER BY n.position, n.effect_id LIMIT 1
        ) next
        WHERE t.effect_id = next.effect_id AND t.state = 'pending'
    )";

/// Reports a try.
pub(crate) async fn complete_effect(
    store: &PostgresStore,
    effect_id: Uuid,
    lease_token: Uuid,
    result: &TryResult,
) -> Result<bool, StoreError> {
    let (set, delay_ms, error) = match result {
        TryResult::Delivered => ("state = 'delivered', done_at = now() + $1 * interval '1 microsecond'", 0, None),
        TryResult::RetryAfter { delay_ms, error } => ("state = 'pending'", *delay_ms, Some(error.as_str())),
        TryResult::Dead { error } => ("state = 'dead'", 0, Some(error.as_str())),
    };
    let wake = match result {
        TryResult::Delivered => format!(", {WAKE_NEXT}"),
        TryResult::RetryAfter { .. } | TryResult::Dead { .. } => String::new(),
    };
    let sql = format!(
        "WITH changed AS (
             UPDATE t_effect SET {set}, last_error = $4, lease_token = NULL, lease_until = NULL,
                    due_at = now() + ($1 + $5) * interval '1 microsecond'
             WHERE effect_id = $2 AND lease_token = $3
             RETURNING effect_id, order_no, subscriber, position
         ){wake}
         SELECT count(*) FROM changed"
    );
    let changed: i64 = sqlx::query_scalar(&sql)
        .bind(store.clock.micros())
        .bind(effect_id)
        .bind(lease_token)
        .bind(error)
        .bind(delay_ms.saturating_mul(1_000))
        .fetch_one(&store.pool)
        .await
        .map_err(read_error)?;
    Ok(changed == 1)
}

/// Effects, oldest first.
pub(crate) async fn list_effects(
    store: &PostgresStore,
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
    let rows = query.bind(i64::from(limit)).fetch_all(&store.pool).await.map_err(read_error)?;
    all(&rows, rows::effect)
}

/// DEAD to pending. The rest of its lane follows when it is delivered.
pub(crate) async fn requeue_effect(store: &PostgresStore, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE t_effect SET state = 'pending', attempts = 0, due_at = now() + $1 * interval '1 microsecond',
                last_error = $3 || coalesce(last_error, '')
         WHERE effect_id = $2 AND state = 'dead'",
    )
    .bind(store.clock.micros())
    .bind(effect_id)
    .bind(requeued_note(by))
    .execute(&store.pool)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected() == 1)
}

/// DEAD or pending to discarded; the next of its lane becomes due.
pub(crate) async fn discard_effect(store: &PostgresStore, effect_id: Uuid, by: &str) -> Result<bool, StoreError> {
    let sql = format!(
        "WITH changed AS (
             UPDATE t_effect SET state = 'discarded', done_at = now() + $1 * interval '1 microsecond',
                    last_error = $3 || coalesce(last_error, '')
             WHERE effect_id = $2 AND state IN ('dead', 'pending')
             RETURNING effect_id, order_no, subscriber, position
         ), {WAKE_NEXT}
         SELECT count(*) FROM changed"
    );
    let changed: i64 = sqlx::query_scalar(&sql)
        .bind(store.clock.micros())
        .bind(effect_id)
        .bind(discarded_note(by))
        .fetch_one(&store.pool)
        .await
        .map_err(read_error)?;
    Ok(changed == 1)
}

/// Time until the next one is due. Reads the first entry of each queue in t_effect_due_idx and t_effect_call_due_idx.
pub(crate) async fn next_effect_due_ms(store: &PostgresStore, kinds: &[&str]) -> Result<Option<i64>, StoreError> {
    let sql = format!(
        "WITH {QUEUES}
         SELECT min(first.due_at) AS due_at, now() + $2 * interval '1 microsecond' AS now FROM queue
         CROSS JOIN LATERAL (
             (SELECT t.due_at FROM t_effect t
              WHERE t.subscriber = queue.subscriber AND t.kind = 'deliver' AND t.state IN ('pending', 'leased')
              ORDER BY t.due_at LIMIT 1)
             UNION ALL
             (SELECT t.due_at FROM t_effect t
              WHERE t.kind = queue.kind AND t.kind <> 'deliver' AND t.state IN ('pending', 'leased')
              ORDER BY t.due_at LIMIT 1)
         ) first"
    );
    let row =
        sqlx::query(&sql).bind(kinds).bind(store.clock.micros()).fetch_one(&store.pool).await.map_err(read_error)?;
    let (due_at, now): (Option<Timestamp>, Timestamp) = (row.maybe_time("due_at")?, row.time("now")?);
    Ok(due_at.map(|due_at| crate::effect_rules::wait_ms(due_at, now)))
}

/// Deletes old finished effects. Reads t_effect_done_idx.
pub(crate) async fn prune_effects(store: &PostgresStore, older_than_ms: i64, limit: u32) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM t_effect WHERE effect_id IN (
             SELECT effect_id FROM t_effect
             WHERE state IN ('delivered', 'discarded') AND done_at < now() + $1 * interval '1 microsecond'
             ORDER BY done_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(store.clock.micros().saturating_sub(older_than_ms.saturating_mul(1_000)))
    .bind(i64::from(limit))
    .execute(&store.pool)
    .await
    .map_err(read_error)?;
    Ok(done.rows_affected())
}
