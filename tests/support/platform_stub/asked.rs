//! Which call a request is, what it names, and whether it is signed and written as the platform asks.

use std::collections::BTreeMap;

use serde_json::Value;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

use crate::keys::{self, TestKey, key};
use crate::signer::{self, Charset, KeepSignType};

/// The platform refuses a request whose clock is further off.
const CLOCK_SECONDS_MAX: i64 = 300;

/// The channel whose API it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// WeChat Pay v3.
    Wechat,
    /// Alipay gateway.
    Alipay,
}

/// One API of a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// Query by out_trade_no or transaction_id.
    WechatQuery,
    /// Query of a combine order.
    WechatCombineQuery,
    /// Close.
    WechatClose,
    /// Refund.
    WechatRefund,
    /// Refund query.
    WechatRefundQuery,
    /// Certificate list.
    WechatCertificates,
    /// Profit-share query.
    WechatShareQuery,
    /// alipay.trade.query.
    AlipayQuery,
    /// alipay.trade.close.
    AlipayClose,
    /// alipay.trade.refund.
    AlipayRefund,
    /// alipay.trade.fastpay.refund.query.
    AlipayRefundQuery,
    /// alipay.trade.order.settle.query.
    AlipayShareQuery,
    /// Anything else: the platform has no such call.
    WechatOther,
    /// Anything else: the gateway has no such method.
    AlipayOther,
}

impl Api {
    /// Whose it is.
    #[must_use]
    pub const fn channel(self) -> Channel {
        match self {
            Self::WechatQuery
            | Self::WechatCombineQuery
            | Self::WechatClose
            | Self::WechatRefund
            | Self::WechatRefundQuery
            | Self::WechatCertificates
            | Self::WechatShareQuery
            | Self::WechatOther => Channel::Wechat,
            Self::AlipayQuery
            | Self::AlipayClose
            | Self::AlipayRefund
            | Self::AlipayRefundQuery
            | Self::AlipayShareQuery
            | Self::AlipayOther => Channel::Alipay,
        }
    }

    fn of_wechat(method: &str, path: &str) -> Self {
        let segments: Vec<&str> = path.split('/').skip(2).collect();
        match (method, segments.as_slice()) {
            ("GET", ["certificates"]) => Self::WechatCertificates,
            ("GET", ["combine-transactions", "out-trade-no", _]) => Self::WechatCombineQuery,
            ("POST", ["refund", "domestic", "refunds"]) => Self::WechatRefund,
            ("GET", ["refund", "domestic", "refunds", _]) => Self::WechatRefundQuery,
            ("GET", ["profitsharing", "orders", _]) => Self::WechatShareQuery,
            ("POST", ["pay", .., "close"]) => Self::WechatClose,
            ("GET", ["pay", .., "out-trade-no" | "id", _]) => Self::WechatQuery,
            _ => Self::WechatOther,
        }
    }

    fn of_alipay(method: &str) -> Self {
        match method {
            "alipay.trade.query" => Self::AlipayQuery,
            "alipay.trade.close" => Self::AlipayClose,
            "alipay.trade.refund" => Self::AlipayRefund,
            "alipay.trade.fastpay.refund.query" => Self::AlipayRefundQuery,
            "alipay.trade.order.settle.query" => Self::AlipayShareQuery,
            _ => Self::AlipayOther,
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which call.
    pub api: Api,
    /// mchid (WeChat) or app_id (Alipay) of the caller.
    pub account: String,
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query, as sent.
    pub path: String,
    /// Exact bytes.
    pub body: Vec<u8>,
    /// Members of the call: the JSON body or biz_content, and the query's pairs.
    pub members: BTreeMap<String, Value>,
    head: String,
    fields: Vec<(String, String)>,
}

impl Asked {
    /// Reads a request, however wrong it is.
    #[must_use]
    pub fn read(head: &str, body: Vec<u8>) -> Self {
        let mut line = head.lines().next().unwrap_or_default().split(' ');
        let method = line.next().unwrap_or_default().to_owned();
        let path = line.next().unwrap_or_default().to_owned();
        let (bare, query) = path.split_once('?').unwrap_or((&path, ""));
        let mut asked = Self {
            api: Api::of_wechat(&method, bare),
            account: String::new(),
            members: BTreeMap::new(),
            head: head.to_owned(),
            fields: pairs(query),
            method,
            path: path.clone(),
            body,
        };
        if bare.starts_with("/v3/") {
            asked.read_wechat(bare);
        } else {
            asked.read_alipay();
        }
        asked
    }

    fn read_wechat(&mut self, bare: &str) {
        self.account = self.authorization("mchid");
        let sent: Value = serde_json::from_slice(&self.body).unwrap_or(Value::Null);
        self.members = sent.as_object().map(|map| map.clone().into_iter().collect()).unwrap_or_default();
        for (name, value) in &self.fields {
            self.members.insert(name.clone(), Value::String(value.clone()));
        }
        let segments: Vec<String> = bare.split('/').map(|part| decoded(&part.replace('+', "%2B"))).collect();
        let named = match self.api {
            Api::WechatRefundQuery => segments.last().map(|last| ("out_refund_no", last)),
            Api::WechatShareQuery => segments.last().map(|last| ("out_order_no", last)),
            Api::WechatCombineQuery => segments.last().map(|last| ("combine_out_trade_no", last)),
            Api::WechatClose => segments.iter().rev().nth(1).map(|last| ("out_trade_no", last)),
            Api::WechatQuery if bare.contains("/out-trade-no/") => segments.last().map(|last| ("out_trade_no", last)),
            Api::WechatQuery => segments.last().map(|last| ("transaction_id", last)),
            Api::WechatRefund
            | Api::WechatCertificates
            | Api::WechatOther
            | Api::AlipayQuery
            | Api::AlipayClose
            | Api::AlipayRefund
            | Api::AlipayRefundQuery
            | Api::AlipayShareQuery
            | Api::AlipayOther => None,
        };
        if let Some((name, number)) = named {
            self.members.insert(name.to_owned(), Value::String(number.clone()));
        }
    }

    fn read_alipay(&mut self) {
        self.fields.extend(pairs(&String::from_utf8_lossy(&self.body)));
        self.api = Api::of_alipay(self.field("method"));
        self.account = self.field("app_id").to_owned();
        let content: Value = serde_json::from_str(self.field("biz_content")).unwrap_or(Value::Null);
        self.members = content.as_object().map(|map| map.clone().into_iter().collect()).unwrap_or_default();
    }

    /// A text member of the call, or the empty text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.members.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// out_refund_no, out_request_no.
    #[must_use]
    pub fn refund_no(&self) -> &str {
        [self.text("out_refund_no"), self.text("out_request_no")].into_iter().find(|no| !no.is_empty()).unwrap_or("")
    }

    /// Every number that names what it is about, the most exact first.
    pub fn numbers(&self) -> impl Iterator<Item = &str> {
        let names = [
            "out_refund_no",
            "out_request_no",
            "out_order_no",
            "settle_no",
            "out_trade_no",
            "combine_out_trade_no",
            "transaction_id",
            "trade_no",
        ];
        names.into_iter().map(|name| self.text(name)).filter(|number| !number.is_empty())
    }

    /// Whether one of its numbers is this.
    #[must_use]
    pub fn is_about(&self, number: &str) -> bool {
        self.numbers().any(|named| named == number)
    }

    /// A header, or the empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> String {
        header(&self.head, name)
    }

    /// A field of the gateway request, or the empty text.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// The platform key that the merchant asks to be answered with.
    #[must_use]
    pub fn wanted_key(&self) -> Option<&'static TestKey> {
        let id = self.header("wechatpay-serial");
        keys::find_key_by_id(&id).filter(|_| self.api.channel() == Channel::Wechat)
    }

