//! `paidonce sandbox`: WeChat Pay and Alipay on this machine, with test keys; and the verbs by which a person acts there.
//!
//! | part | where |
//! |---|---|
//! | the platforms themselves | crate `paidonce-sandbox` |
//! | starting them | here |
//! | paying, refunding, making things fail | [`verbs`], sent by [`remote`] |

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use paidonce_sandbox::{AlipayKeyMode, Behaviour, KeyMode, Sandbox, SandboxError, SandboxOptions};

use crate::commands::print::say;
use crate::exit::{Exit, Stop};
use crate::shutdown::{Request, Signals};

pub mod remote;
pub mod verbs;

/// Where the sandbox listens when nobody says otherwise, and where the verbs look for it.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8090";

const EXAMPLES: &str = "\
Plays both platforms until Ctrl-C, for a ledger at --notify-base. Keys, token and a ready configuration stand in --dir;
orders and payments are in memory and end with the sandbox.

Examples:
  paidonce sandbox --dir sandbox                        then: paidonce serve --config sandbox/paidonce.toml
  paidonce sandbox --dir sandbox --time-scale 60        resends after a quarter of a second instead of 15 s
  paidonce sandbox --dir sandbox --lose 20 --duplicate 30 --reorder 30 --delay 10 --seed 7
  paidonce sandbox pay A-1001 --channel wxpay --amount 88.88
  paidonce sandbox pay A-1002 --channel alipay --amount 88.88 --callback lost
  paidonce sandbox fail-next refund timeout --times 2
  paidonce sandbox state";

/// Arguments of `sandbox`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SandboxArgs {
    #[command(subcommand)]
    verb: Option<verbs::Verb>,
    #[command(flatten)]
    run: RunArgs,
}

/// How to run the platforms.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Folder for keys and configuration; made when it is not there.
    #[arg(long, value_name = "DIR", required = true)]
    pub dir: Option<PathBuf>,
    /// Where the platforms listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Where the ledger is reached: callbacks go to /callbacks/.. below it.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub notify_base: String,
    /// Divides every waiting time of the platforms.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub time_scale: u32,
    /// Decides everything that has a probability: the same seed, the same fates.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Callbacks of a hundred that are never sent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub lose: u8,
    /// Callbacks of a hundred that are sent once more although they were taken.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub duplicate: u8,
    /// Callbacks of a hundred that are held back up to half a minute, so that later ones overtake them.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub reorder: u8,
    /// Callbacks of a hundred that come one to thirty minutes late.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub delay: u8,
    /// WeChat Pay callbacks of a hundred whose first try carries a deliberately wrong signature.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub probe: u8,
    /// API calls of a hundred that are answered 502.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub server_error: u8,
    /// What signs WeChat Pay's callbacks.
    #[arg(long, value_enum, default_value_t = Keys::PublicKey)]
    pub keys: Keys,
    /// How Alipay and the ledger know each other's keys.
    #[arg(long, value_enum, default_value_t = AlipayKeys::PublicKey)]
    pub alipay_keys: AlipayKeys,
}

/// See [`AlipayKeyMode`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AlipayKeys {
    /// By plain public keys.
    PublicKey,
    /// By certificates, which requests and answers name.
    Certificate,
}

impl From<AlipayKeys> for AlipayKeyMode {
    fn from(keys: AlipayKeys) -> Self {
        match keys {
            AlipayKeys::PublicKey => Self::PublicKey,
            AlipayKeys::Certificate => Self::Certificate,
        }
    }
}

/// See [`KeyMode`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Keys {
    /// The platform's public key.
    PublicKey,
    /// The newest platform certificate.
    Certificate,
    /// Either, at random: the days of a switch.
    Switching,
}

impl From<Keys> for KeyMode {
    fn from(keys: Keys) -> Self {
        match keys {
            Keys::PublicKey => Self::PublicKey,
            Keys::Certificate => Self::Certificate,
            Keys::Switching => Self::Switching,
        }
    }
}

/// Runs the platforms until a signal, or one verb. Errors: folder, address; what the platforms refuse.
pub async fn run(args: SandboxArgs) -> anyhow::Result<Exit> {
    match args.verb {
        Some(verb) => verb.run().await,
        None => play(args.run).await,
    }
}

async fn play(args: RunArgs) -> anyhow::Result<Exit> {
    let mut signals = Signals::catch()?;
    let dir = args.dir.clone().context("--dir is missing")?;
    let mut options = SandboxOptions::new(dir, args.notify_base.clone());
    options.listen = args.listen;
    options.behaviour = behaviour(&args);
    let mut sandbox = Sandbox::start(options).await.map_err(stop)?;
    announce(&sandbox, &args)?;
    loop {
        tokio::select! {
            request = signals.next() => if request == Request::Stop { break },
            ended = sandbox.ended() => {
                ended.context("the sandbox's server failed")?;
                anyhow::bail!("the sandbox's server ended by itself");
            }
        }
    }
    sandbox.stop().await;
    Ok(Exit::Ok)
}

fn behaviour(args: &RunArgs) -> Behaviour {
    Behaviour {
        seed: args.seed,
        time_scale: args.time_scale,
        lose_percent: args.lose,
        duplicate_percent: args.duplicate,
        reorder_percent: args.reorder,
        delay_percent: args.delay,
        probe_percent: args.probe,
        server_error_percent: args.server_error,
        wxpay_keys: args.keys.into(),
        alipay_keys: args.alipay_keys.into(),
        ..Behaviour::default()
    }
}

/// The first line is the one that scripts wait for.
fn announce(sandbox: &Sandbox, args: &RunArgs) -> anyhow::Result<()> {
    let (config, dir) = (sandbox.config_file(), sandbox.dir());
    say!("sandbox listening on {}", sandbox.url())?;
    say!("")?;
    say!("WeChat Pay and Alipay with test keys; callbacks go to {}. In other terminals:", args.notify_base)?;
    say!("  paidonce serve --config {}", config.display())?;
    say!(
        "  paidonce order open A-1001 --amount 88.88 --account wxpay:{} --account alipay:{} --token-file {}",
        paidonce_sandbox::options::MCHID,
        paidonce_sandbox::options::SELLER_ID,
        dir.join(paidonce_sandbox::config_file::TOKEN_FILE).display()
    )?;
    say!("  paidonce sandbox pay A-1001 --channel wxpay --amount 88.88")
}

fn stop(error: SandboxError) -> anyhow::Error {
    let why = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    match &error {
        SandboxError::Folder { .. }
        | SandboxError::Saved(_)
        | SandboxError::Bind { .. }
        | SandboxError::Behaviour(_) => Stop::usage(format!("{error}{why}")).into(),
        SandboxError::Key(_) | SandboxError::Client(_) => anyhow::Error::new(error),
    }
}
