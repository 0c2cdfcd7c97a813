//! Pushes callbacks: in the background when they fall due, or by hand.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::accounts::Channel;
use crate::keys::KeyError;
use crate::notice::{Push, Verdict};
use crate::options::Delivery;
use crate::sandbox::Shared;
use crate::wire::Message;

/// Both platforms count an answer that takes longer as none.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Callbacks on the way at once.
const UNDER_WAY_MAX: usize = 64;
/// Rounds of one `deliver-now`: a callback that is refused falls due again, with a fast clock perhaps at once.
const ROUNDS_MAX: u32 = 100;
/// Nothing is due sooner than something was planned; this is only a bound for the sleep.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What one `deliver-now` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Acknowledged as the platform wants it.
    pub taken: u64,
    /// Not.
    pub not_taken: u64,
}

/// A client that behaves as the platforms' pushers do: no redirect, no proxy, five seconds.
pub(crate) fn client() -> Result<reqwest::Client, reqwest::Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may install one at the same moment; either serves.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    reqwest::Client::builder().redirect(Policy::none()).no_proxy().timeout(ANSWER_WITHIN).build()
}

/// Pushes what falls due until it is stopped.
pub(crate) async fn run(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    if shared.delivery == Delivery::ByHand {
        return;
    }
    let slots = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    loop {
        // Registered before the look at what is due: a change in between is not missed.
        let changed = shared.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let pushes = shared.due();
        for push in pushes {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                try_once(&shared, push).await;
                drop(slot);
            });
        }
        tokio::select! {
            () = tokio::time::sleep(shared.pause()) => {}
            () = changed => {}
            _ = stopped.changed() => return,
        }
    }
}

/// Pushes until nothing is due any more.
pub(crate) async fn deliver_now(shared: &Arc<Shared>) -> Delivered {
    let _one_at_a_time = shared.delivering.lock().await;
    let mut delivered = Delivered::default();
    for _ in 0..ROUNDS_MAX {
        let pushes = shared.due();
        if pushes.is_empty() {
            break;
        }
        let mut under_way = JoinSet::new();
        for push in pushes {
            if under_way.len() >= UNDER_WAY_MAX {
                delivered.count(under_way.join_next().await);
            }
            let shared = Arc::clone(shared);
            under_way.spawn(async move { try_once(&shared, push).await });
        }
        while let Some(done) = under_way.join_next().await {
            delivered.count(Some(done));
        }
    }
    delivered
}

impl Delivered {
    fn count(&mut self, done: Option<Result<Verdict, tokio::task::JoinError>>) {
        match done {
            Some(Ok(Verdict::Taken)) => self.taken = self.taken.saturating_add(1),
            Some(Ok(Verdict::NotTaken) | Err(_)) => self.not_taken = self.not_taken.saturating_add(1),
            None => {}
        }
    }
}

impl Shared {
    fn due(&self) -> Vec<Push> {
        // Without `play`: looking must not wake the looker.
        self.look(|platforms, now| platforms.take_due(now))
    }

    fn pause(&self) -> Duration {
        self.look(|platforms, now| platforms.next_due().map_or(SLEEP_MAX, |due| due.since(now).min(SLEEP_MAX)))
    }
}

async fn try_once(shared: &Shared, push: Push) -> Verdict {
    let verdict = match write(&push) {
        Ok(message) => send(shared, &push, message).await,
        Err(error) => {
            tracing::error!(what = push.notice.what, %error, "a callback could not be written");
            Verdict::NotTaken
        }
    };
    shared.play(|platforms, now| platforms.pushed(&push, verdict, now));
    verdict
}

fn write(push: &Push) -> Result<Message, KeyError> {
    match push.notice.account.channel {
        Channel::Wxpay => crate::wxpay::callback::write(push),
        Channel::Alipay => crate::alipay::callback::write(push),
    }
}

async fn send(shared: &Shared, push: &Push, message: Message) -> Verdict {
    let mut request = shared.client.post(&push.notice.url).body(message.body);
    for (name, value) in message.headers {
        request = request.header(name, value);
    }
    let (what, url) = (&push.notice.what, &push.notice.url);
    match request.send().await {
        Ok(answer) => {
            let status = answer.status().as_u16();
            let body = answer.bytes().await;
            let verdict = match push.notice.account.channel {
                // The status decides, whatever the body says.
                Channel::Wxpay if matches!(status, 200 | 204) && body.is_ok() => Verdict::Taken,
                // Exactly these seven letters.
                Channel::Alipay if status == 200 && body.is_ok_and(|body| body.as_ref() == b"success") => {
                    Verdict::Taken
                }
                Channel::Wxpay | Channel::Alipay => Verdict::NotTaken,
            };
            tracing::info!(what, url, status, ?verdict, "callback");
            verdict
        }
        Err(error) => {
            tracing::warn!(what, url, error = %error.without_url(), "callback not taken: no answer");
            Verdict::NotTaken
        }
    }
}