    /// Why the platform would not accept it; `None`: it is right.
    #[must_use]
    pub fn problem(&self, now: OffsetDateTime) -> Option<String> {
        match self.api.channel() {
            Channel::Wechat => self.wechat_problem(now),
            Channel::Alipay => self.alipay_problem(now),
        }
    }

    fn wechat_problem(&self, now: OffsetDateTime) -> Option<String> {
        if !self.header("authorization").starts_with("WECHATPAY2-SHA256-RSA2048 ") {
            return Some("no Authorization of the right kind".to_owned());
        }
        if self.header("accept") != "application/json" || self.header("user-agent").is_empty() {
            return Some("Accept or User-Agent is not as asked for".to_owned());
        }
        if self.api == Api::WechatOther {
            return Some("there is no such call".to_owned());
        }
        let merchant = key("merchant_api");
        if self.authorization("serial_no") != merchant.id {
            return Some(format!("serial_no {:?} is not the merchant's", self.authorization("serial_no")));
        }
        let timestamp: i64 = self.authorization("timestamp").parse().unwrap_or(0);
        if (now.unix_timestamp() - timestamp).abs() > CLOCK_SECONDS_MAX {
            return Some(format!("timestamp {timestamp} is not of now ({})", now.unix_timestamp()));
        }
        let nonce = self.authorization("nonce_str");
        let mut message = format!("{}\n{}\n{timestamp}\n{nonce}\n", self.method, self.path).into_bytes();
        message.extend_from_slice(&self.body);
        message.push(b'\n');
        let good = merchant.verifies(&message, &self.authorization("signature"));
        (!good).then(|| "the signature is not right".to_owned())
    }

    fn alipay_problem(&self, now: OffsetDateTime) -> Option<String> {
        if self.api == Api::AlipayOther {
            return Some(format!("there is no method {:?}", self.field("method")));
        }
        let fixed = [("sign_type", "RSA2"), ("version", "1.0"), ("charset", "utf-8")];
        if let Some((name, _)) = fixed.iter().find(|(name, value)| !self.field(name).eq_ignore_ascii_case(value)) {
            return Some(format!("{name} is {:?}", self.field(name)));
        }
        let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
        let zone = UtcOffset::from_hms(8, 0, 0).expect("+08:00");
        let sent = PrimitiveDateTime::parse(self.field("timestamp"), format).ok().map(|sent| sent.assume_offset(zone));
        if sent.is_none_or(|sent| (now - sent).whole_seconds().abs() > CLOCK_SECONDS_MAX) {
            return Some(format!("timestamp {:?} is not of now in Beijing", self.field("timestamp")));
        }
        let content = signer::alipay_content(&self.fields, Charset::Utf8, KeepSignType::Yes);
        let good = key("alipay_app").verifies(&content, self.field("sign"));
        (!good).then(|| "the signature is not right".to_owned())
    }

    /// A quoted pair of the Authorization header.
    fn authorization(&self, name: &str) -> String {
        let header = self.header("authorization");
        let pairs = header.split_once(' ').map_or("", |(_, pairs)| pairs);
        let found = pairs.split(',').filter_map(|pair| pair.split_once('=')).find(|(found, _)| found.trim() == name);
        found.map(|(_, value)| value.trim_matches('"').to_owned()).unwrap_or_default()
    }
}

/// A header of a request head, or the empty text.
#[must_use]
pub fn header(head: &str, name: &str) -> String {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn pairs(form: &str) -> Vec<(String, String)> {
    let pairs = form.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(n, v)| (decoded(n), decoded(v))).collect()
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
