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
mod engine;
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
use engine::Engine;

/// The driver that makes instances on this machine.
#[derive(Clone)]
pub struct LocalDriver {
    engine: Arc<Engine>,
}

impl LocalDriver {
    /// Finds again what was made before, sweeps away what was left half made, and is ready. The first time on a machine it
    /// makes the image, which takes seconds.
    pub async fn open(settings: LocalSettings) -> Result<Self, Error> {
        Ok(LocalDriver { engine: Arc::new(open::open(settings).await?) })
    }

    /// The id that everything of this installation carries on the machine.
    pub fn installation(&self) -> &str {
        &self.engine.places.installation
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
        let volumes = self.engine.volumes.supported();
        Capabilities { volumes, live_mounts: volumes, containers: true }
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        Ok(Inventory { gpus: self.engine.gpus.last(), ..self.engine.inventory.clone() })
    }

    async fn gpus(&self) -> Result<Look, Error> {
        gpus::look(&self.engine).await
    }

    async fn machine_boot(&self) -> Result<Option<String>, Error> {
        let boot =
            processes::boot_id().map_err(|error| engine::failed("the machine could not be looked at", &error))?;
        Ok(Some(boot))
    }

    async fn ensure_image(&self, reference: &str, progress: &(dyn Fn(String) + Send + Sync)) -> Result<String, Error> {
        images::ensure(&self.engine, reference, progress).await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        ensure::fetch(&self.engine, spec).await?;
        let (engine, spec) = (self.engine.clone(), spec.clone());
        self.to_the_end(async move { ensure::ensure(&engine, &spec).await }).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        links::configure(&self.engine, id, access).await
    }

    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error> {
        Ok(Box::new(links::connect(&self.engine, id).await?))
    }

    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let (engine, id) = (self.engine.clone(), id.clone());
        self.to_the_end(async move { remove::remove(&engine, &id).await }).await
    }

    async fn pool(&self) -> Result<u64, Error> {
        volumes::capacity(&self.engine).await
    }

    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        let (engine, spec) = (self.engine.clone(), spec.clone());
        self.to_the_end(async move { volumes::ensure(&engine, &spec).await }).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error> {
        let (engine, id) = (self.engine.clone(), id.clone());
        self.to_the_end(async move { volumes::remove(&engine, &id).await }).await
    }

    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (engine, volume, instance) = (self.engine.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::ensure(&engine, &volume, &instance).await }).await
    }

    async fn holders(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error> {
        mounts::held(&self.engine, volume, instance).await
    }

    async fn end_holders(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<Holder>, Error> {
        let (engine, volume, instance) = (self.engine.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::free(&engine, &volume, &instance, grace).await }).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (engine, volume, instance) = (self.engine.clone(), volume.clone(), instance.clone());
        self.to_the_end(async move { mounts::remove(&engine, &volume, &instance).await }).await
    }

    async fn keep(&self) -> Result<(), Error> {
        self.engine.private.again();
        // With none left, all of it is removed, and stays so.
        let _gate = self.engine.gate.lock().await;
        if self.engine.records().is_empty() {
            return Ok(());
        }
        self.engine.network.keep().await
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        observe::one(&self.engine, id)
    }

    async fn memory_kills(&self, id: &InstanceId) -> Result<Option<u64>, Error> {
        Ok(cgroups::memory_kills(&self.engine.places.cgroup(id)).ok())
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        volumes::one(&self.engine, id).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        let mut observed = observe::all(&self.engine)?;
        observed.volumes = volumes::all(&self.engine).await?;
        Ok(observed)
    }
}
