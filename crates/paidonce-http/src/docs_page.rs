//! This API as one page without script or anything from elsewhere, made from the same tables as the OpenAPI document.

use std::fmt::Write as _;

use crate::policy::{ROUTES, Route};
use crate::problem::{self, Kind};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:.4rem;text-align:left;vertical-align:top}\
code{font:14px ui-monospace,monospace}:target{background:#fff4c2}";

/// The page.
pub(crate) fn page() -> String {
    let mut page = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>paidonce API</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>paidonce API</h1><p>Version {}. Schemas stand in <a href=\"/openapi.json\">/openapi.json</a>. \
         Amounts are integer minor units, times RFC 3339 in UTC. Unknown fields are refused. \
         A POST with <code>Idempotency-Key</code> is done once.</p><h2>Routes</h2>\
         <table><tr><th>Route</th><th>For</th><th>Token with</th></tr>",
        env!("CARGO_PKG_VERSION")
    );
    ROUTES.iter().for_each(|route| route_row(&mut page, route));
    page.push_str(
        "</table><h2>Problems</h2><table><tr><th>Code</th><th>Status</th><th>Meaning</th><th>Next step</th></tr>",
    );
    problem::ALL.iter().for_each(|kind| problem_row(&mut page, kind));
    page.push_str("</table></body></html>");
    page
}

fn route_row(page: &mut String, route: &Route) {
    let scopes = match route.access.scopes() {
        None => "no token".to_owned(),
        Some(scopes) => scopes.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect::<Vec<_>>().join(", "),
    };
    let mut summary = escape(route.summary);
    for (name, meaning) in route.query {
        // Writing to a String can't fail.
        let _ = write!(summary, "<br><code>{}</code> {}", escape(name), escape(meaning));
    }
    let (method, path) = (route.method.as_str(), escape(route.path));
    let _ = write!(page, "<tr><td><code>{method} {path}</code></td><td>{summary}</td><td>{scopes}</td></tr>");
}

fn problem_row(page: &mut String, kind: &Kind) {
    let (code, title, next) = (escape(kind.code), escape(kind.title), escape(kind.next));
    let status = kind.status;
    let _ = write!(
        page,
        "<tr id=\"{code}\"><td><code>{code}</code></td><td>{status}</td><td>{title}</td><td>{next}</td></tr>"
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
