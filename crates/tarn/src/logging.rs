//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::failure::{Failure, Result};

/// Starts logging.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<()> {
    // The S3 library logs every refused call as an error; a client must not be able to fill the operator's log. Whoever wants
    // to see it names it: what is said later counts.
    let quiet = EnvFilter::try_new(format!("s3s=off,{filter}"));
    let filter = quiet.map_err(|e| Failure::doing(format!("--log {filter} is not a filter"), e))?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => lines.compact().try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|e| Failure::doing("cannot start logging", e))
}
