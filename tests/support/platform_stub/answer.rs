//! Answers: what was prepared, and how it goes over the wire.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::asked::{Api, Asked, Channel};
use super::world::World;
use crate::keys::TestKey;
use crate::signer;

/// A connection that gets no answer is kept open this long at most: longer than any timeout under test.
const HANG: Duration = Duration::from_secs(120);

/// An answer that a test prepared.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What it says.
    pub content: Content,
    /// How it is signed.
    pub sign: Sign,
    /// Wait before it.
    pub delay: Duration,
}

/// What an answer says.
#[derive(Debug, Clone)]
pub enum Content {
    /// What the world says.
    World,
    /// What the world says, with these members in place of its own.
    Merged(Map<String, Value>),
    /// This JSON: the body (WeChat) or the response node (Alipay).
    Json(u16, Value),
    /// Exactly this text as body (WeChat) or as response node (Alipay).
    Raw(u16, Vec<u8>),
    /// These bytes as the whole answer of a gateway: no node, no signature.
    Bare(u16, String),
    /// A certificate list, sealed; `None`: those that the merchant is known to have.
    Certificates(Option<Vec<&'static TestKey>>),
    /// Never any answer.
    Hang,
    /// The connection is cut without an answer.
    Cut,
}

/// How an answer is signed.
#[derive(Debug, Clone)]
pub enum Sign {
    /// As the platform does.
    Platform,
    /// By this key.
    With(&'static TestKey),
    /// Not at all.
    Absent,
    /// Well-formed, but over something else.
    Bad,
    /// A WeChat Pay signature probe.
    Probe,
    /// This text in the signature field.
    Literal(String),
}

/// Signs one answer.
#[derive(Debug)]
pub struct Signer {
    /// The platform's key for this merchant.
    pub key: &'static TestKey,
    /// The merchant's APIv3 key.
    pub apiv3_key: String,
    /// The platform's clock, unix seconds.
    pub now: i64,
    /// Names the response node.
    pub api: Api,
}

impl Prepared {
    /// Signed by the platform, at once.
    #[must_use]
    pub const fn new(content: Content) -> Self {
        Self { content, sign: Sign::Platform, delay: Duration::ZERO }
    }

    /// What the world says.
    #[must_use]
    pub const fn world() -> Self {
        Self::new(Content::World)
    }

    /// JSON with this status.
    #[must_use]
    pub const fn json(status: u16, body: Value) -> Self {
        Self::new(Content::Json(status, body))
    }

    /// A WeChat error.
    #[must_use]
    pub fn code(status: u16, code: &str) -> Self {
        Self::json(status, json!({ "code": code, "message": "test" }))
    }

    /// An Alipay business failure.
    #[must_use]
    pub fn sub_code(sub_code: &str) -> Self {
        Self::json(200, json!({ "code": "40004", "msg": "Business Failed", "sub_code": sub_code, "sub_msg": "test" }))
    }

    /// Never any answer: the caller's timeout decides.
    #[must_use]
    pub const fn hang() -> Self {
        Self::new(Content::Hang)
    }

    /// The connection is cut.
    #[must_use]
    pub const fn cut() -> Self {
        Self::new(Content::Cut)
    }

    /// A gateway in front of the platform says no: HTML, nothing signed.
    #[must_use]
    pub fn bare(status: u16) -> Self {
        Self::new(Content::Bare(status, "<html><body>Bad Gateway</body></html>".to_owned()))
    }

    /// The same, signed in another way.
    #[must_use]
    pub fn signed(self, sign: Sign) -> Self {
        Self { sign, ..self }
    }

    /// The same, later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// What a platform says to a request that it can't trust.
    pub(super) fn refused_signature(asked: &Asked) -> Self {
        match asked.api.channel() {
            Channel::Wechat => Self::code(401, "SIGN_ERROR"),
            Channel::Alipay => Self::json(
                200,
                json!({ "code": "40002", "msg": "Invalid Arguments", "sub_code": "isv.invalid-signature" }),
            ),
        }
    }

    /// The answer with everything filled in; the world learns from it.
    pub(super) fn resolved(self, asked: &Asked, world: &mut World) -> Self {
        let content = match self.content {
            Content::World if asked.api == Api::WechatCertificates => Content::Certificates(None),
            Content::World => world.answer(asked),
            Content::Merged(members) => merged(world.answer(asked), members),
            prepared @ (Content::Json(..)
            | Content::Raw(..)
            | Content::Bare(..)
            | Content::Certificates(_)
            | Content::Hang
            | Content::Cut) => prepared,
        };
        if let Content::Json(status, body) = &content {
            world.learn(asked, *status, body);
        }
        Self { content, ..self }
    }

