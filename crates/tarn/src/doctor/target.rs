//! The target of the examination: a configuration, and the engine that runs with it, if any.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_driver::local::examine::ExaminedProcess;
use tarn_store::{Store, installation};

use super::probes::engine_state::{self, EngineState};
use crate::config::{Config, DriverName};
use crate::environment::{RandomIds, SystemClock};
use crate::serve::listeners;
use crate::serve::startup::driver;

/// The directory for runtime files of instances.
pub(super) const RUN: &str = "/run/tarn";

/// The configuration under examination, and what follows from it.
pub(super) struct Target {
    pub(super) config: Config,
    /// The absolute path of the data directory.
    pub(super) data: PathBuf,
    /// The directory of volumes.
    pub(super) pool: PathBuf,
    /// The command of the helper.
    pub(super) helper: Vec<OsString>,
    /// Whether an engine runs on the data directory.
    pub(super) engine_state: EngineState,
    /// The URL of the engine, and whether it was given with `--engine`.
    pub(super) address: String,
    pub(super) is_given: bool,
}

impl Target {
    /// Derives everything from a configuration. `engine` is the URL given with `--engine`.
    pub(super) fn from_config(config: Config, engine: Option<String>) -> Target {
        let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
        let pool = config.pool().unwrap_or_else(|| data.join("volumes"));
        let program = std::env::current_exe().unwrap_or_default();
        let own = Target::own_address(&config);
        let (is_given, address) = (engine.is_some(), engine.unwrap_or(own).trim_end_matches('/').to_owned());
        let engine_state = engine_state::find_engine(&data);
        let helper = vec![program.into(), driver::HELPER.into()];
        Target { config, data, pool, helper, engine_state, address, is_given }
    }

    /// Whether instances run on this host.
    pub(super) fn is_local(&self) -> bool {
        self.config.driver == DriverName::Local
    }

    /// The process whose privileges and limits matter: the engine, if its process ID is known.
    pub(super) fn subject(&self) -> ExaminedProcess {
        match self.engine_state {
            EngineState::Running { pid } => ExaminedProcess::of(pid),
            EngineState::Stopped | EngineState::Unknown => ExaminedProcess::of(None),
        }
    }

    /// The URL of the engine of this configuration, regardless of `--engine`.
    pub(super) fn own_address(config: &Config) -> String {
        let scheme = if config.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", listeners::reachable_address(config.listen))
    }

    /// Opens the database read-only.
    pub(super) async fn open_store(&self) -> Result<Store, String> {
        let database = self.config.database().map_err(|failure| failure.to_string())?;
        let is_alone = matches!(self.engine_state, EngineState::Stopped);
        let store = Store::open_read_only(&database, is_alone, Arc::new(SystemClock), Arc::new(RandomIds)).await;
        store.map_err(|error| error.to_string())
    }

    /// A value that the database keeps for the whole installation.
    pub(super) async fn installation_value(store: &Store, name: &'static str) -> Result<Option<String>, String> {
        let kept = store.read(|tx| installation::get(tx, name)).await;
        kept.map_err(|error: tarn_store::Error| error.to_string())
    }

    /// The file of the database, if it is SQLite.
    pub(super) fn database_file(&self) -> Option<PathBuf> {
        match self.config.database() {
            Ok(tarn_store::Database::Sqlite(path)) => Some(path),
            _ => None,
        }
    }
}

/// Whether this process lacks the permission to read a directory.
pub(super) fn is_unreadable(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
