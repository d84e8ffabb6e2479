//! `tarn serve --check`: whether the engine would accept its configuration. Nothing is created, opened for writing or
//! listened on.

use tarn_driver::host::Simulated;

use super::plain_http;
use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::serve::listeners::tls;
use crate::serve::process::logging;

/// Checks everything about the configuration that shows without the data. Returns what to print, or all errors.
pub(crate) fn check_configuration(config: &Config) -> Result<String> {
    let certificate = match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => tls::load_tls_config(cert, key).map(drop),
        _ => Ok(()),
    };
    let results = [
        // Whether the installation is new shows in the database.
        config.database().and_then(|_| plain_http::check_new_installation(config)),
        logging::parse_filter(&config.log).map(drop),
        certificate,
        check_types(config),
        config.images().map(drop),
    ];
    let errors: Vec<String> = results.into_iter().filter_map(|result| result.err().map(|Failure(why)| why)).collect();
    if errors.is_empty() {
        let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
        Ok(format!("The configuration is valid. The data directory is {}.\n", data.display()))
    } else {
        Err(Failure(format!("the configuration is not valid:\n  {}", errors.join("\n  "))))
    }
}

/// Checks the prices and the instance types. GPUs are not probed, only simulated ones are known here.
fn check_types(config: &Config) -> Result<()> {
    let gpus = config.simulated_gpus.as_ref().map_or_else(Vec::new, Simulated::gpus);
    config.catalogue(&config.inventory(gpus), &config.prices()?).map(drop)
}