    /// In a few words, for the record.
    pub(super) fn in_words(&self) -> String {
        let word = |body: &Value| {
            let names = ["trade_state", "trade_status", "refund_status", "status", "state", "sub_code", "code"];
            names.iter().find_map(|name| body[*name].as_str()).unwrap_or("").to_owned()
        };
        let said = match &self.content {
            Content::World | Content::Merged(_) => "the world".to_owned(),
            Content::Json(status, body) => format!("{status} {}", word(body)),
            Content::Raw(status, text) => {
                format!("{status} {}", serde_json::from_slice(text).map_or_else(|_| String::new(), |body| word(&body)))
            }
            Content::Bare(status, _) => format!("{status} without a node"),
            Content::Certificates(keys) => format!("200 {} certificates", keys.as_ref().map_or(0, Vec::len)),
            Content::Hang => "no answer".to_owned(),
            Content::Cut => "connection cut".to_owned(),
        };
        let signed = match &self.sign {
            Sign::Platform => "",
            Sign::With(_) => ", signed by another key",
            Sign::Absent => ", unsigned",
            Sign::Bad | Sign::Literal(_) => ", badly signed",
            Sign::Probe => ", a probe",
        };
        format!("{}{signed}", said.trim())
    }
}

fn merged(content: Content, members: Map<String, Value>) -> Content {
    if let Content::Json(status, Value::Object(mut body)) = content {
        body.extend(members);
        return Content::Json(status, Value::Object(body));
    }
    Content::Json(200, Value::Object(members))
}

/// Writes the answer and closes the connection.
pub(super) async fn write(socket: &mut TcpStream, prepared: &Prepared, signer: &Signer) {
    tokio::time::sleep(prepared.delay).await;
    let (status, text) = match &prepared.content {
        Content::Hang => {
            // Until the caller has gone.
            let mut byte = [0_u8; 1];
            drop(tokio::time::timeout(HANG, socket.read(&mut byte)).await);
            return;
        }
        Content::Cut => return,
        Content::Bare(status, text) => {
            send(socket, *status, &[("Content-Type".to_owned(), "text/html".to_owned())], text.as_bytes()).await;
            return;
        }
        Content::Json(204, _) => (204, Vec::new()),
        Content::Json(status, body) => (*status, body.to_string().into_bytes()),
        Content::Raw(status, text) => (*status, text.clone()),
        Content::Certificates(keys) => (200, signer.certificates(keys.as_deref().unwrap_or_default())),
        Content::World | Content::Merged(_) => unreachable!("resolved before"),
    };
    match signer.api.channel() {
        Channel::Wechat => send(socket, status, &signer.wechat_headers(&prepared.sign, &text), &text).await,
        Channel::Alipay => {
            let headers = [("Content-Type".to_owned(), "text/html;charset=utf-8".to_owned())];
            send(socket, status, &headers, &signer.alipay_body(&prepared.sign, &text)).await;
        }
    }
}

async fn send(socket: &mut TcpStream, status: u16, headers: &[(String, String)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n");
    if status != 204 {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    head.push_str("\r\n");
    drop(socket.write_all(&[head.as_bytes(), body].concat()).await);
    drop(socket.shutdown().await);
}

impl Signer {
    fn wechat_headers(&self, sign: &Sign, body: &[u8]) -> Vec<(String, String)> {
        let key = if let Sign::With(other) = sign { other } else { self.key };
        let nonce = signer::fresh_text(32);
        let signature = match sign {
            Sign::Platform | Sign::With(_) => key.sign(&signer::wx_message(self.now, &nonce, body)),
            Sign::Bad => key.sign(b"something else"),
            Sign::Probe => format!("WECHATPAY/SIGNTEST/{}", key.sign(b"probe")),
            Sign::Literal(text) => text.clone(),
            Sign::Absent => String::new(),
        };
        let mut headers = match sign {
            Sign::Absent => Vec::new(),
            Sign::Platform | Sign::With(_) | Sign::Bad | Sign::Probe | Sign::Literal(_) => {
                signer::wx_header_list(key.id, self.now, &nonce, &signature)
            }
        };
        headers.push(("Content-Type".to_owned(), "application/json; charset=utf-8".to_owned()));
        headers.push(("Request-Id".to_owned(), format!("TEST{}-0", signer::fresh_text(16))));
        headers
    }

    fn alipay_body(&self, sign: &Sign, node: &[u8]) -> Vec<u8> {
        let key = if let Sign::With(other) = sign { other } else { self.key };
        let signature = match sign {
            Sign::Platform | Sign::With(_) => Some(key.sign(node)),
            Sign::Bad | Sign::Probe => Some(key.sign(b"something else")),
            Sign::Literal(text) => Some(text.clone()),
            Sign::Absent => None,
        };
        let mut body = format!("{{\"{}\":", node_name(self.api)).into_bytes();
        body.extend_from_slice(node);
        if let Some(signature) = signature {
            body.extend_from_slice(format!(",\"sign\":\"{signature}\"").as_bytes());
        }
        body.push(b'}');
        body
    }

    fn certificates(&self, keys: &[&'static TestKey]) -> Vec<u8> {
        let data: Vec<Value> = keys
            .iter()
            .filter_map(|key| Some((key.id, key.certificate_pem?)))
            .map(|(serial, pem)| {
                let nonce = signer::fresh_nonce();
                json!({
                    "serial_no": serial,
                    "effective_time": "2024-01-01T08:00:00+08:00",
                    "expire_time": "2049-01-01T08:00:00+08:00",
                    "encrypt_certificate": {
                        "algorithm": "AEAD_AES_256_GCM",
                        "nonce": nonce,
                        "associated_data": "certificate",
                        "ciphertext": signer::seal(&self.apiv3_key, &nonce, "certificate", pem.as_bytes()),
                    }
                })
            })
            .collect();
        json!({ "data": data }).to_string().into_bytes()
    }
}

const fn node_name(api: Api) -> &'static str {
    match api {
        Api::AlipayQuery => "alipay_trade_query_response",
        Api::AlipayClose => "alipay_trade_close_response",
        Api::AlipayRefund => "alipay_trade_refund_response",
        Api::AlipayRefundQuery => "alipay_trade_fastpay_refund_query_response",
        Api::AlipayShareQuery => "alipay_trade_order_settle_query_response",
        Api::AlipayOther
        | Api::WechatQuery
        | Api::WechatCombineQuery
        | Api::WechatClose
        | Api::WechatRefund
        | Api::WechatRefundQuery
        | Api::WechatCertificates
        | Api::WechatShareQuery
        | Api::WechatOther => "error_response",
    }
}
