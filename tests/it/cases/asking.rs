//! Steps about the platforms' APIs: what the fake platform answers, and what makes the ledger ask.
//!
//! | step | here |
//! |---|---|
//! | `stub_provider` | answers prepared in the platform stub, used in their order |
//! | `wechat_query_result`, `alipay_trade_query_result` | the answer prepared for that order, then `POST .../query-payment` |
//! | `wechat_refund_query_result`, `alipay_refund_query_result` | the same with `POST .../refunds/{refund_no}/query` |
//! | `query_profit_sharing` | `POST .../profit-shares`, then its query runs |
//! | `run_job` | time passes until the job's next call, or the expired orders' calls that are due are made |

use std::path::Path;
use std::time::Duration;

use paidonce_tests::app::{TestApp, shop_request};
use paidonce_tests::keys;
use paidonce_tests::platform_stub::Then;
use paidonce_tests::platform_stub::answer::{Content, Prepared, Sign};
use paidonce_tests::platform_stub::asked::{Api, Channel};
use paidonce_tests::wire::Request;
use serde_json::{Map, Value, json};

use super::given::Given;
use super::script::{list, text};

/// The kinds of `*_query_result`.
const RESULTS: &[(&str, Api)] = &[
    ("wechat_query_result", Api::WechatQuery),
    ("wechat_refund_query_result", Api::WechatRefundQuery),
    ("alipay_trade_query_result", Api::AlipayQuery),
    ("alipay_query_result", Api::AlipayQuery),
    ("alipay_refund_query_result", Api::AlipayRefundQuery),
];

/// Members of an answer that say how it is sent, not what it says.
const HOW: &[&str] = &[
    "do",
    "http",
    "http_status",
    "sign",
    "sign_with",
    "key",
    "timeout",
    "reset",
    "disconnect",
    "cut",
    "connection_reset",
    "delay_ms",
    "delay_s",
    "delay_seconds",
    "certs",
    "body",
    "raw_response",
    "raw_body",
    "raw_file",
    "asked",
    "error",
    "count_calls",
    "repeat_last",
];

/// The API that a script calls so.
pub fn api_named(name: &str) -> Option<Api> {
    let has = |word: &str| name.contains(word);
    let any = |words: &[&str]| words.iter().any(|word| has(word));
    if any(&["return", "cancel", "bill", "prepay", "create", "precreate"]) {
        return None;
    }
    if has("alipay") {
        return match () {
            () if any(&["royalty", "settle", "shar"]) => Some(Api::AlipayShareQuery),
            () if has("refund") && has("query") => Some(Api::AlipayRefundQuery),
            () if has("refund") => Some(Api::AlipayRefund),
            () if has("close") => Some(Api::AlipayClose),
            () if any(&["query", "trade", "order"]) => Some(Api::AlipayQuery),
            () => None,
        };
    }
    if !any(&["wechat", "wxpay", "wx"]) {
        return None;
    }
    match () {
        () if has("cert") => Some(Api::WechatCertificates),
        () if has("shar") => Some(Api::WechatShareQuery),
        () if has("combine") => Some(Api::WechatCombineQuery),
        () if has("refund") && has("query") => Some(Api::WechatRefundQuery),
        () if has("refund") => Some(Api::WechatRefund),
        () if has("close") => Some(Api::WechatClose),
        () if any(&["query", "transaction", "order"]) => Some(Api::WechatQuery),
        () => None,
    }
}

/// The API whose answer this step brings.
pub fn result_api(kind: &str) -> Option<Api> {
    RESULTS.iter().find(|(name, _)| *name == kind).map(|(_, api)| *api)
}

/// Prepares the answers of a `stub_provider` step; `Err`: what of it can't be played.
pub fn prepare(app: &TestApp, step: &Value, folder: &Path) -> Result<Api, String> {
    let name = ["api", "name"].iter().find_map(|member| step[*member].as_str()).unwrap_or_default();
    let api = api_named(name).ok_or_else(|| format!("the API {name:?}"))?;
    let answers: Vec<Prepared> =
        list(&step["answers"]).iter().map(|said| answer(api, said, folder)).collect::<Result<_, _>>()?;
    let then = if step["repeat_last"] == Value::Bool(true) { Then::RepeatLast } else { Then::World };
    app.platforms.prepare(api, answers, then);
    Ok(api)
}

