//! `paidonce audit verify`: the hash chain and the platforms' own signatures.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use paidonce_app::audit::evidence::Depth;
use paidonce_app::audit::seal::{OutsideSeal, PublicKey, SealKey};
use paidonce_app::audit::verify::{VerifyPlan, VerifyReport, verify};
use serde_json::{Value, json};

use super::database::{self, Database};
use super::progress::Bar;
use crate::commands::print::say;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Stop};
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Examples:
  paidonce audit verify                   has anybody changed the log, and did the platforms really say that?
  paidonce audit verify --apiv3-key       open WeChat Pay's sealed contents too, with the APIv3 keys of the configuration
  paidonce audit verify --seal /mnt/auditor/seal-000007.json --seal-key HEX
  paidonce audit verify --chain-only --json

Reads the database itself, beside a running server; changes nothing. The keys that verify evidence are those of the
configuration. Exit code 0 only if nothing was changed and everything could be looked at; 1 if not.";

/// Arguments of `audit verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// Open WeChat Pay's sealed contents with the configured APIv3 keys, and compare amounts and numbers.
    #[arg(long)]
    pub apiv3_key: bool,
    /// The hash chain alone: no evidence is read.
    #[arg(long, conflicts_with = "apiv3_key")]
    pub chain_only: bool,
    /// A seal that was kept outside: the log must still go through it. Any number of times.
    #[arg(long, value_name = "FILE")]
    pub seal: Vec<PathBuf>,
    /// Public key of the seals, 64 hex digits; otherwise that of the configuration's audit.seal_key_file.
    #[arg(long, value_name = "HEX")]
    pub seal_key: Option<String>,
    #[command(flatten)]
    database: Database,
    /// Print the report as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

const PROBLEMS: &[Column] =
    &[Column::Text("shard"), Column::Text("position"), Column::Text("aggregate_id"), Column::Text("problem")];

const EVIDENCE: &[Column] = &[Column::Text("evidence"), Column::Text("events")];

/// Runs it. Errors: the command line; the configuration; the database.
pub async fn run(args: VerifyArgs, file: Option<&Path>, env: &Environment) -> anyhow::Result<Exit> {
    let config = Config::load(file, env)?;
    let (seal_key, outside) = (seal_key(&args, &config)?, outside(&args.seal)?);
    if seal_key.is_none() && !outside.is_empty() {
        return Err(Stop::usage("--seal needs --seal-key: the public key that the seal was signed with").into());
    }
    let accounts = config.accounts.ours;
    let depth = match (args.chain_only, args.apiv3_key) {
        (true, _) => Depth::None,
        (false, true) => Depth::Contents,
        (false, false) => Depth::Signatures,
    };
    let source = args.database.open(file, env).await?;
    let bar = Arc::new(Bar::new("events"));
    let plan = VerifyPlan { seal_key, outside, depth, accounts };
    let report = verify(source, &plan, bar.on_progress()).await;
    bar.finish();
    let report = report.map_err(database::stop)?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        show(&report, depth)?;
    }
    Ok(if report.is_proof() { Exit::Ok } else { Exit::Failed })
}

fn seal_key(args: &VerifyArgs, config: &Config) -> Result<Option<PublicKey>, Stop> {
    if let Some(text) = &args.seal_key {
        return PublicKey::parse(text).map(Some).map_err(|problem| Stop::usage(format!("--seal-key {problem}")));
    }
    let private = config.audit.seal_key.as_ref().map(|key| SealKey::from_pem(key.reveal())).transpose();
    let private = private.map_err(|problem| Stop::usage(format!("audit.seal_key {problem}")))?;
    Ok(private.map(|key| key.public()))
}

fn outside(files: &[PathBuf]) -> Result<Vec<OutsideSeal>, Stop> {
    let read = |path: &PathBuf| {
        let unusable = |problem: String| Stop::usage(format!("--seal {}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| unusable(format!("is not a seal: {error}")))
    };
    files.iter().map(read).collect()
}

fn show(report: &VerifyReport, depth: Depth) -> anyhow::Result<()> {
    let evidence = &report.evidence;
    let rows: Vec<Value> = [
        ("verified: the platform signed it, and says the same", evidence.verified),
        ("not opened: signed, the content is sealed (--apiv3-key)", evidence.not_opened),
        ("by a named operator", evidence.by_operator),
        ("expired: the evidence was removed when its time was over", evidence.expired),
        ("unknown key: not in the configuration", evidence.unknown_key),
        ("FAILED", evidence.failed),
    ]
    .into_iter()
    .filter(|(_, events)| *events > 0)
    .map(|(evidence, events)| json!({ "evidence": evidence, "events": events }))
    .collect();
    match depth {
        Depth::None => say!("evidence was not looked at (--chain-only)")?,
        Depth::Signatures | Depth::Contents => say!("{}", table::rows(&rows, EVIDENCE))?,
    }
    let seals = &report.seals;
    if *seals != Default::default() {
        say!(
            "seals: {} verified, {} of them also kept outside; {} without a key to check the signature, {} FAILED",
            seals.verified,
            seals.outside,
            seals.no_key,
            seals.failed
        )?;
    }
    if report.problems_total > 0 {
        let rows: Vec<Value> = report.problems.iter().map(|it| serde_json::to_value(it).unwrap_or_default()).collect();
        say!("{}", table::rows(&rows, PROBLEMS))?;
        say!("{} problems, {} shown", report.problems_total, report.problems.len())?;
    }
    say!("{} of {} events in {} shards", report.events, report.events_expected, report.shards)?;
    say!("integrity: {}", if report.has_integrity { "HOLDS" } else { "BROKEN" })?;
    say!("completeness: {}", if report.is_complete { "COMPLETE" } else { "NOT COMPLETE" })
}
