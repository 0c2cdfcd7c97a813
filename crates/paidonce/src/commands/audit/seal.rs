//! `paidonce audit seal`: a signed statement of where the log ends, to be kept outside of it.

use std::path::{Path, PathBuf};

use clap::Args;
use paidonce_app::Clock;
use paidonce_app::audit::seal::{SealBody, SealKey};
use serde_json::{Value, json};

use super::database::{self, Database};
use crate::commands::print::say;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Stop};
use crate::sealing;
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Examples:
  paidonce audit seal --new-key secrets/seal.pem      make a key, once; then name it in [audit] seal_key_file
  paidonce audit seal --copies /mnt/auditor           seal now, and write a copy where the ledger's owner can't reach it
  paidonce audit seal --json > seal.json              the copy on standard output

Whoever cuts or rewrites the database can't rewrite the copies: paidonce audit verify --seal FILE holds the log against one.
[audit] seal_every_hours and seal_copies make the server do it. A broken log is not sealed.";

/// Arguments of `audit seal`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SealArgs {
    /// Make a new private key in this file, print its public half, and seal nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "copies"])]
    pub new_key: Option<PathBuf>,
    /// The private key; otherwise the configuration's audit.seal_key_file.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Folder for the copy; otherwise the configuration's audit.seal_copies.
    #[arg(long, value_name = "FOLDER")]
    pub copies: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
    /// Print the copy as JSON, for programs and for keeping.
    #[arg(long)]
    pub json: bool,
}

const SUMS: &[Column] = &[Column::Text("direction"), Column::Text("count"), Column::Money("amount_minor")];

/// Runs it. Errors: no key; a broken log; the database; a copy that can't be written.
pub async fn run(args: SealArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    if let Some(path) = &args.new_key {
        return new_key(path);
    }
    let config = Config::load(file, env)?;
    let pem = match (&args.key, &config.audit.seal_key) {
        (Some(path), _) => read(path)?,
        (None, Some(key)) => key.reveal().to_owned(),
        (None, None) => {
            let what = "no key to seal with: paidonce audit seal --new-key FILE makes one; name it with --key or in [audit] \
                        seal_key_file";
            return Err(Stop::usage(what).into());
        }
    };
    let key = SealKey::from_pem(&pem).map_err(|problem| Stop::usage(format!("the seal key {problem}")))?;
    let copies = args.copies.or(config.audit.seal_copies);
    let database = args.database.of(config.database);
    let (body, seal) = sealing::seal_now(&database, &key, Clock::default().now()).await.map_err(database::stop)?;
    let copy = copies.map(|folder| sealing::write_copy(&folder, body.seal_no, &seal)).transpose()?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&seal)?)?;
    } else {
        show(&body, copy.as_deref())?;
    }
    Ok(Exit::Ok)
}

fn show(body: &SealBody, copy: Option<&Path>) -> anyhow::Result<()> {
    let sums: Vec<Value> = body
        .sums
        .iter()
        .map(|sum| {
            let minor = sum.amount_minor.parse::<i64>().map_or_else(|_| json!(sum.amount_minor), |minor| json!(minor));
            json!({ "direction": sum.direction, "count": sum.count, "amount_minor": minor, "currency": sum.currency })
        })
        .collect();
    say!("{}", table::rows(&sums, SUMS))?;
    say!("seal {} over {} new events, root {}", body.seal_no, body.events, body.root)?;
    say!("public key {}", body.public_key)?;
    match copy {
        Some(path) => say!("copy: {}", path.display()),
        None => say!("no copy was written: a seal that stays in the database alone proves little (--copies, --json)"),
    }
}

fn new_key(path: &Path) -> anyhow::Result<Exit> {
    let pem = SealKey::generate().map_err(anyhow::Error::msg)?;
    let public = SealKey::from_pem(&pem).map_err(anyhow::Error::msg)?.public();
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        std::io::Write::write_all(&mut options.open(path)?, pem.as_bytes())
    };
    write().map_err(|error| Stop::usage(format!("can't write a new key to {}: {error}", path.display())))?;
    say!("private key: {}, readable by its owner alone; keep a copy of it", path.display())?;
    say!("public key:  {public}   give it to whoever verifies")?;
    Ok(Exit::Ok)
}

fn read(path: &Path) -> Result<String, Stop> {
    let unreadable = |error| Stop::usage(format!("can't read the key {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(unreadable)
}
