//! The doors of test builds: the clock that the verifiers read, and the fault point inside the callback handler.

use std::sync::Arc;

use async_trait::async_trait;
use paidonce_app::ports::{RelayDriver, RelayReport};
use serde_json::json;

use crate::client::request;
use crate::harness::*;
use crate::keys::key;

struct Relay;

#[async_trait]
impl RelayDriver for Relay {
    async fn run_until_idle(&self, rounds_max: u32) -> Result<RelayReport, String> {
        Ok(RelayReport { delivered: u64::from(rounds_max), ..RelayReport::default() })
    }
}

#[tokio::test]
async fn the_moved_clock_decides_what_is_stale() {
    let doors = doors().await;
    let body = crate::signer::wx_envelope(
        crate::signer::APIV3_KEY_A,
        "TRANSACTION.SUCCESS",
        "transaction",
        &crate::signer::wx_payment("WX-1", "4200001", 100),
    );
    let old = wx_push_by(key("platform_cert_1"), 1_768_442_400, body);
    assert_eq!(doors.push(&old).await.status, 401);
    let moved = json!({ "now": "2026-01-15T10:00:00+08:00" }).to_string();
    assert_eq!(doors.raw(&request("POST", "/testing/clock", &[], moved.as_bytes())).await.status, 200);
    assert_eq!(doors.push(&old).await.status, 204);
    let later = json!({ "advance_seconds": 301 }).to_string();
    assert_eq!(doors.raw(&request("POST", "/testing/clock", &[], later.as_bytes())).await.status, 200);
    assert_eq!(doors.push(&old).await.status, 401);
}

#[tokio::test]
async fn a_panic_inside_the_handler_is_a_failure_in_the_platforms_words() {
    let doors = doors().await;
    let arm = json!({ "point": "handler", "action": "panic", "times": 1 }).to_string();
    assert_eq!(doors.raw(&request("POST", "/testing/fault", &[], arm.as_bytes())).await.status, 200);
    let answer = doors.push(&alipay_payment("ALI-1", "2026001", "1.00")).await;
    assert_eq!((answer.status, answer.text().as_str()), (500, "fail"));
    assert_eq!(doors.push(&alipay_payment("ALI-1", "2026001", "1.00")).await.text(), "success");
}

#[tokio::test]
async fn the_relay_is_driven_by_hand() {
    let doors = doors_with(|options| options.testing.relay = Some(Arc::new(Relay))).await;
    let answer = doors.raw(&request("POST", "/testing/relay", &[], b"{\"rounds\": 3}")).await;
    assert_eq!(answer.json(), json!({ "delivered": 3, "retried": 0, "dead": 0, "calls_done": 0, "calls_again": 0 }));
}
