//! Object storage as one handle: what every operation works with.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::ids::{FileId, OrgId};
use tarn_model::{Clock, Ids};
use tarn_store::{Store, Tx};

use crate::accounts::Remembered;
use crate::files::Files;
use crate::operations::body::Pins;
use crate::upkeep::Counters;
use crate::{Error, Result};

/// What the composition root puts together.
pub struct Parts {
    /// What exists.
    pub store: Store,
    /// Where the data files are.
    pub directory: PathBuf,
    /// From which the secrets of access keys follow.
    pub secret: [u8; 32],
    /// Limits and policies.
    pub settings: Settings,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub ids: Arc<dyn Ids>,
}

/// Limits and policies of object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many bytes an organization may have; `None` is no limit.
    pub quota_bytes: Option<u64>,
    /// How many bytes organizations may have for which that is not right.
    pub quotas_bytes: BTreeMap<OrgId, u64>,
    /// How many bytes of the disk are left alone.
    pub reserve_bytes: u64,
    /// After how long an upload that was not completed is given up.
    pub abandoned_after: Duration,
    /// How often the files are compared with the store.
    pub sweep_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            quota_bytes: None,
            quotas_bytes: BTreeMap::new(),
            reserve_bytes: 256 << 20,
            abandoned_after: Duration::from_secs(7 * 24 * 3600),
            sweep_every: Duration::from_secs(24 * 3600),
        }
    }
}

/// Object storage. Clones share everything.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    files: Files,
    secret: [u8; 32],
    settings: Settings,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    remembered: Remembered,
    pins: Pins,
    counters: Counters,
}

impl Objects {
    /// Puts the parts together and makes the directory.
    pub fn open(parts: Parts) -> Result<Self> {
        let Parts { store, directory, secret, settings, clock, ids } = parts;
        let files = Files::open(&directory, settings.reserve_bytes, ids.clone())?;
        let (remembered, pins, counters) = (Remembered::default(), Pins::default(), Counters::default());
        let inner = Inner { store, files, secret, settings, clock, ids, remembered, pins, counters };
        Ok(Objects { inner: Arc::new(inner) })
    }

    /// Counts a request of an organization.
    pub fn count_request(&self, org: &OrgId) {
        self.inner.counters.add(org);
    }

    /// How many bytes an organization may have.
    pub fn quota_bytes(&self, org: &OrgId) -> Option<u64> {
        if crate::internal::is_account(org) {
            return None;
        }
        let settings = &self.inner.settings;
        settings.quotas_bytes.get(org).copied().or(settings.quota_bytes)
    }

    /// Carries out a transaction, and then removes the files that it frees, whether anybody waits for it or not.
    pub(crate) async fn write_and_remove<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Tx<'_>) -> Result<(T, Vec<FileId>)> + Send + Sync + 'static,
    ) -> Result<T> {
        let objects = self.clone();
        let work = async move {
            let (value, files) = objects.store().write(work).await?;
            objects.remove_files(files).await;
            Ok(value)
        };
        self.to_the_end(work).await
    }

    /// Carries work to its end, also when whoever waits for it goes away: between a commit and what must follow it, nobody
    /// may hang up.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match tokio::spawn(work).await {
            Ok(result) => result,
            Err(error) => Err(Error::File(io::Error::other(error))),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
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

    pub(crate) fn remembered(&self) -> &Remembered {
        &self.inner.remembered
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.inner.pins
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }
}
