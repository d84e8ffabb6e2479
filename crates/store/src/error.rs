//! What can go wrong in the store, as far as a caller decides by it.

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The row was changed by somebody else since it was read, or the runner's lease was lost.
    #[error("the row was changed meanwhile")]
    Conflict,
    /// A unique value is in use already.
    #[error("that value is taken")]
    Taken,
    /// The database cannot be reached or written to at present.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// A row holds what this version does not understand.
    #[error("a row is not understood: {0}")]
    Corrupt(String),
    /// Anything else that the engine reports.
    #[error("the database reports: {0}")]
    Database(String),
}
