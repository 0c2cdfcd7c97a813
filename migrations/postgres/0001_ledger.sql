-- The log, its projections and the effect queue. Forward only; never edit once applied.
-- P1..P8 are the promises of ARCHITECTURE.md. Money: bigint minor units + char(3). Times: timestamptz, whole microseconds.

-- The log. First seven columns are those of postgres-es, so that its stock reader reads this table (audit's second reader).
-- payload and metadata are json (not jsonb): the stored text is hashed.
CREATE TABLE events (
    aggregate_type text        COLLATE "C" NOT NULL,
    aggregate_id   text        COLLATE "C" NOT NULL,
    sequence       bigint      NOT NULL,
    event_type     text        NOT NULL,
    event_version  text        NOT NULL,
    payload        json        NOT NULL,
    metadata       json        NOT NULL,
    shard          smallint    NOT NULL,
    position       bigint      NOT NULL,
    event_id       uuid        NOT NULL,
    recorded_at    timestamptz NOT NULL,
    hash           bytea       NOT NULL,
    -- P1: one decision per version of an aggregate. Also serves loading an aggregate.
    CONSTRAINT events_stream_key PRIMARY KEY (aggregate_type, aggregate_id, sequence),
    -- P8: gapless serial log per shard. Serves the feed, replay and verify.
    CONSTRAINT events_position_key UNIQUE (shard, position),
    CONSTRAINT events_sequence_check CHECK (sequence >= 1),
    CONSTRAINT events_position_check CHECK (position >= 1),
    CONSTRAINT events_shard_check CHECK (shard BETWEEN 0 AND 63),
    CONSTRAINT events_hash_check CHECK (octet_length(hash) = 32)
);

-- The writer's lock and the chain's end, one row per shard.
CREATE TABLE t_log_head (
    shard       smallint    NOT NULL,
    position    bigint      NOT NULL DEFAULT 0,
    hash        bytea       NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    recorded_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- Raised on all heads, under their locks, by whoever changes t_subscriber: tells writers to read it again.
    subscribers_version bigint NOT NULL DEFAULT 0,
    CONSTRAINT t_log_head_pkey PRIMARY KEY (shard),
    CONSTRAINT t_log_head_hash_check CHECK (octet_length(hash) = 32)
) WITH (fillfactor = 50);
INSERT INTO t_log_head (shard) SELECT generate_series(0, 63);

-- Every (type, version) ever written: a node that can't decode one refuses to start or stops writing.
CREATE TABLE t_event_version (
    event_type    text        NOT NULL,
    event_version text        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    CONSTRAINT t_event_version_pkey PRIMARY KEY (event_type, event_version)
);

-- P1: one idempotency key, once. request_hash is set for API keys only.
CREATE TABLE t_idempotent (
    idem_key     text        COLLATE "C" NOT NULL,
    order_no     text        COLLATE "C" NOT NULL,
    create_time  timestamptz NOT NULL,
    shard        smallint    NOT NULL,
    position     bigint      NOT NULL,
    request_hash bytea,
    CONSTRAINT t_idempotent_pkey PRIMARY KEY (idem_key),
    CONSTRAINT t_idempotent_key_check CHECK (octet_length(idem_key) <= 255)
);
-- Serves the audit's comparison per order.
CREATE INDEX t_idempotent_order_idx ON t_idempotent (order_no);

-- Current state of orders. A pure function of the log (P4); version = sequence of the last event.
CREATE TABLE t_order (
    order_no         text        COLLATE "C" NOT NULL,
    status           text        NOT NULL,
    currency         char(3),
    amount_minor     bigint,
    paid_minor       bigint      NOT NULL,
    refunded_minor   bigint      NOT NULL,
    surplus_minor    bigint      NOT NULL,
    version          bigint      NOT NULL,
    channel          text,
    account          text,
    channel_trade_no text        COLLATE "C",
    pay_time         timestamptz,
    expires_at       timestamptz,
    description      text,
    supersedes       text        COLLATE "C",
    create_time      timestamptz NOT NULL,
    update_time      timestamptz NOT NULL,
    shard            smallint    NOT NULL,
    CONSTRAINT t_order_pkey PRIMARY KEY (order_no),
    CONSTRAINT t_order_status_check CHECK (status IN ('UNOPENED', 'PENDING', 'PAID', 'REFUNDED', 'CLOSED'))
) WITH (fillfactor = 80);
-- Serves the search by status.
CREATE INDEX t_order_status_idx ON t_order (status, order_no);
-- Serves the search by time of creation. BRIN: rows come in that order, and it costs the writer next to nothing.
CREATE INDEX t_order_time_idx ON t_order USING brin (create_time);

-- Money that moved. Append-only.
CREATE TABLE t_order_flow (
    idem_key         text        COLLATE "C" NOT NULL,
    order_no         text        COLLATE "C" NOT NULL,
    trade_type       text        NOT NULL,
    direction        text        NOT NULL,
    channel          text        NOT NULL,
    account          text        NOT NULL,
    channel_trade_no text        COLLATE "C" NOT NULL,
    refund_no        text        COLLATE "C",
    currency         char(3)     NOT NULL,
    amount_minor     bigint      NOT NULL,
    occurred_at      timestamptz NOT NULL,
    create_time      timestamptz NOT NULL,
    shard            smallint    NOT NULL,
    position         bigint      NOT NULL,
    -- P1: at most one flow per key.
    CONSTRAINT t_order_flow_pkey PRIMARY KEY (idem_key),
    CONSTRAINT t_order_flow_type_check CHECK (trade_type IN ('PAY', 'SURPLUS', 'REFUND', 'SHARE', 'SHARE_RETURN')),
    CONSTRAINT t_order_flow_direction_check CHECK (direction IN ('IN', 'OUT')),
    CONSTRAINT t_order_flow_amount_check CHECK (amount_minor >= 0)
);
-- Serves GET /v1/orders/{no}/flows.
CREATE INDEX t_order_flow_order_idx ON t_order_flow (order_no);
-- Serves share notices, which carry only the channel's number, and the search by channel_trade_no.
CREATE INDEX t_order_flow_trade_idx ON t_order_flow (channel, channel_trade_no);

-- The signed bytes that caused events, once per fact and shard. Append-only; whole expired months may be removed by the owner.
CREATE TABLE t_evidence (
    shard       smallint    NOT NULL,
    digest      bytea       NOT NULL,
    channel     text        NOT NULL,
    account     text        NOT NULL,
    source      text        NOT NULL,
    headers     json        NOT NULL,
    body        bytea       NOT NULL,
    key_id      text        NOT NULL,
    received_at timestamptz NOT NULL,
    CONSTRAINT t_evidence_pkey PRIMARY KEY (shard, digest)
);

-- What needs a person. A pure function of the log, but for kind 'quarantined' (the writer could not decide it).
CREATE TABLE t_item (
    item_no   text        COLLATE "C" NOT NULL,
    kind      text        NOT NULL,
    order_no  text        COLLATE "C",
    stray_id  text        COLLATE "C",
    detail    text        NOT NULL,
    payment   text        COLLATE "C",
    state     text        NOT NULL DEFAULT 'open',
    opened_at timestamptz NOT NULL,
    closed_at timestamptz,
    shard     smallint    NOT NULL,
    CONSTRAINT t_item_pkey PRIMARY KEY (item_no),
    CONSTRAINT t_item_kind_check CHECK (kind IN ('parked', 'surplus', 'flagged', 'stray', 'quarantined', 'stalled'))
);
-- Serves GET /v1/items?kind= and the open-item gauges.
CREATE INDEX t_item_open_idx ON t_item (kind, opened_at, item_no) WHERE state = 'open';
-- Serves GET /v1/items without a kind.
CREATE INDEX t_item_time_idx ON t_item (opened_at, item_no);
-- Serves the look-up of a parked payment by the channel's number.
CREATE INDEX t_item_payment_idx ON t_item (payment) WHERE payment IS NOT NULL;

-- Who gets business effects. Changed by command. While backfilling, nothing is sent, so that the past comes first.
CREATE TABLE t_subscriber (
    name        text        COLLATE "C" NOT NULL,
    events      json        NOT NULL,
    url         text        NOT NULL,
    secret_ref  text        NOT NULL,
    paused      boolean     NOT NULL DEFAULT false,
    backfilling boolean     NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL,
    CONSTRAINT t_subscriber_pkey PRIMARY KEY (name)
);

-- The outbox (P7). Lane = (order_no, subscriber); order inside a lane is (position, effect_id).
-- due_at: the next try; of a leased row, the end of the lease.
CREATE TABLE t_effect (
    effect_id   uuid        NOT NULL,
    shard       smallint    NOT NULL,
    position    bigint      NOT NULL,
    order_no    text        COLLATE "C" NOT NULL,
    subscriber  text        COLLATE "C" NOT NULL,
    kind        text        NOT NULL,
    event_id    uuid        NOT NULL,
    call        json,
    state       text        NOT NULL DEFAULT 'pending',
    attempts    integer     NOT NULL DEFAULT 0,
    due_at      timestamptz NOT NULL,
    lease_token uuid,
    lease_until timestamptz,
    last_error  text,
    created_at  timestamptz NOT NULL,
    done_at     timestamptz,
    CONSTRAINT t_effect_pkey PRIMARY KEY (effect_id),
    -- P1: one effect per event, subscriber and kind (a backfill racing the writer can't make a second).
    CONSTRAINT t_effect_once_key UNIQUE (event_id, subscriber, kind),
    CONSTRAINT t_effect_state_check CHECK (state IN ('pending', 'leased', 'delivered', 'dead', 'discarded')),
    CONSTRAINT t_effect_lease_check CHECK ((state = 'leased') = (lease_token IS NOT NULL))
) WITH (fillfactor = 70);
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
    seal_no    bigint      NOT NULL,
    body       json        NOT NULL,
    signature  bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT t_seal_pkey PRIMARY KEY (seal_no)
);

-- Duplicates and refusals for `explain`: best effort, prunable, not part of P4.
CREATE TABLE t_attempt (
    attempt_id uuid        NOT NULL,
    at         timestamptz NOT NULL,
    channel    text        NOT NULL,
    account    text        NOT NULL,
    order_no   text        COLLATE "C",
    result     text        NOT NULL,
    detail     text        NOT NULL,
    CONSTRAINT t_attempt_pkey PRIMARY KEY (attempt_id)
);
CREATE INDEX t_attempt_order_idx ON t_attempt (order_no, at) WHERE order_no IS NOT NULL;

-- P8: append-only means append-only.
CREATE FUNCTION paidonce_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'table % is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION paidonce_append_only();
CREATE TRIGGER t_order_flow_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON t_order_flow
    FOR EACH STATEMENT EXECUTE FUNCTION paidonce_append_only();
CREATE TRIGGER t_evidence_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON t_evidence
    FOR EACH STATEMENT EXECUTE FUNCTION paidonce_append_only();
CREATE TRIGGER t_seal_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON t_seal
    FOR EACH STATEMENT EXECUTE FUNCTION paidonce_append_only();
