//! Up to where an audit looks.

use std::fmt;

use paidonce_order::timestamp::Timestamp;
use paidonce_store::audit::AuditSource;
use paidonce_store::store::Head;
use time::macros::format_description;
use time::{Date, UtcOffset};

use super::report::AuditError;

/// A moment of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AsOf {
    /// Everything that is committed when the audit begins.
    #[default]
    Head,
    /// What was recorded at this time or before, by our clock.
    Recorded(Timestamp),
    /// The heads of all shards at some time: of a seal, or of a page of the feed.
    Positions(Vec<Head>),
}

impl AsOf {
    /// `2026-01-31` (the end of that day in Beijing), `2026-01-31T08:00:00Z`.
    ///
    /// Errors: it is neither.
    pub fn parse(text: &str) -> Result<Self, AuditError> {
        let date = Date::parse(text, format_description!("[year]-[month]-[day]"));
        if let Ok(date) = date {
            let beijing = UtcOffset::from_hms(8, 0, 0).unwrap_or(UtcOffset::UTC);
            let next = date.next_day().ok_or_else(|| AuditError::Invalid(format!("{text} is the end of time")))?;
            let midnight = Timestamp::from_datetime(next.midnight().assume_offset(beijing));
            return Ok(Self::Recorded(midnight.plus_micros(-1)));
        }
        let wanted = "is neither a day (2026-01-31, Beijing) nor a time (2026-01-31T08:00:00Z)";
        Timestamp::parse(text).map(Self::Recorded).map_err(|_| AuditError::Invalid(format!("{text:?} {wanted}")))
    }

    /// Whether the live tables show this moment.
    #[must_use]
    pub fn is_head(&self) -> bool {
        *self == Self::Head
    }

    /// Where each shard ends at this moment. `heads` were captured first: nothing behind them is read.
    ///
    /// Errors: the database; a position behind the head, which is of another ledger or of one that has lost events.
    pub(super) async fn bounds(&self, source: &dyn AuditSource, heads: &[Head]) -> Result<Vec<Head>, AuditError> {
        let mut bounds = heads.to_vec();
        for bound in &mut bounds {
            match self {
                Self::Head => {}
                Self::Recorded(at) => bound.position = source.position_at(bound.shard, bound.position, *at).await?,
                Self::Positions(wanted) => {
                    let position = wanted.iter().find(|head| head.shard == bound.shard).map_or(0, |head| head.position);
                    if position > bound.position {
                        let problem = format!("the log ends at {} here: events are lost", bound.position);
                        return Err(AuditError::Broken { shard: bound.shard, position, problem });
                    }
                    bound.position = position;
                }
            }
        }
        Ok(bounds)
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("the head of the log"),
            Self::Recorded(at) => write!(f, "what was recorded by {at}"),
            Self::Positions(_) => f.write_str("the positions of a seal"),
        }
    }
}
