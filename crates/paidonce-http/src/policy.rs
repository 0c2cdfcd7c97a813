//! Every route, who may use it and what it is for: one table that authorisation, the OpenAPI document and
//! the tests read. A route that is registered without a row here is refused to everybody.

use actix_web::http::Method;

use crate::auth::Scope;

/// A row.
#[derive(Debug)]
pub struct Route {
    /// HTTP method.
    pub method: Method,
    /// Path with `{names}`.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// What it is for, in one sentence.
    pub summary: &'static str,
    /// Query parameters it takes, each with what it means; others are refused.
    pub query: &'static [(&'static str, &'static str)],
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody: tells nothing.
    Anybody,
    /// Anybody whose message carries a good signature of the platform.
    Signature,
    /// This host itself without a token, others with finance or operator.
    Metrics,
    /// Reads of one order or a search: service, finance, operator.
    ReadOrders,
    /// Changes of orders: service, operator.
    WriteOrders,
    /// Reads over the whole ledger: finance, operator.
    Inspect,
    /// Decisions of a person: operator.
    Operate,
}

impl Access {
    /// Scopes of which a token needs one; `None` when no token is needed.
    #[must_use]
    pub const fn scopes(self) -> Option<&'static [Scope]> {
        match self {
            Self::Anybody | Self::Signature => None,
            Self::Metrics | Self::Inspect => Some(&[Scope::Finance, Scope::Operator]),
            Self::ReadOrders => Some(&[Scope::Service, Scope::Finance, Scope::Operator]),
            Self::WriteOrders => Some(&[Scope::Service, Scope::Operator]),
            Self::Operate => Some(&[Scope::Operator]),
        }
    }
}

const fn row(method: Method, path: &'static str, access: Access, summary: &'static str) -> Route {
    Route { method, path, access, summary, query: &[] }
}

const fn list(
    query: &'static [(&'static str, &'static str)],
    path: &'static str,
    access: Access,
    summary: &'static str,
) -> Route {
    Route { method: Method::GET, path, access, summary, query }
}

const LIMIT: (&str, &str) = ("limit", "Rows of a page, 1 to 500; 50 if absent.");
const AFTER: (&str, &str) = ("after", "The next_after of the page before.");

const ORDERS_QUERY: &[(&str, &str)] = &[
    ("status", "UNOPENED, PENDING, PAID, REFUNDED or CLOSED."),
    ("from", "Created at or after, RFC 3339."),
    ("to", "Created before, RFC 3339."),
    ("channel_trade_no", "With a payment or refund of this channel number."),
    AFTER,
    LIMIT,
];
const ITEMS_QUERY: &[(&str, &str)] = &[
    ("kind", "parked, surplus, flagged, stray, quarantined or stalled."),
    ("state", "open (if absent) or all."),
    AFTER,
    LIMIT,
];
const FEED_QUERY: &[(&str, &str)] =
    &[("cursor", "The next_cursor of the page before; absent from the beginning."), LIMIT];
const EFFECTS_QUERY: &[(&str, &str)] =
    &[("state", "pending, leased, delivered, dead or discarded."), ("order_no", "Only of this order."), AFTER, LIMIT];

use Access::{Anybody, Inspect, Metrics, Operate, ReadOrders, Signature, WriteOrders};

/// Path of the callbacks.
pub(crate) const CALLBACK_PATH: &str = "/callbacks/{channel}/{account}";

