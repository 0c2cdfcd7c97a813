//! How often an account may call: evenly spaced turns, and a pause that doubles while the platform says that it is too much.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use paidonce_channel::api::{ApiAnswer, Refusal, Remedy};
use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;
use tokio::time::Instant;

use super::{Called, refusal};

/// After the first rate limit in a row; doubles with each further one.
const PAUSE_MIN_MICROS: i64 = 1_000_000;
/// The platforms count per minute at most.
const PAUSE_MAX_MICROS: i64 = 60_000_000;
/// HTTP: too many requests. Counts even when nobody signed it: a gateway in front of the platform may say it.
const TOO_MANY_REQUESTS: u16 = 429;

/// What a caller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Call at this moment.
    At(Instant),
    /// Come again later.
    NotNow(Refusal),
}

/// Turns of all accounts, each with its own.
pub(super) struct Pace {
    spacing: Duration,
    wait_max: Duration,
    accounts: Mutex<BTreeMap<AccountRef, AccountPace>>,
}

#[derive(Default)]
struct AccountPace {
    next: Option<Instant>,
    pause: Option<Pause>,
}

/// By the app's clock, like all due times, so that tests move it.
#[derive(Clone, Copy)]
struct Pause {
    from: Timestamp,
    micros: i64,
}

impl Pause {
    /// A clock that was set back does not make it longer.
    fn left_micros(self, now: Timestamp) -> i64 {
        let over = now.as_micros().saturating_sub(self.from.as_micros());
        if over < 0 { 0 } else { self.micros.saturating_sub(over) }
    }
}

impl Pace {
    pub(super) fn new(calls_per_second: u32, wait_max: Duration) -> Self {
        let spacing = Duration::from_secs(1) / calls_per_second.max(1);
        Self { spacing, wait_max, accounts: Mutex::default() }
    }

    /// The next free turn. One that is too far away is not taken.
    pub(super) fn take_turn(&self, account: &AccountRef, instant: Instant, now: Timestamp) -> Turn {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = accounts.entry(account.clone()).or_default();
        let left_micros = pace.pause.map_or(0, |pause| pause.left_micros(now));
        if left_micros > 0 {
            let seconds = left_micros.saturating_add(999_999) / 1_000_000;
            let detail = format!("the platform said that {account} calls too often: no call for {seconds} s");
            return Turn::NotNow(refusal("backing_off", detail, Remedy::Wait));
        }
        let turn = pace.next.map_or(instant, |next| next.max(instant));
        if turn.saturating_duration_since(instant) > self.wait_max {
            let detail = format!("too many calls of {account} wait for their turn (channel_calls.calls_per_second)");
            return Turn::NotNow(refusal("calls_per_second", detail, Remedy::Wait));
        }
        pace.next = Some(turn + self.spacing);
        Turn::At(turn)
    }

    /// Learns from the answer to a call.
    pub(super) fn judge(&self, account: &AccountRef, called: &Called, now: Timestamp) {
        let status = called.received.as_ref().map(|received| received.status);
        let waits = matches!(&called.answer, ApiAnswer::Refused(Refusal { remedy: Remedy::Wait, .. }));
        if waits || status == Some(TOO_MANY_REQUESTS) {
            self.lengthen_pause(account, now);
        } else if matches!(&called.answer, ApiAnswer::Final(_)) {
            let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            accounts.entry(account.clone()).or_default().pause = None;
        }
    }

