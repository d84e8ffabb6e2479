//! The handle on object storage, with everything that the operations need.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_base::tasks::run_to_completion;
use tarn_model::access::Policy;
use tarn_model::ids::{FileId, OrgId};
use tarn_model::{Clock, Ids, Time};
use tarn_store::s3_keys::KeyHolder;
use tarn_store::{Store, Tx};
use tokio::sync::Notify;

use crate::caller::Caller;
use crate::files::Files;
use crate::keys::AccessKeyCache;
use crate::lifecycle::LastTurn;
use crate::operations::body::FilePins;
use crate::upkeep::Counters;
use crate::{Error, Result};

/// The components of object storage, built by the composition root.
pub struct Components {
    /// The rows that say what exists.
    pub store: Store,
    /// The directory of the data files.
    pub directory: PathBuf,
    /// The key from which the secrets of access keys are derived.
    pub secret: [u8; 32],
    /// Limits and policies.
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    /// The source of random ids.
    pub ids: Arc<dyn Ids>,
}

/// Limits and policies of object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The quota of an organization; `None` is no limit.
    pub quota_bytes: Option<u64>,
    /// The quotas of organizations that differ from `quota_bytes`.
    pub quotas_bytes: BTreeMap<OrgId, u64>,
    /// The bytes of the disk that stay free.
    pub reserve_bytes: u64,
    /// The age at which an upload that was not completed is aborted.
    pub abandoned_after: Duration,
    /// The interval of the sweep, which compares the files with the store.
    pub sweep_every: Duration,
    /// What members of an organization may do to each other.
    pub access: Policy,
    /// When the legacy keys of organizations stop working; `None` leaves that to the administrators of each.
    pub legacy_keys_until: Option<Time>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            quota_bytes: None,
            quotas_bytes: BTreeMap::new(),
            reserve_bytes: 256 << 20,
            abandoned_after: Duration::from_secs(7 * 24 * 3600),
            sweep_every: Duration::from_secs(24 * 3600),
            access: Policy::default(),
            legacy_keys_until: None,
        }
    }
}

/// Object storage. Clones share everything.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
    /// On whose behalf this handle writes, for the operations of S3 calls.
    caller: Option<Arc<Caller>>,
}

struct Inner {
    store: Store,
    files: Files,
    secret: [u8; 32],
    settings: Settings,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    access_keys: AccessKeyCache,
    pins: FilePins,
    counters: Counters,
    last_turn: LastTurn,
    rules_changed: Notify,
}

impl Objects {
    /// Opens object storage and creates its directory.
    pub fn open(components: Components) -> Result<Self> {
        let Components { store, directory, secret, settings, clock, ids } = components;
        let files = Files::open(&directory, settings.reserve_bytes, ids.clone())?;
        let (access_keys, pins, counters) = (AccessKeyCache::default(), FilePins::default(), Counters::default());
        let (last_turn, rules_changed) = (LastTurn::default(), Notify::new());
        let inner =
            Inner { store, files, secret, settings, clock, ids, access_keys, pins, counters, last_turn, rules_changed };
        Ok(Objects { inner: Arc::new(inner), caller: None })
    }

    /// Returns a handle for the operations of a call. What it writes is refused once the key of the caller has ended.
    pub(crate) fn for_caller(&self, caller: Arc<Caller>) -> Self {
        Objects { inner: self.inner.clone(), caller: Some(caller) }
    }

    /// Counts one S3 call with an access key, and notes when it was made.
    pub fn count_request(&self, access_key: &str, holder: &KeyHolder) {
        self.inner.counters.add_call(access_key, holder, self.inner.clock.now());
    }

    /// Returns the quota of an organization.
    pub fn quota_bytes(&self, org: &OrgId) -> Option<u64> {
        if crate::internal::is_account(org) {
            return None;
        }
        let settings = &self.inner.settings;
        settings.quotas_bytes.get(org).copied().or(settings.quota_bytes)
    }

    /// Runs a transaction. On behalf of a caller, it includes the check that their key still works, and the events that
    /// it records have their origin.
    pub(crate) async fn write<T, E, F>(&self, work: F) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + From<tarn_store::Error> + Send + 'static,
        F: Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send + 'static,
    {
        let Some(caller) = self.caller.clone() else { return self.store().write(work).await };
        let objects = self.clone();
        let write = self.store().write(move |tx| {
            caller.must_still_hold(tx, &objects)?;
            tx.set_origin(caller.origin());
            work(tx)
        });
        write.await
    }

    /// Runs a transaction and then removes the files that it frees. Both complete even when the caller stops waiting.
    pub(crate) async fn write_and_remove<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Tx<'_>) -> Result<(T, Vec<FileId>)> + Send + Sync + 'static,
    ) -> Result<T> {
        let objects = self.clone();
        let work = async move {
            let (value, files) = objects.write(work).await?;
            objects.remove_files(files).await;
            Ok(value)
        };
        run_to_completion(work).await
    }

    /// The database, for reads. Changes are made with [`Objects::write`].
    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Returns the size of the filesystem that holds the objects.
    pub fn disk_bytes(&self) -> std::io::Result<u64> {
        self.files().disk_bytes()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.inner.files
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.inner.secret
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.inner.clock
    }

    pub(crate) fn ids(&self) -> &dyn Ids {
        &*self.inner.ids
    }

    pub(crate) fn access_keys(&self) -> &AccessKeyCache {
        &self.inner.access_keys
    }

    pub(crate) fn pins(&self) -> &FilePins {
        &self.inner.pins
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Wakes the task that applies rules for the life of objects.
    pub(crate) fn notify_rules_changed(&self) {
        self.inner.rules_changed.notify_one();
    }

    /// Waits until rules for the life of objects are set.
    pub async fn wait_until_rules_change(&self) {
        self.inner.rules_changed.notified().await;
    }

    pub(crate) fn last_turn(&self) -> &LastTurn {
        &self.inner.last_turn
    }
}
