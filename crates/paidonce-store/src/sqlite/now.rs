//! The database's clock. SQLite's is this machine's, in milliseconds.

use paidonce_order::timestamp::Timestamp;
use sqlx::SqliteConnection;

use crate::clock::ClockOffset;
use crate::rows::read_error;
use crate::store::StoreError;

/// Database time plus the offset of test builds.
pub(crate) async fn now(connection: &mut SqliteConnection, clock: &ClockOffset) -> Result<Timestamp, StoreError> {
    let millis: i64 = sqlx::query_scalar("SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)")
        .fetch_one(connection)
        .await
        .map_err(read_error)?;
    Ok(Timestamp::from_micros(millis.saturating_mul(1_000)).plus_micros(clock.micros()))
}
