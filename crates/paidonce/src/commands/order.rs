//! `paidonce order`: open, look at, ask about, refund and close orders of a running ledger.

use clap::{Args, Subcommand};
use paidonce_order::money::{Currency, Money};
use serde_json::{Value, json};

use crate::client::{Call, Client, Remote};
use crate::commands::print::{self, say};
use crate::exit::{Exit, Stop};
use crate::table::{self, Column};

const EXAMPLES: &str = "\
Examples:
  paidonce order open A-1001 --amount 88.88 --account wxpay:1900000001 --account alipay:2088000000000001
  paidonce order open A-1002 --amount 1.00 --account wxpay:1900000001 --combine-no C-0001 --combine-account wxpay:1900000001
  paidonce order get A-1001
  paidonce order list --status PENDING
  paidonce order flows A-1001 --json
  paidonce order query A-1001
  paidonce order refund A-1001 --refund-no A-1001-R1 --amount 8.88
  paidonce order close A-1001 --reason \"customer cancelled\"";

/// Arguments of `order`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct OrderArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: OrderCommand,
}

/// What to do with orders.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// Register an order; the same terms again change nothing.
    Open(OpenArgs),
    /// Show one with its payments and refunds.
    Get(OneArgs),
    /// Search.
    List(ListArgs),
    /// Its events, in sequence.
    Events(OneArgs),
    /// Its money movements, in booking order.
    Flows(OneArgs),
    /// Ask the platforms how its payment stands, and record what they say.
    Query(OneArgs),
    /// Request a refund; the same number and amount again change nothing.
    Refund(RefundArgs),
    /// Close an unpaid order, at its platforms first.
    Close(CloseArgs),
}

/// One order.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// The merchant's out_trade_no.
    pub order_no: String,
    #[command(flatten)]
    remote: Remote,
}

/// A new order.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// What must be paid, in the major unit: 88.88.
    #[arg(long)]
    pub amount: String,
    /// ISO 4217.
    #[arg(long, default_value = "CNY")]
    pub currency: String,
    /// An account it may be paid through (wxpay:1900000001); repeat for more.
    #[arg(long = "account", required = true)]
    pub accounts: Vec<String>,
    /// For people.
    #[arg(long)]
    pub description: Option<String>,
    /// RFC 3339; otherwise in 7 days.
    #[arg(long)]
    pub expires_at: Option<String>,
    /// The attempt that this one replaces; it is closed first.
    #[arg(long)]
    pub supersedes: Option<String>,
    /// Whose order it is at WeChat Pay, when the account is a service provider's.
    #[arg(long)]
    pub sub_mchid: Option<String>,
    /// combine_out_trade_no of the WeChat Pay combine payment that the order is a part of.
    #[arg(long, requires = "combine_account")]
    pub combine_no: Option<String>,
    /// Whose combine payment it is: its combine_mchid, as wxpay:1900000001.
    #[arg(long, requires = "combine_no")]
    pub combine_account: Option<String>,
    /// Makes a repeat of this request safe under a name of yours.
    #[arg(long)]
    pub idempotency_key: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// A search.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// UNOPENED, PENDING, PAID, REFUNDED or CLOSED.
    #[arg(long)]
    pub status: Option<String>,
    /// Created at or after (RFC 3339).
    #[arg(long)]
    pub from: Option<String>,
    /// Created before (RFC 3339).
    #[arg(long)]
    pub to: Option<String>,
    /// With this channel number.
    #[arg(long)]
    pub channel_trade_no: Option<String>,
    /// Continue behind this order.
    #[arg(long)]
    pub after: Option<String>,
    /// Rows at most.
    #[arg(long)]
    pub limit: Option<u32>,
    #[command(flatten)]
    remote: Remote,
}

