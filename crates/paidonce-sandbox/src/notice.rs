//! What the platforms have to tell and have not been able to: the queue of callbacks with the official schedules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accounts::{Account, Channel};
use crate::fate::Fate;
use crate::moment::Moment;
use crate::options::Behaviour;
use crate::order::Charset;
use crate::ring::Signer;

/// WeChat Pay, after a try that failed, in seconds: 15 resends, 24 h 4 min in all.
pub const WXPAY_PAUSES: [u64; 15] =
    [15, 15, 30, 180, 600, 1_200, 1_800, 1_800, 1_800, 3_600, 10_800, 10_800, 10_800, 21_600, 21_600];
/// Alipay: 4m 10m 10m 1h 2h 6h 15h.
pub const ALIPAY_PAUSES: [u64; 7] = [240, 600, 600, 3_600, 7_200, 21_600, 54_000];
/// A callback that is overtaken waits up to this long.
const REORDER_SECONDS_MAX: u64 = 30;
/// A late callback is between a minute and half an hour late.
const DELAY_SECONDS: (u64, u64) = (60, 1_800);
/// A copy of a callback that was taken comes up to this long after it.
const DUPLICATE_SECONDS_MAX: u64 = 120;

/// What is told, before it is sealed and signed.
#[derive(Debug, Clone)]
pub enum Content {
    /// A resource in an envelope.
    Wxpay {
        /// `TRANSACTION.SUCCESS`, ..
        event_type: &'static str,
        /// `transaction`, `refund`, `profitsharing`.
        original_type: &'static str,
        /// For people.
        summary: &'static str,
        /// To be sealed.
        plaintext: Value,
        /// The receiver's APIv3 key.
        apiv3_key: String,
    },
    /// A form.
    Alipay {
        /// Without `notify_time`, `sign` and `sign_type`.
        fields: BTreeMap<String, String>,
        /// Of form and signature.
        charset: Charset,
        /// What the signature covers.
        signed: Signed,
    },
}

/// What Alipay's signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    /// Everything but `sign` and `sign_type`: notices to the notify_url.
    WithoutSignType,
    /// Everything but `sign`: messages to the application gateway.
    WithSignType,
}

/// Something to tell once, as often as it takes.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Unique name of what is told: the seed decides by it.
    pub what: String,
    /// Whom.
    pub account: Account,
    /// About which order.
    pub order_no: String,
    /// Where to.
    pub url: String,
    /// The platform's id of this notice, the same on every try.
    pub push_id: String,
    /// When it came into being.
    pub created_at: Moment,
    /// What.
    pub content: Arc<Content>,
}

/// Whether the seed decides about a callback, or its maker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// As the behaviour says.
    #[default]
    AsUsual,
    /// At once and once.
    Prompt,
    /// Never sent.
    Lost,
    /// Sent once more although it was taken.
    Duplicated,
    /// One to thirty minutes late.
    Delayed,
}

#[derive(Debug)]
struct Entry {
    notice: Notice,
    tries: usize,
    stage: Stage,
    probe_first: Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Planned,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    UnderWay,
    Taken,
    Lost,
    GivenUp,
}

/// A try that is to be made now.
#[derive(Debug, Clone)]
pub struct Push {
    /// For [`Outbox::pushed`].
    pub id: usize,
    /// What.
    pub notice: Notice,
    /// Now, by the platform's clock.
    pub at: Moment,
    /// With which key; Alipay has one.
    pub signer: Signer,
    /// How it is signed.
    pub signing: Signing,
}

/// How a try is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// As it must be.
    Genuine,
    /// Deliberately wrong, to see whether anybody looks.
    Probe,
}

/// What became of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Acknowledged as the platform wants it.
    Taken,
    /// Anything else.
    NotTaken,
}

/// Numbers for `state`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeCounts {
    /// Waiting for their next try.
    pub waiting: u64,
    /// Acknowledged.
    pub taken: u64,
    /// Never sent.
    pub lost: u64,
    /// Not acknowledged to the end of the schedule.
    pub given_up: u64,
    /// Tries made.
    pub tries: u64,
    /// Tries that were acknowledged.
    pub acknowledged: u64,
    /// Deliberately wrong signatures sent.
    pub probes: u64,
    /// Of those, acknowledged: somebody does not look.
    pub probes_taken: u64,
}

/// All callbacks, those to come and those that were.
#[derive(Debug, Default)]
pub struct Outbox {
    entries: Vec<Entry>,
    waiting: BTreeSet<(Moment, usize)>,
    counts: NoticeCounts,
}

