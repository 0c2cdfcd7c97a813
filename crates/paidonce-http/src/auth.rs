//! Who may use a door: bearer tokens with scopes, compared in constant time, decided by the one table in
//! [`crate::policy`]. A route that is not in the table is refused.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, ResponseError, web};
use aws_lc_rs::{constant_time, digest};
use serde::{Deserialize, Serialize};

use crate::policy::{self, Access};
use crate::problem::{self, Problem};
use crate::state::State;

/// Shortest secret of a token, in characters: 128 bits of hex have 32, of base64 22.
pub const SECRET_CHARS_MIN: usize = 16;

/// Longest name of a token, in characters: it stands in idempotency keys.
pub const NAME_CHARS_MAX: usize = 32;

/// What a token may do. A token may have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Open, get, list and close orders; request refunds.
    Service,
    /// Read everything.
    Finance,
    /// Everything.
    Operator,
}

/// A bearer token. Holds a digest only: the secret can't leak from here.
#[derive(Clone)]
pub struct Token {
    name: String,
    scopes: Vec<Scope>,
    secret_sha256: [u8; 32],
}

/// Why a token of the configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The name stands in idempotency keys and log lines.
    #[error("token name {name:?} must have 1 to 32 letters, digits and _-")]
    Name {
        /// As given.
        name: String,
    },
    /// It may do nothing.
    #[error("token {name:?} has no scope: give it service, finance or operator")]
    NoScope {
        /// Which token.
        name: String,
    },
    /// It could be guessed, or can't be sent in a header.
    #[error("the secret of token {name:?} must have at least 16 visible ASCII characters")]
    Secret {
        /// Which token.
        name: String,
    },
}

impl Token {
    /// Checks and hashes. Errors: [`TokenError`], never naming the secret.
    pub fn try_new(name: &str, scopes: &[Scope], secret: &str) -> Result<Self, TokenError> {
        let name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let owned = || name.to_owned();
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(name_char) {
            return Err(TokenError::Name { name: owned() });
        }
        if scopes.is_empty() {
            return Err(TokenError::NoScope { name: owned() });
        }
        if secret.len() < SECRET_CHARS_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Secret { name: owned() });
        }
        Ok(Self { name: owned(), scopes: scopes.to_vec(), secret_sha256: sha256(secret.as_bytes()) })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// The tokens in force; replaced as a whole on reload.
pub(crate) struct Tokens {
    current: RwLock<Arc<Vec<Token>>>,
}

impl Tokens {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self { current: RwLock::new(Arc::new(tokens)) }
    }

    pub(crate) fn replace(&self, tokens: Vec<Token>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    /// The token with this secret. Every token is compared, in constant time over digests, so that the time taken tells
    /// nothing about any of them.
    fn find(&self, secret: &[u8]) -> Option<Token> {
        let tokens = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let presented = sha256(secret);
        tokens.iter().fold(None, |found, token| {
            let fits = constant_time::verify_slices_are_equal(&token.secret_sha256, &presented).is_ok();
            if fits { Some(token.clone()) } else { found }
        })
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0_u8; 32];
    out.iter_mut().zip(digest::digest(&digest::SHA256, bytes).as_ref()).for_each(|(to, from)| *to = *from);
    out
}

/// Who was let in; in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) token_name: String,
}

/// Middleware: lets a request through or answers 401 or 403.
pub(crate) async fn authorise(
    state: web::Data<State>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    match decide(&state, &request) {
        Ok(identity) => {
            if let Some(identity) = identity {
                request.extensions_mut().insert(identity);
            }
            next.call(request).await.map(ServiceResponse::map_into_left_body)
        }
        Err(problem) => Ok(request.into_response(problem.error_response()).map_into_right_body()),
    }
}

fn decide(state: &State, request: &ServiceRequest) -> Result<Option<Identity>, Problem> {
    // No pattern: nothing is there, the default service says so.
    let Some(pattern) = request.match_pattern() else { return Ok(None) };
    let access = match policy::find(request.method(), &pattern) {
        policy::Found::Route(route) => route.access,
        // The resource answers 405.
        policy::Found::OtherMethod => return Ok(None),
        policy::Found::Nothing => {
            tracing::error!(pattern, "a route without a row in the policy table is refused");
            return Err(Problem::new(&problem::FORBIDDEN, "this route has no policy"));
        }
    };
    if access == Access::Metrics && is_direct_loopback(request) {
        return Ok(None);
    }
    let Some(scopes) = access.scopes() else { return Ok(None) };
    let token = present(state, request)?;
    if !token.scopes.iter().any(|scope| scopes.contains(scope)) {
        let wanted: Vec<String> = scopes.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect();
        let detail = format!("token {:?} lacks a scope for this: it needs {}", token.name, wanted.join(" or "));
        return Err(Problem::new(&problem::FORBIDDEN, detail));
    }
    Ok(Some(Identity { token_name: token.name }))
}

fn present(state: &State, request: &ServiceRequest) -> Result<Token, Problem> {
    let missing = || Problem::new(&problem::UNAUTHORIZED, "no bearer token was sent");
    let mut headers = request.headers().get_all(header::AUTHORIZATION);
    let value = headers.next().ok_or_else(missing)?;
    if headers.next().is_some() {
        return Err(Problem::new(&problem::UNAUTHORIZED, "more than one Authorization header was sent"));
    }
    let (scheme, secret) = value.as_bytes().split_at_checked(7).ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return Err(missing());
    }
    let unknown = || Problem::new(&problem::UNAUTHORIZED, "the bearer token is not one of ours");
    state.tokens.find(secret).ok_or_else(unknown)
}

/// A request from this host itself, not one that a proxy on this host passed on.
fn is_direct_loopback(request: &ServiceRequest) -> bool {
    let forwarded =
        [header::FORWARDED, header::X_FORWARDED_FOR].iter().any(|name| request.headers().contains_key(name));
    let peer: Option<IpAddr> = request.peer_addr().map(|address| address.ip());
    !forwarded && peer.is_some_and(|ip| ip.is_loopback())
}
