//! `[audit]`: who signs seals, how often, and where their copies go.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use paidonce_app::audit::seal::SealKey;

use super::secret::Secret;
use super::section::Section;

/// More than a year between two seals proves too little.
const SEAL_EVERY_HOURS: RangeInclusive<i64> = 1..=8_784;

/// What `[audit]` says.
#[derive(Debug, Clone, Default)]
pub struct AuditConfig {
    /// Ed25519, PKCS#8 in PEM; readable.
    pub seal_key: Option<Secret>,
    /// A seal is made by the server when the last one is this old and there is something new.
    pub seal_every_hours: Option<u32>,
    /// Folder for copies: one file a seal.
    pub seal_copies: Option<PathBuf>,
}

pub(super) fn read(section: &Section<'_>) -> AuditConfig {
    let key = section.secret(["seal_key", "seal_key_file"], "PAIDONCE_SEAL_KEY");
    let every = section.integer("seal_every_hours", SEAL_EVERY_HOURS);
    let copies = section.string("seal_copies").map(|found| section.document.resolve(&found.value));
    if let Some(key) = &key
        && let Err(problem) = SealKey::from_pem(key.value.reveal())
    {
        section.problem(key.line, format!("{} {problem}", section.name("seal_key")));
    }
    if every.is_some() && key.is_none() && !section.has("seal_key_file") && !section.has("seal_key") {
        let problem = "audit.seal_every_hours needs audit.seal_key_file: paidonce audit seal --new-key makes one";
        section.problem(None, problem.to_owned());
    }
    section.finish();
    AuditConfig {
        seal_key: key.map(|key| key.value),
        seal_every_hours: every.and_then(|hours| u32::try_from(hours).ok()),
        seal_copies: copies,
    }
}
