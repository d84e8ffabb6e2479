//! The environment of the process as the client needs it. The binary reads it, so that tests can set it.

use std::path::PathBuf;

/// The environment variables, directories and terminals of the client.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TENSORPOOL_ENGINE`.
    pub engine: Option<String>,
    /// `TENSORPOOL_KEY`.
    pub key: Option<String>,
    /// `TARN_PROFILE`.
    pub profile: Option<String>,
    /// The current directory. The client reads `.env` here.
    pub directory: PathBuf,
    /// The user's configuration directory for Tarn, such as `~/.config/tarn`.
    pub configuration: Option<PathBuf>,
    pub home: Option<PathBuf>,
    /// Whether colors are unwanted (`NO_COLOR`).
    pub no_color: bool,
    /// The width of the terminal; `None` when standard output is not a terminal.
    pub width: Option<u16>,
    /// Whether standard input is a terminal.
    pub has_input: bool,
    /// Whether standard error is a terminal.
    pub has_errors: bool,
}
