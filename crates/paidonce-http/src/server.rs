//! Starting and stopping the HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App as ActixApp, HttpServer, middleware, web};
use paidonce_app::App;
use tokio::task::JoinHandle;

use crate::auth::{self, Token};
use crate::metrics::CallMetrics;
use crate::routes;
use crate::state::State;
use crate::trace;

/// Open connections: more than a crowd of slow senders holds in the time that each is given ([`REQUEST_SENT_MAX`]), so that
/// callbacks are accepted meanwhile.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Platforms send a callback in one go and give up after 5 s: whoever takes twice as long for its head, or for its body, is no
/// platform.
const REQUEST_SENT_MAX: Duration = Duration::from_secs(10);
/// Connections that the kernel keeps for us while we accept others; the kernel's own limit (somaxconn) is often 4,096.
const BACKLOG: u32 = 4_096;

/// How the server listens and what it bounds.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Threads that serve connections. Two keep a small machine busy; decisions and commits run elsewhere.
    pub workers: usize,
    /// Open connections; more wait in the backlog.
    pub connections_max: usize,
    /// A client must have sent its request head within this.
    pub head_timeout: Duration,
    /// A client must have sent its body within this; slower senders are cut (408).
    pub body_timeout: Duration,
    /// An idle connection is kept this long. Longer than the 60 s of common load balancers, so that they close first.
    pub keep_alive: Duration,
    /// How long a shutdown waits for requests under way.
    pub shutdown_timeout: Duration,
    /// A request is answered within this, with 503 if it must be: WeChat Pay waits 5 s.
    pub answer_deadline: Duration,
    /// A request that asks platforms is answered within this: two calls of 10 s for each of two accounts, and some more.
    pub platform_deadline: Duration,
    /// Tokens of our own API.
    pub tokens: Vec<Token>,
    /// Counts of calls to the platforms: what the channel client was given.
    pub calls: CallMetrics,
    /// Whose money it is; said by `/readyz` and in the metrics.
    pub money: Money,
    /// Drives the relay by hand; test builds only.
    #[cfg(feature = "testing")]
    pub testing: TestingDoors,
}

/// Whose money a ledger is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Money {
    /// The platforms'.
    #[default]
    Real,
    /// That of `paidonce sandbox`, which plays the platforms with keys of its own.
    Played,
}

/// What the `/testing` routes move.
#[cfg(feature = "testing")]
#[derive(Clone, Default)]
pub struct TestingDoors {
    /// The offset that the store and the app's clock were given.
    pub clock: paidonce_app::testing::ClockOffset,
    /// The fault points; `default` is the set of the process, which the store passes too.
    pub faults: paidonce_app::fault::Faults,
    /// The relay.
    pub relay: Option<Arc<dyn paidonce_app::ports::RelayDriver>>,
}

#[cfg(feature = "testing")]
impl std::fmt::Debug for TestingDoors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestingDoors")
    }
}

impl ServerOptions {
    /// Defaults for a production server at this address, without any token.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            workers: 2,
            connections_max: CONNECTIONS_MAX,
            head_timeout: REQUEST_SENT_MAX,
            body_timeout: REQUEST_SENT_MAX,
            keep_alive: Duration::from_secs(75),
            shutdown_timeout: Duration::from_secs(10),
            answer_deadline: Duration::from_millis(4_500),
            platform_deadline: Duration::from_secs(55),
            tokens: Vec::new(),
            calls: CallMetrics::default(),
            money: Money::Real,
            #[cfg(feature = "testing")]
            testing: TestingDoors::default(),
        }
    }
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be listened on.
    #[error("can't listen on {listen}")]
    Bind {
        /// As configured.
        listen: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    handle: ServerHandle,
    task: JoinHandle<std::io::Result<()>>,
    state: web::Data<State>,
}

impl Server {
    /// Where it listens, with the real port.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts new tokens in place of all old ones (keys of accounts: `App::accounts().replace`).
    pub fn replace_tokens(&self, tokens: Vec<Token>) {
        self.state.tokens.replace(tokens);
    }

    /// Returns when the server has ended by itself, which only a failure makes it do.
    pub async fn ended(&mut self) -> std::io::Result<()> {
        (&mut self.task).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Stops: `/readyz` says 503, no new connection is taken, requests under way are answered, and every accepted
    /// callback has its outcome before this returns. The store is still open afterwards: close it next.
    pub async fn shutdown(self) {
        self.state.begin_stopping();
        self.handle.stop(true).await;
        self.state.wait_for_jobs().await;
    }
}

/// Starts to listen. Must be called on the runtime that outlives the server: accepted callbacks finish there.
///
/// Errors: [`ServeError`].
pub async fn serve(options: ServerOptions, app: Arc<App>) -> Result<Server, ServeError> {
    let listen = options.listen;
    let state = web::Data::new(State::new(app, &options));
    let shared = state.clone();
    let server = HttpServer::new(move || {
        ActixApp::new()
            .app_data(shared.clone())
            .configure(routes::configure)
            .wrap(middleware::from_fn(auth::authorise))
            .wrap(middleware::from_fn(trace::surround))
    })
    .workers(options.workers)
    .max_connections(options.connections_max.div_ceil(options.workers.max(1)))
    .backlog(BACKLOG)
    .client_request_timeout(options.head_timeout)
    .client_disconnect_timeout(Duration::from_secs(1))
    .keep_alive(options.keep_alive)
    .shutdown_timeout(options.shutdown_timeout.as_secs())
    .disable_signals()
    .bind(listen)
    .map_err(|source| ServeError::Bind { listen, source })?;
    let address = server.addrs().first().copied().unwrap_or(listen);
    let running = server.run();
    let handle = running.handle();
    let task = tokio::spawn(running);
    tracing::info!(%address, "listening");
    Ok(Server { address, handle, task, state })
}
