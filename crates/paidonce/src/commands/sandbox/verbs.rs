//! What a person does at the platforms: each verb is one request of the sandbox's control API.

use clap::{Args, Subcommand};
use paidonce_sandbox::money::parse_yuan;
use serde_json::{Map, Value, json};

use super::remote::Remote;
use crate::commands::print;
use crate::exit::{Exit, Stop};

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Place an order that waits for its payer.
    #[command(after_help = "Example:\n  paidonce sandbox open A-1001 --channel wxpay --amount 88.88")]
    Open(PayArgs),
    /// Pay an order (it is placed where the platform does not know it).
    #[command(after_help = "Examples:
  paidonce sandbox pay A-1001 --channel wxpay --amount 88.88
  paidonce sandbox pay A-1002 --channel alipay --amount 88.88 --callback lost
  paidonce sandbox pay A-1003 --channel alipay --amount 88.88 --product page --charset GBK")]
    Pay(PayArgs),
    /// Pay an order that is closed at the platform: the payer was quicker than the close.
    #[command(after_help = "Example:\n  paidonce sandbox pay-late A-1001 --channel wxpay")]
    PayLate(PayArgs),
    /// Pay an order through both platforms.
    #[command(after_help = "Example:\n  paidonce sandbox pay-twice A-1001 --channel wxpay --amount 88.88")]
    PayTwice(PayArgs),
    /// Place several WeChat Pay orders that are paid in one go.
    #[command(
        after_help = "Example:\n  paidonce sandbox open-combined C-0001 --order A-1001=88.88 --order A-1002=1.00"
    )]
    OpenCombined(CombinedArgs),
    /// Pay several WeChat Pay orders in one go; without --order those of open-combined.
    #[command(after_help = "Example:\n  paidonce sandbox pay-combined C-0001 --order A-1001=88.88 --order A-1002=1.00")]
    PayCombined(CombinedArgs),
    /// Refund at the platform's console: nobody asked the ledger.
    #[command(after_help = "Example:\n  paidonce sandbox refund A-1001 --channel wxpay --amount 8.00")]
    Refund(RefundArgs),
    /// Decide a refund that is processing or abnormal.
    #[command(after_help = "Example:\n  paidonce sandbox settle-refund A-1001 R-1 --channel wxpay --status ABNORMAL")]
    SettleRefund(SettleArgs),
    /// Start a profit share, as the merchant does.
    #[command(after_help = "Example:
  paidonce sandbox share A-1001 --channel wxpay --out-order-no S-1 --receiver 1900000100=8.00 --refused 1900000999=1.00")]
    Share(ShareArgs),
    /// The platform closes an unpaid order.
    #[command(after_help = "Example:\n  paidonce sandbox close A-1001 --channel alipay")]
    Close(OneArgs),
    /// Alipay: the time for refunds is over (TRADE_FINISHED).
    #[command(after_help = "Example:\n  paidonce sandbox finish A-1001 --channel alipay")]
    Finish(OneArgs),
    /// Make the next calls of an API fail.
    #[command(after_help = "Examples:
  paidonce sandbox fail-next refund timeout               it is done, but no answer comes
  paidonce sandbox fail-next query 5xx --times 3
  paidonce sandbox fail-next refund balance_short --channel alipay")]
    FailNext(FailArgs),
    /// Change what signs WeChat Pay's callbacks, while everything runs.
    #[command(after_help = "Examples:
  paidonce sandbox keys --mode switching
  paidonce sandbox keys --new-certificate
  paidonce sandbox keys --new-alipay-certificate")]
    Keys(KeysArgs),
    /// Let time pass: what waits falls due sooner.
    #[command(after_help = "Example:\n  paidonce sandbox advance-time 3600")]
    AdvanceTime(AdvanceArgs),
    /// Push every callback that is due, and say how many were taken.
    #[command(after_help = "Example:\n  paidonce sandbox deliver-now")]
    DeliverNow(RemoteArgs),
    /// What the platforms know: every order with its payment and refunds.
    #[command(after_help = "Examples:\n  paidonce sandbox state\n  paidonce sandbox state --order-no A-1001 --json")]
    State(StateArgs),
}

