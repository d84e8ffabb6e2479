//! What the client needs of the machine. The composition root finds it out, so that tests can say what they like.

use std::path::PathBuf;

/// Where the client is.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `TENSORPOOL_ENGINE`.
    pub engine: Option<String>,
    /// `TENSORPOOL_KEY`.
    pub key: Option<String>,
    /// `TARN_PROFILE`.
    pub profile: Option<String>,
    /// The directory in which the command is given; `.env` is looked for here.
    pub directory: PathBuf,
    /// The user's directory for configuration, with `tarn` at its end.
    pub configuration: Option<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Whether colours are unwanted (`NO_COLOR`).
    pub no_color: bool,
    /// How wide the terminal on standard output is; `None` where that is none.
    pub width: Option<u16>,
    /// Whether somebody sits before standard input.
    pub has_input: bool,
    /// Whether somebody reads standard error.
    pub has_errors: bool,
}