impl Outbox {
    /// Queues a notice with the fate that the seed (or its maker) gives it.
    pub fn put(&mut self, notice: Notice, wish: Wish, behaviour: &Behaviour) {
        let (fate, now) = (Fate::new(behaviour.seed), notice.created_at);
        let usual = |percent, question| wish == Wish::AsUsual && fate.happens(percent, question, &notice.what);
        if wish == Wish::Lost || usual(behaviour.lose_percent, "lose") {
            self.counts.lost = self.counts.lost.saturating_add(1);
            let entry = Entry { notice, tries: 0, stage: Stage::Lost, probe_first: Probe::None };
            self.entries.push(entry);
            return;
        }
        let mut due = now;
        if usual(behaviour.reorder_percent, "reorder") {
            let seconds = fate.below(REORDER_SECONDS_MAX, "reorder by", &notice.what).saturating_add(1);
            due = due.plus(behaviour.scaled(Duration::from_secs(seconds)));
        }
        if wish == Wish::Delayed || usual(behaviour.delay_percent, "delay") {
            let more = fate.below(DELAY_SECONDS.1.saturating_sub(DELAY_SECONDS.0), "delay by", &notice.what);
            due = due.plus(behaviour.scaled(Duration::from_secs(DELAY_SECONDS.0.saturating_add(more))));
        }
        if wish == Wish::Duplicated || usual(behaviour.duplicate_percent, "duplicate") {
            let seconds = fate.below(DUPLICATE_SECONDS_MAX, "duplicate after", &notice.what);
            let copy_due = due.plus(behaviour.scaled(Duration::from_secs(seconds)));
            self.queue(notice.clone(), copy_due, Probe::None);
        }
        let wxpay = notice.account.channel == Channel::Wxpay;
        let probe = if wxpay && usual(behaviour.probe_percent, "probe") { Probe::Planned } else { Probe::None };
        self.queue(notice, due, probe);
    }

    fn queue(&mut self, notice: Notice, due: Moment, probe_first: Probe) {
        self.waiting.insert((due, self.entries.len()));
        self.entries.push(Entry { notice, tries: 0, stage: Stage::Waiting, probe_first });
    }

    /// Takes every try that is due, in the order in which they fell due; `sign` gives the key for each.
    pub fn take_due(&mut self, now: Moment, sign: impl Fn(&Notice, usize) -> Signer) -> Vec<Push> {
        let mut pushes = Vec::new();
        while let Some(&(due, id)) = self.waiting.first() {
            if due > now {
                break;
            }
            self.waiting.pop_first();
            let Some(entry) = self.entries.get_mut(id) else { continue };
            entry.stage = Stage::UnderWay;
            entry.tries = entry.tries.saturating_add(1);
            self.counts.tries = self.counts.tries.saturating_add(1);
            let probing = entry.probe_first == Probe::Planned && entry.tries == 1;
            let signing = if probing { Signing::Probe } else { Signing::Genuine };
            if probing {
                self.counts.probes = self.counts.probes.saturating_add(1);
            }
            let signer = sign(&entry.notice, entry.tries);
            pushes.push(Push { id, notice: entry.notice.clone(), at: now, signer, signing });
        }
        pushes
    }

    /// Notes what became of a try and plans the next one.
    pub fn pushed(&mut self, push: &Push, verdict: Verdict, now: Moment, behaviour: &Behaviour) {
        let Some(entry) = self.entries.get_mut(push.id) else { return };
        if verdict == Verdict::Taken {
            entry.stage = Stage::Taken;
            self.counts.acknowledged = self.counts.acknowledged.saturating_add(1);
            if push.signing == Signing::Probe {
                self.counts.probes_taken = self.counts.probes_taken.saturating_add(1);
            }
            return;
        }
        let pauses: &[u64] = match entry.notice.account.channel {
            Channel::Wxpay => &WXPAY_PAUSES,
            Channel::Alipay => &ALIPAY_PAUSES,
        };
        match pauses.get(entry.tries.saturating_sub(1)) {
            Some(seconds) => {
                entry.stage = Stage::Waiting;
                self.waiting.insert((now.plus(behaviour.scaled(Duration::from_secs(*seconds))), push.id));
            }
            None => entry.stage = Stage::GivenUp,
        }
    }

    /// Makes everything fall due sooner by this much.
    pub fn advance(&mut self, by: Duration) {
        self.waiting = self.waiting.iter().map(|(due, id)| (due.minus(by), *id)).collect();
    }

    /// When the next try falls due.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.waiting.first().map(|(due, _)| *due)
    }

    /// Numbers for people and tests.
    #[must_use]
    pub fn counts(&self) -> NoticeCounts {
        let of =
            |stage| u64::try_from(self.entries.iter().filter(|one| one.stage == stage).count()).unwrap_or(u64::MAX);
        NoticeCounts {
            waiting: of(Stage::Waiting).saturating_add(of(Stage::UnderWay)),
            taken: of(Stage::Taken),
            lost: of(Stage::Lost),
            given_up: of(Stage::GivenUp),
            ..self.counts
        }
    }
}
