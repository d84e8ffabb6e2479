//! What all verbs share: the records, the locks, and how failures become words.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tarn_model::capacity::Inventory;
use tarn_model::ids::InstanceId;
use tokio::sync::{OwnedMutexGuard, Semaphore};

use super::disks::Disks;
use super::gpus::Gpus;
use super::host_image::Private;
use super::images::Images;
use super::network::Network;
use super::places::Places;
use super::protections::Protections;
use super::record::Record;
use super::volumes::Volumes;
use crate::Error;

/// How many helpers work at once; more would only wait for each other.
pub(super) const HELPERS: usize = 4;

/// What is on record, by instance.
pub(super) type Records = BTreeMap<InstanceId, Record>;

/// What all verbs share.
pub(super) struct LocalHost {
    pub(super) places: Places,
    pub(super) helper: Vec<OsString>,
    /// The guest binary on disk.
    pub(super) guest: PathBuf,
    pub(super) inventory: Inventory,
    pub(super) gpus: Gpus,
    pub(super) network: Network,
    pub(super) volumes: Volumes,
    pub(super) disks: Disks,
    pub(super) images: Arc<Images>,
    pub(super) protections: Protections,
    /// Held while the first of a cluster, or of all, comes, and while the last goes.
    pub(super) gate: tokio::sync::Mutex<()>,
    pub(super) helpers: Semaphore,
    /// Who looks what of `/usr` is not for instances.
    pub(super) private: Private,
    /// Held while the image is made.
    pub(super) image: tokio::sync::Mutex<()>,
    records: Arc<Mutex<Records>>,
    busy: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Locked for as long as this engine uses the data: two would each think that they know everything.
    _alone: File,
}

impl LocalHost {
    pub(super) fn new(
        places: Places,
        (helper, guest): (Vec<OsString>, PathBuf),
        (inventory, gpus): (Inventory, Gpus),
        (network, volumes, disks, images): (Network, Volumes, Disks, Images),
        protections: Protections,
        records: Records,
        alone: File,
    ) -> Self {
        LocalHost {
            places,
            helper,
            guest,
            inventory,
            gpus,
            network,
            volumes,
            disks,
            images: Arc::new(images),
            protections,
            gate: tokio::sync::Mutex::default(),
            helpers: Semaphore::new(HELPERS),
            private: Private::new(),
            image: tokio::sync::Mutex::default(),
            records: Arc::new(Mutex::new(records)),
            busy: Mutex::default(),
            _alone: alone,
        }
    }

    /// Whatever is on record.
    pub(super) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a thread that works on while nobody waits for it.
    pub(super) fn shared_records(&self) -> Arc<Mutex<Records>> {
        self.records.clone()
    }

    /// What is on record of an instance.
    pub(super) fn record(&self, id: &InstanceId) -> Option<Record> {
        self.records().get(id).cloned()
    }

    /// One changing verb at a time for each instance and each volume.
    pub(super) async fn lock(&self, id: &(impl Display + Sync)) -> OwnedMutexGuard<()> {
        let lock = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            // Locks that nobody holds or waits for are forgotten, so that the map does not grow for ever.
            busy.retain(|_, lock| Arc::strong_count(lock) > 1);
            busy.entry(id.to_string()).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// Writes down what is known of an instance now, on disk and in memory.
    pub(super) async fn save(&self, record: &Record) -> Result<(), Error> {
        let (directory, written) = (self.places.instance(&record.id), record.clone());
        blocking("an instance could not be recorded", move || written.save(&directory)).await?;
        self.records().insert(record.id.clone(), record.clone());
        Ok(())
    }
}

/// Runs what blocks on a thread for such things.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| failed(what, &error)),
        Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
        Err(_) => Err(Error::Retry("the engine is stopping".into())),
    }
}

/// What the owner of an instance is told of a failure; the operator finds the rest in the log.
pub(super) fn failed(what: &'static str, error: &io::Error) -> Error {
    tracing::warn!(%error, "{what}");
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Error::Retry(format!("{what}: the disk of the machine is full"));
    }
    if error.kind() == io::ErrorKind::Unsupported {
        return Error::Permanent(format!(
            "{what}: the kernel of the machine lacks something; the engine's log says what"
        ));
    }
    Error::Retry(what.into())
}