/// A refund.
#[derive(Debug, Args)]
pub struct RefundArgs {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// Your number for the refund: repeating it is safe. Without one, each request is another refund.
    #[arg(long)]
    pub refund_no: Option<String>,
    /// How much goes back, in the major unit: 8.88.
    #[arg(long)]
    pub amount: String,
    /// ISO 4217.
    #[arg(long, default_value = "CNY")]
    pub currency: String,
    /// For the log.
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// A close.
#[derive(Debug, Args)]
pub struct CloseArgs {
    /// The merchant's out_trade_no.
    pub order_no: String,
    /// For the log.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    remote: Remote,
}

const SUMMARY: &[Column] = &[
    Column::Text("order_no"),
    Column::Text("status"),
    Column::Money("amount_minor"),
    Column::Money("paid_minor"),
    Column::Money("refunded_minor"),
    Column::Money("surplus_minor"),
    Column::Text("account"),
    Column::Text("channel_trade_no"),
    Column::Text("pay_time"),
];
const DETAIL: &[Column] = &[
    Column::Text("order_no"),
    Column::Text("status"),
    Column::Money("amount_minor"),
    Column::Money("paid_minor"),
    Column::Money("refunded_minor"),
    Column::Money("surplus_minor"),
    Column::Text("accounts"),
    Column::Text("description"),
    Column::Text("expires_at"),
    Column::Text("supersedes"),
    Column::Text("pay_time"),
    Column::Text("close_reason"),
    Column::Text("version"),
];
const PAYMENTS: &[Column] = &[
    Column::Text("account"),
    Column::Text("channel_trade_no"),
    Column::Money("amount_minor"),
    Column::Text("role"),
    Column::Text("surplus_reason"),
    Column::Money("refunded_minor"),
    Column::Text("occurred_at"),
];
const REFUNDS: &[Column] = &[
    Column::Text("refund_no"),
    Column::Money("amount_minor"),
    Column::Text("state"),
    Column::Text("origin"),
    Column::Text("channel_trade_no"),
    Column::Text("occurred_at"),
];
const ANSWERS: &[Column] = &[
    Column::Text("account"),
    Column::Text("outcome"),
    Column::Text("platform_state"),
    Column::Text("decided"),
    Column::Text("detail"),
    Column::Text("asked_at"),
];
const EVENTS: &[Column] = &[
    Column::Text("sequence"),
    Column::Text("event_type"),
    Column::Text("idem_key"),
    Column::Text("source"),
    Column::Text("actor"),
    Column::Text("recorded_at"),
    Column::Text("shard"),
    Column::Text("position"),
];
const FLOWS: &[Column] = &[
    Column::Text("idem_key"),
    Column::Text("trade_type"),
    Column::Text("direction"),
    Column::Money("amount_minor"),
    Column::Text("account"),
    Column::Text("channel_trade_no"),
    Column::Text("refund_no"),
    Column::Text("occurred_at"),
];

/// Runs it.
pub async fn run(args: OrderArgs) -> anyhow::Result<Exit> {
    match args.command {
        OrderCommand::Open(args) => open(args).await,
        OrderCommand::Get(args) => {
            let order = Client::try_new(&args.remote)?.send(Call::get(&["v1", "orders", &args.order_no])).await?;
            show(&args.remote, &order)
        }
        OrderCommand::List(args) => list(args).await,
        OrderCommand::Events(args) => list_of(&args, "events", EVENTS).await,
        OrderCommand::Flows(args) => list_of(&args, "flows", FLOWS).await,
        OrderCommand::Query(args) => query(args).await,
        OrderCommand::Refund(args) => refund(args).await,
        OrderCommand::Close(args) => {
            let path = ["v1", "orders", &args.order_no, "close"];
            let call = Call::post(&path, json!({ "reason": args.reason }));
            let order = Client::try_new(&args.remote)?.send(call).await?;
            show(&args.remote, &order)
        }
    }
}

async fn open(args: OpenArgs) -> anyhow::Result<Exit> {
    let usage = |error: String| Stop::usage(error);
    let currency = Currency::parse(&args.currency).map_err(|error| usage(error.to_string()))?;
    let amount = Money::parse_major(&args.amount, currency).map_err(|error| usage(error.to_string()))?;
    let mut body = json!({ "order_no": args.order_no, "amount_minor": amount.amount_minor, "currency": currency,
                           "accounts": args.accounts });
    let optional = [
        ("description", args.description),
        ("expires_at", args.expires_at),
        ("supersedes", args.supersedes),
        ("sub_mchid", args.sub_mchid),
    ];
    let combine = args.combine_no.zip(args.combine_account).map(
        |(combine_out_trade_no, account)| json!({ "account": account, "combine_out_trade_no": combine_out_trade_no }),
    );
    if let Value::Object(body) = &mut body {
        body.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))));
        body.extend(combine.map(|combine| ("combine".to_owned(), combine)));
    }
    let call = Call { idempotency_key: args.idempotency_key, ..Call::post(&["v1", "orders"], body) };
    let order = Client::try_new(&args.remote)?.send(call).await?;
    show(&args.remote, &order)
}

