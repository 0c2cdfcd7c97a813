//! Rows of the tables as values, for both databases: column lists for SELECT and the readers that go with them.

use paidonce_order::idem_key::IdemKey;
use paidonce_order::ids::{AccountId, AccountRef, Channel, ChannelTradeNo, OrderNo};
use paidonce_order::money::{Currency, Money};
use paidonce_order::project::{FlowRow, OrderRow};

use crate::backend::StoredKey;
use crate::columns::{Columns, parsed, word};
use crate::store::{Attempt, EffectRow, EventRow, Head, ItemRow, StoreError, Subscriber};

/// Why a read failed, from the driver's error.
pub(crate) fn read_error(error: sqlx::Error) -> StoreError {
    let unreadable =
        matches!(&error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_));
    if unreadable { StoreError::Corrupt(error.to_string()) } else { StoreError::Unavailable(error.to_string()) }
}

/// All rows through one reader.
pub(crate) fn all<R, T>(rows: &[R], read: fn(&R) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(read).collect()
}

/// Columns of [`event`], for alias `e`. On SQLite JSON is text already; the cast changes nothing there.
pub(crate) const EVENT: &str = "e.aggregate_type, e.aggregate_id, e.sequence, e.event_type, e.event_version, \
    CAST(e.payload AS text) AS payload, CAST(e.metadata AS text) AS metadata, e.shard, e.position, e.event_id, \
    e.recorded_at, e.hash";

/// A row of `events`.
pub(crate) fn event(row: &impl Columns) -> Result<EventRow, StoreError> {
    Ok(EventRow {
        shard: row.shard("shard")?,
        position: row.integer("position")?,
        event_id: row.uuid("event_id")?,
        aggregate_type: row.text("aggregate_type")?,
        aggregate_id: row.text("aggregate_id")?,
        sequence: row.integer("sequence")?,
        event_type: row.text("event_type")?,
        event_version: row.text("event_version")?,
        payload: row.text("payload")?,
        metadata: row.text("metadata")?,
        recorded_at: row.time("recorded_at")?,
        hash: row.digest("hash")?,
    })
}

/// Columns of [`order`].
pub(crate) const ORDER: &str = "order_no, status, currency, amount_minor, paid_minor, refunded_minor, surplus_minor, version, \
    channel, account, channel_trade_no, pay_time, expires_at, description, supersedes";

/// A row of `t_order`.
pub(crate) fn order(row: &impl Columns) -> Result<OrderRow, StoreError> {
    let amount = match (row.maybe_integer("amount_minor")?, row.maybe_text("currency")?) {
        (Some(minor), Some(code)) => Some(Money::new(minor, parsed("currency", Currency::parse(&code))?)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(StoreError::Corrupt("t_order: amount_minor and currency come together".to_owned()));
        }
    };
    let account = match (row.maybe_text("channel")?, row.maybe_text("account")?) {
        (Some(channel), Some(account)) => Some(account_ref(&channel, &account)?),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(StoreError::Corrupt("t_order: channel and account come together".to_owned()));
        }
    };
    Ok(OrderRow {
        order_no: order_no(&row.text("order_no")?)?,
        status: word("status", row.text("status")?)?,
        amount,
        paid_minor: row.integer("paid_minor")?,
        refunded_minor: row.integer("refunded_minor")?,
        surplus_minor: row.integer("surplus_minor")?,
        version: row.integer("version")?,
        account,
        channel_trade_no: row.maybe_text("channel_trade_no")?.map(|no| trade_no(&no)).transpose()?,
        pay_time: row.maybe_time("pay_time")?,
        expires_at: row.maybe_time("expires_at")?,
        description: row.maybe_text("description")?,
        supersedes: row.maybe_text("supersedes")?.map(|no| order_no(&no)).transpose()?,
    })
}

/// Columns of [`flow`].
pub(crate) const FLOW: &str = "idem_key, order_no, trade_type, direction, channel, account, channel_trade_no, refund_no, \
    currency, amount_minor, occurred_at";

/// A row of `t_order_flow`.
pub(crate) fn flow(row: &impl Columns) -> Result<FlowRow, StoreError> {
    let currency = parsed("currency", Currency::parse(&row.text("currency")?))?;
    Ok(FlowRow {
        idem_key: IdemKey::from_stored(row.text("idem_key")?),
        order_no: order_no(&row.text("order_no")?)?,
        trade_type: word("trade_type", row.text("trade_type")?)?,
        direction: word("direction", row.text("direction")?)?,
        account: account_ref(&row.text("channel")?, &row.text("account")?)?,
        channel_trade_no: trade_no(&row.text("channel_trade_no")?)?,
        refund_no: row.maybe_text("refund_no")?,
        amount: Money::new(row.integer("amount_minor")?, currency),
        occurred_at: row.time("occurred_at")?,
    })
}

