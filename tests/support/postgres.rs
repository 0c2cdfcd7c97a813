//! A private PostgreSQL for the tests: no container, no server of the developer's is touched.
//!
//! Promise: one cluster per test process ([`shared`]), started on first need on a free loopback port, fsync on, and gone
//! when the test process ends, however it ends. A test that must stop or crash its server starts its own ([`Cluster::start`]).
//!
//! | step | how |
//! |---|---|
//! | find `initdb`, `pg_ctl` | PATH, `/usr/lib/postgresql/*/bin`, `pg_config --bindir`; else install (root on Debian) or say what to install |
//! | pick a user | PostgreSQL refuses root: then `postgres` or `nobody`; otherwise ourselves |
//! | start | `initdb`, our settings, `pg_ctl start` |
//! | end | a shell waits for end of file on a pipe that only we hold open; then it stops the server and removes its files |
//!
//! `PAIDONCE_TEST_POSTGRES_URL` (a superuser's URL) names an existing server instead; [`Cluster::start`] is private anyway.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test harness: a failure here is a failed test, with its reason"
)]

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

/// Starts of a new cluster at most: another process may take the free port between our look and the server's bind.
const STARTS_MAX: u32 = 5;

/// How long `pg_ctl` may wait for the server, in seconds: a loaded two-core machine needs a while for recovery.
const PG_CTL_WAIT_SECONDS: &str = "120";

/// Settings of every cluster. Durability is what we test, so nothing of it is switched off.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
shared_buffers = '64MB'
fsync = on
synchronous_commit = on
full_page_writes = on
jit = off
logging_collector = off
log_line_prefix = '%m [%p] %d '
";

/// A running server that belongs to this test process, or the one of `PAIDONCE_TEST_POSTGRES_URL`.
#[derive(Debug)]
pub struct Cluster {
    /// URL without a database name, for example `postgres://postgres@127.0.0.1:41234`.
    base_url: String,
    /// Query part of the given URL, for example `?sslmode=require`.
    query: String,
    /// `None` for a server that is not ours.
    own: Option<Own>,
    template: OnceLock<String>,
}

/// What we started.
#[derive(Debug)]
struct Own {
    binaries: PathBuf,
    user: Option<User>,
    data: PathBuf,
    log: PathBuf,
    /// Its standard input is the pipe whose end tells it that we are gone.
    supervisor: Child,
}

/// The user that runs the server, when we are root.
#[derive(Debug, Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

/// The cluster of this test process.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var("PAIDONCE_TEST_POSTGRES_URL") {
        Ok(url) if !url.is_empty() => Cluster::existing(&url),
        Ok(_) | Err(_) => Cluster::start(),
    })
}

/// URL of a new, empty database on the shared cluster.
pub fn fresh_database() -> String {
    shared().fresh_database()
}

/// URL of a new database with the current schema, on the shared cluster.
pub fn migrated_database() -> String {
    shared().migrated_database()
}

