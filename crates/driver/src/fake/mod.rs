//! A driver that makes nothing real: its world is a file of its own, outside of the database and shared by every process
//! that opens the same directory.
//!
//! It is for tests, trials and simulations. Tests compare its file with the database through [`read_world`], and its
//! [`Settings`] make it slow and unreliable from a seed. Start reading at `FakeDriver::change`, the way of every verb;
//! `world`, `volumes`, `images` and `processes` are what the verbs do, `script` is what tests let happen, `file` how the world is kept
//! and `group` how calls share the wait for the disk.

mod checks;
mod file;
mod group;
mod images;
mod processes;
mod script;
mod settings;
mod volumes;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tarn_model::capacity::Inventory;
use tarn_model::gpus::{Look, Seen};
use tarn_model::ids::{InstanceId, VolumeId};
use tokio::sync::{Mutex, OwnedMutexGuard};

pub use file::read_world;
pub use settings::Settings;

use crate::gpus::{PATIENCE, Watch};
use crate::{
    Access, Capabilities, Driver, Error, GuestStream, Holder, InstanceSpec, Observed, ObservedInstance, ObservedVolume,
    VolumeSpec,
};
use file::WorldFile;
use group::Waiting;
use settings::{Fault, Turn};
use world::World;

/// The driver whose world is a file.
pub struct FakeDriver {
    file: Arc<WorldFile>,
    inventory: Arc<Inventory>,
    settings: Settings,
    live_mounts: bool,
    watch: Option<Arc<Watch>>,
    calls: AtomicU64,
    /// One call of this process at a time goes to the file; the others wait here and not on threads of their own.
    gate: Arc<Mutex<()>>,
    waiting: Waiting,
}

impl FakeDriver {
    /// Opens the world in `dir`, making an empty one where there is none. Blocks for a moment. The inventory is what the
    /// world has to give, and is the caller's to choose.
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

    /// The same driver, which cannot mount into running instances.
    pub fn without_live_mounts(self) -> Self {
        FakeDriver { live_mounts: false, ..self }
    }

    /// The same driver, which knows its GPUs and their faults from somebody who watches them. A process that uses one is always
    /// foreign, because instances have none.
    pub fn with_gpus(self, watch: Arc<Watch>) -> Self {
        FakeDriver { watch: Some(watch), ..self }
    }

    /// What there is to give now.
    fn present(&self) -> Arc<Inventory> {
        match &self.watch {
            Some(watch) => Arc::new(Inventory { gpus: watch.last(), ..Inventory::clone(&self.inventory) }),
            None => self.inventory.clone(),
        }
    }

    /// A changing verb: it may fail before its effect or after it, as a machine may.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (call, turn) = self.turn();
        pause(turn.before).await;
        if turn.fault == Some(Fault::Before) {
            return Err(Error::Retry(format!("a fault was injected before the effect of call {call}")));
        }
        let done = self.in_group(work).await?;
        pause(turn.after).await;
        if turn.fault == Some(Fault::After) {
            return Err(Error::Retry(format!("a fault was injected after the effect of call {call}")));
        }
        Ok(done)
    }

    /// An observing verb: it takes its time, but has no faults.
    async fn look<T: Send + 'static>(&self, work: impl FnOnce(&World) -> T + Send + 'static) -> Result<T, Error> {
        let (_, turn) = self.turn();
        pause(turn.before).await;
        let entered = self.gate.clone().lock_owned().await;
        let seen = self.on_file(entered, |file| file.look().map(|world| work(&world))).await??;
        pause(turn.after).await;
        Ok(seen)
    }

    fn turn(&self) -> (u64, Turn) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        (call, self.settings.turn(call))
    }

    /// Whoever comes first through the gate does the work of all that wait behind it.
    async fn in_group<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut answered = self.waiting.add(work);
        // Who was answered leaves the line at once, so that the next in it finds a large group and not the few calls that
        // came since.
        tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_else(|_| Err(stopping())),
            entered = self.gate.clone().lock_owned() => {
                if let Some(group) = self.waiting.take() {
                    self.on_file(entered, |file| group.run(file)).await?;
                }
            }
        }
        answered.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Runs what blocks on a thread for such things. The gate stays closed until it is done, also when nobody waits for
    /// it any more.
    async fn on_file<T: Send + 'static>(
        &self,
        entered: OwnedMutexGuard<()>,
        work: impl FnOnce(&WorldFile) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let file = self.file.clone();
        let work = move || {
            let _entered = entered;
            work(&file)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => Ok(done),
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) => Err(stopping()),
        }
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
        Ok(Inventory::clone(&self.present()))
    }

    async fn gpus(&self) -> Result<Look, Error> {
        match &self.watch {
            Some(watch) => watch.look_within(PATIENCE, |_, _| false).await,
            None => Ok(Look::complete(self.inventory.gpus.iter().cloned().map(Seen::plain).collect())),
        }
    }

    async fn machine_boot(&self) -> Result<Option<String>, Error> {
        self.look(|world| Some(world.reboots.to_string())).await
    }

    async fn ensure_image(&self, reference: &str, progress: &(dyn Fn(String) + Send + Sync)) -> Result<String, Error> {
        progress(format!("pulls {reference}: 0 of 1 MB, layer 1 of 1"));
        let name = images::name(reference)?;
        // The world knows no images: nothing changes there, but it takes its time and may fail like anything else.
        self.change(|_| Ok(())).await?;
        Ok(name)
    }

    async fn ensure_instance(&self, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
        let (spec, inventory) = (spec.clone(), self.present());
        self.change(move |world| world.ensure_instance(&spec, &inventory)).await
    }

    async fn configure_instance(&self, id: &InstanceId, access: &Access) -> Result<(), Error> {
        let (id, access) = (id.clone(), access.clone());
        self.change(move |world| world.configure_instance(&id, &access)).await
    }

    async fn connect(&self, _id: &InstanceId) -> Result<GuestStream, Error> {
        Err(Error::Unsupported("the fake driver makes no machines that could be connected to".into()))
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

    async fn holders(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Vec<Holder>, Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.look(move |world| world.holders(&volume, &instance)).await
    }

    /// Nothing here takes time, so that nobody needs the grace.
    async fn end_holders(&self, volume: &VolumeId, instance: &InstanceId, _: Duration) -> Result<Vec<Holder>, Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.change(move |world| Ok(world.end_holders(&volume, &instance))).await
    }

    async fn remove_mount(&self, volume: &VolumeId, instance: &InstanceId) -> Result<(), Error> {
        let (volume, instance) = (volume.clone(), instance.clone());
        self.change(move |world| world.remove_mount(&volume, &instance)).await
    }

    async fn observe_instance(&self, id: &InstanceId) -> Result<Option<ObservedInstance>, Error> {
        let id = id.clone();
        self.look(move |world| world.instances.get(&id).map(|instance| instance.observe())).await
    }

    async fn observe_volume(&self, id: &VolumeId) -> Result<Option<ObservedVolume>, Error> {
        let id = id.clone();
        self.look(move |world| world.volumes.get(&id).and_then(|volume| volume.observe())).await
    }

    async fn observe(&self) -> Result<Observed, Error> {
        self.look(|world| world.observe()).await
    }
}

/// The runtime ends and does not run what waits.
fn stopping() -> Error {
    Error::Retry("the engine is stopping".into())
}

async fn pause(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}

#[cfg(test)]
mod tests;
