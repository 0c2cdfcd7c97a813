//! The stub receiver of business effects: records every delivery, answers as told, and checks the Standard Webhooks
//! signature by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The secret that the configuration names `warehouse`.
pub const SECRET: &str = "whsec_dGVzdC1vbmx5LXNlY3JldC1vZi10aGUtd2FyZWhvdXNl";

/// How long [`Warehouse::wait_until`] waits.
const WAIT: Duration = Duration::from_secs(20);

/// One answer to one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Wait before answering.
    pub delay: Duration,
    /// Then this status.
    pub status: u16,
}

impl Plan {
    /// Answer at once.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self { delay: Duration::ZERO, status }
    }
}

/// What arrived.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// `webhook-id`: the event's id, the same in every repeat.
    pub webhook_id: String,
    /// Whether one of the signatures is right for id, timestamp and body.
    pub signature_ok: bool,
    /// The body.
    pub body: Value,
    /// What it was answered.
    pub status: u16,
}

impl Delivery {
    /// The event type that the body names.
    #[must_use]
    pub fn event_type(&self) -> &str {
        ["type", "event_type"].iter().find_map(|name| self.body[*name].as_str()).unwrap_or("?")
    }

    /// Every text inside the body: to look for an order number or an idem key without fixing the body's shape.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        self.body.to_string().contains(&format!("{text:?}"))
    }
}

/// The receiver. Stops with its runtime.
#[derive(Debug, Clone)]
pub struct Warehouse {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    deliveries: Vec<Delivery>,
    arrivals: u64,
    plans: VecDeque<Plan>,
    always: Option<Plan>,
}

impl Warehouse {
    /// Listens on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port for the warehouse");
        let addr = listener.local_addr().expect("the warehouse's address");
        let shared = Arc::new(Shared::default());
        let for_loop = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&for_loop)));
            }
        });
        Self { addr, shared }
    }

    /// Where to POST.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.addr)
    }

    /// Answers the next deliveries with these, in this order; then 200 again.
    pub fn plan(&self, plans: impl IntoIterator<Item = Plan>) {
        self.lock().plans = plans.into_iter().collect();
    }

    /// Answers every delivery that has no plan of its own with this.
    pub fn always(&self, plan: Plan) {
        self.lock().always = Some(plan);
    }

    /// Forgets all plans: 200 at once.
    pub fn answer_at_once(&self) {
        let mut state = self.lock();
        state.always = None;
        state.plans.clear();
    }

    /// Everything answered so far, in the order of the answers.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.lock().deliveries.clone()
    }

    /// Requests received so far, answered or not.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.lock().arrivals
    }

    /// Different events that it took (2xx), by type: repeats of one event count once.
    #[must_use]
    pub fn accepted_events(&self) -> BTreeMap<String, usize> {
        let accepted: BTreeSet<(String, String)> = self
            .deliveries()
            .iter()
            .filter(|delivery| (200..300).contains(&delivery.status))
            .map(|delivery| (delivery.event_type().to_owned(), delivery.webhook_id.clone()))
            .collect();
        let mut by_type = BTreeMap::new();
        for (event_type, _) in accepted {
            *by_type.entry(event_type).or_insert(0) += 1;
        }
        by_type
    }

    /// Waits until `enough` says so of the number of requests received. Panics after 20 s.
    pub async fn wait_until(&self, enough: impl Fn(u64) -> bool) {
        let waiting = async {
            loop {
                let arrived = self.shared.arrived.notified();
                if enough(self.arrivals()) {
                    return;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(WAIT, waiting)
            .await
            .unwrap_or_else(|_| panic!("the warehouse got only {} requests within {WAIT:?}", self.arrivals()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().expect("the warehouse's state")
    }
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>) {
    let Some((head, body)) = read_request(&mut socket).await else { return };
    let plan = {
        let mut state = shared.state.lock().expect("the warehouse's state");
        state.arrivals += 1;
        state.plans.pop_front().or(state.always).unwrap_or(Plan::status(200))
    };
    shared.arrived.notify_waiters();
    tokio::time::sleep(plan.delay).await;
    let delivery = Delivery {
        webhook_id: header(&head, "webhook-id"),
        signature_ok: signature_ok(&head, &body),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        status: plan.status,
    };
    shared.state.lock().expect("the warehouse's state").deliveries.push(delivery);
    let answer = format!("HTTP/1.1 {} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", plan.status);
    drop(socket.write_all(answer.as_bytes()).await);
    drop(socket.shutdown().await);
}

/// Head and body of one request; `None` when the sender went away.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = header(&head, "content-length").parse().unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                return Some((head, bytes[end + 4..end + 4 + length].to_vec()));
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn header(head: &str, name: &str) -> String {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// Standard Webhooks: HMAC-SHA256 over `id.timestamp.body` with the decoded secret, `v1,` + base64, any of several.
fn signature_ok(head: &str, body: &[u8]) -> bool {
    let secret = STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("the secret is base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let mut message = format!("{}.{}.", header(head, "webhook-id"), header(head, "webhook-timestamp")).into_bytes();
    message.extend_from_slice(body);
    let right = format!("v1,{}", STANDARD.encode(hmac::sign(&key, &message)));
    header(head, "webhook-signature").split(' ').any(|signature| signature == right)
}
