//! A driver that creates nothing real: its world is a file, separate from the database and shared by every process that
//! opens the same directory.
//!
//! It is for tests, demonstrations and simulations. Tests compare its file with the database through [`read_world`],
//! and its [`Settings`] make it slow and unreliable from a seed. Start reading at `FakeDriver::change`, which every
//! changing method uses; `world`, `volumes`, `images` and `processes` implement the methods, `script` is what tests
//! make happen, `file` stores the world, and `group` lets calls share a sync.

mod checks;
mod file;
mod group;
mod script;
mod settings;
mod volumes;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tarn_base::tasks::join;
use tarn_model::capacity::Inventory;
use tarn_model::gpus::{GpuObservation, ObservedGpu};
use tarn_model::ids::{InstanceId, VolumeId};
use tokio::sync::{Mutex, OwnedMutexGuard};

pub use file::read_world;
pub use settings::Settings;

use crate::gpus::{LOOK_TIMEOUT, Watch};
use crate::{
    Access, Capabilities, Driver, Error, GuestStream, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec, VolumeUser,
};
use file::WorldFile;
use group::Waiting;
use settings::{CallPlan, Fault};
use world::World;

/// The driver whose world is a file.
pub struct FakeDriver {
    file: Arc<WorldFile>,
    inventory: Arc<Inventory>,
    settings: Settings,
    live_mounts: bool,
    watch: Option<Arc<Watch>>,
    calls: AtomicU64,
    /// One call of this process at a time uses the file; the others wait here instead of blocking threads.
    gate: Arc<Mutex<()>>,
    waiting: Waiting,
}

impl FakeDriver {
    /// Opens the world in `dir`, creating an empty one if there is none. Blocks briefly. The caller chooses the
    /// inventory.
    pub fn open(dir: impl AsRef<Path>, inventory: Inventory, settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        Ok(FakeDriver {
            file: Arc::new(WorldFile::open(dir.as_ref())?),
            inventory: Arc::new(inventory),
            settings,
            live_mounts: true,
            watch: None,
            calls: AtomicU64::new(0),
            gate: Arc::default(),
            waiting: Waiting::default(),
        })
    }

    /// Returns the driver without support for live mounts.
    pub fn without_live_mounts(self) -> Self {
        FakeDriver { live_mounts: false, ..self }
    }

    /// Returns the driver with GPUs and faults observed by a [`Watch`]. A process that uses one is always foreign,
    /// because instances have none.
    pub fn with_gpus(self, watch: Arc<Watch>) -> Self {
        FakeDriver { watch: Some(watch), ..self }
    }

    /// Returns the inventory with the GPUs last observed.
    fn current_inventory(&self) -> Arc<Inventory> {
        match &self.watch {
            Some(watch) => Arc::new(Inventory { gpus: watch.last(), ..Inventory::clone(&self.inventory) }),
            None => self.inventory.clone(),
        }
    }

