//! Seals: a signed statement of where the log ends, meant to be kept outside of it. Whoever rewrites or cuts the database can't
//! rewrite what an auditor has in his safe.
//!
//! A seal names every shard's head, the Merkle root over the events since the seal before (the tree of the 64 roots of the
//! shards' own trees over their events' hashes), how many those are and what they moved, and the digest of the seal before.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use paidonce_order::event::{LedgerEvent, OrderEvent};
use paidonce_order::ids::Digest;
use paidonce_order::project::Direction;
use paidonce_order::timestamp::Timestamp;
use paidonce_store::audit::{AuditSource, Range, SealRow};
use paidonce_store::codec::{decode, evidence_of, metadata_of};
use paidonce_store::hash_chain::{GENESIS, link};
use paidonce_store::store::{EventRow, Head};
use serde::{Deserialize, Serialize};

use super::merkle::Tree;
use super::report::AuditError;

/// First field of every seal.
const FORMAT: &str = "paidonce-seal/1";
/// Events in a page.
const PAGE: u32 = 4_096;
/// Seals in a page.
const SEALS_PAGE: u32 = 100;

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealBody {
    /// `paidonce-seal/1`.
    pub format: String,
    /// From 1, without holes.
    pub seal_no: i64,
    /// Our clock.
    pub sealed_at: Timestamp,
    /// SHA-256 of the body of the seal before; zeros for the first.
    pub previous: Digest,
    /// Where each shard ends.
    pub heads: Vec<Head>,
    /// Over the events since the seal before.
    pub root: Digest,
    /// How many those are.
    pub events: u64,
    /// What they moved.
    pub sums: Vec<SealSum>,
    /// Ed25519, hex: whose signature this is.
    pub public_key: String,
}

/// Money that moved between two seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealSum {
    /// ISO 4217.
    pub currency: String,
    /// Seen from the merchant.
    pub direction: Direction,
    /// Movements.
    pub count: u64,
    /// Their sum, minor units, as text.
    pub amount_minor: String,
}

/// A seal as it is kept outside: a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideSeal {
    /// JSON text of a [`SealBody`], exactly as it was signed.
    pub body: String,
    /// Base64.
    pub signature: String,
}

impl OutsideSeal {
    /// Of a row.
    #[must_use]
    pub fn of(row: &SealRow) -> Self {
        Self { body: row.body.clone(), signature: BASE64.encode(&row.signature) }
    }

    /// Checks the signature and reads the body. Errors: one sentence.
    pub fn open(&self, public_key: &PublicKey) -> Result<SealBody, String> {
        let signature = BASE64.decode(&self.signature).map_err(|_| "its signature is not base64".to_owned())?;
        open(&self.body, &signature, public_key)
    }
}

/// Checks a signature and reads the body. Errors: one sentence.
pub fn open(body: &str, signature: &[u8], public_key: &PublicKey) -> Result<SealBody, String> {
    let key = UnparsedPublicKey::new(&ED25519, &public_key.0);
    key.verify(body.as_bytes(), signature).map_err(|_| format!("it is not signed with the key {public_key}"))?;
    let read: SealBody = serde_json::from_str(body).map_err(|error| format!("it can't be read: {error}"))?;
    if read.format == FORMAT { Ok(read) } else { Err(format!("its format is {:?}, not {FORMAT}", read.format)) }
}

/// SHA-256 of a seal's body.
#[must_use]
pub fn digest_of(body: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, body.as_bytes()).as_ref());
    Digest(out)
}

/// Who signs.
pub struct SealKey(Ed25519KeyPair);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(hidden)")
    }
}

const HEADER: &str = "-----BEGIN PRIVATE KEY-----";
const FOOTER: &str = "-----END PRIVATE KEY-----";

impl SealKey {
    /// Reads PKCS#8 in PEM. Errors: one sentence, without key material.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let wanted =
            || "is not an Ed25519 private key (PKCS#8 PEM): paidonce audit seal --new-key makes one".to_owned();
        let inside = pem.trim().strip_prefix(HEADER).and_then(|rest| rest.strip_suffix(FOOTER)).ok_or_else(wanted)?;
        let compact: String = inside.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let der = BASE64.decode(compact).map_err(|_| wanted())?;
        let pair = Ed25519KeyPair::from_pkcs8(&der).or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der));
        pair.map(Self).map_err(|_| wanted())
    }

    /// A new one, as PEM. Errors: the system gives no random numbers.
    pub fn generate() -> Result<String, String> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let made = made.map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(format!("{HEADER}\n{}\n{FOOTER}\n", BASE64.encode(made.as_ref())))
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().to_vec())
    }
}

/// Whose signature is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// 64 hex digits. Errors: one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = hex::decode(text.trim()).ok().filter(|bytes| bytes.len() == 32);
        bytes.map(Self).ok_or_else(|| "is not a public key of 64 hex digits".to_owned())
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// Makes the next seal: over everything since the last one, whose chain is verified on the way. Nothing is written.
///
/// Errors: the database; a log that is broken, which is not sealed.
pub async fn make_seal(
    source: Arc<dyn AuditSource>,
    key: &SealKey,
    sealed_at: Timestamp,
) -> Result<(SealBody, SealRow), AuditError> {
    let last = last_seal(source.as_ref()).await?;
    let heads = source.heads().await?;
    let mut range = RangeTally::default();
    let mut roots = Vec::new();
    for head in &heads {
        let begin = last.as_ref().and_then(|(_, body)| body.heads.iter().find(|begin| begin.shard == head.shard));
        let (after, previous) = begin.map_or((0, GENESIS), |begin| (begin.position, begin.hash));
        roots.push(seal_shard(source.as_ref(), head, (after, previous), &mut range).await?);
    }
    let body = SealBody {
        format: FORMAT.to_owned(),
        seal_no: last.as_ref().map_or(1, |(_, body)| body.seal_no.saturating_add(1)),
        sealed_at,
        previous: last.as_ref().map_or(GENESIS, |(row, _)| digest_of(&row.body)),
        heads,
        root: Tree::root_of(&roots),
        events: range.events,
        sums: range.sums(),
        public_key: key.public().to_string(),
    };
    let text = serde_json::to_string(&body).map_err(|error| AuditError::Internal(error.to_string()))?;
    let signature = key.0.sign(text.as_bytes()).as_ref().to_vec();
    let row = SealRow { seal_no: body.seal_no, body: text, signature, created_at: sealed_at };
    Ok((body, row))
}

