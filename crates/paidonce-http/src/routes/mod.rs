//! The doors, a file each. Every path here has its rows in [`crate::policy`].

use actix_web::web::{self, ServiceConfig, get, post};
use actix_web::{HttpResponse, Resource, guard};

use crate::deadline::{in_platform_time, in_time};
use crate::policy;
use crate::problem::{self, Problem};

pub(crate) mod audit;
mod callbacks;
pub(crate) mod effects;
mod events;
pub(crate) mod health;
pub(crate) mod items;
pub(crate) mod orders;
mod pages;
pub(crate) mod refunds;
pub(crate) mod subscribers;
#[cfg(feature = "testing")]
mod testing;

pub(crate) fn configure(config: &mut ServiceConfig) {
    config.service(resource(policy::CALLBACK_PATH).route(post().to(callbacks::receive)));
    configure_orders(config);
    configure_ledger(config);
    configure_pages(config);
    #[cfg(feature = "testing")]
    testing::configure(config);
    config.default_service(web::to(nothing_here));
}

fn configure_orders(config: &mut ServiceConfig) {
    config
        .service(
            resource("/v1/orders").route(post().to(in_time(orders::open))).route(get().to(in_time(orders::search))),
        )
        .service(resource("/v1/orders/{order_no}").route(get().to(in_time(orders::get))))
        .service(resource("/v1/orders/{order_no}/events").route(get().to(in_time(orders::events))))
        .service(resource("/v1/orders/{order_no}/flows").route(get().to(in_time(orders::flows))))
        .service(resource("/v1/orders/{order_no}/counts").route(get().to(in_time(orders::counts))))
        .service(resource("/v1/orders/{order_no}/close").route(post().to(in_platform_time(orders::close))))
        .service(
            resource("/v1/orders/{order_no}/query-payment").route(post().to(in_platform_time(orders::query_payment))),
        )
        .service(resource("/v1/orders/{order_no}/profit-shares").route(post().to(in_time(orders::follow_profit_share))))
        .service(
            resource("/v1/orders/{order_no}/refunds/{refund_no}/query")
                .route(post().to(in_platform_time(refunds::query))),
        )
        .service(
            resource("/v1/orders/{order_no}/refunds")
                .route(post().to(in_time(refunds::request)))
                .route(get().to(in_time(refunds::list))),
        );
}

fn configure_ledger(config: &mut ServiceConfig) {
    config
        .service(resource("/v1/items").route(get().to(in_time(items::list))))
        .service(resource("/v1/items/{item_no}").route(get().to(in_time(items::get))))
        .service(resource("/v1/items/{item_no}/resolve").route(post().to(in_time(items::resolve))))
        .service(resource("/v1/items/{item_no}/adopt").route(post().to(in_time(items::adopt))))
        .service(resource("/v1/items/{item_no}/accept").route(post().to(in_time(items::accept))))
        .service(resource("/v1/items/{item_no}/refund").route(post().to(in_time(items::refund))))
        .service(resource("/v1/events").route(get().to(in_time(events::feed))))
        .service(resource("/v1/effects").route(get().to(in_time(effects::list))))
        .service(resource("/v1/effects/{effect_id}/requeue").route(post().to(in_time(effects::requeue))))
        .service(resource("/v1/effects/{effect_id}/discard").route(post().to(in_time(effects::discard))))
        .service(resource("/v1/audit/orders/{order_no}/timeline").route(get().to(in_time(audit::timeline))))
        .service(resource("/v1/subscribers").route(get().to(in_time(subscribers::list))))
        .service(
            resource("/v1/subscribers/{name}")
                .route(web::put().to(in_time(subscribers::put)))
                .route(web::delete().to(in_time(subscribers::delete))),
        )
        // Bounded steps over the whole log: takes as long as the log is.
        .service(resource("/v1/subscribers/{name}/backfill").route(post().to(subscribers::backfill)));
}

fn configure_pages(config: &mut ServiceConfig) {
    let get_or_head = || web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    config
        .service(resource("/healthz").route(get_or_head().to(health::healthz)))
        .service(resource("/readyz").route(get_or_head().to(in_time(health::readyz))))
        .service(resource("/metrics").route(get().to(in_time(health::metrics))))
        .service(resource("/openapi.json").route(get().to(pages::openapi)))
        .service(resource("/docs").route(get().to(pages::docs)));
}

/// A path of ours: other methods than its routes' are told so.
fn resource(path: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move { other_method(path) }))
}

fn other_method(path: &str) -> Result<HttpResponse, Problem> {
    let allowed: Vec<&str> = policy::methods(path).collect();
    Err(Problem::new(&problem::METHOD_NOT_ALLOWED, format!("{path} takes {}", allowed.join(", ")))
        .allowing(allowed.join(", ")))
}

async fn nothing_here() -> Result<HttpResponse, Problem> {
    Err(Problem::new(&problem::NOT_FOUND, "no such path: see /docs"))
}