    /// Makes a changing call, which may fail before or after its effect, as a real host may.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (call, plan) = self.next_call();
        sleep_unless_zero(plan.before).await;
        if plan.fault == Some(Fault::Before) {
            return Err(Error::Retry(format!("a fault was injected before the effect of call {call}")));
        }
        let done = self.run_in_group(work).await?;
        sleep_unless_zero(plan.after).await;
        if plan.fault == Some(Fault::After) {
            return Err(Error::Retry(format!("a fault was injected after the effect of call {call}")));
        }
        Ok(done)
    }

    /// Makes an observing call, which takes time but never fails by injection.
    async fn read_from_world<T: Send + 'static>(
        &self,
        work: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (_, plan) = self.next_call();
        sleep_unless_zero(plan.before).await;
        let entered = self.gate.clone().lock_owned().await;
        let seen = self.run_on_file(entered, |file| file.read_locked().map(|world| work(&world))).await?;
        sleep_unless_zero(plan.after).await;
        Ok(seen)
    }

    fn next_call(&self) -> (u64, CallPlan) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        (call, self.settings.plan_call(call))
    }

    /// The first task that gets the gate makes the calls of all that wait.
    async fn run_in_group<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut answered = self.waiting.add(work);
        // A task whose call is answered stops waiting for the gate at once, so the next holder of the gate finds a
        // large group and not only the few calls that were added since.
        tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_else(|_| Err(engine_stopping_error())),
            entered = self.gate.clone().lock_owned() => {
                if let Some(group) = self.waiting.take() {
                    self.run_on_file(entered, |file| group.run(file)).await;
                }
            }
        }
        answered.await.unwrap_or_else(|_| Err(engine_stopping_error()))
    }

    /// Runs blocking work on a blocking thread. The gate is held until it is done, even when the caller no longer
    /// waits.
    async fn run_on_file<T: Send + 'static>(
        &self,
        entered: OwnedMutexGuard<()>,
        work: impl FnOnce(&WorldFile) -> T + Send + 'static,
    ) -> T {
        let file = self.file.clone();
        let work = move || {
            let _entered = entered;
            work(&file)
        };
        join(tokio::task::spawn_blocking(work)).await
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { volumes: true, live_mounts: self.live_mounts, containers: true }
    }

    async fn inventory(&self) -> Result<Inventory, Error> {
        Ok(Inventory::clone(&self.current_inventory()))
    }

    async fn gpus(&self) -> Result<GpuObservation, Error> {
        match &self.watch {
            Some(watch) => watch.look_within(LOOK_TIMEOUT, |_, _| false).await,
            None => Ok(GpuObservation::complete(self.inventory.gpus.iter().cloned().map(ObservedGpu::plain).collect())),
        }
    }

    async fn host_boot(&self) -> Result<Option<String>, Error> {
        self.read_from_world(|world| Some(world.reboots.to_string())).await
    }

    async fn ensure_image(
        &self,
        reference: &str,
        _share: &str,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<String, Error> {
        progress(format!("pulls {reference}: 0 of 1 MB, layer 1 of 1"));
        let name = world::exact_image_name(reference)?;
        // The world has no images: nothing changes, but the call takes time and may fail like any other.
        self.change(|_| Ok(())).await?;
        Ok(name)
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        let (spec, inventory) = (spec.clone(), self.current_inventory());
        self.change(move |world| world.ensure_instance(&spec, &inventory)).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        let (id, access) = (id.clone(), access.clone());
        self.change(move |world| world.configure_instance(&id, &access)).await
    }

    async fn connect(&self, _id: &InstanceId) -> Result<GuestStream, Error> {
        Err(Error::Unsupported("the fake driver has no instances that can be connected to".into()))
    }

    async fn remove_instance(&self, id: &InstanceId) -> Result<(), Error> {
        let id = id.clone();
        self.change(move |world| world.remove_instance(&id)).await
    }

    async fn pool(&self) -> Result<u64, Error> {
        Ok(self.inventory.storage_bytes)
    }

    async fn ensure_volume(&self, spec: &VolumeSpec) -> Result<ObservedVolume, Error> {
        let spec = spec.clone();
        self.change(move |world| world.ensure_volume(&spec)).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), Error> {
        let id = id.clone();
        self.change(move |world| world.remove_volume(&id)).await
    }

    async fn ensure_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        if !self.live_mounts {
            return Err(Error::Unsupported("this fake driver cannot mount into running instances".into()));
        }
        let (volume, instance) = (volume.clone(), instance.clone());
        self.change(move |world| world.ensure_mount(&volume, &instance)).await
    }

    async fn volume_users(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<VolumeUser>, Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.read_from_world(move |world| world.volume_users(&volume, &instance)).await
    }

    /// Ending is immediate, so the grace period is not used.
    async fn end_volume_users(
        &self,
        volume: &VolumeId,
        instance: &InstanceId,
        _: Duration,
    ) -> Result<Vec<VolumeUser>, Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.change(move |world| Ok(world.end_volume_users(&volume, &instance))).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.change(move |world| world.remove_mount(&volume, &instance)).await
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        let id = id.clone();
        self.read_from_world(move |world| world.instances.get(&id).map(|instance| instance.observe())).await
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        let id = id.clone();
        self.read_from_world(move |world| world.volumes.get(&id).and_then(|volume| volume.observe())).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        self.read_from_world(|world| world.observe()).await
    }
}

/// The runtime shuts down and drops waiting work.
fn engine_stopping_error() -> Error {
    Error::Retry("the engine is stopping".into())
}

async fn sleep_unless_zero(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}

#[cfg(test)]
mod tests;
