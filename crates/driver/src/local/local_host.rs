//! The state that all operations share: the records, the locks, and how I/O failures become driver errors.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tarn_base::tasks::join;
use tarn_model::capacity::Inventory;
use tarn_model::ids::InstanceId;
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::Error;
use crate::local::disk::DiskSource;
use crate::local::gpus::Gpus;
use crate::local::host::paths::InstallationPaths;
use crate::local::host_image::Private;
use crate::local::images::Images;
use crate::local::instance::record::Record;
use crate::local::lxcfs::Lxcfs;
use crate::local::network::Network;
use crate::local::protections::Protections;
use crate::local::volumes::Volumes;

/// How many helpers run at once; more would only wait for each other.
pub(super) const MAX_HELPERS: usize = 4;

/// The records by instance id.
pub(super) type Records = BTreeMap<InstanceId, Record>;

/// The state that all operations of the driver share.
pub(super) struct LocalHost {
    pub(super) paths: InstallationPaths,
    pub(super) helper: Vec<OsString>,
    /// The guest binary on disk.
    pub(super) guest: PathBuf,
    pub(super) inventory: Inventory,
    pub(super) gpus: Gpus,
    pub(super) network: Network,
    pub(super) volumes: Volumes,
    pub(super) disks: DiskSource,
    pub(super) images: Arc<Images>,
    pub(super) protections: Protections,
    pub(super) lxcfs: Lxcfs,
    /// Held while the first instance of a cluster, or of the host, is created, and while the last one is removed.
    pub(super) shared_resources: tokio::sync::Mutex<()>,
    pub(super) helper_permits: Semaphore,
    /// Finds the paths below `/usr` that instances must not see.
    pub(super) private_paths: Private,
    /// Held while the host image is created.
    pub(super) host_image: tokio::sync::Mutex<()>,
    /// Shared with threads that may outlive the call that started them.
    pub(super) records: Arc<Mutex<Records>>,
    pub(super) locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// The lock on the data directory. Two engines with the same data would each assume that their view is complete.
    pub(super) _data_lock: File,
}

impl LocalHost {
    /// The records of all instances.
    pub(super) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    /// The record of an instance.
    pub(super) fn record(&self, id: &InstanceId) -> Option<Record> {
        self.records().get(id).cloned()
    }

    /// Serializes the changing operations on one instance or one volume.
    pub(super) async fn lock(&self, id: &(impl Display + Sync)) -> OwnedMutexGuard<()> {
        self.lock_of(id).lock_owned().await
    }

    /// The same, unless an operation is under way.
    pub(super) fn try_lock(&self, id: &(impl Display + Sync)) -> Option<OwnedMutexGuard<()>> {
        self.lock_of(id).try_lock_owned().ok()
    }

    fn lock_of(&self, id: &(impl Display + Sync)) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        // Unused locks are dropped so that the map does not grow without bound.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(id.to_string()).or_default().clone()
    }

    /// Stores the record of an instance on disk and in memory.
    pub(super) async fn save_record(&self, record: &Record) -> Result<(), Error> {
        let (directory, written) = (self.paths.instance_directory(&record.id), record.clone());
        blocking("the instance could not be recorded", move || written.save(&directory)).await?;
        self.records().insert(record.id.clone(), record.clone());
        Ok(())
    }
}

/// Runs blocking work on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    join(tokio::task::spawn_blocking(work)).await.map_err(|error| failed(what, &error))
}

/// Turns an I/O failure into the error that the owner of an instance sees; the details go to the engine's log.
pub(super) fn failed(what: &'static str, error: &io::Error) -> Error {
    tracing::warn!(%error, "{what}");
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Error::Retry(format!("{what}: the disk of the host is full"));
    }
    if error.kind() == io::ErrorKind::Unsupported {
        return Error::Permanent(format!("{what}: the host's kernel lacks a feature; the engine's log says which"));
    }
    Error::Retry(what.into())
}
