//! Starting and stopping both platforms, and reaching into them from the same process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::accounts::{Accounts, Channel};
use crate::config_file::{FILE, Parts};
use crate::deliver::{self, Delivered};
use crate::keys::KeyError;
use crate::moment::Moment;
use crate::options::{Delivery, KeyMode, SandboxOptions};
use crate::platforms::Platforms;
use crate::{saved_keys, server};

/// A sandbox could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A file can't be read or written.
    #[error("{}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The keys of the folder can't be used.
    #[error("the folder's keys: {0}")]
    Saved(String),
    /// A key can't be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The address can't be listened on.
    #[error("can't listen on {listen}")]
    Bind {
        /// As wanted.
        listen: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The client that pushes callbacks can't be made.
    #[error("HTTP client")]
    Client(#[source] reqwest::Error),
    /// The behaviour makes no sense.
    #[error("{0}")]
    Behaviour(String),
}

/// `POST /sandbox/advance-time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// By how much.
    pub seconds: u64,
    /// False (a ledger on the real clock): whatever waits falls due sooner, messages keep the real date, since a ledger
    /// believes none that is five minutes off. True (a test that moves the ledger's clock by the same): the platforms'
    /// clock moves, and messages are dated by it.
    #[serde(default)]
    pub ledger_moves_too: bool,
}

/// What server and pusher share.
#[derive(Debug)]
pub(crate) struct Shared {
    platforms: Mutex<Platforms>,
    pub(crate) accounts: Arc<Accounts>,
    offset_micros: AtomicI64,
    /// Something may be due sooner than was thought.
    pub(crate) changed: Notify,
    /// One `deliver-now` at a time, so that each returns when nothing more is due.
    pub(crate) delivering: tokio::sync::Mutex<()>,
    pub(crate) client: reqwest::Client,
    pub(crate) delivery: Delivery,
    dir: PathBuf,
}

