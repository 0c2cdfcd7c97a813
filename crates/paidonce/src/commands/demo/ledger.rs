//! The ledger as its merchant's services see it: the HTTP API, asked as the demo and the storm need it.

use anyhow::Context as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::config::Secret;

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Ledger(Client);

/// `GET /v1/orders/{no}/counts`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// Rows of `events`.
    pub events: i64,
    /// Rows of `t_idempotent`.
    pub idempotent: i64,
    /// Rows of `t_order`.
    pub order: i64,
    /// Rows of `t_order_flow`.
    pub flows: i64,
    /// Deliveries in `t_effect`.
    pub deliveries: i64,
    /// Those that the subscriber took.
    pub delivered: i64,
}

impl Ledger {
    /// `server` like `http://127.0.0.1:8080`; `token` may do everything.
    pub fn new(server: &str, token: Secret) -> anyhow::Result<Self> {
        Client::to(server, Some(token)).map(Self)
    }

    /// Through this client, whose token may do everything.
    #[must_use]
    pub const fn of(client: Client) -> Self {
        Self(client)
    }

    /// Registers an order. Errors: refused, or the same number with other terms.
    pub async fn open(&self, order_no: &str, amount_minor: i64, accounts: &[String]) -> anyhow::Result<()> {
        let body = json!({
            "order_no": order_no,
            "amount_minor": amount_minor,
            "currency": "CNY",
            "accounts": accounts,
            "description": "test order",
        });
        self.0.send(Call::post(&["v1", "orders"], body)).await.map(drop)
    }

    /// Asks for the refund of a whole payment.
    pub async fn request_refund(&self, order_no: &str, refund_no: &str, amount_minor: i64) -> anyhow::Result<()> {
        let body = json!({ "refund_no": refund_no, "amount_minor": amount_minor });
        self.0.send(Call::post(&["v1", "orders", order_no, "refunds"], body)).await.map(drop)
    }

    /// Makes the ledger ask the platforms how the payment of an order stands. Errors: also when no platform could say.
    pub async fn query_payment(&self, order_no: &str) -> anyhow::Result<()> {
        let path = ["v1", "orders", order_no, "query-payment"];
        let answer = self.0.send(Call::post(&path, json!({}))).await?;
        let results = list(&answer, "results")?;
        let outcomes: Vec<String> = results.iter().map(|one| text(one, "outcome")).collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(outcomes == ["paid"], "the sandbox was asked for a paid order and said {results:?}");
        Ok(())
    }

    /// Its status, or `-` when the ledger has never heard of it.
    pub async fn status(&self, order_no: &str) -> anyhow::Result<String> {
        let order = self.0.find(Call::get(&["v1", "orders", order_no])).await?;
        let status = order.as_ref().map(|order| text(order, "status"));
        Ok(status.transpose()?.unwrap_or_else(|| "-".to_owned()))
    }

    /// Rows by table; all zero when the ledger has never heard of the order.
    pub async fn counts(&self, order_no: &str) -> anyhow::Result<Counts> {
        let counts = self.0.find(Call::get(&["v1", "orders", order_no, "counts"])).await?;
        counts.map_or(Ok(Counts::default()), |counts| serde_json::from_value(counts).context("/counts"))
    }

    /// Types of its events, in order.
    pub async fn event_types(&self, order_no: &str) -> anyhow::Result<Vec<String>> {
        let Some(answer) = self.0.find(Call::get(&["v1", "orders", order_no, "events"])).await? else {
            return Ok(Vec::new());
        };
        list(&answer, "events")?.iter().map(|event| text(event, "event_type")).collect()
    }

    /// Reads the whole log page by page and counts it. A hole is an error of the server.
    pub async fn read_log(&self) -> anyhow::Result<usize> {
        let (mut cursor, mut count) = (None::<String>, 0_usize);
        loop {
            let call = Call::get(&["v1", "events"]).with("limit", Some(500)).with("cursor", cursor.as_ref());
            let page = self.0.send(call).await?;
            let events = list(&page, "events")?.len();
            count = count.saturating_add(events);
            cursor = Some(text(&page, "next_cursor")?);
            if events == 0 {
                return Ok(count);
            }
        }
    }

    /// Registers or changes a subscriber.
    pub async fn put_subscriber(&self, name: &str, body: Value) -> anyhow::Result<()> {
        let path = ["v1", "subscribers", name];
        let call = Call { method: Method::PUT, ..Call::post(&path, body) };
        self.0.send(call).await.map(drop)
    }

    /// Removes a subscriber.
    pub async fn delete_subscriber(&self, name: &str) -> anyhow::Result<()> {
        let path = ["v1", "subscribers", name];
        let call = Call { method: Method::DELETE, ..Call::get(&path) };
        self.0.send(call).await.map(drop)
    }
}

fn text(answer: &Value, member: &str) -> anyhow::Result<String> {
    let found = answer.get(member).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("the server's answer has no {member}"))
}

fn list<'a>(answer: &'a Value, member: &str) -> anyhow::Result<&'a [Value]> {
    let found = answer.get(member).and_then(Value::as_array);
    found.map(Vec::as_slice).with_context(|| format!("the server's answer has no {member}"))
}