/// One answer as a script writes it.
pub fn answer(api: Api, said: &Value, folder: &Path) -> Result<Prepared, String> {
    let truly = |names: &[&str]| names.iter().any(|name| said[*name] == Value::Bool(true));
    let error = text(said, "error");
    let delay = said["delay_ms"].as_u64().or_else(|| Some(said["delay_s"].as_u64()? * 1000));
    let delay = delay.or_else(|| Some(said["delay_seconds"].as_u64()? * 1000)).unwrap_or(0);
    let sent = if truly(&["timeout"]) || error.contains("timeout") {
        Prepared::hang()
    } else if truly(&["reset", "disconnect", "cut", "connection_reset"]) || error.contains("connection") {
        Prepared::cut()
    } else if error.is_empty() {
        Prepared::new(content(api, said, folder)?)
    } else {
        return Err(format!("an answer with the error {error:?}"));
    };
    Ok(sent.signed(sign(said)?).after(Duration::from_millis(delay)))
}

fn content(api: Api, said: &Value, folder: &Path) -> Result<Content, String> {
    let number = ["http", "http_status", "status"].iter().find_map(|name| said[*name].as_u64());
    let status = u16::try_from(number.unwrap_or(200)).map_err(|e| e.to_string())?;
    if let Some(names) = said["certs"].as_array() {
        let certs = names.iter().map(|name| {
            let name = name.as_str().unwrap_or_default();
            keys::find_key(name).ok_or_else(|| format!("the certificate {name:?}"))
        });
        return Ok(Content::Certificates(Some(certs.collect::<Result<_, _>>()?)));
    }
    if let Some(raw) = ["raw_response", "raw_body"].iter().find_map(|name| said[*name].as_str()) {
        return Ok(Content::Raw(status, raw.as_bytes().to_vec()));
    }
    if let Some(file) = said["raw_file"].as_str() {
        return std::fs::read(folder.join(file))
            .map(|raw| Content::Raw(status, raw))
            .map_err(|e| format!("{file}: {e}"));
    }
    match said.get("body") {
        Some(Value::String(raw)) => return Ok(Content::Raw(status, raw.as_bytes().to_vec())),
        Some(body) => return Ok(whole_or_node(status, body)),
        None => {}
    }
    let mut rest: Map<String, Value> = said.as_object().cloned().unwrap_or_default();
    rest.retain(|name, value| !HOW.contains(&name.as_str()) && (name != "status" || !value.is_u64()));
    Ok(match api.channel() {
        Channel::Wechat if rest.contains_key("code") => {
            rest.entry("message").or_insert(json!("test"));
            Content::Json(status, Value::Object(rest))
        }
        Channel::Alipay if rest.get("code").is_some_and(|code| code != "10000") || rest.contains_key("sub_code") => {
            rest.entry("code").or_insert(json!("40004"));
            rest.entry("msg").or_insert(json!("test"));
            Content::Json(status, Value::Object(rest))
        }
        Channel::Wechat | Channel::Alipay if status >= 300 => Content::Bare(status, String::new()),
        Channel::Wechat if status == 204 => Content::Json(204, Value::Null),
        Channel::Wechat | Channel::Alipay if rest.is_empty() => Content::World,
        Channel::Wechat | Channel::Alipay => Content::Merged(rest),
    })
}

/// An Alipay body may be written with its node around it; then the node is what is signed.
fn whole_or_node(status: u16, body: &Value) -> Content {
    let node =
        body.as_object().into_iter().flatten().find(|(name, node)| name.ends_with("_response") && node.is_object());
    match node {
        Some((name, _)) if name == "error_response" => Content::Bare(status, body.to_string()),
        Some((_, node)) => Content::Json(status, node.clone()),
        None => Content::Json(status, body.clone()),
    }
}

