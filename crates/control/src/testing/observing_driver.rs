//! The fake driver, extended to count calls, make instances unreachable, and return outdated observations.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tarn_driver::fake::FakeDriver;
use tarn_driver::{
    Access, Capabilities, Driver, Error, GuestStream, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec, VolumeUser,
};
use tarn_model::capacity::Inventory;
use tarn_model::gpus::GpuObservation;
use tarn_model::ids::{InstanceId, VolumeId};
use tokio::sync::mpsc;

/// The fake driver with switches for tests.
pub struct ObservingDriver {
    pub fake: FakeDriver,
    /// How often the access configuration was pushed.
    pub pushes: AtomicUsize,
    /// The names and paths of the volumes that were last pushed to each instance.
    pub volumes: Mutex<HashMap<InstanceId, Vec<(String, String)>>>,
    /// These instances do not respond.
    pub unreachable: Mutex<HashSet<InstanceId>>,
    /// What `observe` returns once instead of the truth.
    pub outdated: Mutex<Option<Observed>>,
    /// How often the isolation was restored, and whether that fails.
    pub isolated: AtomicUsize,
    pub isolation_fails: AtomicBool,
    /// Whether observing everything fails.
    pub observe_fails: AtomicBool,
    /// Connects in place of the guests.
    pub dial: Mutex<Option<Dial>>,
    /// The messages that a pull reports, one after the other; it ends when the sender is dropped.
    pub pulls: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    /// How often, and at which intervals, a pull reports before it is silent for ever.
    pub reports: Mutex<Option<(usize, Duration)>>,
    /// How often it has reported.
    pub reported: AtomicUsize,
    /// The images that instances were started from.
    pub images: Mutex<Vec<Option<String>>>,
    /// The shares for which images were pulled.
    pub shares: Mutex<Vec<String>>,
}

/// Connects to the guest of an instance.
pub type Dial = Box<dyn Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync>;

impl ObservingDriver {
    /// Delegates everything to the fake.
    pub fn new(fake: FakeDriver) -> Self {
        ObservingDriver {
            fake,
            pushes: AtomicUsize::new(0),
            volumes: Mutex::default(),
            unreachable: Mutex::default(),
            outdated: Mutex::default(),
            isolated: AtomicUsize::new(0),
            isolation_fails: AtomicBool::new(false),
            observe_fails: AtomicBool::new(false),
            dial: Mutex::default(),
            pulls: Mutex::default(),
            reports: Mutex::default(),
            reported: AtomicUsize::new(0),
            images: Mutex::default(),
            shares: Mutex::default(),
        }
    }

    /// Connects to guests by `dial` from now on.
    pub fn dial_guests(&self, dial: impl Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync + 'static) {
        *self.dial.lock().unwrap() = Some(Box::new(dial));
    }

    /// How often the access configuration was pushed since the last call of this.
    pub fn take_pushes(&self) -> usize {
        self.pushes.swap(0, Ordering::SeqCst)
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

    async fn host_boot(&self) -> Result<Option<String>, Error> {
        self.fake.host_boot().await
    }

    async fn ensure_image(
        &self,
        reference: &str,
        share: &str,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String, Error> {
        self.shares.lock().unwrap().push(share.to_owned());
        let pulls = self.pulls.lock().unwrap().take();
        if let Some(mut pulls) = pulls {
            while let Some(message) = pulls.recv().await {
                progress(message);
            }
        }
        let reports = *self.reports.lock().unwrap();
        if let Some((times, every)) = reports {
            for n in 0..times {
                progress(format!("pulls {reference}: {n} of {times} MB"));
                self.reported.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(every).await;
            }
            std::future::pending::<()>().await;
        }
        self.fake.ensure_image(reference, share, progress).await
    }

    async fn gpus(&self) -> Result<GpuObservation, Error> {
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
        self.pushes.fetch_add(1, Ordering::SeqCst);
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

    async fn restore_isolation(&self) -> Result<(), Error> {
        self.isolated.fetch_add(1, Ordering::SeqCst);
        if self.isolation_fails.load(Ordering::SeqCst) {
            Err(Error::Retry("the program nft is away".into()))
        } else {
            Ok(())
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

    async fn volume_users(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<VolumeUser>, Error> {
        self.fake.volume_users(volume, instance).await
    }

    async fn end_volume_users(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<VolumeUser>, Error> {
        self.fake.end_volume_users(volume, instance, grace).await
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
        if self.observe_fails.load(Ordering::SeqCst) {
            return Err(Error::Retry("the disk of the volumes is not there".into()));
        }
        let outdated = self.outdated.lock().unwrap().take();
        match outdated {
            Some(observed) => Ok(observed),
            None => self.fake.observe().await,
        }
    }
}
