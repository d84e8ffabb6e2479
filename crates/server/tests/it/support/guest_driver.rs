//! The fake driver, with guests in its instances.

use std::time::Duration;

use async_trait::async_trait;
use tarn_driver::fake::FakeDriver;
use tarn_driver::{
    Access, Capabilities, Driver, Error, GuestStream, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec, VolumeUser,
};
use tarn_model::capacity::Inventory;
use tarn_model::ids::{InstanceId, VolumeId};

/// The fake driver, with a guest in every instance.
pub(crate) struct GuestDriver {
    fake: FakeDriver,
    dial: Box<Dial>,
}

type Dial = dyn Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync;

impl GuestDriver {
    /// A connection to an instance gets the stream that `dial` returns.
    pub(crate) fn new(
        fake: FakeDriver,
        dial: impl Fn(&InstanceId) -> Result<GuestStream, Error> + Send + Sync + 'static,
    ) -> Self {
        GuestDriver { fake, dial: Box::new(dial) }
    }
}

#[async_trait]
impl Driver for GuestDriver {
    fn name(&self) -> &'static str {
        "inhabited"
    }

    fn capabilities(&self) -> Capabilities {
        self.fake.capabilities()
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        self.fake.inventory().await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        self.fake.ensure_instance(spec).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        self.fake.configure_instance(id, access).await
    }

    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error> {
        (self.dial)(id)
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
        self.fake.observe().await
    }
}
