//! Sends the verbs to a running sandbox.

use anyhow::Context as _;
use clap::Args;
use reqwest::Method;
use serde_json::Value;

use crate::commands::print::{self, say};
use crate::exit::{Exit, Stop};
use crate::table::{self, Column};

/// Where the sandbox is and how to print.
#[derive(Debug, Args)]
pub struct Remote {
    /// The sandbox.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    pub url: String,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

const ORDER: &[Column] = &[
    Column::Text("account"),
    Column::Text("order_no"),
    Column::Text("platform_state"),
    Column::Money("amount_minor"),
    Column::Money("paid_minor"),
    Column::Money("refunded_minor"),
    Column::Text("channel_trade_no"),
    Column::Text("paid_at"),
];

impl Remote {
    /// A question.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, None).await
    }

    /// An act.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, path, Some(body)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let http = reqwest::Client::builder().no_proxy().build().context("HTTP client")?;
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let mut request = http.request(method, &url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let away = |_: reqwest::Error| {
            Stop::unreachable(format!(
                "no sandbox answers at {}: is `paidonce sandbox` running there? (--url)",
                self.url
            ))
        };
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(away)?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() {
            return Ok(value);
        }
        let why = value.get("error").and_then(Value::as_str).unwrap_or("no reason given");
        let text = format!("the sandbox says {status}: {why}");
        Err(if status.as_u16() == 400 { Stop::usage(text) } else { Stop::refused(text) }.into())
    }

    /// Orders as a table.
    pub fn orders(&self, answer: &Value, orders: &[Value]) -> anyhow::Result<Exit> {
        if self.json {
            return print::json(answer);
        }
        // Both platforms are played in yuan only.
        let with_currency = orders.iter().cloned().map(|mut order| {
            if let Some(members) = order.as_object_mut() {
                members.insert("currency".to_owned(), Value::from("CNY"));
            }
            order
        });
        say!("{}", table::rows(&with_currency.collect::<Vec<_>>(), ORDER))?;
        Ok(Exit::Ok)
    }
}