/// The table.
pub static ROUTES: &[Route] = &[
    row(Method::POST, CALLBACK_PATH, Signature, "A platform's notification; answered in the platform's own words."),
    row(Method::POST, "/v1/orders", WriteOrders, "Open an order: 201; the same terms again: 200."),
    list(ORDERS_QUERY, "/v1/orders", ReadOrders, "Search orders by status, time or channel number."),
    row(Method::GET, "/v1/orders/{order_no}", ReadOrders, "One order with its payments and refunds."),
    row(Method::GET, "/v1/orders/{order_no}/events", ReadOrders, "Its events in sequence."),
    row(Method::GET, "/v1/orders/{order_no}/flows", ReadOrders, "The money that moved for it."),
    row(Method::GET, "/v1/orders/{order_no}/counts", Inspect, "How many rows the tables hold for it."),
    row(
        Method::POST,
        "/v1/orders/{order_no}/close",
        WriteOrders,
        "Close an unpaid order: at its platforms first; a payment found on the way wins.",
    ),
    row(
        Method::POST,
        "/v1/orders/{order_no}/query-payment",
        WriteOrders,
        "Ask the platforms how its payment stands, and record what they say.",
    ),
    row(
        Method::POST,
        "/v1/orders/{order_no}/profit-shares",
        WriteOrders,
        "Follow a profit share that the merchant started: 202; the same again: 200.",
    ),
    row(Method::POST, "/v1/orders/{order_no}/refunds", WriteOrders, "Request a refund: 201; the same again: 200."),
    row(Method::GET, "/v1/orders/{order_no}/refunds", ReadOrders, "Its refunds."),
    row(
        Method::POST,
        "/v1/orders/{order_no}/refunds/{refund_no}/query",
        WriteOrders,
        "Ask the platform what became of a refund, and record what it says.",
    ),
    list(ITEMS_QUERY, "/v1/items", Inspect, "What needs a person, newest first."),
    row(Method::GET, "/v1/items/{item_no}", Inspect, "One item."),
    row(Method::POST, "/v1/items/{item_no}/resolve", Operate, "Close an item without moving money."),
    row(
        Method::POST,
        "/v1/items/{item_no}/adopt",
        Operate,
        "Open the order of a parked payment with the payment's own terms.",
    ),
    row(Method::POST, "/v1/items/{item_no}/accept", Operate, "Let a surplus payment settle its order."),
    row(Method::POST, "/v1/items/{item_no}/refund", Operate, "Request what is left of a surplus payment back."),
    list(FEED_QUERY, "/v1/events", Inspect, "The log as a feed, gapless per shard."),
    list(EFFECTS_QUERY, "/v1/effects", Inspect, "Business effects and channel calls, oldest first."),
    row(Method::POST, "/v1/effects/{effect_id}/requeue", Operate, "Send a dead effect again."),
    row(Method::POST, "/v1/effects/{effect_id}/discard", Operate, "Give an effect up, which frees its lane."),
    row(
        Method::GET,
        "/v1/audit/orders/{order_no}/timeline",
        Inspect,
        "What happened to an order and why: events, effects, repeated and refused messages.",
    ),
    row(Method::GET, "/v1/subscribers", Inspect, "Who gets business effects."),
    row(Method::PUT, "/v1/subscribers/{name}", Operate, "Add or change a subscriber; it hears of events from now on."),
    row(Method::DELETE, "/v1/subscribers/{name}", Operate, "Remove a subscriber and discard its unsent effects."),
    row(
        Method::POST,
        "/v1/subscribers/{name}/backfill",
        Operate,
        "Tell a subscriber of every matching event of the past.",
    ),
    row(Method::GET, "/healthz", Anybody, "The process answers."),
    row(Method::GET, "/readyz", Anybody, "This node can write now."),
    row(Method::GET, "/metrics", Metrics, "Prometheus metrics."),
    row(Method::GET, "/openapi.json", Anybody, "This API as an OpenAPI 3.1 document."),
    row(Method::GET, "/docs", Anybody, "This API as a page."),
];

/// Routes of test builds.
#[cfg(feature = "testing")]
pub(crate) static TESTING_ROUTES: &[Route] = &[
    row(Method::POST, "/testing/clock", Anybody, "Move the clock."),
    row(Method::POST, "/testing/fault", Anybody, "Arm a fault point."),
    row(Method::DELETE, "/testing/fault", Anybody, "Disarm all fault points."),
    row(Method::POST, "/testing/relay", Anybody, "Run the relay until nothing is due."),
];

#[cfg(not(feature = "testing"))]
pub(crate) static TESTING_ROUTES: &[Route] = &[];

/// What the table says.
pub(crate) enum Found {
    Route(&'static Route),
    /// The path has rows, the method has none.
    OtherMethod,
    Nothing,
}

/// The row of a method and a matched pattern. HEAD counts as GET.
pub(crate) fn find(method: &Method, pattern: &str) -> Found {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let mut of_path = ROUTES.iter().chain(TESTING_ROUTES).filter(|route| route.path == pattern).peekable();
    if of_path.peek().is_none() {
        return Found::Nothing;
    }
    of_path.find(|route| route.method == *method).map_or(Found::OtherMethod, Found::Route)
}

/// Routes that are called too often for a log line each.
pub(crate) fn is_quiet(pattern: &str) -> bool {
    pattern == CALLBACK_PATH || matches!(pattern, "/healthz" | "/readyz" | "/metrics")
}

/// Methods of a path.
pub(crate) fn methods(path: &str) -> impl Iterator<Item = &'static str> {
    let of_path = ROUTES.iter().chain(TESTING_ROUTES).filter(move |route| route.path == path);
    of_path.map(|route| route.method.as_str())
}