    fn lengthen_pause(&self, account: &AccountRef, now: Timestamp) {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = accounts.entry(account.clone()).or_default();
        let micros = match pace.pause {
            // Calls that were under way together hear of one limit together.
            Some(pause) if pause.left_micros(now) > 0 => return,
            Some(pause) => pause.micros.saturating_mul(2).min(PAUSE_MAX_MICROS),
            None => PAUSE_MIN_MICROS,
        };
        pace.pause = Some(Pause { from: now, micros });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test module")]
mod tests {
    use paidonce_channel::api::Doubt;

    use super::super::wire::Received;
    use super::*;

    fn account(text: &str) -> AccountRef {
        AccountRef::parse(text).unwrap()
    }

    fn at(pace: &Pace, account: &AccountRef, instant: Instant) -> Duration {
        match pace.take_turn(account, instant, Timestamp::from_micros(0)) {
            Turn::At(turn) => turn - instant,
            Turn::NotNow(refusal) => panic!("{refusal:?}"),
        }
    }

    fn code(turn: Turn) -> String {
        match turn {
            Turn::At(_) => "at".to_owned(),
            Turn::NotNow(refusal) => refusal.code,
        }
    }

    fn limited() -> Called {
        Called::not_made(refusal("FREQUENCY_LIMITED", "too often", Remedy::Wait))
    }

    #[test]
    fn calls_of_one_account_are_spaced_and_those_of_another_do_not_wait_for_them() {
        let (pace, start) = (Pace::new(20, Duration::from_secs(3)), Instant::now());
        let (one, other) = (account("wxpay:1900000001"), account("alipay:2088000000000001"));
        let turns: Vec<u128> = (0..4).map(|_| at(&pace, &one, start).as_millis()).collect();
        assert_eq!(turns, [0, 50, 100, 150]);
        assert_eq!(at(&pace, &other, start), Duration::ZERO);
        let later = start + Duration::from_secs(60);
        assert_eq!(at(&pace, &one, later), Duration::ZERO, "an idle minute saves no turns up");
        assert_eq!(at(&pace, &one, later).as_millis(), 50);
    }

    #[test]
    fn a_turn_that_is_too_far_away_is_refused_and_taken_from_nobody() {
        let (pace, start) = (Pace::new(1, Duration::from_secs(2)), Instant::now());
        let one = account("wxpay:1900000001");
        let turns: Vec<u64> = (0..3).map(|_| at(&pace, &one, start).as_secs()).collect();
        assert_eq!(turns, [0, 1, 2]);
        for _ in 0..10 {
            assert_eq!(code(pace.take_turn(&one, start, Timestamp::from_micros(0))), "calls_per_second");
        }
        assert_eq!(at(&pace, &one, start + Duration::from_secs(1)).as_secs(), 2);
    }

    #[test]
    fn the_pause_after_a_rate_limit_doubles_to_a_minute_at_most() {
        let pace = Pace::new(20, Duration::from_secs(3));
        let (one, mut now) = (account("wxpay:1900000001"), 0_i64);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            for _ in 0..20 {
                pace.judge(&one, &limited(), Timestamp::from_micros(now));
            }
            let end = now + seconds * 1_000_000;
            let before = pace.take_turn(&one, Instant::now(), Timestamp::from_micros(end - 1));
            assert_eq!(code(before), "backing_off", "{seconds} s are not over");
            let after = pace.take_turn(&one, Instant::now(), Timestamp::from_micros(end));
            assert_eq!(code(after), "at", "{seconds} s are over");
            now = end;
        }
    }

    #[test]
    fn an_unsigned_429_is_a_rate_limit_and_a_server_error_is_not() {
        let pace = Pace::new(20, Duration::from_secs(3));
        let now = Timestamp::from_micros(0);
        for (text, status, expected) in [("wxpay:1900000001", 502, "at"), ("wxpay:1900000002", 429, "backing_off")] {
            let doubt = Doubt { code: "unsigned", detail: String::new() };
            let received = Some(Received { status, headers: Vec::new(), body: Vec::new() });
            pace.judge(&account(text), &Called { answer: ApiAnswer::Unknown(doubt), received }, now);
            assert_eq!(code(pace.take_turn(&account(text), Instant::now(), now)), expected, "{status}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_lengthen_a_pause() {
        let pace = Pace::new(20, Duration::from_secs(3));
        let one = account("wxpay:1900000001");
        pace.judge(&one, &limited(), Timestamp::from_micros(3_600_000_000));
        assert_eq!(code(pace.take_turn(&one, Instant::now(), Timestamp::from_micros(0))), "at");
    }
}
