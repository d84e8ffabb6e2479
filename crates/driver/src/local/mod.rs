//! The local driver: instances are isolated environments on this host.
//!
//! Everything that belongs to an instance can be found again through its record, which is written before anything is
//! created and removed after everything else is gone. Whether an instance runs is asked of the kernel each time.
//! Nothing is mounted on the host: a root filesystem exists only in the mount namespace of its instance. The driver
//! knows neither requests nor the database.
//!
//! Start reading at [`LocalDriver`], then `instance`. `helper_process` talks to the [`helper`] process,
//! which builds an instance from the `host_image` or from container `images`, and from a `disk`;
//! [`network`] connects it. `volumes` are files in a pool of their own and outlive instances; `volume_users` finds the
//! processes that use one. `lxcfs` shows instances their own share of the host. `gpus` tracks which instance owns which
//! GPU and what it needs to use it. `host` is everything else the driver uses of the operating system.

mod capabilities;
mod disk;
pub mod examine;
mod gpus;
pub mod helper;
mod helper_process;
mod host;
mod host_image;
mod images;
pub mod installation;
mod instance;
mod local_host;
mod lxcfs;
pub mod network;
mod open;
mod protections;
pub mod restored_pool;
mod settings;
mod volume_users;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tarn_base::tasks::run_to_completion;
use tarn_model::capacity::Inventory;
use tarn_model::gpus::GpuObservation;
use tarn_model::ids::{InstanceId, VolumeId};

pub use images::{ImageSettings, Registry, is_loopback, probe_registry_login};
pub use protections::{Protection, Protections};
pub use settings::LocalSettings;

use crate::{
    Access, Capabilities, Driver, Error, GuestStream, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec, VolumeUser,
};
use host::{cgroups, processes};
use instance::{ensure, guest_calls, observe, remove, volume_mounts};
use local_host::LocalHost;

/// The driver that creates instances on this host.
#[derive(Clone)]
pub struct LocalDriver {
    host: Arc<LocalHost>,
}

impl LocalDriver {
    /// Loads the records of existing instances, removes leftovers of an engine that died, and returns a driver that is
    /// ready. The first call on a host creates the host image, which takes seconds.
    pub async fn open(settings: LocalSettings) -> Result<Self, Error> {
        Ok(LocalDriver { host: Arc::new(open::open_local_host(settings).await?) })
    }

    /// The id that marks everything of this installation on the host.
    pub fn installation(&self) -> &str {
        &self.host.paths.installation
    }
}

impl LocalDriver {
    async fn restore_network(&self) -> Result<(), Error> {
        // Without instances, the shared network resources are removed and stay removed.
        let _guard = self.host.shared_resources.lock().await;
        if self.host.records().is_empty() {
            return Ok(());
        }
        self.host.network.restore_isolation().await
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

    async fn gpus(&self) -> Result<GpuObservation, Error> {
        gpus::observe_gpus(&self.host).await
    }

    async fn host_boot(&self) -> Result<Option<String>, Error> {
        let boot = processes::boot_id()
            .map_err(|error| local_host::failed("the boot id of the host could not be read", &error))?;
        Ok(Some(boot))
    }

    async fn ensure_image(
        &self,
        reference: &str,
        share: &str,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String, Error> {
        images::ensure(&self.host, reference, share, progress).await
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        ensure::fetch_missing_image(&self.host, spec).await?;
        let (host, spec) = (self.host.clone(), spec.clone());
        run_to_completion(async move { ensure::ensure_instance(&host, &spec).await }).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        guest_calls::configure_guest(&self.host, id, access).await
    }

    async fn connect(&self, id: &InstanceId) -> Result<GuestStream, Error> {
        Ok(Box::new(guest_calls::connect_to_guest(&self.host, id).await?))
    }

    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let (host, id) = (self.host.clone(), id.clone());
        run_to_completion(async move { remove::remove_instance(&host, &id).await }).await
    }

    async fn pool(&self) -> Result<u64, Error> {
        volumes::volume_capacity(&self.host).await
    }

    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        let (host, spec) = (self.host.clone(), spec.clone());
        run_to_completion(async move { volumes::ensure_volume(&host, &spec).await }).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error> {
        let (host, id) = (self.host.clone(), id.clone());
        run_to_completion(async move { volumes::remove_volume(&host, &id).await }).await
    }

    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        run_to_completion(async move { volume_mounts::mount_volume(&host, &volume, &instance).await }).await
    }

    async fn volume_users(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<VolumeUser>, Error> {
        volume_mounts::list_volume_users(&self.host, volume, instance).await
    }

    async fn end_volume_users(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        grace: Duration,
    ) -> Result<Vec<VolumeUser>, Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        run_to_completion(async move { volume_mounts::end_volume_users(&host, &volume, &instance, grace).await }).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (host, volume, instance) = (self.host.clone(), volume.clone(), instance.clone());
        run_to_completion(async move { volume_mounts::unmount_volume(&host, &volume, &instance).await }).await
    }

    async fn restore_isolation(&self) -> Result<(), Error> {
        self.host.private_paths.again();
        let restored = self.restore_network().await;
        lxcfs::restore_files(&self.host).await;
        restored
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        observe::observe_instance(&self.host, id)
    }

    async fn memory_kills(&self, id: &InstanceId) -> Result<Option<u64>, Error> {
        Ok(cgroups::count_memory_kills(&self.host.paths.instance_cgroup(id)).ok())
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        volumes::observe_volume(&self.host, id).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        let mut observed = observe::observe_instances(&self.host)?;
        observed.volumes = volumes::observe_volumes(&self.host).await?;
        Ok(observed)
    }
}
