//! Brings the schema up to date, or says that it is not.

use std::path::Path;

use sqlx::SqliteConnection;

use crate::store::StoreError;

/// Creates the file if need be and applies all migrations; how many were applied.
pub async fn migrate(_path: &Path) -> Result<u32, StoreError> {
    Err(StoreError::Invalid("migrate is not built yet".to_owned()))
}

/// Applies what is missing.
pub(crate) async fn apply(_connection: &mut SqliteConnection) -> Result<u32, StoreError> {
    Err(StoreError::Invalid("migrate is not built yet".to_owned()))
}

/// Errors: [`StoreError::Invalid`] when a migration is missing.
pub(crate) async fn require(_connection: &mut SqliteConnection) -> Result<(), StoreError> {
    Ok(())
}
