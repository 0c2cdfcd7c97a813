//! The schema's history, embedded in the program: which migrations there are and which of them a database lacks.
//!
//! A database keeps what was applied in `t_migration` with the checksum of the file, so that an edited file and a database of a
//! newer release are refused, not guessed at.

use aws_lc_rs::digest::{SHA256, digest};

use crate::store::StoreError;

/// One numbered file of `migrations/`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

impl Migration {
    /// SHA-256 of the file.
    pub(crate) fn checksum(&self) -> Vec<u8> {
        digest(&SHA256, self.sql.as_bytes()).as_ref().to_vec()
    }
}

/// `migrations/postgres`.
pub(crate) const POSTGRES: &[Migration] = &[
    Migration { version: 1, name: "ledger", sql: include_str!("../../../migrations/postgres/0001_ledger.sql") },
    Migration {
        version: 2,
        name: "channel_calls",
        sql: include_str!("../../../migrations/postgres/0002_channel_calls.sql"),
    },
];

/// `migrations/sqlite`.
pub(crate) const SQLITE: &[Migration] = &[
    Migration { version: 1, name: "ledger", sql: include_str!("../../../migrations/sqlite/0001_ledger.sql") },
    Migration {
        version: 2,
        name: "channel_calls",
        sql: include_str!("../../../migrations/sqlite/0002_channel_calls.sql"),
    },
];

/// A row of `t_migration`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) checksum: Vec<u8>,
}

/// Those of `known` that were not applied yet, in order.
///
/// Errors: [`StoreError::Invalid`] when the database has what this program does not know, or knows otherwise.
pub(crate) fn missing(known: &[Migration], applied: &[Applied]) -> Result<Vec<Migration>, StoreError> {
    for row in applied {
        match known.iter().find(|migration| migration.version == row.version) {
            None => {
                return Err(StoreError::Invalid(format!(
                    "the database has migration {}, which this program does not know: it was upgraded by a newer release; \
                     upgrade this node",
                    row.version
                )));
            }
            Some(migration) if migration.checksum() != row.checksum => {
                return Err(StoreError::Invalid(format!(
                    "migration {:04}_{} differs from the one that was applied to this database: an applied migration must \
                     never be edited",
                    migration.version, migration.name
                )));
            }
            Some(_) => {}
        }
    }
    let is_applied = |migration: &Migration| applied.iter().any(|row| row.version == migration.version);
    Ok(known.iter().filter(|migration| !is_applied(migration)).copied().collect())
}

/// Errors: [`StoreError::Invalid`] when anything is missing.
pub(crate) fn require(known: &[Migration], applied: &[Applied]) -> Result<(), StoreError> {
    match missing(known, applied)?.first() {
        None => Ok(()),
        Some(first) => Err(StoreError::Invalid(format!(
            "the database lacks migration {:04}_{}: run `paidonce migrate`",
            first.version, first.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

    use super::*;

    const KNOWN: &[Migration] =
        &[Migration { version: 1, name: "one", sql: "1" }, Migration { version: 2, name: "two", sql: "2" }];

    fn applied(migration: &Migration) -> Applied {
        Applied { version: migration.version, checksum: migration.checksum() }
    }

    #[test]
    fn only_what_is_missing_is_applied() {
        assert_eq!(missing(KNOWN, &[]).unwrap().len(), 2);
        assert_eq!(missing(KNOWN, &[applied(&KNOWN[0])]).unwrap()[0].version, 2);
        assert!(require(KNOWN, &[applied(&KNOWN[0])]).unwrap_err().to_string().contains("paidonce migrate"));
        assert!(require(KNOWN, &[applied(&KNOWN[0]), applied(&KNOWN[1])]).is_ok());
    }

    #[test]
    fn an_edited_or_newer_schema_is_refused() {
        let edited = Applied { version: 1, checksum: vec![0; 32] };
        assert!(missing(KNOWN, &[edited]).unwrap_err().to_string().contains("never be edited"));
        let newer = Applied { version: 3, checksum: vec![0; 32] };
        assert!(missing(KNOWN, &[newer]).unwrap_err().to_string().contains("newer release"));
    }

    #[test]
    fn numbers_are_consecutive_on_both_databases() {
        for known in [POSTGRES, SQLITE] {
            assert!(known.iter().zip(1..).all(|(migration, number)| migration.version == number));
        }
        assert_eq!(POSTGRES.len(), SQLITE.len());
    }
}
