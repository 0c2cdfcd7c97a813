//! The policy table, endpoint by endpoint (P5: nobody changes money without the right to).

use paidonce_http::Scope;
use paidonce_http::policy::{Access, ROUTES, Route};
use serde_json::Value;

use crate::client::request;
use crate::harness::*;

fn path_of(route: &Route) -> String {
    let filled = route.path.replace("{channel}", "wxpay").replace("{account}", "1900000001");
    filled.replace("{effect_id}", "00000000-0000-7000-8000-000000000000").replace(['{', '}'], "")
}

#[tokio::test]
async fn every_route_lets_in_exactly_the_scopes_of_its_row() {
    let doors = doors().await;
    let tokens = [(Scope::Service, SERVICE), (Scope::Finance, FINANCE), (Scope::Operator, OPERATOR)];
    for route in ROUTES {
        let Some(scopes) = route.access.scopes() else { continue };
        if route.access == Access::Metrics {
            continue;
        }
        let (method, path) = (route.method.as_str(), path_of(route));
        doors.raw(&request(method, &path, &[], b"")).await.problem(401, "unauthorized");
        doors.call("not-a-secret-of-ours", method, &path, &Value::Null).await.problem(401, "unauthorized");
        for (scope, secret) in tokens {
            let answer = doors.call(secret, method, &path, &Value::Null).await;
            if scopes.contains(&scope) {
                assert!(!matches!(answer.status, 401 | 403 | 405), "{method} {path} {scope:?}: {}", answer.text());
                assert_ne!(answer.text(), "", "{method} {path}");
            } else {
                answer.problem(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn every_row_of_the_table_is_a_route_and_open_ones_need_no_token() {
    let doors = doors().await;
    for route in ROUTES {
        let answer = doors.call(OPERATOR, route.method.as_str(), &path_of(route), &Value::Null).await;
        let is_missing = answer.text().contains("no such path") || answer.status == 405;
        assert!(!is_missing, "{} {}: {}", route.method, route.path, answer.text());
    }
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs", "/metrics"] {
        assert_eq!(doors.raw(&request("GET", path, &[], b"")).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn metrics_passed_on_by_a_proxy_need_a_token() {
    let doors = doors().await;
    let headers = [("X-Forwarded-For".to_owned(), "203.0.113.9".to_owned())];
    doors.raw(&request("GET", "/metrics", &headers, b"")).await.problem(401, "unauthorized");
    let answer = doors.call_with(FINANCE, "GET", "/metrics", &Value::Null, &[("X-Forwarded-For", "203.0.113.9")]).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn replaced_tokens_are_in_force_at_once_and_the_old_ones_are_not() {
    let doors = doors().await;
    let new = "another-secret-of-the-service-token";
    doors.server.replace_tokens(vec![paidonce_http::Token::try_new("shop", &[Scope::Service], new).unwrap()]);
    doors.call(SERVICE, "GET", "/v1/orders", &Value::Null).await.problem(401, "unauthorized");
    assert_eq!(doors.call(new, "GET", "/v1/orders", &Value::Null).await.status, 200);
}

#[tokio::test]
async fn odd_authorization_headers_are_401_with_a_challenge() {
    let doors = doors().await;
    for value in ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Token abc", &format!("Bearer  {OPERATOR}")] {
        let headers = [("Authorization".to_owned(), value.to_owned())];
        let answer = doors.raw(&request("GET", "/v1/orders", &headers, b"")).await;
        answer.problem(401, "unauthorized");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let twice = ("Authorization".to_owned(), format!("Bearer {OPERATOR}"));
    doors.raw(&request("GET", "/v1/orders", &[twice.clone(), twice], b"")).await.problem(401, "unauthorized");
}

#[test]
fn a_token_is_refused_when_it_could_be_guessed_or_does_nothing_and_never_shows_its_secret() {
    use paidonce_http::Token;
    assert!(Token::try_new("shop", &[Scope::Service], "short").is_err());
    assert!(Token::try_new("shop", &[Scope::Service], "has a space in the secret").is_err());
    assert!(Token::try_new("shop", &[], SERVICE).is_err());
    assert!(Token::try_new("shop:1", &[Scope::Service], SERVICE).is_err());
    let token = Token::try_new("shop", &[Scope::Service], SERVICE).unwrap();
    assert!(!format!("{token:?}").contains("secret"));
}
