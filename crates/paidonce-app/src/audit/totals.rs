//! Sums of money by business date, channel, account, trade type and currency.

use std::collections::BTreeMap;

use paidonce_order::ids::Channel;
use paidonce_order::money::Currency;
use paidonce_order::project::{FlowRow, TradeType};
use paidonce_order::timestamp::Timestamp;
use time::{Date, UtcOffset};

use super::report::Total;

/// Both platforms settle by Beijing days.
const BEIJING_HOURS: i8 = 8;

/// The business date of a moment: its day in Beijing.
#[must_use]
pub fn business_date(at: Timestamp) -> Date {
    let beijing = UtcOffset::from_hms(BEIJING_HOURS, 0, 0).unwrap_or(UtcOffset::UTC);
    at.to_datetime().to_offset(beijing).date()
}

/// Days that are summed, both included; `None`: no end on that side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Days {
    /// The first.
    pub from: Option<Date>,
    /// The last.
    pub to: Option<Date>,
}

impl Days {
    /// Whether this day is one of them.
    #[must_use]
    pub fn contain(self, date: Date) -> bool {
        self.from.is_none_or(|from| from <= date) && self.to.is_none_or(|to| date <= to)
    }
}

type Place = (Date, Channel, String, TradeType, Currency);

/// Sums so far. As large as the number of days, accounts and kinds of money, whatever the number of orders.
#[derive(Debug, Clone, Default)]
pub struct Totals(BTreeMap<Place, (u64, i128)>);

impl Totals {
    /// Adds a flow when its day is one of these.
    pub fn add(&mut self, flow: &FlowRow, days: Days) {
        let date = business_date(flow.occurred_at);
        if !days.contain(date) {
            return;
        }
        let account = flow.account.account.to_string();
        let place = (date, flow.account.channel, account, flow.trade_type, flow.amount.currency);
        let (count, sum) = self.0.entry(place).or_default();
        *count = count.saturating_add(1);
        *sum = sum.saturating_add(i128::from(flow.amount.amount_minor));
    }

    /// Adds all sums of another part of the log.
    pub fn merge(&mut self, other: Self) {
        for (place, (count, sum)) in other.0 {
            let (known_count, known_sum) = self.0.entry(place).or_default();
            *known_count = known_count.saturating_add(count);
            *known_sum = known_sum.saturating_add(sum);
        }
    }

    /// In the order of days, then channels, accounts, trade types and currencies.
    #[must_use]
    pub fn list(&self) -> Vec<Total> {
        let total = |(place, (count, sum)): (&Place, &(u64, i128))| {
            let (date, channel, account, trade_type, currency) = place;
            Total {
                date: date.to_string(),
                channel: *channel,
                account: account.clone(),
                trade_type: *trade_type,
                currency: currency.to_string(),
                count: *count,
                amount_minor: sum.to_string(),
            }
        };
        self.0.iter().map(total).collect()
    }
}
