//! Guards that a platform's new certificate loses no callback, and that messages which prove nothing cost next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use paidonce_app::Accounts;
use paidonce_app::ports::{ChannelClient, KeyRefresh};
use paidonce_channel::api::{ApiAnswer, ApiCall, Doubt, LearnedKey};
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::harness::*;
use crate::keys::{TestKey, key};
use crate::signer;

/// Callbacks that may wait for a refresh at once.
const WAITS_MAX: usize = 64;

/// A platform whose list has these certificates.
struct Platform {
    accounts: Accounts,
    list: Vec<&'static TestKey>,
    can_ask: bool,
    gate: Semaphore,
    asked: AtomicUsize,
    waiting: watch::Sender<usize>,
}

impl Platform {
    fn of(accounts: &Accounts, list: Vec<&'static TestKey>) -> Self {
        let (asked, waiting) = (AtomicUsize::new(0), watch::Sender::new(0));
        Self { accounts: accounts.clone(), list, can_ask: true, gate: Semaphore::new(1_000), asked, waiting }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ChannelClient for Platform {
    fn can_ask(&self, _account: &AccountRef) -> bool {
        self.can_ask
    }

    async fn ask(&self, _account: &AccountRef, _call: &ApiCall) -> ApiAnswer {
        ApiAnswer::Unknown(Doubt { code: "no_connection", detail: "not in this test".to_owned() })
    }

    async fn refresh_keys(&self, account: &AccountRef) -> KeyRefresh {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.gate.acquire().await.unwrap().forget();
        let day = 24 * 3600 * 1_000_000;
        let now = Timestamp::from_micros(unix_now() * 1_000_000);
        let learned = self.list.iter().map(|key| LearnedKey {
            serial: key.id.trim_start_matches('0').to_ascii_uppercase(),
            pem: key.certificate_pem.unwrap().to_owned(),
            valid_from: now.plus_micros(-day),
            valid_to: now.plus_micros(day),
        });
        match self.accounts.learn(account, learned.collect(), now) {
            0 => KeyRefresh::Nothing,
            _ => KeyRefresh::Learned,
        }
    }
}

/// Longer than any test here takes, so that only the test of the deadline meets it.
const NO_DEADLINE: Duration = Duration::from_secs(120);

async fn doors_asking(change: impl FnOnce(&mut Platform)) -> (Doors, Arc<Platform>) {
    doors_with_deadline(NO_DEADLINE, change).await
}

async fn doors_with_deadline(deadline: Duration, change: impl FnOnce(&mut Platform)) -> (Doors, Arc<Platform>) {
    let mut made = None;
    let wire = |app: paidonce_app::App| {
        let mut platform = Platform::of(app.accounts(), vec![key("platform_cert_1"), key("platform_cert_2")]);
        change(&mut platform);
        let platform = Arc::new(platform);
        made = Some(Arc::clone(&platform));
        app.with_channel_client(platform)
    };
    let doors = doors_of(wire, |options| options.answer_deadline = deadline).await;
    (doors, made.unwrap())
}

fn payment_by(signed_by: &TestKey) -> Push {
    let resource = signer::wx_payment("WX-1", "4200001", 100);
    let body = signer::wx_envelope(signer::APIV3_KEY_A, "TRANSACTION.SUCCESS", "transaction", &resource);
    wx_push_by(signed_by, unix_now(), body)
}

/// A push that names a certificate which nobody has; its signature can't matter.
fn made_up(serial: &str) -> Push {
    let headers = signer::wx_header_list(serial, unix_now(), "n", "bm90IGEgc2lnbmF0dXJl");
    Push { path: WXPAY_PATH.to_owned(), headers, body: b"{}".to_vec() }
}

#[tokio::test]
async fn a_callback_signed_by_a_new_certificate_is_booked_after_one_refresh() {
    let (doors, platform) = doors_asking(|_| {}).await;
    doors.open("WX-1", 100).await;
    let answer = doors.push(&payment_by(key("platform_cert_2"))).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(doors.ledger.event_types(), ["OrderOpened", "PaymentConfirmed"]);
    assert_eq!(platform.asked(), 1);
    assert_eq!(doors.push(&payment_by(key("platform_cert_2"))).await.status, 204);
    assert_eq!(platform.asked(), 1, "it is known now");
}

#[tokio::test]
async fn a_certificate_that_the_platform_does_not_list_is_refused_as_before() {
    let (doors, platform) = doors_asking(|_| {}).await;
    doors.open("WX-1", 100).await;
    assert_eq!(doors.push(&payment_by(key("platform_cert_3"))).await.status, 401);
    assert_eq!(platform.asked(), 1);
    assert_eq!(doors.ledger.event_types(), ["OrderOpened"]);
}

#[tokio::test]
async fn what_a_refresh_can_not_help_does_not_ask_for_one() {
    let (doors, platform) = doors_asking(|_| {}).await;
    assert_eq!(doors.push(&made_up("PUB_KEY_ID_0119999999992025010800000000000009")).await.status, 401);
    assert_eq!(doors.push(&payment_by(key("platform_cert_1"))).await.status, 204);
    assert_eq!(platform.asked(), 0);
    let (doors, platform) = doors_asking(|platform| platform.can_ask = false).await;
    assert_eq!(doors.push(&made_up("5F00D")).await.status, 401);
    assert_eq!(platform.asked(), 0, "an account without a private key has nothing to ask with");
}

#[tokio::test]
async fn gotcha_5_a_flood_of_made_up_serials_keeps_few_waiting() {
    let (doors, platform) = doors_asking(|platform| platform.gate = Semaphore::new(0)).await;
    let doors = Arc::new(doors);
    let flood: Vec<_> = (0..WAITS_MAX)
        .map(|number| {
            let doors = Arc::clone(&doors);
            tokio::spawn(async move { doors.push(&made_up(&format!("5F00D{number:X}"))).await.status })
        })
        .collect();
    let mut waiting = platform.waiting.subscribe();
    let full = waiting.wait_for(|waiting| *waiting == WAITS_MAX);
    tokio::time::timeout(Duration::from_secs(60), full).await.expect("they wait in time").unwrap();
    for number in 0..20 {
        assert_eq!(doors.push(&made_up(&format!("6F00D{number:X}"))).await.status, 401);
    }
    assert_eq!(platform.asked(), WAITS_MAX, "the others are not kept waiting");
    assert_eq!(doors.push(&payment_by(key("platform_cert_1"))).await.status, 204, "a genuine callback passes by");
    platform.gate.add_permits(WAITS_MAX);
    for answer in flood {
        assert_eq!(answer.await.unwrap(), 401);
    }
}

#[tokio::test]
async fn a_platform_that_never_answers_does_not_keep_its_own_callback_waiting() {
    let silent = |platform: &mut Platform| platform.gate = Semaphore::new(0);
    let (doors, platform) = doors_with_deadline(Duration::from_millis(200), silent).await;
    let push = made_up("5F00D");
    let pushing = doors.push(&push);
    let answer = tokio::time::timeout(Duration::from_secs(60), pushing).await.expect("in time");
    assert_eq!((answer.status, platform.asked()), (401, 1));
}
