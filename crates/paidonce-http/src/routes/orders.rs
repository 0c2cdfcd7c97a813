//! `/v1/orders`: open, get, search, events, flows, counts, close, query at the platforms, profit shares.

use actix_web::HttpResponse;
use paidonce_app::app::Door;
use paidonce_app::ledger::OrderFilter;
use paidonce_app::view::{EventView, FlowView, OrderSummary};
use paidonce_order::ids::{ChannelTradeNo, OrderNo};
use paidonce_order::order::Status;
use paidonce_order::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Call, accepted, created, ok};
use crate::problem::Problem;

/// A page of orders.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OrderPage {
    /// Ordered by order_no.
    orders: Vec<OrderSummary>,
    /// Give it back as `after` for the next page; `null` on the last one.
    next_after: Option<String>,
}

/// Events of an order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Events {
    /// In sequence.
    events: Vec<EventView>,
}

/// Flows of an order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flows {
    /// In booking order.
    flows: Vec<FlowView>,
}

pub(crate) async fn open(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    created(&call.app().open(call.json()?, &caller).await?)
}

pub(crate) async fn get(call: Call) -> Result<HttpResponse, Problem> {
    ok(&call.app().get_order(&call.order_no()?).await?)
}

pub(crate) async fn events(call: Call) -> Result<HttpResponse, Problem> {
    ok(&Events { events: call.app().list_order_events(&call.order_no()?).await? })
}

pub(crate) async fn flows(call: Call) -> Result<HttpResponse, Problem> {
    ok(&Flows { flows: call.app().list_order_flows(&call.order_no()?).await? })
}

pub(crate) async fn counts(call: Call) -> Result<HttpResponse, Problem> {
    ok(&call.app().count_order_rows(&call.order_no()?).await?)
}

pub(crate) async fn close(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    ok(&call.app().close(&call.order_no()?, call.json()?, &caller).await?.value)
}

pub(crate) async fn query_payment(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    ok(&call.app().query_payment(&call.order_no()?, &caller).await?)
}

pub(crate) async fn follow_profit_share(call: Call) -> Result<HttpResponse, Problem> {
    let caller = call.caller(Door::Api)?;
    accepted(&call.app().follow_profit_share(&call.order_no()?, call.json()?, &caller).await?)
}

pub(crate) async fn search(call: Call) -> Result<HttpResponse, Problem> {
    let query = call.query()?;
    let filter = OrderFilter {
        status: query.value("status", parse_status)?,
        from: query.value("from", Timestamp::parse)?,
        to: query.value("to", Timestamp::parse)?,
        channel_trade_no: query.value("channel_trade_no", ChannelTradeNo::parse)?,
        after: query.value("after", OrderNo::parse)?,
        limit: query.limit()?,
    };
    let orders = call.app().list_orders(&filter).await?;
    let full = u32::try_from(orders.len()).is_ok_and(|rows| rows == filter.limit);
    let next_after = orders.last().filter(|_| full).map(|order| order.order_no.clone());
    ok(&OrderPage { orders, next_after })
}

fn parse_status(text: &str) -> Result<Status, String> {
    let all = [Status::Unopened, Status::Pending, Status::Paid, Status::Refunded, Status::Closed];
    let known = all.into_iter().find(|status| status.as_str() == text);
    known.ok_or_else(|| format!("must be UNOPENED, PENDING, PAID, REFUNDED or CLOSED, not {text:?}"))
}
