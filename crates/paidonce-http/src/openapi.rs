//! This API as an OpenAPI 3.1 document, made from the policy table and from the very types that are read and written.

use actix_web::http::Method;
use paidonce_app::audit::explain::Timeline;
use paidonce_app::close::CloseOrder;
use paidonce_app::items::OperatorNote;
use paidonce_app::open::OpenOrder;
use paidonce_app::profit_share::{FollowProfitShare, FollowedShare};
use paidonce_app::query_payment::PaymentQuery;
use paidonce_app::query_refund::RefundQuery;
use paidonce_app::refund::RequestRefund;
use paidonce_app::subscribers::PutSubscriber;
use paidonce_app::view::{FeedView, ItemView, OrderView, RefundView, RowCountsView, SubscriberView};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::policy::{Access, ROUTES, Route};
use crate::problem;
use crate::routes::effects::{EffectDone, EffectPage};
use crate::routes::health::Health;
use crate::routes::items::ItemPage;
use crate::routes::orders::{Events, Flows, OrderPage};
use crate::routes::refunds::Refunds;
use crate::routes::subscribers::{Backfilled, Subscribers};

/// What a route reads and writes.
struct Shapes {
    request: Option<Schema>,
    /// Success answers by status.
    responses: Vec<(&'static str, Option<Schema>)>,
}

impl Shapes {
    const fn responding(responses: Vec<(&'static str, Option<Schema>)>) -> Self {
        Self { request: None, responses }
    }

    fn requesting(self, request: Schema) -> Self {
        Self { request: Some(request), ..self }
    }
}

/// The document.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let problem = generator.subschema_for::<problem::Document>();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator, &problem);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_lowercase(), operation);
        }
    }
    let codes: Map<String, Value> = problem::ALL
        .iter()
        .map(|kind| (kind.code.to_owned(), json!({ "status": kind.status, "title": kind.title, "next": kind.next })))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "paidonce",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An event-sourced payment ledger: whatever a payment platform says about an order, however often, \
                the money is written once. Amounts are integer minor units, times RFC 3339 in UTC. \
                Errors are RFC 9457 problem documents; their codes stand under x-problems.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "x-problems": codes,
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Schema) -> Value {
    let shapes = shapes(route, generator);
    let mut responses: Map<String, Value> = Map::new();
    for (status, schema) in shapes.responses {
        let content = schema.map(|schema| json!({ "application/json": { "schema": schema } }));
        let mut response = json!({ "description": route.summary });
        if let (Some(content), Some(response)) = (content, response.as_object_mut()) {
            response.insert("content".to_owned(), content);
        }
        responses.insert(status.to_owned(), response);
    }
    if route.access != Access::Signature {
        let content = json!({ "application/problem+json": { "schema": problem } });
        responses.insert("default".to_owned(), json!({ "description": "A problem", "content": content }));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(operation) = operation.as_object_mut() {
        if let Some(request) = shapes.request {
            let content = json!({ "application/json": { "schema": request } });
            operation.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
        }
        if let Some(scopes) = route.access.scopes() {
            operation.insert("security".to_owned(), json!([{ "token": [] }]));
            operation.insert("x-scopes".to_owned(), json!(scopes));
        }
    }
    operation
}

/// `post_v1_orders_order_no_close`.
fn operation_id(route: &Route) -> String {
    let words: Vec<&str> =
        route.path.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method.as_str().to_lowercase(), words.join("_"))
}

fn parameters(route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> =
        in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text })).collect();
    for (name, description) in route.query {
        parameters.push(json!({ "name": name, "in": "query", "description": description, "schema": text }));
    }
    // A question writes nothing of its own, so that asking again needs no key.
    let is_question = route.path.ends_with("/query-payment") || route.path.ends_with("/query");
    if route.method == Method::POST
        && !is_question
        && ["/v1/orders", "/v1/items"].iter().any(|start| route.path.starts_with(start))
    {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "maxLength": 120 },
            "description": "The same key with the same request is done once; with another request it is refused (422).",
        }));
    }
    parameters
}

fn shapes(route: &Route, generator: &mut SchemaGenerator) -> Shapes {
    match (route.method.as_str(), route.path) {
        ("POST", "/v1/orders") => made::<OrderView>(generator).requesting(generator.subschema_for::<OpenOrder>()),
        ("GET", "/v1/orders") => read::<OrderPage>(generator),
        ("GET", "/v1/orders/{order_no}") => read::<OrderView>(generator),
        ("GET", "/v1/orders/{order_no}/events") => read::<Events>(generator),
        ("GET", "/v1/orders/{order_no}/flows") => read::<Flows>(generator),
        ("GET", "/v1/orders/{order_no}/counts") => read::<RowCountsView>(generator),
        ("POST", "/v1/orders/{order_no}/close") => {
            read::<OrderView>(generator).requesting(generator.subschema_for::<CloseOrder>())
        }
        ("POST", "/v1/orders/{order_no}/refunds") => {
            made::<RefundView>(generator).requesting(generator.subschema_for::<RequestRefund>())
        }
        ("POST", "/v1/orders/{order_no}/query-payment") => read::<PaymentQuery>(generator),
        ("POST", "/v1/orders/{order_no}/refunds/{refund_no}/query") => read::<RefundQuery>(generator),
        ("POST", "/v1/orders/{order_no}/profit-shares") => {
            let schema = generator.subschema_for::<FollowedShare>();
            Shapes::responding(vec![("202", Some(schema.clone())), ("200", Some(schema))])
                .requesting(generator.subschema_for::<FollowProfitShare>())
        }
        ("GET", "/v1/orders/{order_no}/refunds") => read::<Refunds>(generator),
        ("GET", "/v1/items") => read::<ItemPage>(generator),
        ("GET", "/v1/items/{item_no}") => read::<ItemView>(generator),
        ("POST", path) if path.starts_with("/v1/items/") => {
            read::<ItemView>(generator).requesting(generator.subschema_for::<OperatorNote>())
        }
        ("GET", "/v1/events") => read::<FeedView>(generator),
        ("GET", "/v1/effects") => read::<EffectPage>(generator),
        ("POST", path) if path.starts_with("/v1/effects/") => read::<EffectDone>(generator),
        ("GET", "/v1/audit/orders/{order_no}/timeline") => read::<Timeline>(generator),
        ("GET", "/v1/subscribers") => read::<Subscribers>(generator),
        ("PUT", "/v1/subscribers/{name}") => {
            read::<SubscriberView>(generator).requesting(generator.subschema_for::<PutSubscriber>())
        }
        ("DELETE", "/v1/subscribers/{name}") => Shapes::responding(vec![("204", None)]),
        ("POST", "/v1/subscribers/{name}/backfill") => read::<Backfilled>(generator),
        ("GET", "/healthz" | "/readyz") => read::<Health>(generator),
        ("POST", crate::policy::CALLBACK_PATH) => Shapes::responding(vec![("200", None), ("204", None)]),
        _ => Shapes::responding(vec![("200", None)]),
    }
}

fn read<T: JsonSchema>(generator: &mut SchemaGenerator) -> Shapes {
    Shapes::responding(vec![("200", Some(generator.subschema_for::<T>()))])
}

fn made<T: JsonSchema>(generator: &mut SchemaGenerator) -> Shapes {
    let schema = generator.subschema_for::<T>();
    Shapes::responding(vec![("201", Some(schema.clone())), ("200", Some(schema))])
}
