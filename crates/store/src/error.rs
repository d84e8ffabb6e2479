//! Errors of the store that a caller can react to.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another writer changed the row since it was read, or the runner lost its lease.
    #[error("the row was changed meanwhile")]
    Conflict,
    /// A unique value is already in use.
    #[error("that value is taken")]
    Taken,
    /// The database cannot be reached or written to at the moment.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The database belongs to a newer program or to another one. Waiting does not help.
    #[error("{0}")]
    Schema(String),
    /// A row holds a value that this version does not understand.
    #[error("a row is not understood: {0}")]
    Corrupt(String),
    /// Any other error that the database reports.
    #[error("the database reports: {0}")]
    Database(String),
}
