//! The configuration: a TOML file and variables, parsed once into one value; every problem is reported, each with its line
//! and what to do.
//!
//! Must never: guess at an unknown key, follow a default where a secret is missing, or show a secret.
//!
//! | part | file |
//! |---|---|
//! | the text and what is wrong with it | [`document`] |
//! | reading a table | `section` |
//! | secrets from values, files, variables | [`secret`] |
//! | `[[wxpay]]`, `[[alipay]]` | [`accounts`] |
//! | `[audit]` | [`audit`] |
//! | `[channel_calls]`, `[surplus]`, `[sandbox]` | [`calls`] |
//! | `[[tokens]]`, `[secrets]`, `[effects]`, `[[subscribers]]` | [`doors`] |

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub mod accounts;
pub mod audit;
pub mod calls;
pub mod document;
pub mod doors;
pub mod secret;
mod section;
#[cfg(test)]
mod tests;

pub use accounts::AccountsConfig;
pub use audit::AuditConfig;
pub use calls::{ChannelCallsConfig, SurplusConfig};
pub use document::{Environment, Problem, Problems};
pub use doors::{EffectsConfig, SigningSecrets};
pub use secret::Secret;
pub use section::Located;

use document::Document;
use section::Section;

/// Read when neither `--config` nor `PAIDONCE_CONFIG` names a file, and it is there.
pub const DEFAULT_FILE: &str = "paidonce.toml";
/// The folder of the embedded database when nothing else is said.
pub const DEFAULT_DATA_DIR: &str = "./paidonce-data";
/// Loopback on purpose: a ledger is put behind a TLS proxy, not on the open network.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
/// Writer tasks on PostgreSQL, when nothing else is said: one fills a 2-core machine, a second hides its flushes.
const DEFAULT_WRITERS: u16 = 2;
/// One writer a shard at most.
const WRITERS_MAX: i64 = 64;
/// More would only wait longer than any caller does.
const QUEUE_JOBS_LIMIT: i64 = 65_536;

/// More open files than any kernel allows by default.
const CONNECTIONS_LIMIT: i64 = 1_000_000;

/// Everything the program can be told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from, if any.
    pub file: Option<PathBuf>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Open connections at most; fewer when the limit of open files is lower.
    pub connections_max: usize,
    /// Where the ledger is.
    pub database: DatabaseConfig,
    /// WeChat Pay and Alipay accounts with their keys.
    pub accounts: AccountsConfig,
    /// Who may use the API.
    pub tokens: Vec<paidonce_http::Token>,
    /// Secrets that subscribers name.
    pub secrets: SigningSecrets,
    /// Retry rules of the relay.
    pub effects: EffectsConfig,
    /// How the platforms are asked.
    pub channel_calls: ChannelCallsConfig,
    /// What becomes of payments that settle nothing.
    pub surplus: SurplusConfig,
    /// Seals.
    pub audit: AuditConfig,
    /// Whose money it is: the platforms', or that of `paidonce sandbox`.
    pub money: paidonce_http::Money,
    /// Put into `t_subscriber` at start.
    pub subscribers: Vec<Located<paidonce_store::store::Subscriber>>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Problem>,
}

/// Where the ledger is.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// Which kind.
    pub url: DatabaseUrl,
    /// Folder of the embedded database and its lock file.
    pub data_dir: PathBuf,
    /// Writer tasks; SQLite always has one.
    pub writers: u16,
    /// Jobs that may wait for one writer; more are answered 503.
    pub queue_jobs_max: usize,
}

/// The kind of database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// Embedded, in `data_dir`.
    Sqlite,
    /// `postgres://..`; holds a password.
    Postgres(Secret),
}

impl DatabaseUrl {
    /// Reads `sqlite` or `postgres://..`. `Err` says what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "sqlite" {
            return Ok(Self::Sqlite);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(Secret::new(text.to_owned())));
        }
        Err("must be sqlite or postgres://user:password@host:5432/name".to_owned())
    }
}

