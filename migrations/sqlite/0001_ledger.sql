-- The log, its projections and the effect queue. Forward only; never edit once applied.
-- The same tables as migrations/postgres/0001_ledger.sql, in the same order, with the same constraint and index names.
-- P1..P8 are the promises of ARCHITECTURE.md. Money: INTEGER minor units + three letters. Times: INTEGER microseconds since
-- 1970-01-01T00:00:00Z. Digests, hashes and UUIDs: BLOB. JSON: TEXT. Text compares byte for byte (SQLite's default).

-- The log. First seven columns are those of sqlite-es and postgres-es, so that their stock readers read this table.
-- payload and metadata are text: the stored bytes are hashed.
CREATE TABLE events (
    aggregate_type TEXT    NOT NULL,
    aggregate_id   TEXT    NOT NULL,
    sequence       INTEGER NOT NULL,
    event_type     TEXT    NOT NULL,
    event_version  TEXT    NOT NULL,
    payload        TEXT    NOT NULL,
    metadata       TEXT    NOT NULL,
    shard          INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    event_id       BLOB    NOT NULL,
    recorded_at    INTEGER NOT NULL,
    hash           BLOB    NOT NULL,
    -- P1: one decision per version of an aggregate. Also serves loading an aggregate.
    CONSTRAINT events_stream_key PRIMARY KEY (aggregate_type, aggregate_id, sequence),
    -- P8: gapless serial log per shard. Serves the feed, replay and verify.
    CONSTRAINT events_position_key UNIQUE (shard, position),
    CONSTRAINT events_sequence_check CHECK (sequence >= 1),
    CONSTRAINT events_position_check CHECK (position >= 1),
    CONSTRAINT events_shard_check CHECK (shard BETWEEN 0 AND 63),
    CONSTRAINT events_event_id_check CHECK (length(event_id) = 16),
    CONSTRAINT events_hash_check CHECK (length(hash) = 32),
    CONSTRAINT events_json_check CHECK (json_valid(payload) AND json_valid(metadata))
) STRICT;

-- The writer's lock and the chain's end, one row per shard.
CREATE TABLE t_log_head (
    shard       INTEGER NOT NULL,
    position    INTEGER NOT NULL DEFAULT 0,
    hash        BLOB    NOT NULL DEFAULT (zeroblob(32)),
    recorded_at INTEGER NOT NULL DEFAULT 0,
    -- Raised on all heads by whoever changes t_subscriber: tells the writer to read it again.
    subscribers_version INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT t_log_head_pkey PRIMARY KEY (shard),
    CONSTRAINT t_log_head_hash_check CHECK (length(hash) = 32)
) STRICT, WITHOUT ROWID;
INSERT INTO t_log_head (shard)
WITH RECURSIVE shards (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 63)
SELECT shard FROM shards;

-- Every (type, version) ever written: a node that can't decode one refuses to start or stops writing.
CREATE TABLE t_event_version (
    event_type    TEXT    NOT NULL,
    event_version TEXT    NOT NULL,
    first_seen_at INTEGER NOT NULL,
    CONSTRAINT t_event_version_pkey PRIMARY KEY (event_type, event_version)
) STRICT, WITHOUT ROWID;

-- P1: one idempotency key, once. request_hash is set for API keys only.
CREATE TABLE t_idempotent (
    idem_key     TEXT    NOT NULL,
    order_no     TEXT    NOT NULL,
    create_time  INTEGER NOT NULL,
    shard        INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    request_hash BLOB,
    CONSTRAINT t_idempotent_pkey PRIMARY KEY (idem_key),
    CONSTRAINT t_idempotent_key_check CHECK (length(CAST(idem_key AS BLOB)) <= 255)
) STRICT, WITHOUT ROWID;
-- Serves the audit's comparison per order.
CREATE INDEX t_idempotent_order_idx ON t_idempotent (order_no);

-- Current state of orders. A pure function of the log (P4); version = sequence of the last event.
CREATE TABLE t_order (
    order_no         TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    currency         TEXT,
    amount_minor     INTEGER,
    paid_minor       INTEGER NOT NULL,
    refunded_minor   INTEGER NOT NULL,
    surplus_minor    INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    channel          TEXT,
    account          TEXT,
    channel_trade_no TEXT,
    pay_time         INTEGER,
    expires_at       INTEGER,
    description      TEXT,
    supersedes       TEXT,
    create_time      INTEGER NOT NULL,
    update_time      INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    CONSTRAINT t_order_pkey PRIMARY KEY (order_no),
    CONSTRAINT t_order_status_check CHECK (status IN ('UNOPENED', 'PENDING', 'PAID', 'REFUNDED', 'CLOSED')),
    CONSTRAINT t_order_currency_check CHECK (length(currency) = 3)
) STRICT;
-- Serves the search by status.
CREATE INDEX t_order_status_idx ON t_order (status, order_no);
-- Serves the search by time of creation.
CREATE INDEX t_order_time_idx ON t_order (create_time);

-- Money that moved. Append-only.
CREATE TABLE t_order_flow (
    idem_key         TEXT    NOT NULL,
    order_no         TEXT    NOT NULL,
    trade_type       TEXT    NOT NULL,
    direction        TEXT    NOT NULL,
    channel          TEXT    NOT NULL,
    account          TEXT    NOT NULL,
    channel_trade_no TEXT    NOT NULL,
    refund_no        TEXT,
    currency         TEXT    NOT NULL,
    amount_minor     INTEGER NOT NULL,
    occurred_at      INTEGER NOT NULL,
    create_time      INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    position         INTEGER NOT NULL,
    -- P1: at most one flow per key.
    CONSTRAINT t_order_flow_pkey PRIMARY KEY (idem_key),
    CONSTRAINT t_order_flow_type_check CHECK (trade_type IN ('PAY', 'SURPLUS', 'REFUND', 'SHARE', 'SHARE_RETURN')),
    CONSTRAINT t_order_flow_direction_check CHECK (direction IN ('IN', 'OUT')),
    CONSTRAINT t_order_flow_currency_check CHECK (length(currency) = 3),
    CONSTRAINT t_order_flow_amount_check CHECK (amount_minor >= 0)
) STRICT;
-- Serves GET /v1/orders/{no}/flows.
CREATE INDEX t_order_flow_order_idx ON t_order_flow (order_no);
-- Serves share notices, which carry only the channel's number, and the search by channel_trade_no.
CREATE INDEX t_order_flow_trade_idx ON t_order_flow (channel, channel_trade_no);

-- The signed bytes that caused events, once per fact and shard. Append-only; whole expired months may be removed by the owner.
CREATE TABLE t_evidence (
    shard       INTEGER NOT NULL,
    digest      BLOB    NOT NULL,
    channel     TEXT    NOT NULL,
    account     TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    headers     TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    key_id      TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    CONSTRAINT t_evidence_pkey PRIMARY KEY (shard, digest),
    CONSTRAINT t_evidence_headers_check CHECK (json_valid(headers))
) STRICT;

-- What needs a person. A pure function of the log, but for kind 'quarantined' (the writer could not decide it).
CREATE TABLE t_item (
    item_no   TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    order_no  TEXT,
    stray_id  TEXT,
    detail    TEXT    NOT NULL,
    payment   TEXT,
    state     TEXT    NOT NULL DEFAULT 'open',
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    shard     INTEGER NOT NULL,
    CONSTRAINT t_item_pkey PRIMARY KEY (item_no),
    CONSTRAINT t_item_kind_check CHECK (kind IN ('parked', 'surplus', 'flagged', 'stray', 'quarantined', 'stalled'))
) STRICT;
-- Serves GET /v1/items?kind= and the open-item gauges.
CREATE INDEX t_item_open_idx ON t_item (kind, opened_at, item_no) WHERE state = 'open';
-- Serves GET /v1/items without a kind.
CREATE INDEX t_item_time_idx ON t_item (opened_at, item_no);
-- Serves the look-up of a parked payment by the channel's number.
CREATE INDEX t_item_payment_idx ON t_item (payment) WHERE payment IS NOT NULL;

-- Who gets business effects. Changed by command. While backfilling, nothing is sent, so that the past comes first.
CREATE TABLE t_subscriber (
    name        TEXT    NOT NULL,
    events      TEXT    NOT NULL,
    url         TEXT    NOT NULL,
    secret_ref  TEXT    NOT NULL,
    paused      INTEGER NOT NULL DEFAULT 0,
    backfilling INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    CONSTRAINT t_subscriber_pkey PRIMARY KEY (name),
    CONSTRAINT t_subscriber_events_check CHECK (json_valid(events)),
    CONSTRAINT t_subscriber_paused_check CHECK (paused IN (0, 1)),
    CONSTRAINT t_subscriber_backfilling_check CHECK (backfilling IN (0, 1))
) STRICT, WITHOUT ROWID;

-- The outbox (P7). Lane = (order_no, subscriber); order inside a lane is (position, effect_id).
-- due_at: the next try; of a leased row, the end of the lease.
CREATE TABLE t_effect (
    effect_id   BLOB    NOT NULL,
    shard       INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    order_no    TEXT    NOT NULL,
    subscriber  TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    event_id    BLOB    NOT NULL,
    call        TEXT,
    state       TEXT    NOT NULL DEFAULT 'pending',
    attempts    INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    lease_token BLOB,
    lease_until INTEGER,
    last_error  TEXT,
    created_at  INTEGER NOT NULL,
    done_at     INTEGER,
    CONSTRAINT t_effect_pkey PRIMARY KEY (effect_id),
    -- P1: one effect per event, subscriber and kind (a backfill racing the writer can't make a second).
    CONSTRAINT t_effect_once_key UNIQUE (event_id, subscriber, kind),
    CONSTRAINT t_effect_state_check CHECK (state IN ('pending', 'leased', 'delivered', 'dead', 'discarded')),
    CONSTRAINT t_effect_lease_check CHECK ((state = 'leased') = (lease_token IS NOT NULL))
) STRICT;
-- Serves claiming: what is due, by subscriber, so that the backlog of one never stands before the others.
CREATE INDEX t_effect_due_idx ON t_effect (subscriber, due_at) WHERE state IN ('pending', 'leased');
-- Serves the lane rule (is anything older unfinished) and the list of one order's effects.
CREATE INDEX t_effect_lane_idx ON t_effect (order_no, subscriber, position, effect_id);
-- Serves the list and the gauge of dead effects.
CREATE INDEX t_effect_dead_idx ON t_effect (effect_id) WHERE state = 'dead';
-- Serves pruning.
CREATE INDEX t_effect_done_idx ON t_effect (done_at) WHERE state IN ('delivered', 'discarded');

-- Signed Merkle roots over the log. Append-only.
CREATE TABLE t_seal (
    seal_no    INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    signature  BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT t_seal_pkey PRIMARY KEY (seal_no),
    CONSTRAINT t_seal_body_check CHECK (json_valid(body))
) STRICT;

-- Duplicates and refusals for `explain`: best effort, prunable, not part of P4.
CREATE TABLE t_attempt (
    attempt_id BLOB    NOT NULL,
    at         INTEGER NOT NULL,
    channel    TEXT    NOT NULL,
    account    TEXT    NOT NULL,
    order_no   TEXT,
    result     TEXT    NOT NULL,
    detail     TEXT    NOT NULL,
    CONSTRAINT t_attempt_pkey PRIMARY KEY (attempt_id)
) STRICT;
CREATE INDEX t_attempt_order_idx ON t_attempt (order_no, at) WHERE order_no IS NOT NULL;

-- P8: append-only means append-only. An emptying DELETE (SQLite has no TRUNCATE) fires the same trigger. INSERT OR REPLACE
-- fires the delete trigger only with `PRAGMA recursive_triggers = on`, which every connection of ours sets.
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'table events is append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'table events is append-only'); END;
CREATE TRIGGER t_order_flow_no_update BEFORE UPDATE ON t_order_flow
BEGIN SELECT RAISE(ABORT, 'table t_order_flow is append-only'); END;
CREATE TRIGGER t_order_flow_no_delete BEFORE DELETE ON t_order_flow
BEGIN SELECT RAISE(ABORT, 'table t_order_flow is append-only'); END;
CREATE TRIGGER t_evidence_no_update BEFORE UPDATE ON t_evidence
BEGIN SELECT RAISE(ABORT, 'table t_evidence is append-only'); END;
CREATE TRIGGER t_evidence_no_delete BEFORE DELETE ON t_evidence
BEGIN SELECT RAISE(ABORT, 'table t_evidence is append-only'); END;
CREATE TRIGGER t_seal_no_update BEFORE UPDATE ON t_seal
BEGIN SELECT RAISE(ABORT, 'table t_seal is append-only'); END;
CREATE TRIGGER t_seal_no_delete BEFORE DELETE ON t_seal
BEGIN SELECT RAISE(ABORT, 'table t_seal is append-only'); END;
