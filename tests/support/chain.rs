//! The hash chain of every shard, computed here from the tables alone and from the written description of the format; no
//! code of the store is used (promise P8).

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{Context, SHA256};
use serde_json::Value;

use crate::database::Database;

/// First byte of everything that is hashed.
const FORMAT_VERSION: u8 = 1;

/// Every event whose stored hash is not what follows from the event before it, and every evidence that is named but absent.
#[must_use]
pub fn broken_links(database: &Database) -> Vec<String> {
    let (events_sql, evidence_sql) = match database {
        Database::Sqlite(_) => (SQLITE_EVENTS, "SELECT CAST(shard AS text), lower(hex(digest)) FROM t_evidence"),
        Database::Postgres(_) => (POSTGRES_EVENTS, "SELECT CAST(shard AS text), encode(digest, 'hex') FROM t_evidence"),
    };
    let evidence: BTreeSet<Vec<String>> = database.texts(evidence_sql).into_iter().collect();
    let mut previous: BTreeMap<String, [u8; 32]> = BTreeMap::new();
    let mut found = Vec::new();
    for row in database.texts(events_sql) {
        let at = format!("position {} of shard {}", row[1], row[0]);
        let digest = evidence_digest(&row[9]);
        if let Some(digest) = &digest
            && !evidence.contains(&vec![row[0].clone(), digest.clone()])
        {
            found.push(format!("{at} names evidence {digest}, which is not kept"));
        }
        let before = previous.get(&row[0]).copied().unwrap_or([0; 32]);
        let hash = link(&before, &row, digest.as_deref());
        if hex::encode(hash) != row[10] {
            found.push(format!("{at} breaks the hash chain"));
        }
        previous.insert(row[0].clone(), hash);
    }
    found
}

/// shard, position, event_id, aggregate type and id, sequence, event type and version, payload, metadata, hash, microseconds.
const SQLITE_EVENTS: &str = "SELECT CAST(shard AS text), CAST(position AS text), lower(hex(event_id)), aggregate_type,
    aggregate_id, CAST(sequence AS text), event_type, event_version, payload, metadata, lower(hex(hash)),
    CAST(recorded_at AS text) FROM events e ORDER BY e.shard, e.position";
const POSTGRES_EVENTS: &str =
    "SELECT CAST(shard AS text), CAST(position AS text), replace(CAST(event_id AS text), '-', ''),
    aggregate_type, aggregate_id, CAST(sequence AS text), event_type, event_version, CAST(payload AS text),
    CAST(metadata AS text), encode(hash, 'hex'), CAST(CAST(extract(epoch FROM recorded_at) * 1000000 AS bigint) AS text)
    FROM events e ORDER BY e.shard, e.position";

fn link(before: &[u8; 32], row: &[String], evidence: Option<&str>) -> [u8; 32] {
    let number = |text: &str| text.parse::<i64>().expect("a stored integer").to_be_bytes();
    let mut hash = Context::new(&SHA256);
    hash.update(&[FORMAT_VERSION]);
    hash.update(before);
    field(&mut hash, &row[0].parse::<u16>().expect("a shard").to_be_bytes());
    field(&mut hash, &number(&row[1]));
    field(&mut hash, &hex::decode(&row[2]).expect("an event id"));
    field(&mut hash, row[3].as_bytes());
    field(&mut hash, row[4].as_bytes());
    field(&mut hash, &number(&row[5]));
    field(&mut hash, row[6].as_bytes());
    field(&mut hash, row[7].as_bytes());
    field(&mut hash, &number(&row[11]));
    field(&mut hash, row[8].as_bytes());
    field(&mut hash, row[9].as_bytes());
    field(&mut hash, &evidence.map(|digest| hex::decode(digest).expect("a digest")).unwrap_or_default());
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Length (u32, big endian), then the bytes.
fn field(hash: &mut Context, bytes: &[u8]) {
    hash.update(&u32::try_from(bytes.len()).expect("a short field").to_be_bytes());
    hash.update(bytes);
}

fn evidence_digest(metadata: &str) -> Option<String> {
    let metadata: Value = serde_json::from_str(metadata).expect("metadata is JSON");
    metadata["evidence"].as_str().map(str::to_owned)
}