/// What each platform said, then the order as it stands now.
async fn query(args: OneArgs) -> anyhow::Result<Exit> {
    let path = ["v1", "orders", &args.order_no, "query-payment"];
    let answer = Client::try_new(&args.remote)?.send(Call::post(&path, json!({}))).await?;
    if args.remote.json {
        return print::json(&answer);
    }
    let results = answer.get("results").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    say!("{}\n", table::rows(results, ANSWERS))?;
    show(&args.remote, answer.get("order").unwrap_or(&Value::Null))
}

async fn refund(args: RefundArgs) -> anyhow::Result<Exit> {
    let usage = |error: String| Stop::usage(error);
    let currency = Currency::parse(&args.currency).map_err(|error| usage(error.to_string()))?;
    let amount = Money::parse_major(&args.amount, currency).map_err(|error| usage(error.to_string()))?;
    let mut body = json!({ "amount_minor": amount.amount_minor, "currency": currency });
    if let Value::Object(body) = &mut body {
        let optional = [("refund_no", args.refund_no), ("reason", args.reason)];
        body.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))));
    }
    let path = ["v1", "orders", &args.order_no, "refunds"];
    let refund = Client::try_new(&args.remote)?.send(Call::post(&path, body)).await?;
    if args.remote.json {
        return print::json(&refund);
    }
    say!("{}", table::fields(&refund, REFUNDS))?;
    Ok(Exit::Ok)
}

async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    let call = Call::get(&["v1", "orders"])
        .with("status", args.status)
        .with("from", args.from)
        .with("to", args.to)
        .with("channel_trade_no", args.channel_trade_no)
        .with("after", args.after)
        .with("limit", args.limit);
    let page = Client::try_new(&args.remote)?.send(call).await?;
    print::page(&args.remote, &page, "orders", SUMMARY)
}

async fn list_of(args: &OneArgs, what: &str, columns: &[Column]) -> anyhow::Result<Exit> {
    let path = ["v1", "orders", &args.order_no, what];
    let page = Client::try_new(&args.remote)?.send(Call::get(&path)).await?;
    print::page(&args.remote, &page, what, columns)
}

fn show(remote: &Remote, order: &Value) -> anyhow::Result<Exit> {
    if remote.json {
        return print::json(order);
    }
    say!("{}", table::fields(order, DETAIL))?;
    for (name, columns) in [("payments", PAYMENTS), ("refunds", REFUNDS)] {
        if let Some(rows) = order.get(name).and_then(Value::as_array).filter(|rows| !rows.is_empty()) {
            say!("\n{name}\n{}", table::rows(rows, columns))?;
        }
    }
    let open = order.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let open: Vec<Value> = open.iter().filter(|item| item.get("open") == Some(&Value::Bool(true))).cloned().collect();
    if !open.is_empty() {
        say!(
            "\nneeds a person\n{}",
            table::rows(&open, &[Column::Text("item_no"), Column::Text("kind"), Column::Text("detail")])
        )?;
    }
    Ok(Exit::Ok)
}
