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
use tarn_model::gpus::Look;
use tarn_model::ids::{InstanceId, VolumeId};
use tokio::sync::mpsc;

pub(crate) struct ObservingDriver {
    pub(crate) fake: FakeDriver,
    /// How often an instance was told its keys.
    pub(crate) told: AtomicUsize,
    /// The names and places of the volumes that each instance was told last.
    pub(crate) volumes: Mutex<HashMap<InstanceId, Vec<(String, String)>>>,
    /// These do not answer.
    pub(crate) unreachable: Mutex<HashSet<InstanceId>>,
    /// What `observe` answers once instead of the truth.
    pub(crate) late: Mutex<Option<Observed>>,
    /// How often what keeps instances apart was kept, and whether it cannot be.
    pub(crate) kept: AtomicUsize,
    pub(crate) defenceless: AtomicBool,
    /// Whether not everything can be looked at.
    pub(crate) blind: AtomicBool,
    /// Who answers in the place of the guests.
    pub(crate) dial: Mutex<Option<Dial>>,
    /// What a pull tells, one after the other; it goes on when it is let.
    pub(crate) pulls: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    /// How often, and at which intervals, a pull tells something before it is silent for ever.
    pub(crate) chatter: Mutex<Option<(usize, Duration)>>,
    /// How often it has.
    pub(crate) chattered: AtomicUsize,
    /// The images that instances were started from.
    pub(crate) images: Mutex<Vec<Option<String>>>,
}

/// Gives a stream to the guest of an instance.
pub(crate) type Dial = Box<dyn Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync>;

impl ObservingDriver {
    pub(crate) fn new(fake: FakeDriver) -> Self {
        ObservingDriver {
            fake,
            told: AtomicUsize::new(0),
            volumes: Mutex::default(),
            unreachable: Mutex::default(),
            late: Mutex::default(),
            kept: AtomicUsize::new(0),
            defenceless: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            dial: Mutex::default(),
            pulls: Mutex::default(),
            chatter: Mutex::default(),
            chattered: AtomicUsize::new(0),
            images: Mutex::default(),
        }
    }

    /// How often an instance was told its keys since this was last asked.
    pub(crate) fn take_told(&self) -> usize {
        self.told.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Driver for ObservingDriver {
    fn name(&self) -> &'static str {
        self.fake.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.fake.capabilities()
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        self.fake.inventory().await
    }

    async fn machine_boot(&self) -> Result<Option<String>, Error> {
        self.fake.machine_boot().await
    }

    async fn ensure_image(&self, reference: &str, progress: &(dyn Fn(String) + Send + Sync)) -> Result<String, Error> {
        let pulls = self.pulls.lock().unwrap().take();
        if let Some(mut pulls) = pulls {
            while let Some(words) = pulls.recv().await {
                progress(words);
            }
        }
        let chatter = *self.chatter.lock().unwrap();
        if let Some((times, every)) = chatter {
            for n in 0..times {
                progress(format!("pulls {reference}: {n} of {times} MB"));
                self.chattered.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(every).await;
            }
            std::future::pending::<()>().await;
        }
        self.fake.ensure_image(reference, progress).await
    }

    async fn gpus(&self) -> Result<Look, Error> {
        self.fake.gpus().await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        self.images.lock().unwrap().push(spec.container.clone());
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

    async fn keep(&self) -> Result<(), Error> {
        self.kept.fetch_add(1, Ordering::SeqCst);
        match self.defenceless.load(Ordering::SeqCst) {
            true => Err(Error::Retry("the program nft is away".into())),
            false => Ok(()),
        }
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