/// Runs SQL (one or more statements) on the database of `url`.
pub fn execute(url: &str, sql: &str) {
    try_execute(url, sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Like [`execute`], for statements that must fail.
pub fn try_execute(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    block_on(async || {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        connection.close().await
    })
}

/// All rows of one query.
pub fn query(url: &str, sql: &str) -> Vec<PgRow> {
    block_on(async || {
        let mut connection = PgConnection::connect(url).await?;
        let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(rows)
    })
    .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// The single bigint that `sql` gives, for example of `SELECT count(*) FROM events`.
pub fn count(url: &str, sql: &str) -> i64 {
    use sqlx::Row as _;
    query(url, sql).first().unwrap_or_else(|| panic!("{sql}: no row")).get(0)
}

impl Cluster {
    /// A cluster of the caller's own, for tests that stop or crash the server. Stopped and removed on drop.
    pub fn start() -> Self {
        let binaries = find_binaries().unwrap_or_else(installed_binaries);
        let user = server_user();
        let home = new_home(user);
        let own = Own::init(binaries, user, &home);
        for _ in 0..STARTS_MAX {
            let port = free_port();
            fs::write(own.data.join("paidonce_port.conf"), format!("port = {port}\n")).unwrap();
            if own.pg_ctl(&["start"]).status.success() {
                let base_url = format!("postgres://postgres@127.0.0.1:{port}");
                return Self { base_url, query: String::new(), own: Some(own), template: OnceLock::new() };
            }
        }
        panic!("PostgreSQL does not start:\n{}", fs::read_to_string(&own.log).unwrap_or_default());
    }

    fn existing(url: &str) -> Self {
        let (rest, query) = url.split_once('?').map_or((url, String::new()), |(u, q)| (u, format!("?{q}")));
        let after_scheme = rest.find("://").map_or(0, |at| at + 3);
        let base = rest[after_scheme..].find('/').map_or(rest, |at| &rest[..after_scheme + at]);
        Self { base_url: base.to_owned(), query, own: None, template: OnceLock::new() }
    }

    /// The URL of a database by name.
    pub fn url(&self, database: &str) -> String {
        format!("{}/{database}{}", self.base_url, self.query)
    }

    /// URL of a new, empty database.
    pub fn fresh_database(&self) -> String {
        let name = fresh_name();
        execute(&self.url("postgres"), &format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"));
        self.url(&name)
    }

    /// URL of a new database with the current schema: a copy of a template that is migrated once per process.
    pub fn migrated_database(&self) -> String {
        let template = self.template.get_or_init(|| {
            let url = self.fresh_database();
            block_on(async || paidonce_store::postgres::migrate(&url).await).expect("migrate the template");
            database_name(&url)
        });
        let name = fresh_name();
        execute(&self.url("postgres"), &format!("CREATE DATABASE {name} TEMPLATE {template}"));
        self.url(&name)
    }

    /// Stops the server at once, as a power cut would: nothing is flushed, every connection breaks.
    pub fn stop_immediately(&self) {
        let output = self.own().pg_ctl(&["stop", "-m", "immediate"]);
        assert!(output.status.success(), "stop: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts it again on the same port and waits until it has recovered.
    pub fn start_again(&self) {
        let output = self.own().pg_ctl(&["start"]);
        assert!(output.status.success(), "start: {}", fs::read_to_string(&self.own().log).unwrap_or_default());
    }

    /// Breaks every connection to the database of `url`; how many there were.
    pub fn terminate_backends(&self, url: &str) -> i64 {
        let name = database_name(url);
        count(
            &self.url("postgres"),
            &format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"),
        )
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("only a cluster from Cluster::start can be stopped")
    }
}

impl Own {
    /// `initdb`, settings and the supervisor; the server is not started yet.
    fn init(binaries: PathBuf, user: Option<User>, home: &Path) -> Self {
        let data = home.join("data");
        // First of all: a test process that is killed during initdb leaves nothing behind either.
        let supervisor = supervise(&binaries, user, home);
        let mut initdb = command_as(user, &binaries.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
        let output = initdb.arg(&data).output().expect("run initdb");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let conf = data.join("postgresql.conf");
        let stock = fs::read_to_string(&conf).unwrap();
        fs::write(&conf, format!("{stock}\n{SETTINGS}\ninclude = 'paidonce_port.conf'\n")).unwrap();
        fs::write(data.join("paidonce_port.conf"), "").unwrap();
        if let Some(user) = user {
            chown(data.join("paidonce_port.conf"), Some(user.uid), Some(user.gid)).unwrap();
        }
        Self { binaries, user, log: home.join("server.log"), data, supervisor }
    }

    fn pg_ctl(&self, what: &[&str]) -> Output {
        let mut pg_ctl = command_as(self.user, &self.binaries.join("pg_ctl"));
        // The server inherits our standard streams otherwise, and whoever reads them would wait for its end.
        pg_ctl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        pg_ctl.args(["-w", "-t", PG_CTL_WAIT_SECONDS, "-D"]).arg(&self.data).arg("-l").arg(&self.log).args(what);
        pg_ctl.output().expect("run pg_ctl")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            drop(own.supervisor.stdin.take());
            drop(own.supervisor.wait());
        }
    }
}

/// Waits for the end of our pipe, then stops the server and removes its directory. In a process group of its own and deaf
/// to signals of the terminal, so that Ctrl-C or a kill of the test process does not leave a server behind.
fn supervise(binaries: &Path, user: Option<User>, home: &Path) -> Child {
    // Again while anything is left: initdb or the server may have been starting when we were killed.
    let script = "trap '' INT TERM HUP; while read -r _; do :; done
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            \"$1/pg_ctl\" -D \"$2/data\" -m immediate -w stop; rm -rf \"$2\"
            sleep 1; [ -e \"$2\" ] || break
        done";
    let mut shell = command_as(user, Path::new("/bin/sh"));
    shell.arg("-c").arg(script).arg("paidonce-test-postgres").arg(binaries).arg(home).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().expect("start the supervising shell")
}

fn command_as(user: Option<User>, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env_remove("PGDATA").env_remove("PGPORT").env("LC_ALL", "C");
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// `None`: we are not root and run the server ourselves.
fn server_user() -> Option<User> {
    if id(&["-u"])? != 0 {
        return None;
    }
    let found = ["postgres", "nobody", "daemon"]
        .iter()
        .find_map(|name| Some(User { uid: id(&["-u", name])?, gid: id(&["-g", name])? }));
    Some(found.expect("PostgreSQL refuses to run as root and there is no user postgres, nobody or daemon: create one"))
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// A directory that the server's user can reach and owns.
fn new_home(user: Option<User>) -> PathBuf {
    let candidates = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    for parent in candidates {
        let Ok(home) = tempfile::Builder::new().prefix("paidonce-pg-").tempdir_in(&parent) else { continue };
        if let Some(user) = user {
            chown(home.path(), Some(user.uid), Some(user.gid)).expect("give the directory to the server's user");
        }
        let mut probe = command_as(user, Path::new("/bin/sh"));
        let reachable =
            probe.args(["-c", "cd \"$1\" && : >probe", "sh"]).arg(home.path()).stderr(Stdio::null()).status();
        if reachable.is_ok_and(|status| status.success()) {
            // The supervisor removes it, also when we are killed.
            return home.keep();
        }
    }
    panic!("no temporary directory that the PostgreSQL user can use: set TMPDIR to one");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}

/// Unique on a server that several test processes share.
fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static RUN: OnceLock<u64> = OnceLock::new();
    let run = RUN.get_or_init(|| RandomState::new().hash_one(std::process::id()));
    format!("paidonce_test_{run:016x}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn database_name(url: &str) -> String {
    let path = url.split('?').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn find_binaries() -> Option<PathBuf> {
    let complete = |dir: &PathBuf| dir.join("initdb").is_file() && dir.join("pg_ctl").is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(debian_binaries()).chain(pg_config_binaries()).find(complete)
}

/// `/usr/lib/postgresql/<major>/bin`, newest first.
fn debian_binaries() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut majors: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.iter().map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))).collect()
}

fn pg_config_binaries() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// What a person has to do when the server's programs are missing.
const WHAT_TO_DO: &str = "these tests need the PostgreSQL server programs (initdb, pg_ctl), version 14 or newer. Debian \
    or Ubuntu: `sudo apt-get install postgresql`; Fedora: `sudo dnf install postgresql-server`; macOS: `brew install \
    postgresql@15` and put its bin directory on PATH. Or set PAIDONCE_TEST_POSTGRES_URL to a superuser's URL of a server \
    that may be used for tests";

/// postgresql-common first: told so, it makes no default cluster when the server package arrives.
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive
    lock='-o DPkg::Lock::Timeout=300'
    apt-get $lock update -q || true # a broken list of somebody else need not matter
    apt-get $lock install -q -y --no-install-recommends postgresql-common &&
    sed -i 's/^#\\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf &&
    { apt-get $lock install -q -y --no-install-recommends postgresql-15 ||
      apt-get $lock install -q -y --no-install-recommends postgresql; }";

/// Is there on every Debian-like system, and belongs to root: the lock that test processes share while one installs.
const DEBIAN: &str = "/etc/debian_version";

/// Last resort: the programs, installed once, or a panic that says what to do. Tests that start at the same time wait for
/// the first one, and share its failure.
fn installed_binaries() -> PathBuf {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    INSTALLED.get_or_init(install_binaries).clone().unwrap_or_else(|problem| panic!("{problem}"))
}

/// Installs the server on a Debian-like system where we are root (a bare CI container).
fn install_binaries() -> Result<PathBuf, String> {
    if id(&["-u"]) != Some(0) {
        return Err(format!("we are not root and can't install PostgreSQL: {WHAT_TO_DO}"));
    }
    let debian = File::open(DEBIAN).map_err(|_| format!("this is not Debian or Ubuntu: {WHAT_TO_DO}"))?;
    // apt waits for dpkg's lock but not for that of the package lists; several test binaries may be running.
    debian.lock().map_err(|e| format!("lock {DEBIAN}: {e}"))?;
    if let Some(binaries) = find_binaries() {
        return Ok(binaries);
    }
    eprintln!("installing the PostgreSQL server with apt-get, once");
    let output = Command::new("/bin/sh").arg("-c").arg(INSTALL).output().map_err(|e| format!("run /bin/sh: {e}"))?;
    find_binaries().ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("apt-get could not install PostgreSQL ({}): {WHAT_TO_DO}. It said:\n{said}", output.status)
    })
}

/// Runs async code on a thread and a runtime of its own: also usable from inside a test's runtime.
fn block_on<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work())
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
