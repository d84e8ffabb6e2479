//! Why a command did not work, in words for the person at the terminal.

/// A text that says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

/// What commands return.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of something that was being done.
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Failure(format!("{what}: {error}"))
    }
}
