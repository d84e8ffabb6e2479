//! What is examined: a configuration, and the engine that runs by it, if one does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_driver::local::examine::Subject;
use tarn_store::{Store, installation};

use super::running::{self, Running};
use crate::config::{Config, DriverName};
use crate::environment::{RandomIds, SystemClock};
use crate::machines;

/// Where instances have what lives while they run.
pub(super) const RUN: &str = "/run/tarn";

/// What is examined.
pub(super) struct Patient {
    pub(super) config: Config,
    /// The data directory, whole.
    pub(super) data: PathBuf,
    /// Where volumes are.
    pub(super) pool: PathBuf,
    /// The program of the driver's helper.
    pub(super) helper: Vec<OsString>,
    /// Whether an engine runs on the data.
    pub(super) running: Running,
    /// Where the engine answers, and whether somebody said so.
    pub(super) address: String,
    pub(super) is_given: bool,
}

impl Patient {
    /// Finds out what belongs to a configuration. `engine` is the address that somebody gave.
    pub(super) fn of(config: Config, engine: Option<String>) -> Patient {
        let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
        let pool = config.pool().unwrap_or_else(|| data.join("volumes"));
        let program = std::env::current_exe().unwrap_or_default();
        let own = Patient::own_address(&config);
        let (is_given, address) = (engine.is_some(), engine.unwrap_or(own).trim_end_matches('/').to_owned());
        let running = running::find(&data);
        let helper = vec![program.into(), machines::HELPER.into()];
        Patient { config, data, pool, helper, running, address, is_given }
    }

    /// Whether instances are made on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.config.driver == DriverName::Local
    }

    /// Whose privileges and limits matter: those of the engine, where its number is known.
    pub(super) fn subject(&self) -> Subject {
        match self.running {
            Running::Here { pid } => Subject::of(pid),
            Running::Nowhere | Running::Unknown => Subject::of(None),
        }
    }

    /// The address of the engine of this configuration, whatever else was given.
    pub(super) fn own_address(config: &Config) -> String {
        let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", machines::reachable(config.listen))
    }

    /// The database, only to be read.
    pub(super) async fn store(&self) -> Result<Store, String> {
        let database = self.config.database().map_err(|failure| failure.to_string())?;
        let is_alone = matches!(self.running, Running::Nowhere);
        let store = Store::open_read_only(&database, is_alone, Arc::new(SystemClock), Arc::new(RandomIds)).await;
        store.map_err(|error| error.to_string())
    }

    /// What the database keeps under a name for the whole installation.
    pub(super) async fn kept(store: &Store, name: &'static str) -> Result<Option<String>, String> {
        let kept = store.read(|tx| installation::get(tx, name)).await;
        kept.map_err(|error: tarn_store::Error| error.to_string())
    }

    /// Where the database is, if it is a file.
    pub(super) fn database_file(&self) -> Option<PathBuf> {
        match self.config.database() {
            Ok(tarn_store::Database::Sqlite(path)) => Some(path),
            _ => None,
        }
    }
}

/// Whether this process may not look into a directory that exists.
pub(super) fn is_closed(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