/// Only where the sandbox is.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    #[command(flatten)]
    remote: Remote,
}

/// Names an order at a platform.
#[derive(Debug, Args)]
pub struct Named {
    /// out_trade_no.
    pub order_no: String,
    /// At which platform.
    #[arg(long, value_parser = ["wxpay", "alipay"])]
    pub channel: String,
    /// mchid, sp_mchid or seller_id; otherwise the first account.
    #[arg(long)]
    pub account: Option<String>,
    /// Under a service provider; otherwise its first sub-merchant.
    #[arg(long)]
    pub sub_mchid: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// One order.
#[derive(Debug, Args)]
pub struct OneArgs {
    #[command(flatten)]
    name: Named,
}

/// A payment.
#[derive(Debug, Args)]
pub struct PayArgs {
    #[command(flatten)]
    name: Named,
    /// What it costs, in yuan: 88.88. Needed for an order that the platform does not know.
    #[arg(long)]
    pub amount: Option<String>,
    /// What the payer pays himself, in yuan; the rest is a coupon.
    #[arg(long)]
    pub payer: Option<String>,
    /// What becomes of the callback.
    #[arg(long, default_value = "as_usual", value_parser = ["as_usual", "prompt", "lost", "duplicated", "delayed"])]
    pub callback: String,
    /// Alipay: page and face_to_face tell of the payment only.
    #[arg(long, default_value = "app", value_parser = ["app", "wap", "page", "face_to_face"])]
    pub product: String,
    /// Alipay: charset of the notices.
    #[arg(long, default_value = "utf-8", value_parser = ["utf-8", "GBK"])]
    pub charset: String,
    /// The payment is this old already.
    #[arg(long, default_value_t = 0)]
    pub paid_seconds_ago: u64,
}

/// A combined payment.
#[derive(Debug, Args)]
pub struct CombinedArgs {
    /// combine_out_trade_no.
    pub combine_no: String,
    /// An order and its price in yuan; 2 to 50 of them.
    #[arg(long = "order", value_name = "NO=YUAN")]
    pub orders: Vec<String>,
    /// What becomes of the callback.
    #[arg(long, default_value = "as_usual", value_parser = ["as_usual", "prompt", "lost", "duplicated", "delayed"])]
    pub callback: String,
    #[command(flatten)]
    remote: Remote,
}

/// A refund at the console.
#[derive(Debug, Args)]
pub struct RefundArgs {
    #[command(flatten)]
    name: Named,
    /// How much, in yuan; otherwise all that is left.
    #[arg(long)]
    pub amount: Option<String>,
    /// Its number; otherwise one is made.
    #[arg(long)]
    pub refund_no: Option<String>,
}

/// A decision about a refund.
#[derive(Debug, Args)]
pub struct SettleArgs {
    #[command(flatten)]
    name: Named,
    /// Which refund.
    pub refund_no: String,
    /// What becomes of it.
    #[arg(long, value_parser = ["SUCCESS", "CLOSED", "ABNORMAL"])]
    pub status: String,
}

/// A profit share.
#[derive(Debug, Args)]
pub struct ShareArgs {
    #[command(flatten)]
    name: Named,
    /// Its number.
    #[arg(long)]
    pub out_order_no: String,
    /// Who gets how much, in yuan; repeat for more.
    #[arg(long = "receiver", value_name = "ACCOUNT=YUAN")]
    pub receivers: Vec<String>,
    /// The same, but the receiver can't take it.
    #[arg(long = "refused", value_name = "ACCOUNT=YUAN")]
    pub refused: Vec<String>,
}

/// Trouble.
#[derive(Debug, Args)]
pub struct FailArgs {
    /// Which calls.
    #[arg(value_parser = ["any", "query", "refund", "refund_query", "close", "share", "share_query", "certificates", "bill", "download"])]
    pub api: String,
    /// What happens to them.
    #[arg(value_parser = ["timeout", "disconnect", "5xx", "system_error", "rate_limit", "bad_signature", "unsigned", "probe", "balance_short", "abnormal"])]
    pub kind: String,
    /// Of one platform only.
    #[arg(long, value_parser = ["wxpay", "alipay"])]
    pub channel: Option<String>,
    /// To how many calls.
    #[arg(long, default_value_t = 1)]
    pub times: u32,
    /// Whether the platform does what it was asked all the same; otherwise as is usual for the kind.
    #[arg(long)]
    pub executed: Option<bool>,
    #[command(flatten)]
    remote: Remote,
}

/// A change of keys.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// What signs callbacks from now on.
    #[arg(long, value_parser = ["public_key", "certificate", "switching"])]
    pub mode: Option<String>,
    /// Issue a new platform certificate.
    #[arg(long)]
    pub new_certificate: bool,
    /// How Alipay and the ledger know each other's keys from now on.
    #[arg(long, value_parser = ["public_key", "certificate"])]
    pub alipay_mode: Option<String>,
    /// Issue a new certificate of Alipay; in certificate mode it signs from now on.
    #[arg(long)]
    pub new_alipay_certificate: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Time.
#[derive(Debug, Args)]
pub struct AdvanceArgs {
    /// By how much.
    pub seconds: u64,
    #[command(flatten)]
    remote: Remote,
}

/// What to show.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Only this order number.
    #[arg(long)]
    pub order_no: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Verb {
    /// Sends it and prints the answer.
    pub async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Open(args) => args.send("/sandbox/open").await,
            Self::Pay(args) => args.send("/sandbox/pay").await,
            Self::PayLate(args) => args.send("/sandbox/pay-late").await,
            Self::PayTwice(args) => args.send("/sandbox/pay-twice").await,
            Self::OpenCombined(args) => args.send("/sandbox/open-combined").await,
            Self::PayCombined(args) => args.send("/sandbox/pay-combined").await,
            Self::Refund(args) => args.send().await,
            Self::SettleRefund(args) => {
                let more = json!({ "refund_no": args.refund_no, "status": args.status });
                args.name.send("/sandbox/settle-refund", more).await
            }
            Self::Share(args) => args.send().await,
            Self::Close(args) => args.name.send("/sandbox/close", json!({})).await,
            Self::Finish(args) => args.name.send("/sandbox/finish", json!({})).await,
            Self::FailNext(args) => args.send().await,
            Self::Keys(args) => {
                let body = json!({
                    "mode": args.mode, "new_certificate": args.new_certificate,
                    "alipay_mode": args.alipay_mode, "new_alipay_certificate": args.new_alipay_certificate,
                });
                print::json(&args.remote.post("/sandbox/keys", &body).await?)
            }
            Self::AdvanceTime(args) => {
                let body = json!({ "seconds": args.seconds });
                print::json(&args.remote.post("/sandbox/advance-time", &body).await?)
            }
            Self::DeliverNow(args) => print::json(&args.remote.post("/sandbox/deliver-now", &json!({})).await?),
            Self::State(args) => args.show().await,
        }
    }
}