impl Config {
    /// Reads `path`, or [`DEFAULT_FILE`] if that is there, or no file at all. Errors: every problem at once.
    pub fn load(path: Option<&Path>, env: &Environment) -> Result<Self, Problems> {
        let named = path.map(Path::to_path_buf).or_else(|| env.get("PAIDONCE_CONFIG").map(PathBuf::from));
        let file = named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()));
        let Some(file) = file else { return Self::parse(None, "", env) };
        match std::fs::read_to_string(&file) {
            Ok(text) => Self::parse(Some(&file), &text, env),
            Err(error) => {
                let text = format!("can't read the configuration {}: {error}", file.display());
                Err(Problems { file: file.display().to_string(), list: vec![Problem { line: None, text }] })
            }
        }
    }

    /// Reads a text; `path` is for messages and relative paths. Errors: every problem at once.
    pub fn parse(path: Option<&Path>, text: &str, env: &Environment) -> Result<Self, Problems> {
        let document = Document::new(path, text, env);
        let (table, errors) = DeTable::parse_recoverable(text);
        let syntax = errors.iter().map(|error| {
            let line = error.span().map(|span| document.line_of(&span));
            Problem { line, text: format!("this is not TOML: {}", error.message()) }
        });
        let syntax: Vec<Problem> = syntax.collect();
        let config = Self::read(&Section::root(&document, table.get_ref()), path);
        warn_of_unknown_variables(&document);
        let file = document.name.clone();
        let (problems, warnings) = document.into_findings(syntax);
        if problems.is_empty() { Ok(Self { warnings, ..config }) } else { Err(Problems { file, list: problems }) }
    }

    fn read(root: &Section<'_>, path: Option<&Path>) -> Self {
        let secrets = doors::read_secrets(&root.section("secrets"));
        let server = read_server(&root.section("server"));
        let money = calls::read_sandbox(&root.section("sandbox"));
        let config = Self {
            file: path.map(Path::to_path_buf),
            listen: server.listen,
            connections_max: server.connections_max,
            database: read_database(&root.section("database")),
            accounts: accounts::read(root, money),
            tokens: doors::read_tokens(&root.sections("tokens")),
            effects: doors::read_effects(&root.section("effects")),
            channel_calls: calls::read_calls(&root.section("channel_calls")),
            surplus: calls::read_surplus(&root.section("surplus")),
            audit: audit::read(&root.section("audit")),
            money,
            subscribers: doors::read_subscribers(&root.sections("subscribers"), &secrets),
            secrets,
            warnings: Vec::new(),
        };
        root.finish();
        config
    }
}

/// `[server]`.
struct ServerConfig {
    listen: SocketAddr,
    connections_max: usize,
}

fn read_server(server: &Section<'_>) -> ServerConfig {
    let listen = read_listen(server);
    let connections = server.integer("connections_max", 16..=CONNECTIONS_LIMIT);
    server.finish();
    let connections = connections.and_then(|connections| usize::try_from(connections).ok());
    ServerConfig { listen, connections_max: connections.unwrap_or(paidonce_http::server::CONNECTIONS_MAX) }
}

fn read_listen(server: &Section<'_>) -> SocketAddr {
    let default = SocketAddr::from(([127, 0, 0, 1], 8080));
    let from_file = server.string("listen");
    let variable = server.document.variable("PAIDONCE_LISTEN");
    let given = variable.map(|text| ("PAIDONCE_LISTEN".to_owned(), text.to_owned(), None));
    let given = given.or_else(|| from_file.map(|found| (server.name("listen"), found.value, found.line)));
    let Some((name, text, line)) = given else { return default };
    text.parse().unwrap_or_else(|_| {
        let problem = format!("{name} must be an address and a port such as {DEFAULT_LISTEN}, not {text:?}");
        server.document.problem(line, problem);
        default
    })
}

fn read_database(database: &Section<'_>) -> DatabaseConfig {
    let url = database.secret(["url", "url_file"], "DATABASE_URL");
    let url = url.and_then(|url| match DatabaseUrl::parse(url.value.reveal()) {
        Ok(found) => Some(found),
        Err(allowed) => {
            database.problem(url.line, format!("database.url (or DATABASE_URL) {allowed}"));
            None
        }
    });
    let from_file = database.string("data_dir").map(|found| database.document.resolve(&found.value));
    let data_dir = database.document.variable("PAIDONCE_DATA_DIR").map(PathBuf::from).or(from_file);
    let writers = database.integer("writers", 1..=WRITERS_MAX).and_then(|writers| u16::try_from(writers).ok());
    let queue_jobs = database.integer("queue_jobs_max", 1..=QUEUE_JOBS_LIMIT);
    database.finish();
    DatabaseConfig {
        url: url.unwrap_or(DatabaseUrl::Sqlite),
        data_dir: data_dir.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR)),
        writers: writers.unwrap_or(DEFAULT_WRITERS),
        queue_jobs_max: queue_jobs
            .and_then(|jobs| usize::try_from(jobs).ok())
            .unwrap_or(paidonce_store::options::QUEUE_JOBS_MAX),
    }
}

/// Variables that other parts of the program or its tests read.
const OTHER_VARIABLES: [&str; 7] = [
    "PAIDONCE_CONFIG",
    "PAIDONCE_LOG",
    "PAIDONCE_LOG_FORMAT",
    "PAIDONCE_TOKEN",
    "PAIDONCE_SERVER",
    "PAIDONCE_TOKEN_FILE",
    "PAIDONCE_TESTING_CLOCK_OFFSET_MICROS",
];

/// A misspelt variable would silently leave the default in force.
fn warn_of_unknown_variables(document: &Document<'_>) {
    for name in document.env.names().filter(|name| name.starts_with("PAIDONCE_")) {
        if !OTHER_VARIABLES.contains(&name) && !document.understands(name) {
            document.warning(None, format!("variable {name} is set, but nothing reads it: check its spelling"));
        }
    }
}
