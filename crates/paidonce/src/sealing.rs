//! Making seals: on demand by a command, periodically by the server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use paidonce_app::Clock;
use paidonce_app::audit::report::AuditError;
use paidonce_app::audit::seal::{OutsideSeal, SealBody, SealKey, last_seal, make_seal};
use paidonce_order::timestamp::Timestamp;
use paidonce_store::audit::{
    AuditSource, SealRow, append_seal_postgres, append_seal_sqlite, connect_postgres, open_sqlite,
};
use paidonce_store::store::StoreError;
use tokio::sync::watch;

use crate::config::{AuditConfig, DatabaseConfig, DatabaseUrl};
use crate::ledger;

/// Between two looks at whether a seal is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const HOUR_MICROS: i64 = 3_600_000_000;

/// Opens the ledger for reading. Errors: it is not there, or away.
pub async fn open_source(database: &DatabaseConfig) -> Result<Arc<dyn AuditSource>, StoreError> {
    let source = match &database.url {
        DatabaseUrl::Sqlite => open_sqlite(&ledger::sqlite_file(database)).await?,
        DatabaseUrl::Postgres(url) => connect_postgres(url.reveal()).await?,
    };
    Ok(Arc::from(source))
}

/// Seals everything up to now and puts the seal into the ledger. Errors: a broken log; the database; another seal came between.
pub async fn seal_now(
    database: &DatabaseConfig,
    key: &SealKey,
    now: Timestamp,
) -> Result<(SealBody, OutsideSeal), AuditError> {
    let source = open_source(database).await?;
    let (body, row) = make_seal(source, key, now).await?;
    append(database, &row).await?;
    Ok((body, OutsideSeal::of(&row)))
}

async fn append(database: &DatabaseConfig, row: &SealRow) -> Result<(), StoreError> {
    match &database.url {
        DatabaseUrl::Sqlite => append_seal_sqlite(&ledger::sqlite_file(database), row).await,
        DatabaseUrl::Postgres(url) => append_seal_postgres(url.reveal(), row).await,
    }
}

/// Writes a seal to `folder/seal-000007.json`. Errors: the folder can't be written, or has another seal of this number.
pub fn write_copy(folder: &Path, seal_no: i64, seal: &OutsideSeal) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("seal-{seal_no:06}.json"));
    let text = serde_json::to_string_pretty(seal)?;
    let write = || {
        std::fs::create_dir_all(folder)?;
        // Never over another one: a copy that was kept is what the ledger is held against.
        let mut file = std::fs::File::create_new(&path)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("can't write the seal to {}", path.display()))?;
    Ok(path)
}

/// Makes a seal whenever the last one is old enough and there is something new, until `stop` turns true.
pub async fn seal_for_ever(
    database: DatabaseConfig,
    config: AuditConfig,
    clock: Clock,
    mut stop: watch::Receiver<bool>,
) {
    let (Some(hours), Some(key)) = (config.seal_every_hours, &config.seal_key) else { return };
    let Ok(key) = SealKey::from_pem(key.reveal()) else { return };
    let every_micros = i64::from(hours).saturating_mul(HOUR_MICROS);
    while !*stop.borrow() {
        match seal_if_due(&database, (&key, &config), (clock.now(), every_micros)).await {
            Ok(Some(seal_no)) => tracing::info!(seal_no, "the ledger was sealed"),
            Ok(None) => {}
            Err(error) => tracing::error!("the ledger could not be sealed: {error:#}"),
        }
        tokio::select! {
            _ = stop.changed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn seal_if_due(
    database: &DatabaseConfig,
    (key, config): (&SealKey, &AuditConfig),
    (now, every_micros): (Timestamp, i64),
) -> anyhow::Result<Option<i64>> {
    let source = open_source(database).await?;
    if let Some((_, last)) = last_seal(source.as_ref()).await?
        && (now < last.sealed_at.plus_micros(every_micros) || last.heads == source.heads().await?)
    {
        return Ok(None);
    }
    let (body, seal) = seal_now(database, key, now).await?;
    if let Some(folder) = &config.seal_copies {
        write_copy(folder, body.seal_no, &seal)?;
    }
    Ok(Some(body.seal_no))
}