/// The chain of one shard behind the last seal; gives the shard's own root.
async fn seal_shard(
    source: &dyn AuditSource,
    head: &Head,
    (mut after, mut previous): (i64, Digest),
    range: &mut RangeTally,
) -> Result<Digest, AuditError> {
    let broken = |position: i64, problem: &str| AuditError::Broken {
        shard: head.shard,
        position,
        problem: format!("{problem}; a broken log is not sealed, see paidonce audit verify"),
    };
    let mut tree = Tree::default();
    if after > head.position {
        return Err(broken(after, "the last seal ends here, the log ends before"));
    }
    while after < head.position {
        let page = source.page(head.shard, Range { after, to: head.position }, PAGE).await?;
        if page.is_empty() {
            return Err(broken(after.saturating_add(1), "is missing below the head"));
        }
        for event in &page {
            let evidence = metadata_of(event).ok().as_ref().and_then(evidence_of);
            let follows =
                event.position == after.saturating_add(1) && link(&previous, event, evidence.as_ref()) == event.hash;
            if !follows {
                return Err(broken(event.position, "does not follow from the event before"));
            }
            (after, previous) = (event.position, event.hash);
            tree.push(&event.hash);
            range.add(event);
        }
    }
    if previous == head.hash { Ok(tree.root()) } else { Err(broken(after, "is not the event that the head names")) }
}

/// The newest seal of a ledger. Errors: the database; a body that can't be read.
pub async fn last_seal(source: &dyn AuditSource) -> Result<Option<(SealRow, SealBody)>, AuditError> {
    let mut last = None;
    let mut after = 0;
    loop {
        let page = source.seals(after, SEALS_PAGE).await?;
        let Some(row) = page.into_iter().next_back() else { break };
        after = row.seal_no;
        last = Some(row);
    }
    let Some(row) = last else { return Ok(None) };
    let unreadable = |error| AuditError::Invalid(format!("seal {} can't be read: {error}", row.seal_no));
    let body = serde_json::from_str(&row.body).map_err(unreadable)?;
    Ok(Some((row, body)))
}

/// What the events of a range moved.
#[derive(Debug, Clone, Default)]
pub(super) struct RangeTally {
    pub(super) events: u64,
    sums: BTreeMap<(String, Direction), (u64, i128)>,
}

impl RangeTally {
    pub(super) fn add(&mut self, event: &EventRow) {
        self.events = self.events.saturating_add(1);
        let Ok(LedgerEvent::Order(decoded)) = decode(event) else { return };
        let Some(direction) = direction(&decoded) else { return };
        let Some(amount) = decoded.amount() else { return };
        let (count, sum) = self.sums.entry((amount.currency.to_string(), direction)).or_default();
        *count = count.saturating_add(1);
        *sum = sum.saturating_add(i128::from(amount.amount_minor));
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        for (place, (count, sum)) in other.sums {
            let (known, total) = self.sums.entry(place).or_default();
            *known = known.saturating_add(count);
            *total = total.saturating_add(sum);
        }
    }

    pub(super) fn sums(&self) -> Vec<SealSum> {
        let sum = |((currency, direction), (count, sum)): (&(String, Direction), &(u64, i128))| SealSum {
            currency: currency.clone(),
            direction: *direction,
            count: *count,
            amount_minor: sum.to_string(),
        };
        self.sums.iter().map(sum).collect()
    }
}

/// Which way an event moved money.
const fn direction(event: &OrderEvent) -> Option<Direction> {
    match event {
        OrderEvent::PaymentConfirmed(_)
        | OrderEvent::SurplusPaymentRecorded { .. }
        | OrderEvent::ProfitShareReturned(_) => Some(Direction::In),
        OrderEvent::RefundConfirmed { .. } | OrderEvent::ProfitShareConfirmed(_) => Some(Direction::Out),
        OrderEvent::OrderOpened(_)
        | OrderEvent::PaymentParked(_)
        | OrderEvent::SurplusAccepted { .. }
        | OrderEvent::RefundRequested { .. }
        | OrderEvent::RefundFailed { .. }
        | OrderEvent::RefundStalled { .. }
        | OrderEvent::RefundParked(_)
        | OrderEvent::RefundSplit { .. }
        | OrderEvent::RefundNumberTaken { .. }
        | OrderEvent::ProfitShareParked(_)
        | OrderEvent::ProfitShareFollowed { .. }
        | OrderEvent::AttemptClosed(_)
        | OrderEvent::OrderClosed { .. }
        | OrderEvent::FactConflicted(_)
        | OrderEvent::FactFlagged(_)
        | OrderEvent::ItemResolved { .. } => None,
    }
}
