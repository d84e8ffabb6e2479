//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;
use crate::failure::{Failure, Result};

/// Starts logging.
pub(crate) fn start_logging(filter: &str, format: LogFormat) -> Result<()> {
    let filter = parse_filter(filter)?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => lines.compact().try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|e| Failure::with_cause("cannot start logging", e))
}

/// Parses the `--log` option.
pub(in crate::serve) fn parse_filter(filter: &str) -> Result<EnvFilter> {
    // The S3 library logs every refused call as an error, so a client could fill the operator's log. The operator can
    // enable it by name, because later directives win.
    let quiet = EnvFilter::try_new(format!("s3s=off,{filter}"));
    quiet.map_err(|e| Failure::with_cause(format!("--log {filter} is not a valid filter"), e))
}