fn sign(said: &Value) -> Result<Sign, String> {
    let named = ["sign_with", "key"].iter().find_map(|name| said[*name].as_str());
    match (text(said, "sign"), named) {
        ("" | "valid", None) => Ok(Sign::Platform),
        ("" | "valid", Some(name)) => keys::find_key(name).map(Sign::With).ok_or_else(|| format!("the key {name:?}")),
        ("invalid", _) => Ok(Sign::Bad),
        ("absent", _) => Ok(Sign::Absent),
        (other, _) => match other.strip_prefix("literal:") {
            Some(literal) => Ok(Sign::Literal(literal.to_owned())),
            None => Err(format!("sign {other:?} of an answer")),
        },
    }
}

/// What a `*_query_result` step is about.
pub struct About {
    /// Number that the stub knows the call by.
    pub number: String,
    /// The question to the ledger.
    pub request: Request,
}

/// Which order or refund the answer is for, and how the ledger is made to ask for it.
pub fn about(api: Api, step: &Value, given: &Given, app: &TestApp) -> Result<About, String> {
    let raw = step["raw_response"].as_str().and_then(|raw| serde_json::from_str::<Value>(raw).ok());
    let body = raw.unwrap_or_else(|| step["body"].clone());
    let said = |names: &[&str]| {
        names.iter().find_map(|name| step[*name].as_str().or_else(|| body[*name].as_str())).map(str::to_owned)
    };
    let asked = step["asked"].as_str();
    if matches!(api, Api::WechatQuery | Api::AlipayQuery) {
        let provider = if api == Api::AlipayQuery { "alipay" } else { "wechat" };
        let fits = given.orders.iter().find(|order| order.provider == provider || order.provider == "any");
        let named = asked.map(str::to_owned).or_else(|| said(&["order", "out_trade_no"]));
        let order_no = named.or_else(|| Some(fits?.order_no.clone())).ok_or("no order that was asked for")?;
        let request = shop_request(&format!("/v1/orders/{order_no}/query-payment"), &json!({}));
        return Ok(About { number: order_no, request });
    }
    let open = |refund_no: &str| {
        let sql = format!(
            "SELECT count(*) FROM t_order_flow WHERE trade_type = 'REFUND' AND refund_no = '{}'",
            refund_no.replace('\'', "''")
        );
        app.database.count(&sql) == 0
    };
    let is_given = |no: &str| given.refunds.iter().any(|refund| refund.refund_no == no);
    let first_open = given.refunds.iter().find(|refund| open(&refund.refund_no)).or(given.refunds.first());
    let named = asked.filter(|no| is_given(no)).map(str::to_owned);
    let named = named.or_else(|| said(&["out_refund_no", "out_request_no", "refund_no"]));
    let refund_no = named.or_else(|| Some(first_open?.refund_no.clone())).ok_or("no refund that was asked for")?;
    let of_given = given.refunds.iter().find(|refund| refund.refund_no == refund_no).map(|r| r.order_no.clone());
    let order_no = of_given.or_else(|| said(&["order", "out_trade_no"])).or_else(|| asked.map(str::to_owned));
    let order_no = order_no.or_else(|| Some(given.orders.first()?.order_no.clone())).ok_or("no order of the refund")?;
    let request = shop_request(&format!("/v1/orders/{order_no}/refunds/{refund_no}/query"), &json!({}));
    Ok(About { number: refund_no, request })
}

/// The order whose money a profit share divides.
pub fn shared_order(step: &Value, given: &Given) -> Option<String> {
    let named = ["order", "out_trade_no"].iter().find_map(|name| step[*name].as_str());
    let number = text(step, "out_order_no");
    let share = given.shares.iter().find(|share| text(share, "out_order_no") == number);
    let of_share = share.and_then(|share| ["order", "out_trade_no"].iter().find_map(|name| share[*name].as_str()));
    named.or(of_share).map(str::to_owned).or_else(|| Some(given.orders.first()?.order_no.clone()))
}
