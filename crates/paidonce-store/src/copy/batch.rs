//! Rows on their way from SQLite to PostgreSQL: one array for each column.

use paidonce_order::timestamp::Timestamp;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::tables::{Kind, Table};
use crate::columns::Columns;
use crate::rows::read_error;
use crate::store::StoreError;

/// Rows of a batch at most.
const ROWS_MAX: usize = 1_000;

/// Bytes of text and blobs in a batch at most: evidence rows have up to 64 KiB each.
const BYTES_MAX: usize = 4 << 20;

/// The values of one column.
enum Values {
    Text(Vec<Option<String>>),
    Small(Vec<Option<i16>>),
    Integer(Vec<Option<i32>>),
    Big(Vec<Option<i64>>),
    Time(Vec<Option<OffsetDateTime>>),
    Uuid(Vec<Option<Uuid>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Flag(Vec<Option<bool>>),
}

impl Values {
    const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text | Kind::Json => Self::Text(Vec::new()),
            Kind::Small => Self::Small(Vec::new()),
            Kind::Integer => Self::Integer(Vec::new()),
            Kind::Big => Self::Big(Vec::new()),
            Kind::Time => Self::Time(Vec::new()),
            Kind::Uuid => Self::Uuid(Vec::new()),
            Kind::Bytes => Self::Bytes(Vec::new()),
            Kind::Flag => Self::Flag(Vec::new()),
        }
    }

    /// Adds the value of a row; gives its size.
    fn push(&mut self, row: &SqliteRow, name: &str) -> Result<usize, StoreError> {
        let mut bytes = size_of::<i64>();
        match self {
            Self::Text(values) => {
                let value = row.maybe_text(name)?;
                bytes = value.as_ref().map_or(bytes, String::len);
                values.push(value);
            }
            Self::Bytes(values) => {
                let value: Option<Vec<u8>> = row.try_get(name).map_err(read_error)?;
                bytes = value.as_ref().map_or(bytes, Vec::len);
                values.push(value);
            }
            Self::Small(values) => values.push(narrow(name, row.maybe_integer(name)?)?),
            Self::Integer(values) => values.push(narrow(name, row.maybe_integer(name)?)?),
            Self::Big(values) => values.push(row.maybe_integer(name)?),
            Self::Time(values) => values.push(row.maybe_time(name)?.map(Timestamp::to_datetime)),
            Self::Uuid(values) => values.push(row.maybe_uuid(name)?),
            Self::Flag(values) => values.push(row.maybe_integer(name)?.map(|value| value != 0)),
        }
        Ok(bytes)
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        match self {
            Self::Text(values) => query.bind(values),
            Self::Small(values) => query.bind(values),
            Self::Integer(values) => query.bind(values),
            Self::Big(values) => query.bind(values),
            Self::Time(values) => query.bind(values),
            Self::Uuid(values) => query.bind(values),
            Self::Bytes(values) => query.bind(values),
            Self::Flag(values) => query.bind(values),
        }
    }
}

fn narrow<T: TryFrom<i64>>(name: &str, value: Option<i64>) -> Result<Option<T>, StoreError> {
    let out_of_range = || StoreError::Corrupt(format!("column {name} is out of range"));
    value.map(|value| T::try_from(value).map_err(|_| out_of_range())).transpose()
}

/// Rows of one table.
pub(super) struct Batch {
    table: &'static Table,
    columns: Vec<Values>,
    rows: usize,
    bytes: usize,
}

impl Batch {
    pub(super) fn new(table: &'static Table) -> Self {
        let columns = table.columns.iter().map(|(_, kind)| Values::new(*kind)).collect();
        Self { table, columns, rows: 0, bytes: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(super) const fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn push(&mut self, row: &SqliteRow) -> Result<(), StoreError> {
        for (values, (name, _)) in self.columns.iter_mut().zip(self.table.columns) {
            self.bytes = self.bytes.saturating_add(values.push(row, name)?);
        }
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    /// Writes all rows with one statement; how many the database took.
    pub(super) async fn write_in_tx(self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let insert = self.table.insert();
        let query = self.columns.into_iter().fold(sqlx::query(&insert), |query, values| values.bind(query));
        query.execute(tx).await.map(|done| done.rows_affected()).map_err(read_error)
    }
}
