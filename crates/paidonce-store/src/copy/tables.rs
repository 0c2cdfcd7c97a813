//! The tables of a ledger, column by column, but `t_log_head` (there from the start) and `t_migration` (each database its own).

/// How a column is stored on PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// text, char(n).
    Text,
    /// json.
    Json,
    /// smallint.
    Small,
    /// integer.
    Integer,
    /// bigint.
    Big,
    /// timestamptz.
    Time,
    /// uuid.
    Uuid,
    /// bytea.
    Bytes,
    /// boolean.
    Flag,
}

impl Kind {
    /// Element type of the array that carries a batch.
    pub(super) const fn element(self) -> &'static str {
        match self {
            Self::Text | Self::Json => "text",
            Self::Small => "smallint",
            Self::Integer => "integer",
            Self::Big => "bigint",
            Self::Time => "timestamptz",
            Self::Uuid => "uuid",
            Self::Bytes => "bytea",
            Self::Flag => "boolean",
        }
    }
}

/// A table and its columns.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// In this order rows are read: an index, so that nothing is sorted in memory.
    key: &'static str,
    pub(super) columns: &'static [(&'static str, Kind)],
}

impl Table {
    /// For SQLite.
    pub(super) fn select(&self) -> String {
        format!("SELECT {} FROM {} ORDER BY {}", self.column_names(), self.name, self.key)
    }

    /// For PostgreSQL: one array for each column.
    pub(super) fn insert(&self) -> String {
        let names = self.column_names();
        let arrays: Vec<String> =
            self.columns.iter().zip(1..).map(|((_, kind), place)| format!("${place}::{}[]", kind.element())).collect();
        let values: Vec<String> = self
            .columns
            .iter()
            .map(|(name, kind)| if *kind == Kind::Json { format!("r.{name}::json") } else { format!("r.{name}") })
            .collect();
        let (values, arrays) = (values.join(", "), arrays.join(", "));
        format!("INSERT INTO {} ({names}) SELECT {values} FROM unnest({arrays}) AS r ({names})", self.name)
    }

    fn column_names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// The log, in the order of its chains.
pub(super) const EVENTS: Table = Table {
    name: "events",
    key: "shard, position",
    columns: &[
        ("aggregate_type", Kind::Text),
        ("aggregate_id", Kind::Text),
        ("sequence", Kind::Big),
        ("event_type", Kind::Text),
        ("event_version", Kind::Text),
        ("payload", Kind::Json),
        ("metadata", Kind::Json),
        ("shard", Kind::Small),
        ("position", Kind::Big),
        ("event_id", Kind::Uuid),
        ("recorded_at", Kind::Time),
        ("hash", Kind::Bytes),
    ],
};

/// Everything else.
pub(super) const OTHERS: &[Table] = &[
    Table {
        name: "t_event_version",
        key: "event_type, event_version",
        columns: &[("event_type", Kind::Text), ("event_version", Kind::Text), ("first_seen_at", Kind::Time)],
    },
    Table {
        name: "t_idempotent",
        key: "idem_key",
        columns: &[
            ("idem_key", Kind::Text),
            ("order_no", Kind::Text),
            ("create_time", Kind::Time),
            ("shard", Kind::Small),
            ("position", Kind::Big),
            ("request_hash", Kind::Bytes),
        ],
    },
    Table {
        name: "t_order",
        key: "order_no",
        columns: &[
            ("order_no", Kind::Text),
            ("status", Kind::Text),
            ("currency", Kind::Text),
            ("amount_minor", Kind::Big),
            ("paid_minor", Kind::Big),
            ("refunded_minor", Kind::Big),
            ("surplus_minor", Kind::Big),
            ("version", Kind::Big),
            ("channel", Kind::Text),
            ("account", Kind::Text),
            ("channel_trade_no", Kind::Text),
            ("pay_time", Kind::Time),
            ("expires_at", Kind::Time),
            ("description", Kind::Text),
            ("supersedes", Kind::Text),
            ("create_time", Kind::Time),
            ("update_time", Kind::Time),
            ("shard", Kind::Small),
        ],
    },
    Table {
        name: "t_order_flow",
        key: "idem_key",
        columns: &[
            ("idem_key", Kind::Text),
            ("order_no", Kind::Text),
            ("trade_type", Kind::Text),
            ("direction", Kind::Text),
            ("channel", Kind::Text),
            ("account", Kind::Text),
            ("channel_trade_no", Kind::Text),
            ("refund_no", Kind::Text),
            ("currency", Kind::Text),
            ("amount_minor", Kind::Big),
            ("occurred_at", Kind::Time),
            ("create_time", Kind::Time),
            ("shard", Kind::Small),
            ("position", Kind::Big),
        ],
    },
    Table {
        name: "t_evidence",
        key: "shard, digest",
        columns: &[
            ("shard", Kind::Small),
            ("digest", Kind::Bytes),
            ("channel", Kind::Text),
            ("account", Kind::Text),
            ("source", Kind::Text),
            ("headers", Kind::Json),
            ("body", Kind::Bytes),
            ("key_id", Kind::Text),
            ("received_at", Kind::Time),
        ],
    },
    Table {
        name: "t_item",
        key: "item_no",
        columns: &[
            ("item_no", Kind::Text),
            ("kind", Kind::Text),
            ("order_no", Kind::Text),
            ("stray_id", Kind::Text),
            ("detail", Kind::Text),
            ("payment", Kind::Text),
            ("state", Kind::Text),
            ("opened_at", Kind::Time),
            ("closed_at", Kind::Time),
            ("shard", Kind::Small),
        ],
    },
    Table {
        name: "t_subscriber",
        key: "name",
        columns: &[
            ("name", Kind::Text),
            ("events", Kind::Json),
            ("url", Kind::Text),
            ("secret_ref", Kind::Text),
            ("paused", Kind::Flag),
            ("backfilling", Kind::Flag),
            ("created_at", Kind::Time),
        ],
    },
    Table {
        name: "t_effect",
        key: "effect_id",
        columns: &[
            ("effect_id", Kind::Uuid),
            ("shard", Kind::Small),
            ("position", Kind::Big),
            ("order_no", Kind::Text),
            ("subscriber", Kind::Text),
            ("kind", Kind::Text),
            ("event_id", Kind::Uuid),
            ("call", Kind::Json),
            ("state", Kind::Text),
            ("attempts", Kind::Integer),
            ("due_at", Kind::Time),
            ("lease_token", Kind::Uuid),
            ("lease_until", Kind::Time),
            ("last_error", Kind::Text),
            ("created_at", Kind::Time),
            ("done_at", Kind::Time),
        ],
    },
    Table {
        name: "t_seal",
        key: "seal_no",
        columns: &[
            ("seal_no", Kind::Big),
            ("body", Kind::Json),
            ("signature", Kind::Bytes),
            ("created_at", Kind::Time),
        ],
    },
    Table {
        name: "t_attempt",
        key: "attempt_id",
        columns: &[
            ("attempt_id", Kind::Uuid),
            ("at", Kind::Time),
            ("channel", Kind::Text),
            ("account", Kind::Text),
            ("order_no", Kind::Text),
            ("result", Kind::Text),
            ("detail", Kind::Text),
        ],
    },
];
