//! The local driver: instances are isolated environments on this machine.
//!
//! Whatever is made for an instance can be found again by its record, which is written before anything is made and removed
//! after everything is gone; whether it runs is asked of the kernel each time. Nothing is mounted on the machine: a root
//! filesystem exists only in the mount namespace of its instance. The driver knows nothing of requests or of the database.
//!
//! Start reading at [`LocalDriver`], then `ensure` and `remove`; `launch` talks to the [`helper`] process in which
//! an instance is put together, `image` and `disks` make what it is put together from, `images` fetches what others have made,
//! and [`network`] connects it. `volumes` are files in a pool of their own, and outlive instances; `mounts` shows them to
//! instances that run. `gpus` says who owns which GPU, and what an instance needs to use one.

mod cgroups;
mod claim;
mod cpus;
mod dialogue;
mod disks;
mod ensure;
mod errands;
pub mod examine;
mod files;
mod filesystems;
mod gpus;
mod guest;
pub mod helper;
mod holders;
mod ids;
mod image;
mod images;
mod installation;
mod last_word;
mod launch;
mod links;
mod local_host;
mod mount_tables;
mod mounts;
pub mod network;
mod observe;
mod open;
mod places;
mod processes;
mod protections;
mod record;
mod remove;
mod settings;
mod trees;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tarn_model::capacity::Inventory;
use tarn_model::gpus::Look;
use tarn_model::ids::{InstanceId, VolumeId};

pub use images::{ImageSettings, Registry, greet, is_loopback};
pub use protections::{Protection, Protections};
pub use settings::LocalSettings;

use crate::{
    Access, Capabilities, Driver, Error, GuestStream, Holder, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec,
};
use local_host::LocalHost;

/// The driver that makes instances on this machine.
#[derive(Clone)]
pub struct LocalDriver {
    host: Arc<LocalHost>,
}

impl LocalDriver {
    /// Finds again what was made before, sweeps away what was left half made, and is ready. The first time on a machine it
    /// makes the image, which takes seconds.
    pub async fn open(settings: LocalSettings) -> Result<Self, Error> {
        Ok(LocalDriver { host: Arc::new(open::open(settings).await?) })
    }

    /// The id that everything of this installation carries on the machine.
    pub fn installation(&self) -> &str {
        &self.host.places.installation
    }

    /// Runs a changing verb to its end, also when nobody waits for it any more: half a start must not be left to chance.
    async fn to_the_end<T: Send + 'static>(
        &self,
        verb: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match tokio::spawn(verb).await {
            Ok(done) => done,
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) => Err(Error::Retry("the engine is stopping".into())),
        }
    }
}

#[async_trait]
impl Driver for LocalDriver {
    fn name(&self) -> &'static str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        let volumes = self.host.volumes.supported();
        Capabilities { volumes, live_mounts: volumes, containers: true }
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        Ok(Inventory { gpus: self.host.gpus.last(), ..self.host.inventory.clone() })
    }

    async fn gpus(&self) -> Result<Look, Error> {
        gpus::look(&self.host).await
    }

    async fn machine_boot(&self) -> Result<Option<String>, Error> {
        let boot =
            processes::boot_id().map_err(|error| local_host::failed("the machine could not be looked at", &error))?;
        Ok(Some(boot))
    }

    async fn ensure_image(&self, reference: &str, progress: &(dyn Fn(String) + Send + Sync)) -> Result<String, Error> {
        images::ensure(&self.host, reference, progress).await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        ensure::fetch(&self.host, spec).await?;
        let (host, spec) = (self.host.clone(), spec.clone());
        self.to_the_end(async move { ensure::ensure(&host, &spec).await }).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        links::configure(&self.host, id, access).await
    }

    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error> {
        Ok(Box::new(links::connect(&self.host, id).await?))
    }

    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let (host, id) = (self.host.clone(), id.clone());
        self.to_the_end(async move { remove::remove(&host, &id).await }).await
    }

    async fn pool(&self) -> Result<u64, Error> {
        volumes::capacity(&self.host).await
    }

    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        let (host, spec) = (self.host.clone(), spec.clone());
        self.to_the_end(async move { volumes::ensure(&host, &spec).await }).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error> {
        let (host, id) = (self.host.clone(), id.clone());
        self.to_the_end(async move { volumes::remove(&host, &id).await }).await
    }

    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::ensure(&host, &volume, &instance).await }).await
    }

    async fn holders(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error> {
        mounts::held(&self.host, volume, instance).await
    }

    async fn end_holders(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<Holder>, Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::free(&host, &volume, &instance, grace).await }).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::remove(&host, &volume, &instance).await }).await
    }

    async fn keep(&self) -> Result<(), Error> {
        self.host.private.again();
        // With none left, all of it is removed, and stays so.
        let _gate = self.host.gate.lock().await;
        if self.host.records().is_empty() {
            return Ok(());
        }
        self.host.network.keep().await
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        observe::one(&self.host, id)
    }

    async fn memory_kills(&self, id: &InstanceId) -> Result<Option<u64>, Error> {
        Ok(cgroups::memory_kills(&self.host.places.cgroup(id)).ok())
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        volumes::one(&self.host, id).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        let mut observed = observe::all(&self.host)?;
        observed.volumes = volumes::all(&self.host).await?;
        Ok(observed)
    }
}