impl Shared {
    /// The platforms' clock: the system's, moved by tests.
    #[expect(
        clippy::disallowed_methods,
        reason = "the platforms live outside the ledger and have a clock of their own"
    )]
    pub(crate) fn now(&self) -> Moment {
        let nanos = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
        let micros = i64::try_from(nanos.div_euclid(1_000)).unwrap_or(i64::MAX);
        Moment::from_micros(micros.saturating_add(self.offset_micros.load(Ordering::SeqCst)))
    }

    /// Does something at the platforms; what it planned is noticed.
    pub(crate) fn play<T>(&self, act: impl FnOnce(&mut Platforms, Moment) -> T) -> T {
        let done = self.look(act);
        self.changed.notify_waiters();
        done
    }

    /// Looks without a change.
    pub(crate) fn look<T>(&self, act: impl FnOnce(&mut Platforms, Moment) -> T) -> T {
        let now = self.now();
        act(&mut self.platforms.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    pub(crate) fn advance(&self, advance: Advance) {
        let by = Duration::from_secs(advance.seconds);
        if advance.ledger_moves_too {
            let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            self.offset_micros.fetch_add(micros, Ordering::SeqCst);
        }
        self.play(|platforms, now| {
            if !advance.ledger_moves_too {
                platforms.advance(by);
            }
            platforms.tick(now);
        });
    }

    /// Issues a new certificate of a platform, and keeps it. Its serial; at Alipay its number.
    pub(crate) fn rotate(&self, channel: Channel) -> Result<String, SandboxError> {
        let (serial, ring) = self.play(|platforms, now| {
            let serial = match channel {
                Channel::Wxpay => platforms.ring.rotate(now)?,
                Channel::Alipay => platforms.ring.rotate_alipay(now)?,
            };
            Ok::<_, KeyError>((serial, platforms.ring.clone()))
        })?;
        saved_keys::write(&self.dir, &self.accounts, &ring)?;
        Ok(serial)
    }
}

/// Both platforms, running.
#[derive(Debug)]
pub struct Sandbox {
    shared: Arc<Shared>,
    url: String,
    dir: PathBuf,
    notify_base: String,
    server: ServerHandle,
    serving: JoinHandle<std::io::Result<()>>,
    pushing: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Sandbox {
    /// Makes (or reads) the keys, listens, and writes `paidonce.toml` into the folder. Errors: [`SandboxError`].
    pub async fn start(options: SandboxOptions) -> Result<Self, SandboxError> {
        options.behaviour.check().map_err(SandboxError::Behaviour)?;
        let folder = |source| SandboxError::Folder { path: options.dir.clone(), source };
        std::fs::create_dir_all(&options.dir).map_err(folder)?;
        let dir = options.dir.canonicalize().map_err(folder)?;
        let (accounts, ring) = saved_keys::load_or_make(&options, system_now())?;
        let accounts = Arc::new(accounts);
        let behaviour = options.behaviour.clone();
        let platforms = Platforms::new(Arc::clone(&accounts), ring, behaviour, options.notify_base.clone());
        let shared = Arc::new(Shared {
            platforms: Mutex::new(platforms),
            accounts,
            offset_micros: AtomicI64::new(0),
            changed: Notify::new(),
            delivering: tokio::sync::Mutex::new(()),
            client: deliver::client().map_err(SandboxError::Client)?,
            delivery: options.delivery,
            dir: dir.clone(),
        });
        let (address, server, serving) = server::start(options.listen, Arc::clone(&shared))
            .map_err(|source| SandboxError::Bind { listen: options.listen, source })?;
        let url = format!("http://{address}");
        shared.play(|platforms, _| platforms.own_url.clone_from(&url));
        let (stop, stopped) = watch::channel(false);
        let pushing = tokio::spawn(deliver::run(Arc::clone(&shared), stopped));
        let notify_base = options.notify_base;
        let sandbox = Self { shared, url, dir, notify_base, server, serving, pushing, stop };
        let config = sandbox.config_toml()?;
        saved_keys::write_secret(&sandbox.config_file(), &config)?;
        Ok(sandbox)
    }

    /// `http://127.0.0.1:port`: WeChat Pay's `api_url`; Alipay's is `<url>/gateway.do`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The configuration in the folder: for `paidonce serve --config`.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// A whole configuration for a ledger at `notify_base`.
    pub fn config_toml(&self) -> Result<String, SandboxError> {
        self.parts(|parts| parts.config_toml(&self.notify_base))
    }

    /// Only `[[wxpay]]`, `[[alipay]]` and `[sandbox]`, for a configuration that has the rest.
    pub fn accounts_toml(&self) -> Result<String, SandboxError> {
        self.parts(|parts| parts.accounts_toml())
    }

    fn parts<T>(&self, write: impl FnOnce(&Parts<'_>) -> T) -> T {
        let (ring, behaviour) = self.shared.play(|platforms, _| (platforms.ring.clone(), platforms.behaviour.clone()));
        let (mode, alipay_mode) = (behaviour.wxpay_keys, behaviour.alipay_keys);
        write(&Parts {
            dir: &self.dir,
            accounts: &self.shared.accounts,
            ring: &ring,
            mode,
            alipay_mode,
            url: &self.url,
        })
    }

    /// Does something at the platforms: `sandbox.play(|platforms, now| platforms.pay(&pay, now))`.
    pub fn play<T>(&self, act: impl FnOnce(&mut Platforms, Moment) -> T) -> T {
        self.shared.play(act)
    }

    /// The platforms' clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.shared.now()
    }

    /// Lets time pass.
    pub fn advance(&self, advance: Advance) {
        self.shared.advance(advance);
    }

    /// Changes what signs WeChat Pay's callbacks.
    pub fn set_key_mode(&self, mode: KeyMode) {
        self.play(|platforms, _| platforms.behaviour.wxpay_keys = mode);
    }

    /// Issues a new platform certificate that signs from now on; its serial.
    pub fn rotate_certificate(&self) -> Result<String, SandboxError> {
        self.shared.rotate(Channel::Wxpay)
    }

    /// Issues a new certificate of Alipay that signs from now on, in certificate mode; its number.
    pub fn rotate_alipay_certificate(&self) -> Result<String, SandboxError> {
        self.shared.rotate(Channel::Alipay)
    }

    /// Where callbacks go from now on when an order does not say otherwise: a ledger whose port was not known before.
    pub fn set_notify_base(&self, notify_base: &str) {
        self.play(|platforms, _| notify_base.clone_into(&mut platforms.notify_base));
    }

    /// Pushes every callback that is due, until none is due any more.
    pub async fn deliver_now(&self) -> Delivered {
        deliver::deliver_now(&self.shared).await
    }

    /// Returns when the server has ended by itself, which only a failure makes it do.
    pub async fn ended(&mut self) -> std::io::Result<()> {
        (&mut self.serving).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }

    /// Stops at once: callbacks and answers under way are cut off.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.server.stop(false).await;
        self.pushing.abort();
        let _ = self.pushing.await;
    }
}

/// The system's clock, before there is anything that could be moved.
#[expect(clippy::disallowed_methods, reason = "the platforms live outside the ledger and have a clock of their own")]
fn system_now() -> Moment {
    Moment::from_seconds(time::OffsetDateTime::now_utc().unix_timestamp())
}
