//! The fake driver with somebody who watches: he counts, makes instances unreachable, and can be late with what he saw.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tarn_driver::fake::FakeDriver;
use tarn_driver::{
    Access, Capabilities, Driver, Error, GuestStream, Holder, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec,
};
use tarn_model::capacity::Inventory;
use tarn_model::gpus::Seen;
use tarn_model::ids::{InstanceId, VolumeId};

pub(crate) struct Watched {
    pub(crate) fake: FakeDriver,
    /// How often an instance was told its keys.
    pub(crate) told: AtomicUsize,
    /// The names and places of the volumes that each instance was told last.
    pub(crate) volumes: Mutex<HashMap<InstanceId, Vec<(String, String)>>>,
    /// These do not answer.
    pub(crate) unreachable: Mutex<HashSet<InstanceId>>,
    /// What `observe` answers once instead of the truth.
    pub(crate) late: Mutex<Option<Observed>>,
    /// Whether not everything can be looked at.
    pub(crate) blind: AtomicBool,
    /// Who answers in the place of the guests.
    pub(crate) dial: Mutex<Option<Dial>>,
}

/// Gives a stream to the guest of an instance.
pub(crate) type Dial = Box<dyn Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync>;

impl Watched {
    pub(crate) fn new(fake: FakeDriver) -> Self {
        Watched {
            fake,
            told: AtomicUsize::new(0),
            volumes: Mutex::default(),
            unreachable: Mutex::default(),
            late: Mutex::default(),
            blind: AtomicBool::new(false),
            dial: Mutex::default(),
        }
    }

    /// How often an instance was told its keys since this was last asked.
    pub(crate) fn take_told(&self) -> usize {
        self.told.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Driver for Watched {
    fn name(&self) -> &'static str {
        self.fake.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.fake.capabilities()
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        self.fake.inventory().await
    }

    async fn gpus(&self) -> Result<Vec<Seen>, Error> {
        self.fake.gpus().await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        self.fake.ensure_instance(spec).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        if self.unreachable.lock().unwrap().contains(id) {
            return Err(Error::Retry("it does not answer".into()));
        }
        self.told.fetch_add(1, Ordering::SeqCst);
        self.volumes.lock().unwrap().insert(id.clone(), access.volumes.clone());
        self.fake.configure_instance(id, access).await
    }

    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error> {
        if let Some(dial) = &*self.dial.lock().unwrap() {
            return dial(id);
        }
        self.fake.connect(id).await
    }

    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        self.fake.remove_instance(id).await
    }

    async fn pool(&self) -> Result<u64, Error> {
        self.fake.pool().await
    }

    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        self.fake.ensure_volume(spec).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error> {
        self.fake.remove_volume(id).await
    }

    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        self.fake.ensure_mount(volume, instance).await
    }

    async fn holders(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error> {
        self.fake.holders(volume, instance).await
    }

    async fn end_holders(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<Holder>, Error> {
        self.fake.end_holders(volume, instance, grace).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        self.fake.remove_mount(volume, instance).await
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        self.fake.observe_instance(id).await
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        self.fake.observe_volume(id).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        if self.blind.load(Ordering::SeqCst) {
            return Err(Error::Retry("the disk of the volumes is not there".into()));
        }
        let late = self.late.lock().unwrap().take();
        match late {
            Some(observed) => Ok(observed),
            None => self.fake.observe().await,
        }
    }
}
