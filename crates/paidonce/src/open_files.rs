//! Open files: each connection is one, and the limit that a shell or a supervisor sets by default (often 1,024) is for old
//! programs. What the administrator allows is the hard limit, so a ledger raises its own limit to that.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are not connections of callers: database, deliveries under way, logs.
const OTHER_FILES: u64 = 256;

/// Raises the limit of this process as far as it may. The limit in force afterwards; `None`: there is none.
pub fn raise_limit() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return before.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }) {
        Ok(()) => before.maximum,
        Err(error) => {
            tracing::warn!(%error, files = before.current, "the limit of open files could not be raised");
            before.current
        }
    }
}

/// Connections that fit: `wanted`, or what the limit leaves room for.
pub fn connections_that_fit(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let room = files.saturating_sub(OTHER_FILES).max(files / 2);
    usize::try_from(room).unwrap_or(wanted).min(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed_and_stays_there() {
        let raised = raise_limit();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((raised, now.current), (now.maximum, now.maximum));
        assert_eq!(raise_limit(), raised);
    }

    #[test]
    fn connections_leave_room_for_the_database_and_the_deliveries() {
        assert_eq!(connections_that_fit(16_384, None), 16_384);
        assert_eq!(connections_that_fit(16_384, Some(20_000)), 16_384);
        assert_eq!(connections_that_fit(16_384, Some(4_096)), 3_840);
        assert_eq!(connections_that_fit(100, Some(4_096)), 100);
        assert_eq!(connections_that_fit(16_384, Some(256)), 128);
    }
}