impl Named {
    async fn send(&self, path: &str, more: Value) -> anyhow::Result<Exit> {
        let mut body = more;
        for (name, value) in [
            ("channel", Some(&self.channel)),
            ("account", self.account.as_ref()),
            ("sub_mchid", self.sub_mchid.as_ref()),
            ("order_no", Some(&self.order_no)),
        ] {
            if let (Some(value), Some(members)) = (value, body.as_object_mut()) {
                members.insert(name.to_owned(), Value::from(value.as_str()));
            }
        }
        let answer = self.remote.post(path, &body).await?;
        let several = answer.get("orders").and_then(Value::as_array).cloned();
        self.remote.orders(&answer, &several.unwrap_or_else(|| vec![answer.clone()]))
    }
}

impl PayArgs {
    async fn send(&self, path: &str) -> anyhow::Result<Exit> {
        let more = json!({
            "amount_minor": self.amount.as_deref().map(minor).transpose()?,
            "payer_minor": self.payer.as_deref().map(minor).transpose()?,
            "callback": self.callback,
            "product": self.product,
            "charset": self.charset,
            "paid_seconds_ago": self.paid_seconds_ago,
        });
        self.name.send(path, more).await
    }
}

impl CombinedArgs {
    async fn send(&self, path: &str) -> anyhow::Result<Exit> {
        let order = |pair: &String| {
            let (order_no, amount_minor) = named_amount(pair)?;
            anyhow::Ok(json!({ "order_no": order_no, "amount_minor": amount_minor }))
        };
        let orders: Vec<Value> = self.orders.iter().map(order).collect::<anyhow::Result<_>>()?;
        let body = json!({ "combine_no": self.combine_no, "orders": orders, "callback": self.callback });
        let answer = self.remote.post(path, &body).await?;
        let orders = answer.get("orders").and_then(Value::as_array).cloned().unwrap_or_default();
        self.remote.orders(&answer, &orders)
    }
}

