//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::failure::{Failure, Result};

/// Starts logging.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<()> {
    let filter =
        EnvFilter::try_new(filter).map_err(|e| Failure::doing(format!("--log {filter} is not a filter"), e))?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => lines.compact().try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|e| Failure::doing("cannot start logging", e))
}