/// Columns of [`item`].
pub(crate) const ITEM: &str = "item_no, kind, order_no, stray_id, detail, payment, state, opened_at, closed_at";

/// A row of `t_item`.
pub(crate) fn item(row: &impl Columns) -> Result<ItemRow, StoreError> {
    Ok(ItemRow {
        item_no: row.text("item_no")?,
        kind: word("kind", row.text("kind")?)?,
        order_no: row.maybe_text("order_no")?,
        stray_id: row.maybe_text("stray_id")?,
        detail: row.text("detail")?,
        payment: row.maybe_text("payment")?,
        state: row.text("state")?,
        opened_at: row.time("opened_at")?,
        closed_at: row.maybe_time("closed_at")?,
    })
}

/// Columns of [`attempt`].
pub(crate) const ATTEMPT: &str = "at, channel, account, order_no, result, detail";

/// A row of `t_attempt`.
pub(crate) fn attempt(row: &impl Columns) -> Result<Attempt, StoreError> {
    Ok(Attempt {
        at: row.time("at")?,
        account: account_ref(&row.text("channel")?, &row.text("account")?)?,
        order_no: row.maybe_text("order_no")?.as_deref().map(order_no).transpose()?,
        result: row.text("result")?,
        detail: row.text("detail")?,
    })
}

/// Columns of [`subscriber`].
pub(crate) const SUBSCRIBER: &str = "name, CAST(events AS text) AS events, url, secret_ref, paused";

/// A row of `t_subscriber`.
pub(crate) fn subscriber(row: &impl Columns) -> Result<Subscriber, StoreError> {
    Ok(Subscriber {
        name: row.text("name")?,
        events: parsed("events", serde_json::from_str(&row.text("events")?))?,
        url: row.text("url")?,
        secret_ref: row.text("secret_ref")?,
        paused: row.flag("paused")?,
    })
}

/// Columns of [`effect`], for alias `t`: some have names of their own, so that an event can stand in the same row.
pub(crate) const EFFECT: &str = "t.effect_id, t.shard AS effect_shard, t.position AS effect_position, t.order_no, t.subscriber, \
    t.kind, t.event_id AS effect_event_id, CAST(t.call AS text) AS call, t.state, t.attempts, t.due_at, t.lease_token, t.last_error";

/// A row of `t_effect`.
pub(crate) fn effect(row: &impl Columns) -> Result<EffectRow, StoreError> {
    Ok(EffectRow {
        effect_id: row.uuid("effect_id")?,
        shard: row.shard("effect_shard")?,
        order_no: row.text("order_no")?,
        subscriber: row.text("subscriber")?,
        kind: row.text("kind")?,
        event_id: row.uuid("effect_event_id")?,
        position: row.integer("effect_position")?,
        state: row.text("state")?,
        attempts: row.tries("attempts")?,
        due_at: row.time("due_at")?,
        lease_token: row.maybe_uuid("lease_token")?,
        last_error: row.maybe_text("last_error")?,
        call: row.maybe_text("call")?,
    })
}

/// A row of `t_log_head`.
pub(crate) fn head(row: &impl Columns) -> Result<Head, StoreError> {
    Ok(Head { shard: row.shard("shard")?, position: row.integer("position")?, hash: row.digest("hash")? })
}

/// A row of `t_idempotent`, as far as an API key needs it.
pub(crate) fn stored_key(row: &impl Columns) -> Result<StoredKey, StoreError> {
    let has_hash = row.flag("has_hash")?;
    Ok(StoredKey {
        idem_key: row.text("idem_key")?,
        order_no: row.text("order_no")?,
        request_hash: has_hash.then(|| row.digest("request_hash")).transpose()?,
    })
}

/// A stored order number.
pub(crate) fn order_no(text: &str) -> Result<OrderNo, StoreError> {
    parsed("order_no", OrderNo::parse(text))
}

fn trade_no(text: &str) -> Result<ChannelTradeNo, StoreError> {
    parsed("channel_trade_no", ChannelTradeNo::parse(text))
}

/// A stored account.
pub(crate) fn account_ref(channel: &str, account: &str) -> Result<AccountRef, StoreError> {
    Ok(AccountRef {
        channel: parsed("channel", Channel::parse(channel))?,
        account: parsed("account", AccountId::parse(account))?,
    })
}
