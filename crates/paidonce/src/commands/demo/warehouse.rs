//! A small subscriber: it takes what the ledger sends, believes only what is signed, and counts.
//!
//! It is the whole of what a merchant's service has to do: check the Standard Webhooks signature, act once per
//! `webhook-id`, answer 204.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use paidonce_worker::sign::{SigningSecret, signature};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Far more than an event needs; what is longer is refused.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// What it was told, counted.
#[derive(Debug, Default)]
struct Books {
    /// Distinct events by (order_no, event type).
    told: BTreeMap<(String, String), u64>,
    /// `webhook-id`s that were seen.
    seen: BTreeSet<String>,
    /// The same event told again.
    repeats: u64,
    /// Refused: signature wrong or body unreadable.
    refused: u64,
}

/// A running warehouse.
#[derive(Debug, Clone)]
pub struct Warehouse {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    secrets: Vec<SigningSecret>,
    books: Mutex<Books>,
    changed: Notify,
}

/// The part of a delivery that a warehouse needs.
#[derive(Debug, Deserialize)]
struct Delivery {
    #[serde(rename = "type")]
    event_type: String,
    /// `null` for what names no order.
    order_no: Option<String>,
}

impl Warehouse {
    /// Listens until the program ends.
    pub async fn start(listen: SocketAddr, secrets: Vec<SigningSecret>) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("the warehouse can't listen on {listen}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { secrets, books: Mutex::default(), changed: Notify::new() });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            // An accept error (too many open files) passes; the ledger's relay tries again.
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve_connection(stream, Arc::clone(&accepting)));
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Where the ledger should send to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// How often it was told this about this order, every event counted once.
    #[must_use]
    pub fn told(&self, order_no: &str, event_type: &str) -> u64 {
        self.books(|books| books.told.get(&(order_no.to_owned(), event_type.to_owned())).copied().unwrap_or(0))
    }

    /// Everything it was told about this order.
    #[must_use]
    pub fn told_of(&self, order_no: &str) -> u64 {
        self.books(|books| books.told.iter().filter(|((no, _), _)| no == order_no).map(|(_, count)| count).sum())
    }

    /// Deliveries of an event that it had already.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.books(|books| books.repeats)
    }

    /// Deliveries that it did not believe.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.books(|books| books.refused)
    }

    /// Distinct events so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.books(|books| books.told.values().sum())
    }

    /// Resolves at the next delivery.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    fn books<T>(&self, read: impl FnOnce(&Books) -> T) -> T {
        read(&self.shared.books.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One HTTP request.
struct Request {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

async fn serve_connection(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let answer = if shared.take(&request) {
            "HTTP/1.1 204 No Content\r\n\r\n"
        } else {
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        shared.changed.notify_one();
    }
}

/// `None`: the connection ended, or sends what is no request of the ledger's.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    loop {
        if let Some((request, used)) = parse_request(buffer) {
            buffer.drain(..used);
            return Some(request);
        }
        if buffer.len() > REQUEST_BYTES_MAX || stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// A whole request at the beginning of the buffer and its length, or `None` when more is needed.
fn parse_request(buffer: &[u8]) -> Option<(Request, usize)> {
    let head_bytes = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(buffer.get(..head_bytes)?);
    let headers: BTreeMap<String, String> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body_bytes: usize = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let begin = head_bytes.checked_add(4)?;
    let end = begin.checked_add(body_bytes)?;
    let body = buffer.get(begin..end)?.to_vec();
    Some((Request { headers, body }, end))
}

impl Shared {
    /// Books a delivery; `false` when it is not to be believed.
    fn take(&self, request: &Request) -> bool {
        let delivery = self.believe(request);
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((id, delivery)) = delivery else {
            books.refused = books.refused.saturating_add(1);
            return false;
        };
        if books.seen.insert(id) {
            let count = books.told.entry((delivery.order_no.unwrap_or_default(), delivery.event_type)).or_default();
            *count = count.saturating_add(1);
        } else {
            books.repeats = books.repeats.saturating_add(1);
        }
        true
    }

    fn believe(&self, request: &Request) -> Option<(String, Delivery)> {
        let id = request.headers.get("webhook-id")?;
        let timestamp: i64 = request.headers.get("webhook-timestamp")?.parse().ok()?;
        let offered = request.headers.get("webhook-signature")?;
        let genuine = self.secrets.iter().any(|secret| {
            let expected = signature(std::slice::from_ref(secret), id, timestamp, &request.body);
            offered.split(' ').any(|one| one == expected)
        });
        if !genuine {
            return None;
        }
        serde_json::from_slice(&request.body).ok().map(|delivery| (id.clone(), delivery))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        Shared { secrets: vec![secret], books: Mutex::default(), changed: Notify::new() }
    }

    fn delivery(shared: &Shared, id: &str, signed_id: &str) -> Request {
        let body = br#"{"type":"PaymentConfirmed","order_no":"A1"}"#.to_vec();
        let value = signature(&shared.secrets, signed_id, 1_700_000_000, &body);
        let headers = [("webhook-id", id), ("webhook-timestamp", "1700000000"), ("webhook-signature", &value)];
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Request { headers, body }
    }

    #[test]
    fn the_same_event_told_twice_counts_once() {
        let shared = shared();
        assert!(shared.take(&delivery(&shared, "e1", "e1")));
        assert!(shared.take(&delivery(&shared, "e1", "e1")));
        let books = shared.books.lock().unwrap();
        assert_eq!((books.told.values().sum::<u64>(), books.repeats), (1, 1));
    }

    #[test]
    fn a_delivery_that_the_ledger_did_not_sign_is_refused() {
        let shared = shared();
        assert!(!shared.take(&delivery(&shared, "e1", "e2")));
        assert_eq!(shared.books.lock().unwrap().refused, 1);
    }

    #[test]
    fn a_request_is_whole_only_with_its_body() {
        let text = b"POST /hook HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST";
        assert!(parse_request(&text[..42]).is_none());
        let (request, used) = parse_request(text).unwrap();
        assert_eq!((request.body.as_slice(), &text[used..]), (b"abc".as_slice(), b"POST".as_slice()));
    }
}