impl RefundArgs {
    async fn send(&self) -> anyhow::Result<Exit> {
        let amount_minor = self.amount.as_deref().map(minor).transpose()?;
        let more = json!({ "amount_minor": amount_minor, "refund_no": self.refund_no });
        self.name.send("/sandbox/refund", more).await
    }
}

impl ShareArgs {
    async fn send(&self) -> anyhow::Result<Exit> {
        let mut receivers = Vec::new();
        for pair in &self.receivers {
            let (account, amount_minor) = named_amount(pair)?;
            receivers.push(json!({ "account": account, "amount_minor": amount_minor }));
        }
        for pair in &self.refused {
            let (account, amount_minor) = named_amount(pair)?;
            let refused = json!({
                "account": account, "amount_minor": amount_minor, "result": "CLOSED", "fail_reason": "NO_RELATION",
            });
            receivers.push(refused);
        }
        let more = json!({ "out_order_no": self.out_order_no, "receivers": receivers });
        self.name.send("/sandbox/share", more).await
    }
}

impl FailArgs {
    async fn send(&self) -> anyhow::Result<Exit> {
        let mut body = Map::new();
        body.insert("api".to_owned(), json!(self.api));
        body.insert("kind".to_owned(), json!(self.kind));
        body.insert("channel".to_owned(), json!(self.channel));
        body.insert("times".to_owned(), json!(self.times));
        body.insert("executed".to_owned(), json!(self.executed));
        print::json(&self.remote.post("/sandbox/fail-next", &Value::Object(body)).await?)
    }
}

impl StateArgs {
    async fn show(&self) -> anyhow::Result<Exit> {
        // Order numbers hold no character that a query would have to escape but these two.
        let query =
            self.order_no.as_ref().map(|no| format!("?order_no={}", no.replace('|', "%7C").replace('@', "%40")));
        let answer = self.remote.get(&format!("/sandbox/state{}", query.unwrap_or_default())).await?;
        let orders = answer.get("orders").and_then(Value::as_array).cloned().unwrap_or_default();
        self.remote.orders(&answer, &orders)
    }
}

/// Yuan text as fen.
fn minor(text: &str) -> anyhow::Result<i64> {
    parse_yuan(text)
        .ok_or_else(|| Stop::usage(format!("an amount is written in yuan such as 88.88, not {text:?}")).into())
}

/// `A-1001=88.88`.
fn named_amount(pair: &str) -> anyhow::Result<(&str, i64)> {
    let (name, amount) = pair.split_once('=').ok_or_else(|| Stop::usage(format!("{pair:?} is not NAME=YUAN")))?;
    Ok((name, minor(amount)?))
}
