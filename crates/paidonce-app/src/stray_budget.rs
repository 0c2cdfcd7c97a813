//! How many strays an account may add in an hour: a wrong key turns every message into one, and the log is forever.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use paidonce_order::ids::AccountRef;
use paidonce_order::timestamp::Timestamp;

const SECONDS_PER_HOUR: i64 = 3_600;

/// Counts new strays per account and clock hour, in this process.
pub(crate) struct StrayBudget {
    strays_max: u32,
    counts: Mutex<BTreeMap<AccountRef, HourCount>>,
}

#[derive(Clone, Copy, Default)]
struct HourCount {
    hour: i64,
    strays: u32,
}

impl StrayBudget {
    pub(crate) const fn new(strays_max: u32) -> Self {
        Self { strays_max, counts: Mutex::new(BTreeMap::new()) }
    }

    pub(crate) const fn strays_max(&self) -> u32 {
        self.strays_max
    }

    /// Whether the account may add one more in this hour.
    pub(crate) fn has_room(&self, account: &AccountRef, now: Timestamp) -> bool {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(account).is_none_or(|count| count.hour != hour_of(now) || count.strays < self.strays_max)
    }

    /// Counts one that was really added (copies of a known stray cost nothing).
    pub(crate) fn spend(&self, account: &AccountRef, now: Timestamp) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(account.clone()).or_default();
        if count.hour != hour_of(now) {
            *count = HourCount { hour: hour_of(now), strays: 0 };
        }
        count.strays = count.strays.saturating_add(1);
    }
}

const fn hour_of(now: Timestamp) -> i64 {
    now.as_seconds().div_euclid(SECONDS_PER_HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_may_add_so_many_strays_an_hour_and_its_neighbour_as_many() {
        let budget = StrayBudget::new(2);
        let account = AccountRef::parse("wxpay:1900000001").unwrap();
        let neighbour = AccountRef::parse("alipay:2088000000000001").unwrap();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        budget.spend(&account, now);
        assert!(budget.has_room(&account, now));
        budget.spend(&account, now);
        assert!(!budget.has_room(&account, now));
        assert!(budget.has_room(&neighbour, now));
        assert!(budget.has_room(&account, now.plus_micros(SECONDS_PER_HOUR * 1_000_000)), "the next hour is a new one");
    }
}
